//! Recovers runs whose process has died or fails to exit.
//!
//! ```text
//! queued: no process is responsible for the run, so there is nothing to recover
//! requested, lock free, starter and process dead ──scheduled────> start it again
//!                                                ├─manual night─> queued
//!                                                └─manual───────> lost
//! requested, its process past its deadline and grace ──> kill it ──> timed-out
//! running, lock free ──> kill its processes ──> take over ──> publication: roll forward ──> its outcome
//!                                                         │             conflict ──> failed (guard)
//!                                                         │             disk error ──> next tick
//!                                                         └ none: discard staging ──> lost (one retry
//!                                                                   if the kind allows it)
//! running, lock held, past its deadline and grace ──> kill it, wait for the lock ──> as above, timed-out,
//!                                                     or cancelled if that was requested
//! ```
//!
//! Recovery takes the deciding lock of the run's job and reads the run again under that lock. Only
//! a run that was not admitted in time is ended without the lock. Recovery must never change a run
//! whose lock is held, unless the run's deadline has passed.

mod replay;

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::error_chain::whole;
use crate::ids::{ProjectId, RunId};
use crate::launch::clear_marked;
use crate::locks::{JobLock, LockError, job_lock_path};
use crate::outcome::{Class, Outcome};
use crate::process::tree::{self, Killed};
use crate::process_id::ProcessIdentity;
use crate::sandbox::placeholders::{FOLDER, clear_abandoned};
use crate::store::{Event, FleetNote, RunRow, RunState, Spawned, Store, StoreError};
use crate::time::ClockReading;
use crate::work::{Work, WorkResult};

pub use replay::sweep;
use replay::{Replay, replay};

/// Grace period after a run's total deadline, during which the run can still finish on its own.
pub const OVERRUN_GRACE: Duration = Duration::from_secs(30);
/// Maximum time from the spawn of a run's process to the run's admission. During this time, the
/// process reads the configuration, takes the locks and checks the backends.
pub const BEGIN_LIMIT: Duration = Duration::from_mins(5);
/// The folder inside the state folder that contains each run's private folder.
pub const RUNS: &str = "runs";
/// Maximum wait in seconds for a killed process to exit.
const KILL_WAIT: i64 = 3;
/// The event recorded before a run is killed because of its deadline.
const OVERRAN: &str = "overran";
/// Maximum number of lost runs per occurrence that get another attempt.
const RETRIED_LOSSES: u32 = 1;

/// The host services that recovery needs. The test that simulates years of suspensions and crashes
/// has its own implementation.
pub trait World {
    /// Takes a job's deciding lock if it is free. Dropping the guard releases the lock.
    ///
    /// # Errors
    /// Returns an error if the lock file cannot be created, opened or locked.
    fn try_lock(&self, project: &ProjectId, job: &str) -> Result<Option<Box<dyn Any>>, LockError>;
    /// Returns whether this exact process is alive.
    fn is_alive(&self, owner: &ProcessIdentity) -> bool;
    /// Kills this exact process and waits a limited time for it to exit.
    fn kill(&self, owner: &ProcessIdentity);
    /// Kills all processes that have the run's marker.
    fn kill_marked(&self, run: &RunId) -> Killed;
    /// Closes the work of a dead run's children, if there were any, and imports their commits into
    /// the project.
    ///
    /// # Errors
    /// Returns the reason why the commits remain in the run's folder.
    fn close_work(&self, _run: &RunId) -> Result<Option<WorkResult>, String> {
        Ok(None)
    }
}

/// The host of this process.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub state: &'a Path,
}

impl World for Host<'_> {
    fn try_lock(&self, project: &ProjectId, job: &str) -> Result<Option<Box<dyn Any>>, LockError> {
        match JobLock::try_take(&job_lock_path(self.state, project, job)) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            Err(LockError::Held { .. } | LockError::Foreign { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_alive(&self, owner: &ProcessIdentity) -> bool {
        owner.is_alive()
    }

    fn kill(&self, owner: &ProcessIdentity) {
        kill(owner);
    }

    fn kill_marked(&self, run: &RunId) -> Killed {
        // The control groups are killed first, because killing them reaches even processes that
        // fork faster than `/proc` can be listed.
        clear_marked(run.as_str());
        let killed = tree::kill_marked(run.as_str());
        clear_abandoned(&self.state.join(FOLDER));
        killed
    }

    fn close_work(&self, run: &RunId) -> Result<Option<WorkResult>, String> {
        let folder = self.state.join(RUNS).join(run.as_str());
        let work = Work::of_run(&folder).map_err(|error| whole(&error))?;
        let work = work.map(|mut work| work.close(&folder));
        work.transpose().map_err(|error| whole(&error))
    }
}

/// The host and the settings for a tick.
pub struct Driver<'a> {
    pub world: Box<dyn World + 'a>,
    pub me: &'a ProcessIdentity,
    /// Returns whether a lost run of this kind is retried once.
    pub retries_lost: &'a dyn Fn(&str) -> bool,
    /// The time of the previous tick, if it is known.
    pub last_tick: Option<Timestamp>,
}

impl<'a> Driver<'a> {
    /// Creates a driver for this host that does not retry lost runs.
    pub fn on_host(state: &'a Path, me: &'a ProcessIdentity) -> Self {
        Self { world: Box::new(Host { state }), me, retries_lost: &|_| false, last_tick: None }
    }
}

/// The action that recovery took for one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The run needs no recovery, waits in the queue, or cannot be recovered yet.
    Alone,
    /// The run has not started, and the caller must start it now.
    Start(RunId),
    /// The run was settled.
    Settled {
        outcome: Outcome,
        /// The next attempt, if any, which the caller must start now.
        retry: Option<RunId>,
    },
}

/// Inspects an unsettled run and takes the required action.
///
/// # Errors
/// Returns a [`StoreError`]. Other problems are recorded in the run's outcome or events.
pub fn recover(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunRow,
    now: ClockReading,
) -> Result<Recovered, StoreError> {
    // While a responsible process is alive, recovery does not even try to take the lock, because
    // that could obstruct a run that is about to start.
    let starter = match &run.state {
        RunState::Requested { starter, .. } => Some(starter),
        RunState::Running { .. } => None,
        RunState::Queued { .. } | RunState::Settled { .. } => return Ok(Recovered::Alone),
    };
    let world = driver.world.as_ref();
    let overran = overrun(world, run, now);
    let mut responsible = starter.into_iter().chain(run.owner());
    if responsible.any(|process| world.is_alive(process)) && overran.is_none() {
        return Ok(Recovered::Alone);
    }
    if let (RunState::Requested { .. }, Some(owner)) = (&run.state, overran) {
        return end_before_admission(store, world, run, owner, now.wall);
    }
    let (lock, end) = match (lock_of(world, run)?, overran) {
        (Some(lock), _) => (lock, OwnerEnd::Died),
        (None, None) => return Ok(Recovered::Alone),
        (None, Some(owner)) => {
            // The overrun is recorded before the kill, because another process may be the first to
            // notice the death of the run's process and settle the run.
            note_overrun(store, run, now.wall)?;
            world.kill(owner);
            world.kill_marked(&run.id);
            // If another run of the job takes the lock first, the next tick recovers this run.
            match lock_of(world, run)? {
                Some(lock) => (lock, OwnerEnd::Overran),
                None => return Ok(Recovered::Alone),
            }
        }
    };
    let done = recover_ended(store, driver, &run.id, end, now);
    drop(lock);
    done
}

/// Takes the deciding lock of the run's job if it is free.
fn lock_of(world: &dyn World, run: &RunRow) -> Result<Option<Box<dyn Any>>, StoreError> {
    let lock = world.try_lock(&run.project, &run.job_name);
    lock.map_err(|error| StoreError::Lock { why: whole(&error) })
}

/// How a run's owner ended in this recovery. The run's events may record an earlier overrun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerEnd {
    /// The owner had already exited.
    Died,
    /// Recovery killed the owner because the run's deadline had passed.
    Overran,
}

/// Recovers one run. The caller must hold the job's deciding lock. Otherwise, the run's process
/// could still be changing the run.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn recover_locked(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunId,
    now: ClockReading,
) -> Result<Recovered, StoreError> {
    recover_ended(store, driver, run, OwnerEnd::Died, now)
}

/// Returns a job's running runs. If the job's deciding lock is free or held by the caller, these
/// runs are dead.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn running_of(
    store: &Store,
    project: &ProjectId,
    job: &str,
) -> Result<Vec<RunRow>, StoreError> {
    let mut runs = store.live()?;
    runs.retain(|row| {
        let ours = row.project == *project && row.job_name == job;
        ours && matches!(row.state, RunState::Running { .. })
    });
    Ok(runs)
}

/// The result of [`recover_stale`].
#[derive(Debug, Default)]
pub struct StaleRuns {
    pub settled: Vec<RunRow>,
    /// A run whose publication cannot be completed yet.
    pub stuck: Option<RunId>,
}

/// Settles a job's runs whose processes died. Such runs may still have a reservation, live child
/// processes and an unfinished publication. The caller must hold the job's deciding lock.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn recover_stale(
    store: &mut Store,
    driver: &Driver<'_>,
    project: &ProjectId,
    job: &str,
    now: ClockReading,
) -> Result<StaleRuns, StoreError> {
    let mut stale = StaleRuns::default();
    for dead in running_of(store, project, job)? {
        recover_locked(store, driver, &dead.id, now)?;
        let after = store.run(&dead.id)?;
        if after.outcome().is_none() {
            stale.stuck = Some(dead.id);
            break;
        }
        stale.settled.push(after);
    }
    Ok(stale)
}

fn recover_ended(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunId,
    end: OwnerEnd,
    now: ClockReading,
) -> Result<Recovered, StoreError> {
    let run = &store.run(run)?;
    match &run.state {
        RunState::Queued { .. } | RunState::Settled { .. } => Ok(Recovered::Alone),
        RunState::Requested { starter, .. } => never_began(store, driver, run, starter, now.wall),
        RunState::Running { .. } => dead(store, driver, run, end, now),
    }
}

/// Ends a run that was spawned but not admitted in time. The run has published nothing, so no lock
/// is needed.
fn end_before_admission(
    store: &mut Store,
    world: &dyn World,
    run: &RunRow,
    owner: &ProcessIdentity,
    now: Timestamp,
) -> Result<Recovered, StoreError> {
    // If the run has been admitted since it was listed, it has a different deadline.
    if !matches!(store.run(&run.id)?.state, RunState::Requested { .. }) {
        return Ok(Recovered::Alone);
    }
    let outcome = Outcome::TimedOut {
        why: format!(
            "it was not admitted within {} minutes of its start and was killed",
            BEGIN_LIMIT.as_secs() / 60
        ),
    };
    // The run is declined before the kill, so it can no longer be admitted.
    if !store.decline(&run.id, &outcome, now)? {
        return Ok(Recovered::Alone);
    }
    note_overrun(store, run, now)?;
    world.kill(owner);
    world.kill_marked(&run.id);
    Ok(Recovered::Settled { outcome, retry: None })
}

/// Returns a run's owner if it is still alive after the run's deadline and the grace period.
fn overrun<'r>(
    world: &dyn World,
    run: &'r RunRow,
    now: ClockReading,
) -> Option<&'r ProcessIdentity> {
    let (owner, deadline) = match &run.state {
        RunState::Requested { spawned: Some(Spawned { owner, deadline }), .. } => (owner, deadline),
        RunState::Running { execution, deadline, .. } => (&execution.owner, deadline),
        _ => return None,
    };
    let over = Duration::from_millis(*deadline).saturating_add(OVERRUN_GRACE);
    (now.boot > over && world.is_alive(owner)).then_some(owner)
}

/// Kills the exact process that `owner` identifies, and waits at most `KILL_WAIT` seconds for it to
/// exit.
fn kill(owner: &ProcessIdentity) {
    if let Some(handle) = owner.signal(Signal::KILL) {
        let limit = Timespec { tv_sec: KILL_WAIT, tv_nsec: 0 };
        // If the process does not exit in time, the next tick recovers its run.
        let _ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit));
    }
}

/// Records, at most once per run, that the run is killed because of its deadline.
fn note_overrun(store: &mut Store, run: &RunRow, now: Timestamp) -> Result<(), StoreError> {
    if overran_before(store, &run.id)? {
        return Ok(());
    }
    store.event(&Event {
        at: now,
        project: Some(run.project.clone()),
        run: Some(run.id.clone()),
        kind: OVERRAN.to_owned(),
        detail: "its deadline has passed, so it is killed".to_owned(),
    })
}

fn overran_before(store: &Store, run: &RunId) -> Result<bool, StoreError> {
    let events = store.events_of(run)?;
    Ok(events.iter().any(|event| event.kind == OVERRAN))
}

fn never_began(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunRow,
    starter: &ProcessIdentity,
    now: Timestamp,
) -> Result<Recovered, StoreError> {
    let mut responsible = [starter].into_iter().chain(run.owner());
    if responsible.any(|process| driver.world.is_alive(process)) {
        return Ok(Recovered::Alone);
    }
    // A delivered result is applied regardless of who requested the run.
    let applies = store.fleet_note(&run.id, FleetNote::Applies)?.is_some();
    if run.manual() && !applies {
        if run.night.is_some() {
            // The dead process requested all runs of its night at once, so they may not all start
            // now.
            store.requeue(&run.id, now)?;
            return Ok(Recovered::Alone);
        }
        let why = "the command that requested the run ended before the run began".to_owned();
        let outcome = Outcome::Lost { why };
        if !store.decline(&run.id, &outcome, now)? {
            return Ok(Recovered::Alone);
        }
        return Ok(Recovered::Settled { outcome, retry: None });
    }
    if !store.adopt(&run.id, driver.me)? {
        return Ok(Recovered::Alone);
    }
    Ok(Recovered::Start(run.id.clone()))
}

fn dead(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunRow,
    end: OwnerEnd,
    now: ClockReading,
) -> Result<Recovered, StoreError> {
    let RunState::Running { staging, .. } = &run.state else {
        return Ok(Recovered::Alone);
    };
    let killed = driver.world.kill_marked(&run.id);
    let fence = store.take_over(&run.id)?;
    let lost = if let Some(why) = run.cancel() {
        Outcome::Cancelled { why: why.to_owned() }
    } else if end == OwnerEnd::Overran || overran_before(store, &run.id)? {
        Outcome::TimedOut { why: "it did not end by its total deadline and was killed".to_owned() }
    } else {
        Outcome::Lost { why: "its process died before the run finished".to_owned() }
    };
    let mut detail = match killed.count {
        1 => "its process is gone; 1 leftover process killed".to_owned(),
        count => format!("its process is gone; {count} leftover processes killed"),
    };
    if killed.survivors > 0 {
        detail.push_str(&format!(", {} could not be killed", killed.survivors));
    }
    let (work, violation) = closed_work(driver, run);
    detail.push_str(&work);
    let replayed = replay(store, run, staging, fence, now.wall);
    if let Err(why) = &replayed {
        detail = format!("its artifacts cannot be published yet: {why}");
    }
    let event = Event {
        at: now.wall,
        project: Some(run.project.clone()),
        run: Some(run.id.clone()),
        kind: if replayed.is_ok() { "recovered" } else { "stuck" }.to_owned(),
        detail,
    };
    // A run that is still stuck for the same reason is not reported again.
    let events = store.events_of(&run.id)?;
    if !events.last().is_some_and(|last| last.kind == event.kind && last.detail == event.detail) {
        store.event(&event)?;
    }
    let outcome = match replayed {
        // The publication's commit has already settled the run.
        Ok(Replay::RolledForward(outcome)) => {
            return Ok(Recovered::Settled { outcome, retry: None });
        }
        Ok(Replay::Nothing) => match violation {
            Some(why) => Outcome::Failed { class: Class::Guard, why },
            None => lost,
        },
        Ok(Replay::Gone(outcome)) => outcome,
        Ok(Replay::Conflict(outcome)) => {
            store.settle_conflict(&run.id, fence, &outcome, &run.summary, now.wall)?;
            return Ok(Recovered::Settled { outcome, retry: None });
        }
        // The artifacts may be partly published. Only a completed publication may settle the run,
        // unless the user abandons the publication.
        Err(why) => {
            let Some(given_up) = run.cancel() else {
                return Ok(Recovered::Alone);
            };
            let outcome = Outcome::Failed {
                class: Class::Guard,
                why: format!(
                    "given up ({given_up}) while partly published: {why}; the artifacts that remain to be published are kept in {staging}"
                ),
            };
            store.settle_conflict(&run.id, fence, &outcome, &run.summary, now.wall)?;
            return Ok(Recovered::Settled { outcome, retry: None });
        }
    };
    let retry = settle_dead(store, driver, run, &outcome, now.wall)?;
    Ok(Recovered::Settled { outcome, retry })
}

/// Settles a dead run. Returns the next attempt, if there is one to start.
fn settle_dead(
    store: &mut Store,
    driver: &Driver<'_>,
    run: &RunRow,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Option<RunId>, StoreError> {
    let again = matches!(outcome, Outcome::Lost { .. })
        && store.lost_runs_of(&run.occurrence)? < RETRIED_LOSSES;
    if again && store.fleet_note(&run.id, FleetNote::Applies)?.is_some() {
        // The delivered result has been paid for, so the next attempt applies it.
        store.requeue_dead(&run.id, outcome, &run.summary, now)?;
        return Ok(None);
    }
    // The fleet decides which host repeats the work of a lost claim.
    let retry = again
        && run.model_calls == 0
        && (driver.retries_lost)(&run.kind)
        && store.fleet_note(&run.id, FleetNote::Claimed)?.is_none();
    store.settle_dead(&run.id, outcome, &run.summary, retry.then_some(driver.me), now)
}

/// Closes the work of a dead run. Returns a description for the run's event, and the reason why the
/// run must fail, if any.
fn closed_work(driver: &Driver<'_>, run: &RunRow) -> (String, Option<String>) {
    match driver.world.close_work(&run.id) {
        Ok(None) => (String::new(), None),
        Ok(Some(work)) => {
            let commits = match work.imported.commits.len() {
                0 => String::new(),
                1 => "; 1 commit imported into the repository".to_owned(),
                count => format!("; {count} commits imported into the repository"),
            };
            let held = work.imported.held.iter().chain(&work.imported.notes);
            let held: String = held.map(|line| format!("; {line}")).collect();
            (commits + &held, work.violation())
        }
        Err(why) => (format!("; its commits remain in the run's folder: {why}"), None),
    }
}

/// Sweeps all settled runs that have not been swept, except runs of jobs whose lock cannot be taken
/// now. Returns the runs that it tried to sweep.
///
/// # Errors
/// Returns a [`StoreError`].
pub fn sweep_all(
    store: &mut Store,
    driver: &Driver<'_>,
    now: Timestamp,
) -> Result<Vec<RunId>, StoreError> {
    let mut swept = Vec::new();
    for run in store.unswept()? {
        // A lock error is reported with the job's next run.
        if let Ok(Some(lock)) = lock_of(driver.world.as_ref(), &run) {
            let run = store.run(&run.id)?;
            sweep(store, &run, now)?;
            swept.push(run.id);
            drop(lock);
        }
    }
    Ok(swept)
}
