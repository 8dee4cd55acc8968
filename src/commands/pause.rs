//! The `runner pause` and `runner resume` commands: pause and resume one job, or all jobs.
//!
//! Each command is one step in the database that every tick, host timer and daemon respects. Manual
//! runs are not affected.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_engine::store::{FOREVER, JobRow, RunRow, Store};
use runner_engine::tick::record_due;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::{Ui, show, when};
use crate::daemon::client;
use crate::env::Env;
use crate::project::{self, LoadedProject};

/// Pauses a job, or all jobs.
pub fn pause(
    home: &Env,
    here: &Path,
    job: Option<&str>,
    until: Option<&str>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut store = home.store()?;
    let (id, zone) = match job {
        Some(job) => {
            let row = of_job(home, here, &mut store, job)?;
            (Some(row.id), row.schedule.zone)
        }
        None => (None, TimeZone::system().iana_name().unwrap_or("UTC").to_owned()),
    };
    let zone = TimeZone::get(&zone).unwrap_or(TimeZone::UTC);
    let end = match until {
        Some(until) => when::parse_time(until, &zone, now).map_err(Failure::usage)?,
        None => FOREVER,
    };
    if end <= now {
        return Err(Failure::usage(format!("{} is past", show::format_time(end))));
    }
    // Scheduled times up to now were due before the pause, so they are recorded first.
    let mut troubles = Vec::new();
    record_due(&mut store, id, now, &mut troubles)?;
    for trouble in troubles {
        show::complain(&trouble);
    }
    store.pause(id, end)?;
    client::wake(home);
    let live = store.live()?.into_iter();
    let live: Vec<RunRow> = live.filter(|run| id.is_none_or(|id| run.job == id)).collect();
    if listing.json {
        show::json(&PauseJson {
            job,
            paused: true,
            until: limited(end),
            live: live.iter().map(|run| &run.id).collect(),
        });
        return Ok(Exit::Done);
    }
    let what = job.unwrap_or("everything");
    ui.info(&format!("{what} is paused {}", until_words(end, job)));
    if !live.is_empty() {
        let names = live.iter().map(|run| format!("{} (run {})", run.job_name, run.id));
        let names = names.collect::<Vec<_>>().join(", ");
        ui.info(&format!("runs in progress are not stopped: {names}"));
    }
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct PauseJson<'a> {
    /// The job; `None` for all jobs.
    job: Option<&'a str>,
    /// Whether the job is paused now, by its own pause or by the pause of all jobs.
    paused: bool,
    /// The end of the pause; `None` for a pause without an end.
    until: Option<Timestamp>,
    /// The active runs, which continue to their end.
    live: Vec<&'a RunId>,
}

/// Returns the end of a pause, or `None` if it has no end.
pub fn limited(end: Timestamp) -> Option<Timestamp> {
    (end < FOREVER).then_some(end)
}

/// Describes the end of a job's pause, or of the pause of all jobs.
pub fn until_words(end: Timestamp, job: Option<&str>) -> String {
    limited(end).map_or_else(
        || format!("until `runner resume {}`", job.unwrap_or("--all")),
        |end| format!("until {}", show::format_time(end)),
    )
}

/// Ends a pause.
pub fn resume(
    home: &Env,
    here: &Path,
    job: Option<&str>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut store = home.store()?;
    let id = match job {
        Some(job) => Some(of_job(home, here, &mut store, job)?.id),
        None => None,
    };
    let ended = store.resume(id, now)?;
    client::wake(home);
    let what = job.unwrap_or("everything");
    let all = store.paused_until(now)?;
    if listing.json {
        show::json(&PauseJson {
            job,
            paused: all.is_some(),
            until: all.and_then(limited),
            live: Vec::new(),
        });
        return Ok(Exit::Done);
    }
    match (ended, all) {
        (_, Some(_)) if id.is_some() => {
            ui.info(&format!("{what} may run again, but everything is paused: runner resume --all"))
        }
        (true, _) => ui.info(&format!("{what} goes on")),
        (false, _) => ui.info(&format!("{what} was not paused")),
    }
    Ok(Exit::Done)
}

/// Returns the job from the database. The row is updated if the project's files can be read.
/// Otherwise the stored row is used, because a pause is most important in that case.
fn of_job(home: &Env, here: &Path, store: &mut Store, job: &str) -> Result<JobRow, Failure> {
    let fresh = LoadedProject::load(home, here).and_then(|project| {
        project.register(store, home.wall()?)?;
        Ok(project)
    });
    let id = match fresh {
        Ok(project) => {
            project.config.job(job)?;
            project.id
        }
        Err(failure) => {
            let Ok(kept) = project::kept(home, store, here) else {
                return Err(failure);
            };
            show::complain(&failure.to_string());
            kept.row.id
        }
    };
    project::job_of(store, &id, job)
}
