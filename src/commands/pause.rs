//! `runner pause` and `runner resume`: pause and resume one job or all jobs.
//!
//! Every tick and the daemon read the pause from the database. Manual runs are not affected.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_engine::store::{FOREVER, JobRow, RunRow, Store};
use runner_engine::tick::record_due;
use runner_engine::zones;
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::daemon::client;
use crate::project::{self, LoadedProject};
use crate::ui::{Failure, Ui, View, show, when};

/// Pause a job, or everything, for a while; active runs continue, and manual requests still run
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner pause dream --until 08:00")]
pub struct PauseArgs {
    /// The job's name in runner.toml
    #[arg(required_unless_present = "all")]
    job: Option<String>,
    /// Pause everything, in all projects
    #[arg(long, conflicts_with = "job")]
    all: bool,
    /// Pause until this time, in the format of `enqueue --at` [default: until `runner resume`]
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

/// End a pause; scheduled times during the pause are recorded as missed, and no runs are started to
/// catch up
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner resume --all")]
pub struct ResumeArgs {
    /// The job's name in runner.toml
    #[arg(required_unless_present = "all")]
    job: Option<String>,
    /// End the pause for all jobs; a job that was paused by name stays paused
    #[arg(long, conflicts_with = "job")]
    all: bool,
}

/// The state of a job's pause, or of the pause for all jobs, after the command.
#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct PauseState {
    /// The job; `None` for all jobs.
    job: Option<String>,
    /// Whether the job is paused, by its own pause or by the pause for all jobs.
    paused: bool,
    /// The end of the pause, or `None` if it is indefinite.
    until: Option<Timestamp>,
    /// The live runs, which a pause does not stop.
    live: Vec<RunId>,
    #[serde(skip)]
    notices: Vec<String>,
}

impl View for PauseState {
    fn print(&self, ui: Ui) {
        for notice in &self.notices {
            ui.info(notice);
        }
    }
}

impl PauseArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let mut store = cli.env.store()?;
        let job = self.job.as_deref();
        let (id, zone) = match job {
            Some(job) => {
                let (row, project) = of_job(cli, &mut store, job)?;
                // A removed job keeps its schedule until the user accepts its removal.
                if let Some(project) = project.filter(|it| !it.trust.jobs.contains(job)) {
                    project.config.job(job)?;
                }
                (Some(row.id), row.schedule.zone)
            }
            None => (None, zones::system_name()),
        };
        let zone = zones::get(&zone).unwrap_or(TimeZone::UTC);
        let end = match &self.until {
            Some(until) => when::parse_time(until, &zone, now).map_err(Failure::usage)?,
            None => FOREVER,
        };
        if end <= now {
            return Err(Failure::usage(format!("{} is in the past", show::format_time(end))));
        }
        // Scheduled times up to now were due before the pause, so they are recorded first.
        let mut troubles = Vec::new();
        record_due(&mut store, id, (cli.env.last_tick(), now), &mut troubles)?;
        for trouble in troubles {
            show::complain(&trouble);
        }
        store.pause(id, end)?;
        client::wake(cli.env);
        let live = store.live()?.into_iter();
        let live: Vec<RunRow> = live.filter(|run| id.is_none_or(|id| run.job == id)).collect();
        let what = job.unwrap_or("everything");
        let mut notices = vec![format!("{what} is paused {}", describe_end(end, job))];
        if !live.is_empty() {
            let names = live.iter().map(|run| format!("{} (run {})", run.job_name, run.id));
            let names = names.collect::<Vec<_>>().join(", ");
            notices.push(format!("runs in progress are not stopped: {names}"));
        }
        cli.ui.show(&PauseState {
            job: self.job.clone(),
            paused: true,
            until: limited(end),
            live: live.into_iter().map(|run| run.id).collect(),
            notices,
        });
        Ok(Exit::Done)
    }
}

impl ResumeArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let now = cli.env.wall()?;
        let mut store = cli.env.store()?;
        let id = match &self.job {
            // A removed job's pause can be ended too.
            Some(job) => Some(of_job(cli, &mut store, job)?.0.id),
            None => None,
        };
        let ended = store.resume(id, now)?;
        client::wake(cli.env);
        let all = store.paused_until(now)?;
        let mut notice = match (&self.job, ended) {
            (Some(job), true) => format!("{job} is resumed"),
            (Some(job), false) => format!("{job} was not paused"),
            (None, true) => "the pause for all jobs has ended".to_owned(),
            (None, false) => "there was no pause for all jobs".to_owned(),
        };
        if self.job.is_some() && all.is_some() {
            notice.push_str(", but all jobs are still paused; fix: runner resume --all");
        }
        cli.ui.show(&PauseState {
            job: self.job.clone(),
            paused: all.is_some(),
            until: all.and_then(limited),
            live: Vec::new(),
            notices: vec![notice],
        });
        Ok(Exit::Done)
    }
}

/// Returns the end of a pause, or `None` if it is indefinite.
pub fn limited(end: Timestamp) -> Option<Timestamp> {
    (end < FOREVER).then_some(end)
}

/// Describes when a job's pause, or the pause for all jobs, ends.
pub fn describe_end(end: Timestamp, job: Option<&str>) -> String {
    limited(end).map_or_else(
        || format!("until you run `runner resume {}`", job.unwrap_or("--all")),
        |end| format!("until {}", show::format_time(end)),
    )
}

/// Returns the job's row, updated from the project's files, and the project. If the files cannot be
/// read, returns only the stored row, so that the job can still be paused. The job may no longer
/// exist in the configuration.
fn of_job(
    cli: &Cli<'_>,
    store: &mut Store,
    job: &str,
) -> Result<(JobRow, Option<LoadedProject>), Failure> {
    let fresh = LoadedProject::load(cli.env, cli.here).and_then(|project| {
        project.register(store, cli.env.wall()?)?;
        Ok(project)
    });
    match fresh {
        Ok(project) => Ok((project::job_of(store, &project.id, job)?, Some(project))),
        Err(failure) => {
            let Ok(kept) = project::kept(cli.env, store, cli.here) else { return Err(failure) };
            show::complain(&failure.to_string());
            Ok((project::job_of(store, &kept.row.id, job)?, None))
        }
    }
}
