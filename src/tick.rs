//! One tick of all projects, as the daemon and `runner tick` both make it.
//!
//! It reads changed configuration again, ticks the engine, and updates the failmarks of the settled
//! runs. It must never start a run: it returns the runs to start.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{Store, gone, why_gone};
use runner_engine::tick::{Tick, tick};

use crate::alerts;
use crate::doctor;
use crate::env::Env;
use crate::project::{self, LoadedProject, StampBase};
use crate::spawn;
use crate::ui::Failure;

/// The configuration that a tick reads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread {
    /// Reads the projects whose files have another stat than at the last read.
    WhatChanged,
    All,
}

/// The result of a tick.
#[derive(Clone, Debug, Default)]
pub struct TickResult {
    /// The runs to start now, oldest first.
    pub start: Vec<RunId>,
    /// Whether live runs were asked to end. Runs that wait for them are ready once they have ended.
    pub ending: bool,
    /// Runs that were settled for their dead owners, each with its outcome as text.
    pub settled: Vec<(RunId, String)>,
    /// Errors of a single run or job, which did not stop the rest of the tick.
    pub troubles: Vec<String>,
    /// Projects whose configuration cannot be read, by path, with the reason. Such a project keeps
    /// its jobs.
    pub unreadable: BTreeMap<String, String>,
}

/// Updates the database from the files of all projects, so that changes count from now on. Returns
/// the projects that could not be read, by path. Does not tick.
pub fn reread(home: &Env, store: &mut Store) -> Result<BTreeMap<String, String>, Failure> {
    let mut unreadable = BTreeMap::new();
    refresh(home, store, Reread::WhatChanged, &mut unreadable)?;
    Ok(unreadable)
}

/// Runs one tick.
pub fn once(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    reread: Reread,
) -> Result<TickResult, Failure> {
    let mut unreadable = BTreeMap::new();
    refresh(home, store, reread, &mut unreadable)?;
    let Tick { start, end, settled, mut troubles, swept } =
        tick(store, &spawn::driver(home, me), home.now()?)?;
    for run in &end {
        spawn::end(store, run)?;
    }
    for run in settled.iter().map(|(run, _)| run).chain(&swept) {
        // An error here must not prevent the runs that are to be started.
        if let Err(failure) = spawn::mark(home, store, run) {
            troubles.push(format!("run {run}: {failure}"));
        }
    }
    home.note_tick(home.wall()?);
    doctor::sandbox::note(home);
    let good = troubles.is_empty() && unreadable.is_empty();
    troubles.extend(alerts::after_tick(home, store, good)?);
    Ok(TickResult { start, ending: !end.is_empty(), settled, troubles, unreadable })
}

/// The next event that a tick will find, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTick {
    /// The job that a clock makes due, or a description of another event.
    pub what: String,
    pub at: Timestamp,
}

/// Returns the next time at which a tick finds work by itself, over all projects.
pub fn next(store: &Store, now: Timestamp) -> Result<Option<NextTick>, Failure> {
    let Some(at) = store.next_moment(now)? else { return Ok(None) };
    let what = store.job_due_at(at)?;
    Ok(Some(NextTick { what: what.unwrap_or_else(|| "what waits".to_owned()), at }))
}

/// Reads the configuration of projects whose files have changed. A project with a bad configuration
/// keeps its old jobs and is reported once per tick.
fn refresh(
    home: &Env,
    store: &mut Store,
    reread: Reread,
    bad: &mut BTreeMap<String, String>,
) -> Result<(), Failure> {
    let stamps = StampBase::of(home);
    for known in store.projects()? {
        let stamp = stamps.of_project(&known.path);
        let known_stamps = [&stamp, &project::untrusted(&stamp)];
        if reread == Reread::WhatChanged && known_stamps.contains(&&known.config_stamp) {
            continue;
        }
        let path = known.path.display().to_string();
        let standing = project::standing_of_row(&known);
        if let Some((what, hint)) = standing.trouble(&known.path, &known.id) {
            // The problem is reported once. Scheduled times in the meantime are recorded as missed,
            // with this reason.
            if why_gone(&known.config_stamp).is_none() {
                store.set_config_stamp(&known.id, &gone(&what))?;
                bad.insert(path, format!("{what}\n  fix: {hint}"));
            }
            continue;
        }
        let fresh = LoadedProject::at(home, Some(store), &known.path)
            .and_then(|here| here.register(store, home.wall()?).and_then(|()| here.trusted()));
        if let Err(failure) = fresh {
            bad.insert(path, failure.to_string());
        }
    }
    Ok(())
}
