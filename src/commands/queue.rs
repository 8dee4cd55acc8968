//! `enqueue`, `cancel`, `retry`: what a person changes about what waits and runs.
//!
//! Each is one step in the ledger, so that every tick, host timer and daemon obeys it; none of them
//! starts a run itself.

use std::path::Path;

use jiff::tz::TimeZone;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::ledger::{Ledger, NewOccurrence, Origin, Recorded};
use runner_engine::outcome::{Exit, Outcome};
use runner_jobs::KindSpec;
use runner_jobs::dream::review;

use super::overnight::own_output;
use super::runs::{self, RunJson};
use crate::cancel;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::{show, when};
use crate::config;
use crate::daemon::client;
use crate::home::Home;
use crate::project::{FILE, Here};

/// What somebody wants to be run.
#[derive(Debug)]
pub struct Wish<'a> {
    /// The job's name.
    pub job: &'a str,
    /// `key=value`, each.
    pub set: &'a [String],
    /// Not before.
    pub at: Option<&'a str>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// The run to follow.
    pub after: Option<&'a str>,
    /// Once for this key.
    pub key: Option<&'a str>,
}

/// Puts a job into the queue.
pub fn enqueue(
    home: &Home,
    here: &Path,
    wish: &Wish<'_>,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = Here::load(home, here)?;
    project.config.job(wish.job)?;
    let settings = settings(wish.set)?;
    // A setting that means nothing is refused here, not at night.
    let changed = config::load_with(
        &home.stack(Some(&project.root.join(FILE))),
        wish.job,
        &settings,
    )?;
    if let KindSpec::Overnight(own) = &changed.job(wish.job)?.spec.kind {
        own_output(&project.root, own)?;
    }
    let now = home.wall()?;
    let zone = &project.config.job(wish.job)?.zone;
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let ready_at = match wish.at {
        Some(at) => match when::moment(at, &zone, now).map_err(Failure::usage)? {
            past if past < now => {
                return Err(Failure::usage(format!("{} is past", show::moment(past)))
                    .mend(format!("runner enqueue {}", wish.job)));
            }
            at => at,
        },
        None => now,
    };
    let mut ledger = home.ledger()?;
    project.register(&mut ledger, now)?;
    let after = wish
        .after
        .map(|prefix| runs::find(&ledger, prefix).map(|row| row.occurrence))
        .transpose()?;
    let key = wish.key.map_or_else(
        || OccurrenceId::new(now).to_string(),
        |key| format!("key {key}"),
    );
    let new = NewOccurrence {
        origin: Origin::Queue,
        due: ready_at,
        priority: wish.priority,
        settings,
        ..NewOccurrence::by_hand(ledger.job(&project.id, wish.job)?.id, key, now)
    };
    let run = match ledger.enqueue(&new, ready_at, after.as_ref(), now)? {
        Recorded::New(run) => run,
        Recorded::Known(occurrence) => {
            show::say(
                quiet || listing.json,
                &format!("{} was asked for with this key before", wish.job),
            );
            let row = ledger.last_run_of(&occurrence)?;
            row.ok_or_else(|| Failure::internal("an occurrence without a run".to_owned()))?
                .id
        }
    };
    tell(home, &ledger, &run, quiet, listing)
}

/// Ends a run, or takes it out of the queue.
pub fn cancel(home: &Home, run: &str, quiet: bool, listing: Listing) -> Result<Exit, Failure> {
    let mut ledger = home.ledger()?;
    let row = runs::find(&ledger, run)?;
    let what = cancel::cancel(home, &mut ledger, &row.id, "by hand")?;
    client::wake(home);
    if listing.json {
        show::json(&RunJson::of(&ledger.run(&row.id)?));
    } else {
        show::say(quiet, &what);
    }
    Ok(Exit::Done)
}

/// Puts one more attempt into the queue.
pub fn retry(home: &Home, run: &str, quiet: bool, listing: Listing) -> Result<Exit, Failure> {
    let mut ledger = home.ledger()?;
    let row = runs::find(&ledger, run)?;
    if row.kind == review::KIND {
        let what = format!(
            "run {} was a person's decision; it cannot be tried again",
            row.id
        );
        return Err(Failure::usage(what).mend("runner dream list"));
    }
    if ledger.occurrence(&row.occurrence)?.outcome.is_none() {
        let open = ledger.last_run_of(&row.occurrence)?.unwrap_or(row);
        return Err(Failure::data(format!(
            "{} is not over: run {} is {}",
            open.job_name,
            open.id,
            runs::word(&open)
        ))
        .mend(format!("runner runs show {}", open.id)));
    }
    let again = ledger.retry(&row.id, home.wall()?)?;
    tell(home, &ledger, &again, quiet, listing)
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    set.iter()
        .map(|one| match one.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.to_owned()))
            }
            _ => Err(Failure::usage(format!(
                "--set {one}: a setting is given as key=value"
            ))),
        })
        .collect()
}

/// Wakes the daemon and says how a run that was put into the queue stands.
fn tell(
    home: &Home,
    ledger: &Ledger,
    run: &RunId,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let row = ledger.run(run)?;
    if !client::wake(home) && row.outcome.is_none() {
        let how = "no daemon is running: the next `runner tick` starts it when its turn comes";
        show::say(quiet || listing.json, how);
    }
    if listing.json {
        show::json(&RunJson::of(&row));
        return Ok(Exit::Done);
    }
    let stands = match (&row.outcome, row.ready_at) {
        (Some(Outcome::Skipped { why }), _) => format!("skipped: {why}"),
        (Some(outcome), _) => outcome.to_string(),
        (None, Some(_)) => format!("queued: {}", runs::waits(&row, row.requested)),
        (None, None) => runs::word(&row).to_owned(),
    };
    if quiet {
        show::out(&format!("{run}\n"));
    } else {
        show::out(&format!("{run} {} {stands}\n", row.job_name));
    }
    Ok(Exit::Done)
}
