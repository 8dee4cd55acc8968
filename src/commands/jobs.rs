//! `runner jobs`: lists jobs, shows one, resets the failures of one.
//!
//! This module must never change the history of a job's runs; the reset itself is recorded.

use std::path::Path;

use jiff::Timestamp;
use runner_engine::admission::stopped;
use runner_engine::outcome::Exit;
use runner_engine::store::Streak;
use runner_jobs::failmark;
use serde::Serialize;

use crate::cli::args::{JobsCommand, Listing};
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::daemon::client;
use crate::env::{self, Env};
use crate::project::LoadedProject;

/// The JSON form of a job.
#[derive(Debug, Serialize)]
struct JobJson {
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

/// Carries out one of the `jobs` commands.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&JobsCommand>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    match command {
        None => list(home, here, listing),
        Some(JobsCommand::List { listing }) => list(home, here, *listing),
        Some(JobsCommand::Show { job, listing }) => show_job(home, here, job, *listing),
        Some(JobsCommand::Reset { job, listing, .. }) => {
            reset(home, here, job.as_deref(), ui, *listing)
        }
    }
}

fn jobs(home: &Env, project: &LoadedProject) -> Result<Vec<JobJson>, Failure> {
    let (store, now) = (home.store_to_read()?, home.wall()?);
    let recorded = match &store {
        Some(store) => store.jobs(&project.id)?,
        None => Vec::new(),
    };
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
            // The next tick records the job.
            None if row.enabled => row.schedule.next_after(now, now).ok().flatten(),
            None => None,
        };
        jobs.push(JobJson {
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

fn list(home: &Env, here: &Path, listing: Listing) -> Result<Exit, Failure> {
    let jobs = jobs(home, &LoadedProject::load(home, here)?)?;
    if listing.json {
        show::json(&jobs);
        return Ok(Exit::Done);
    }
    let mut rows = vec![
        ["job", "kind", "enabled", "failures", "next due", "schedule"].map(str::to_owned).to_vec(),
    ];
    for job in jobs {
        rows.push(vec![
            job.job,
            job.kind,
            if job.enabled { "yes" } else { "no" }.to_owned(),
            job.failures.to_string(),
            job.next_due.map_or_else(|| "-".to_owned(), show::format_time),
            job.schedule,
        ]);
    }
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

fn show_job(home: &Env, here: &Path, name: &str, listing: Listing) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    project.config.job(name)?;
    let found = jobs(home, &project)?.into_iter().find(|job| job.job == name);
    let Some(job) = found else {
        return Ok(Exit::Done);
    };
    if listing.json {
        show::json(&job);
        return Ok(Exit::Done);
    }
    let date = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), show::format_time);
    let rows = [
        ("job", job.job),
        ("kind", job.kind),
        ("enabled", if job.enabled { "yes" } else { "no" }.to_owned()),
        ("schedule", job.schedule),
        ("next due", date(job.next_due)),
        ("paused until", date(job.paused_until)),
        ("failures", job.failures.to_string()),
        ("stopped", if job.stopped { "yes" } else { "no" }.to_owned()),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct ResetJson {
    job: String,
    /// The number of consecutive failures that were reset.
    failures: u32,
    /// Whether the circuit breaker kept schedules from starting the job.
    was_stopped: bool,
    /// Whether a failure marker was removed.
    failmark: bool,
    /// The number of open alerts of the job that ended.
    alerts: u32,
}

/// Removes the failure marker and resets the failures of one job, or of all jobs of the project.
fn reset(
    home: &Env,
    here: &Path,
    job: Option<&str>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
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
        let failmark = failmark::remove(&here.root, &here.config.job(name)?.spec)
            .map_err(|error| Failure::cannot_write(format!("the failmark of {name}: {error}")))?;
        if failures > 0 || failmark || alerts > 0 || job.is_some() {
            done.push(ResetJson { job: name.to_owned(), failures, was_stopped, failmark, alerts });
        }
    }
    client::wake(home);
    if listing.json {
        show::json(&done);
        return Ok(Exit::Done);
    }
    if done.is_empty() {
        ui.info("nothing to acknowledge");
    }
    for ack in &done {
        let text = match (ack.failures, ack.failmark, ack.was_stopped) {
            (0, false, _) if ack.alerts > 0 => "its alerts are closed".to_owned(),
            (0, false, _) => "nothing to acknowledge".to_owned(),
            (0, true, _) => "its failmark is removed".to_owned(),
            (n, _, true) => format!(
                "acknowledged {} in a row; its schedule starts it again",
                show::count(n.into(), "failure")
            ),
            (n, _, false) => {
                format!("acknowledged {} in a row", show::count(n.into(), "failure"))
            }
        };
        ui.info(&format!("{}: {text}", ack.job));
    }
    Ok(Exit::Done)
}
