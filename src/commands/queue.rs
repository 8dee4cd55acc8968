//! The `enqueue`, `cancel` and `retry` commands, which change queued and running runs.
//!
//! Each command is one step in the database, so that every tick, host timer and daemon sees it.
//! None of them starts a run itself.

use std::path::Path;

use jiff::tz::TimeZone;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{NewOccurrence, Origin, Recorded, Store};
use runner_jobs::dream::review;
use runner_jobs::overnight::OvernightSpec;

use super::overnight::own_output;
use super::runs::{self, RunJson};
use crate::cancel;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::{Ui, show, when};
use crate::config;
use crate::daemon::client;
use crate::env::Env;
use crate::project::{FILE, LoadedProject};

#[derive(Debug)]
pub struct EnqueueRequest<'a> {
    pub job: &'a str,
    /// Settings for this run, each as `key=value`.
    pub set: &'a [String],
    /// The earliest time at which the run may start.
    pub at: Option<&'a str>,
    /// The priority; a run with a higher number starts first.
    pub priority: Option<i32>,
    /// The run that must end before this one starts.
    pub after: Option<&'a str>,
    /// The key under which the job is queued only once.
    pub key: Option<&'a str>,
}

/// Puts a job into the queue.
pub fn enqueue(
    home: &Env,
    here: &Path,
    wish: &EnqueueRequest<'_>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    project.config.job(wish.job)?;
    let settings = settings(wish.set)?;
    // An invalid setting is refused here and not at night.
    let changed =
        config::load_with(&home.stack(Some(&project.root.join(FILE))), wish.job, &settings)?;
    if let Some(own) = changed.job(wish.job)?.spec.kind.of::<OvernightSpec>() {
        own_output(&project.root, own)?;
    }
    let now = home.wall()?;
    let zone = &project.config.job(wish.job)?.zone;
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let ready_at = match wish.at {
        Some(at) => match when::parse_time(at, &zone, now).map_err(Failure::usage)? {
            past if past < now => {
                return Err(Failure::usage(format!("{} is past", show::format_time(past)))
                    .hint(format!("runner enqueue {}", wish.job)));
            }
            at => at,
        },
        None => now,
    };
    let mut store = home.store()?;
    project.register(&mut store, now)?;
    let after = wish
        .after
        .map(|prefix| runs::find(&store, prefix).map(|row| row.occurrence))
        .transpose()?;
    let key =
        wish.key.map_or_else(|| OccurrenceId::new(now).to_string(), |key| format!("key {key}"));
    let new = NewOccurrence {
        origin: Origin::Queue,
        due: ready_at,
        priority: wish.priority,
        settings,
        ..NewOccurrence::manual(store.job(&project.id, wish.job)?.id, key, now)
    };
    let run = match store.enqueue(&new, ready_at, after.as_ref(), now)? {
        Recorded::New(run) => run,
        Recorded::Known(occurrence) => {
            ui.beside(listing).info(&format!("{} was already requested with this key", wish.job));
            let row = store.last_run_of(&occurrence)?;
            row.ok_or_else(|| Failure::internal("an occurrence without a run".to_owned()))?.id
        }
    };
    print_queued(home, &store, &run, ui, listing)
}

/// Cancels a run, or removes it from the queue.
pub fn cancel(home: &Env, run: &str, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let mut store = home.store()?;
    let row = runs::find(&store, run)?;
    let what = cancel::cancel(home, &mut store, &row.id, "manually")?;
    client::wake(home);
    if listing.json {
        show::json(&RunJson::of(&store.run(&row.id)?));
    } else {
        ui.info(&what);
    }
    Ok(Exit::Done)
}

/// Queues one more attempt for a run's occurrence.
pub fn retry(home: &Env, run: &str, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let mut store = home.store()?;
    let row = runs::find(&store, run)?;
    if row.kind == review::KIND {
        let what = format!("run {} records a person's decision; it cannot be retried", row.id);
        return Err(Failure::usage(what).hint("runner dream list"));
    }
    if store.occurrence(&row.occurrence)?.outcome.is_none() {
        let open = store.last_run_of(&row.occurrence)?.unwrap_or(row);
        return Err(Failure::data(format!(
            "{} is not over: run {} is {}",
            open.job_name,
            open.id,
            runs::state_name(&open)
        ))
        .hint(format!("runner runs show {}", open.id)));
    }
    let again = store.retry(&row.id, home.wall()?)?;
    print_queued(home, &store, &again, ui, listing)
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    set.iter()
        .map(|one| match one.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.to_owned()))
            }
            _ => Err(Failure::usage(format!("--set {one}: expected key=value"))),
        })
        .collect()
}

/// Wakes the daemon and prints the state of a queued run.
fn print_queued(
    home: &Env,
    store: &Store,
    run: &RunId,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    let row = store.run(run)?;
    if !client::wake(home) && row.outcome().is_none() {
        let how = "no daemon is running: the next `runner tick` starts it when its turn comes";
        ui.beside(listing).info(how);
    }
    if listing.json {
        show::json(&RunJson::of(&row));
        return Ok(Exit::Done);
    }
    let stands = match (row.outcome(), row.ready_at()) {
        (Some(Outcome::Skipped { why }), _) => format!("skipped: {why}"),
        (Some(outcome), _) => outcome.to_string(),
        (None, Some(_)) => format!("queued: {}", runs::waits(&row, row.requested)),
        (None, None) => runs::state_name(&row).to_owned(),
    };
    if ui.is_quiet() {
        show::out(&format!("{run}\n"));
    } else {
        show::out(&format!("{run} {} {stands}\n", row.job_name));
    }
    Ok(Exit::Done)
}
