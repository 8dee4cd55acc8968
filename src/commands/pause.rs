//! `pause`, `resume`: holding a job, or everything, for a while.
//!
//! Each is one step in the ledger, obeyed by every tick, host timer and daemon; what a person runs by
//! hand is run all the same.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::ids::RunId;
use runner_engine::ledger::{FOREVER, JobRow, Ledger, RunRow};
use runner_engine::outcome::Exit;
use runner_engine::tick::record_due;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::{show, when};
use crate::daemon::client;
use crate::home::Home;
use crate::project::{self, Here};

/// Pauses a job, or everything.
pub fn pause(
    home: &Home,
    here: &Path,
    job: Option<&str>,
    until: Option<&str>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut ledger = home.ledger()?;
    let (id, zone) = match job {
        Some(job) => {
            let row = of_job(home, here, &mut ledger, job)?;
            (Some(row.id), row.schedule.zone)
        }
        None => (
            None,
            TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
        ),
    };
    let zone = TimeZone::get(&zone).unwrap_or(TimeZone::UTC);
    let end = match until {
        Some(until) => when::moment(until, &zone, now).map_err(Failure::usage)?,
        None => FOREVER,
    };
    if end <= now {
        return Err(Failure::usage(format!("{} is past", show::moment(end))));
    }
    // What is due by now was due before the pause.
    let mut troubles = Vec::new();
    record_due(&mut ledger, id, now, &mut troubles)?;
    for trouble in troubles {
        show::complain(&trouble);
    }
    ledger.pause(id, end)?;
    client::wake(home);
    let live = ledger.live()?.into_iter();
    let live: Vec<RunRow> = live
        .filter(|run| id.is_none_or(|id| run.job == id))
        .collect();
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
    show::say(
        quiet,
        &format!("{what} is paused {}", until_words(end, job)),
    );
    if !live.is_empty() {
        let names = live
            .iter()
            .map(|run| format!("{} (run {})", run.job_name, run.id));
        let names = names.collect::<Vec<_>>().join(", ");
        show::say(quiet, &format!("what runs goes on to its end: {names}"));
    }
    Ok(Exit::Done)
}

/// A pause, for scripts.
#[derive(Debug, Serialize)]
struct PauseJson<'a> {
    /// The job; absent for everything.
    job: Option<&'a str>,
    /// Whether it is held now, by its own pause or by that of everything.
    paused: bool,
    /// Until when; absent for one without an end.
    until: Option<Timestamp>,
    /// What runs and goes on to its end.
    live: Vec<&'a RunId>,
}

/// The end of a pause, if it has one.
pub fn limited(end: Timestamp) -> Option<Timestamp> {
    (end < FOREVER).then_some(end)
}

/// The end of the pause of a job, or of everything, in words.
pub fn until_words(end: Timestamp, job: Option<&str>) -> String {
    limited(end).map_or_else(
        || format!("until `runner resume {}`", job.unwrap_or("--all")),
        |end| format!("until {}", show::moment(end)),
    )
}

/// Ends a pause.
pub fn resume(
    home: &Home,
    here: &Path,
    job: Option<&str>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut ledger = home.ledger()?;
    let id = match job {
        Some(job) => Some(of_job(home, here, &mut ledger, job)?.id),
        None => None,
    };
    let ended = ledger.resume(id, now)?;
    client::wake(home);
    let what = job.unwrap_or("everything");
    let all = ledger.paused_until(now)?;
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
        (_, Some(_)) if id.is_some() => show::say(
            quiet,
            &format!("{what} may run again, but everything is paused: runner resume --all"),
        ),
        (true, _) => show::say(quiet, &format!("{what} goes on")),
        (false, _) => show::say(quiet, &format!("{what} was not paused")),
    }
    Ok(Exit::Done)
}

/// The job as the ledger has it: brought up to date where the project's files can be read, and as it
/// was where they cannot, for a job must be held back most of all then.
fn of_job(home: &Home, here: &Path, ledger: &mut Ledger, job: &str) -> Result<JobRow, Failure> {
    let fresh = Here::load(home, here).and_then(|project| {
        project.register(ledger, home.wall()?)?;
        Ok(project)
    });
    let id = match fresh {
        Ok(project) => {
            project.config.job(job)?;
            project.id
        }
        Err(failure) => {
            let Ok(kept) = project::kept(home, ledger, here) else {
                return Err(failure);
            };
            show::complain(&failure.to_string());
            kept.row.id
        }
    };
    project::job_of(ledger, &id, job)
}
