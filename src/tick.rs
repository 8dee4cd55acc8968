//! Runs one tick over all projects, for the daemon and for `runner tick`.
//!
//! A tick rereads changed configuration, records due analyses of sessions, ticks the engine and the
//! fleets, updates the failure markers of settled runs and queues alerts. It must never start a
//! run; the caller starts the returned runs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{Store, gone, why_gone};
use runner_engine::tick::{Tick, tick};

use crate::alerts::{self, TickHealth};
use crate::doctor;
use crate::env::Env;
use crate::fleet;
use crate::project::{self, LoadedProject, StampBase};
use crate::sessions;
use crate::spawn;
use crate::ui::Failure;

/// Selects the projects that a tick rereads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread {
    /// The projects whose files have changed since they were last read.
    WhatChanged,
    All,
}

#[derive(Clone, Debug, Default)]
pub struct TickResult {
    /// The runs to start now.
    pub start: Vec<RunId>,
    /// Whether live runs were asked to stop. Once they have ended, the runs waiting for them become
    /// ready.
    pub ending: bool,
    /// Runs that recovery settled, each with its outcome.
    pub settled: Vec<(RunId, String)>,
    /// Errors that do not stop the tick, such as those of individual runs or jobs.
    pub troubles: Vec<String>,
    /// The reasons why projects' files cannot be used, by the project's path.
    pub unreadable: BTreeMap<String, String>,
}

/// Updates the database from changed project files without a tick. Returns the reasons why
/// projects' files cannot be used, by the project's path.
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
    #[cfg(feature = "fleet")]
    fleet::guard_recovery(home, store);
    let unwatched = sessions::enqueue(home, store)?;
    let Tick { mut start, end, settled, mut troubles, swept } =
        tick(store, &spawn::driver(home, me), home.now()?)?;
    troubles.extend(unwatched);
    // A fleet error must not prevent the returned runs from being started.
    match fleet::step(home, store, me) {
        Ok(shared) => {
            start.extend(shared.start);
            troubles.extend(shared.troubles);
            troubles.extend(alerts::watch_hosts(home, store, shared.silent)?);
        }
        Err(failure) => troubles.push(format!("fleet: {failure}")),
    }
    for run in &end {
        spawn::end(store, run)?;
    }
    for run in settled.iter().map(|(run, _)| run).chain(&swept) {
        // An error here must not prevent the returned runs from being started.
        if let Err(failure) = spawn::mark(home, store, run) {
            troubles.push(format!("run {run}: {failure}"));
        }
    }
    home.note_tick(home.wall()?);
    doctor::sandbox::note(home);
    let health = match troubles.is_empty() && unreadable.is_empty() {
        true => TickHealth::Sound,
        false => TickHealth::Troubled,
    };
    troubles.extend(alerts::after_tick(home, store, health)?);
    Ok(TickResult { start, ending: !end.is_empty(), settled, troubles, unreadable })
}

/// The next time at which a tick has work to do, and a description of the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTick {
    /// The name of the job that is due, or a description of other work.
    pub what: String,
    pub at: Timestamp,
}

/// Returns the next time at which a tick has work to do in any project, or `None` if nothing is
/// scheduled.
pub fn next(store: &Store, now: Timestamp) -> Result<Option<NextTick>, Failure> {
    let Some(at) = store.next_moment(now)? else { return Ok(None) };
    let what = store.job_due_at(at)?;
    Ok(Some(NextTick { what: what.unwrap_or_else(|| "waiting work".to_owned()), at }))
}

/// Rereads the projects' configurations. Adds to `bad` each project whose configuration is invalid
/// or not accepted, and each project that is found to be gone for the first time.
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
            // The problem is reported once. From now on, scheduled times are recorded as missed for
            // this reason.
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
