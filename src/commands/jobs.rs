//! `runner jobs`: lists the jobs, shows one job, and resets a job's failures.
//!
//! A reset must never change the history of a job's runs.

use jiff::Timestamp;
use runner_engine::admission::stopped;
use runner_engine::outcome::Exit;
use runner_engine::store::Streak;
use runner_jobs::failmark;
use serde::Serialize;

use super::Cli;
use crate::daemon::client;
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// List jobs, show one, or reset one whose cause of failure is fixed [default: list]
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner jobs --json | jq -r '.[] | select(.failures > 0) | .job'"
)]
pub struct JobsArgs {
    #[command(subcommand)]
    command: Option<JobsCommand>,
}

/// Manages the jobs of a project.
#[derive(Debug, clap::Subcommand)]
enum JobsCommand {
    /// List the jobs of the project
    #[command(after_help = "Example: runner jobs list --json | jq -r '.[].job'")]
    List,
    /// Show one job: its kind, its schedule and its failures
    #[command(after_help = "Example: runner jobs show dream")]
    Show {
        /// The job's name in runner.toml
        job: String,
    },
    /// Reset the failures of a job, so that its schedule starts it again
    ///
    /// The failure marker is removed, the circuit breaker is closed and open alerts of the job end. The
    /// database records who did so.
    #[command(after_help = "Example: runner jobs reset dream")]
    Reset {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// All jobs of the project
        #[arg(long, conflicts_with = "job")]
        all: bool,
    },
}

#[derive(Debug, Serialize)]
struct JobView {
    job: String,
    kind: String,
    /// Whether schedules and nights start the job.
    enabled: bool,
    schedule: String,
    next_due: Option<Timestamp>,
    paused_until: Option<Timestamp>,
    /// The number of consecutive failures since the last success or reset.
    failures: u32,
    /// Whether the circuit breaker keeps schedules from starting the job.
    stopped: bool,
}

impl JobsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        match &self.command {
            None | Some(JobsCommand::List) => {
                cli.ui.show(&JobList(jobs(cli.env, &project)?));
            }
            Some(JobsCommand::Show { job, .. }) => {
                project.config.job(job)?;
                let all = jobs(cli.env, &project)?;
                let shown = all.into_iter().find(|one| one.job == *job);
                cli.ui.show(&shown.ok_or_else(|| {
                    Failure::internal(format!("{job} is configured and not listed"))
                })?);
            }
            Some(JobsCommand::Reset { job, .. }) => {
                cli.ui.show(&reset(cli.env, &project, job.as_deref())?);
            }
        }
        Ok(Exit::Done)
    }
}

fn jobs(home: &Env, project: &LoadedProject) -> Result<Vec<JobView>, Failure> {
    let (store, now) = (home.store_to_read()?, home.wall()?);
    let recorded =
        store.as_ref().map(|store| store.jobs(&project.id)).transpose()?.unwrap_or_default();
    let mut jobs = Vec::new();
    for row in project.config.job_rows()? {
        if !project.config.jobs.contains_key(&row.name) {
            continue;
        }
        let known = recorded.iter().find(|known| known.name == row.name);
        let streak = match (&store, known) {
            (Some(store), Some(known)) => store.streak(known.id)?,
            _ => Streak::default(),
        };
        let next_due = match known {
            Some(known) => known.next_due,
            // The job is not in the database until the next tick.
            None if row.enabled => row.schedule.next_after(now, now).ok().flatten(),
            None => None,
        };
        jobs.push(JobView {
            job: row.name,
            kind: row.kind,
            enabled: row.enabled,
            schedule: row.schedule.describe(),
            next_due,
            paused_until: known.and_then(|known| known.paused_until),
            failures: streak.failures,
            stopped: stopped(streak),
        });
    }
    Ok(jobs)
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct JobList(Vec<JobView>);

impl View for JobList {
    fn print(&self, _ui: Ui) {
        let mut rows =
            vec![show::row(["job", "kind", "enabled", "failures", "next due", "schedule"])];
        rows.extend(self.0.iter().map(|job| {
            show::row([
                &job.job,
                &job.kind,
                yes_or_no(job.enabled),
                &job.failures.to_string(),
                &when(job.next_due),
                &job.schedule,
            ])
        }));
        show::out(&show::table(&rows));
    }
}

impl View for JobView {
    fn print(&self, _ui: Ui) {
        let rows = [
            ["job", &self.job],
            ["kind", &self.kind],
            ["enabled", yes_or_no(self.enabled)],
            ["schedule", &self.schedule],
            ["next due", &when(self.next_due)],
            ["paused until", &when(self.paused_until)],
            ["failures", &self.failures.to_string()],
            ["stopped", yes_or_no(self.stopped)],
        ];
        show::out(&show::table(&rows.map(show::row)));
    }
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn when(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), show::format_time)
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Resets(Vec<ResetJob>);

#[derive(Debug, Serialize)]
struct ResetJob {
    job: String,
    /// The number of consecutive failures that were reset.
    failures: u32,
    /// Whether the circuit breaker kept schedules from starting the job.
    was_stopped: bool,
    /// Whether a failure marker was removed.
    failmark: bool,
    /// The number of the job's alerts that the reset ended.
    alerts: u32,
}

impl View for Resets {
    fn print(&self, ui: Ui) {
        if self.0.is_empty() {
            ui.info("nothing to acknowledge");
        }
        for one in &self.0 {
            let failures = show::count(one.failures.into(), "consecutive failure");
            let text = match (one.failures, one.failmark, one.was_stopped) {
                (0, false, _) if one.alerts > 0 => "open alerts closed".to_owned(),
                (0, false, _) => "nothing to acknowledge".to_owned(),
                (0, true, _) => "failure marker removed".to_owned(),
                (_, _, true) => {
                    format!("acknowledged {failures}; the schedule starts the job again")
                }
                (_, _, false) => format!("acknowledged {failures}"),
            };
            ui.info(&format!("{}: {text}", one.job));
        }
    }
}

/// Removes the failure marker, resets the failures and ends the alerts of one job, or of all jobs
/// of the project.
fn reset(home: &Env, here: &LoadedProject, job: Option<&str>) -> Result<Resets, Failure> {
    let now = home.wall()?;
    let names: Vec<&str> = match job {
        Some(job) => {
            here.config.job(job)?;
            vec![job]
        }
        None => here.config.jobs.keys().map(String::as_str).collect(),
    };
    let mut store = home.store()?;
    here.register(&mut store, now)?;
    let mut done = Vec::new();
    for name in names {
        let row = store.job(&here.id, name)?;
        let was_stopped = stopped(store.streak(row.id)?);
        let who = env::person();
        let failures = store.acknowledge(&here.id, row.id, name, &who, now)?;
        let alerts = store.end_alerts(row.id, &who, now)?;
        let failmark =
            failmark::remove(&here.root, &here.config.job(name)?.spec).map_err(|error| {
                Failure::cannot_write(format!("the failure marker of {name}: {error}"))
            })?;
        if failures > 0 || failmark || alerts > 0 || job.is_some() {
            done.push(ResetJob { job: name.to_owned(), failures, was_stopped, failmark, alerts });
        }
    }
    client::wake(home);
    Ok(Resets(done))
}
