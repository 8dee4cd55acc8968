//! What becomes of runs whose process is gone or will not end.
//!
//! ```text
//! requested, lock free, starter dead ──by a clock──> start it again
//!                                    └─by hand────> lost
//! running, lock free ──> kill what is left of it ──> take over ──> placement: roll forward ──> its outcome
//!                                                              │             conflict ──> failed (guard)
//!                                                              │             disk refuses ──> next tick
//!                                                              └ none: discard staging ──> lost (one retry
//!                                                                        where its kind allows it)
//! running, lock held, past its deadline and grace ──> kill it, wait for the lock ──> as above, timed-out
//! ```
//!
//! Everything happens under the deciding lock of the run's job, and a run is looked at again once
//! that lock is held. Must never touch a run whose lock is held and whose time is not over.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::causes::whole;
use crate::ids::{Fence, RunId};
use crate::ledger::{Event, Ledger, LedgerError, RunRow, RunState, Unsettled};
use crate::locks::{JobLock, LockError, job_lock_path};
use crate::outcome::{Class, Outcome};
use crate::owner::Owner;
use crate::placement::{self, PlaceError, PlacementLog as _, RealFs, Recovery, RelPath};
use crate::process::tree;
use crate::time::Moment;

/// How long after its total deadline a run may take to end by itself.
pub const OVERRUN_GRACE: Duration = Duration::from_secs(30);
/// How long a killed process may take to end, in seconds.
const KILL_WAIT: i64 = 10;
/// How many lost runs of one occurrence are made good by another attempt.
const LOSSES_MADE_GOOD: u32 = 1;

/// What a driver of ticks brings.
pub struct Driver<'a> {
    /// The state folder.
    pub state: &'a Path,
    /// This process.
    pub me: &'a Owner,
    /// Whether a lost run of this kind is tried once more.
    pub retries_lost: &'a dyn Fn(&str) -> bool,
}

/// What was done about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Its owner lives, or will start it.
    Alone,
    /// It never began and is to be started now, by us.
    Start(RunId),
    /// It was settled, and perhaps another attempt is to be started.
    Settled {
        /// How.
        outcome: Outcome,
        /// The next attempt.
        retry: Option<RunId>,
    },
}

/// Looks at one unsettled run and does what is due.
///
/// # Errors
/// [`LedgerError`]; a single run's other troubles become its outcome.
pub fn recover(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    run: &Unsettled,
    now: Moment,
) -> Result<Recovered, LedgerError> {
    // While the one who answers for it lives, the lock is not even touched: whoever holds it for a
    // look is in the way of the run that is about to begin.
    let answers = match run.state {
        RunState::Requested => Some(&run.starter),
        RunState::Running => run.owner.as_ref(),
        RunState::Settled => return Ok(Recovered::Alone),
    };
    if answers.is_some_and(Owner::is_alive) && overrun(run, now).is_none() {
        return Ok(Recovered::Alone);
    }
    let path = job_lock_path(driver.state, &run.project, &run.job_name);
    let (lock, overran) = match JobLock::try_take(&path) {
        Ok(lock) => (lock, false),
        Err(LockError::Held { .. }) => {
            let Some(owner) = overrun(run, now) else {
                return Ok(Recovered::Alone);
            };
            kill(owner);
            tree::kill_marked(run.id.as_str());
            // Another run of the job may have been faster; this one is looked at again then.
            match JobLock::try_take(&path) {
                Ok(lock) => (lock, true),
                Err(_) => return Ok(Recovered::Alone),
            }
        }
        Err(_) => return Ok(Recovered::Alone),
    };
    let done = recover_locked(ledger, driver, &run.id, overran, now);
    drop(lock);
    done
}

/// Does what is due about one run, with the deciding lock of its job held by the caller: only now is
/// what its row says final.
///
/// # Errors
/// [`LedgerError`].
pub fn recover_locked(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    run: &RunId,
    overran: bool,
    now: Moment,
) -> Result<Recovered, LedgerError> {
    let run = &ledger.run(run)?;
    match run.state {
        RunState::Settled => Ok(Recovered::Alone),
        RunState::Requested => never_began(ledger, driver, run, now.wall),
        RunState::Running => dead(ledger, driver, run, overran, now),
    }
}

/// The owner of a run that is past its deadline and grace in this boot.
fn overrun(run: &RunRow, now: Moment) -> Option<&Owner> {
    let owner = run.owner.as_ref().filter(|owner| owner.is_alive())?;
    let over = Duration::from_millis(run.deadline?).saturating_add(OVERRUN_GRACE);
    (now.boot > over).then_some(owner)
}

/// Kills exactly the process that `owner` names, and waits for its end: the descriptor is taken
/// before the check, so that the number cannot change hands in between.
fn kill(owner: &Owner) {
    let Some(pid) = i32::try_from(owner.pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if owner.is_alive() {
        let _already_gone = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
        let limit = Timespec {
            tv_sec: KILL_WAIT,
            tv_nsec: 0,
        };
        // One that does not end in time is met again at the next tick.
        let _ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit));
    }
}

fn never_began(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    run: &RunRow,
    now: Timestamp,
) -> Result<Recovered, LedgerError> {
    if run.starter.is_alive() {
        return Ok(Recovered::Alone);
    }
    if run.by_hand && run.night.is_none() {
        let why = "the command that asked for it died before it began".to_owned();
        let outcome = Outcome::Lost { why };
        if !ledger.decline(&run.id, &outcome, now)? {
            return Ok(Recovered::Alone);
        }
        return Ok(Recovered::Settled {
            outcome,
            retry: None,
        });
    }
    if !ledger.adopt(&run.id, driver.me)? {
        return Ok(Recovered::Alone);
    }
    Ok(Recovered::Start(run.id.clone()))
}

fn dead(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    run: &RunRow,
    overran: bool,
    now: Moment,
) -> Result<Recovered, LedgerError> {
    let killed = tree::kill_marked(run.id.as_str());
    let fence = ledger.take_over(&run.id)?;
    let lost = if overran {
        Outcome::TimedOut {
            why: "it did not end by its total deadline and was killed".to_owned(),
        }
    } else {
        Outcome::Lost {
            why: "its process died before it could settle".to_owned(),
        }
    };
    let mut detail = format!(
        "its process is gone; {} left-over processes killed",
        killed.count
    );
    if killed.survivors > 0 {
        detail.push_str(&format!(", {} would not die", killed.survivors));
    }
    let replayed = replay(ledger, run, fence, now.wall);
    if let Err(why) = &replayed {
        detail = format!("its artifacts cannot be placed yet: {why}");
    }
    let event = Event {
        at: now.wall,
        project: Some(run.project.clone()),
        run: Some(run.id.clone()),
        kind: if replayed.is_ok() {
            "recovered"
        } else {
            "stuck"
        }
        .to_owned(),
        detail,
    };
    // A run that stays stuck says so once, however often it is looked at.
    let said = ledger.events_of(&run.id)?;
    if !said
        .last()
        .is_some_and(|last| last.kind == event.kind && last.detail == event.detail)
    {
        ledger.event(&event)?;
    }
    let outcome = match replayed {
        // The placement's own commit has settled the run.
        Ok(Replay::RolledForward(outcome)) => {
            return Ok(Recovered::Settled {
                outcome,
                retry: None,
            });
        }
        Ok(Replay::Nothing) => lost,
        Ok(Replay::Gone(outcome)) => outcome,
        Ok(Replay::Conflict(outcome)) => {
            ledger.settle_conflict(&run.id, fence, &outcome, &run.summary, now.wall)?;
            return Ok(Recovered::Settled {
                outcome,
                retry: None,
            });
        }
        // Half of it may be in place: only a placement that can go on may settle it.
        Err(_) => return Ok(Recovered::Alone),
    };
    let retry = matches!(outcome, Outcome::Lost { .. })
        && ledger.lost_runs_of(&run.occurrence)? < LOSSES_MADE_GOOD
        && run.model_calls == 0
        && (driver.retries_lost)(&run.kind);
    let retry = ledger.settle_dead(
        &run.id,
        &outcome,
        &run.summary,
        retry.then_some(driver.me),
        now.wall,
    )?;
    Ok(Recovered::Settled { outcome, retry })
}

enum Replay {
    /// It is placed, and settled with this outcome.
    RolledForward(Outcome),
    /// It had recorded nothing.
    Nothing,
    /// Its project is gone, and its artifacts with it.
    Gone(Outcome),
    /// It can never be placed: what is staged is a person's now.
    Conflict(Outcome),
}

/// Rolls the placement of a dead run forward, or discards what it staged.
fn replay(
    ledger: &mut Ledger,
    run: &RunRow,
    fence: Fence,
    now: Timestamp,
) -> Result<Replay, String> {
    let Some(project) = ledger
        .project(&run.project)
        .map_err(|error| whole(&error))?
    else {
        return Ok(Replay::Nothing);
    };
    let Some(staging) = &run.staging else {
        return Ok(Replay::Nothing);
    };
    let staging = RelPath::new(staging).map_err(|error| whole(&error))?;
    let fs = match RealFs::open(&project.path) {
        Ok(fs) => fs,
        Err(_) if !project.path.is_dir() => {
            let log = ledger.placement_log(None, now);
            return match log.manifest(&run.id).map_err(|error| whole(&error))? {
                None => Ok(Replay::Nothing),
                Some(_) => Ok(Replay::Gone(Outcome::Failed {
                    class: Class::Environment,
                    why: format!("its project is gone: {}", project.path.display()),
                })),
            };
        }
        Err(error) => return Err(whole(&error)),
    };
    let mut log = ledger.placement_log(None, now);
    match placement::recover(&fs, &mut log, &run.id, fence, &staging) {
        Ok(Recovery::Nothing) => Ok(Replay::Nothing),
        Ok(Recovery::RolledForward(outcome)) => Ok(Replay::RolledForward(outcome)),
        Ok(Recovery::Cleaned) => {
            let row = ledger.run(&run.id).map_err(|error| whole(&error))?;
            row.outcome
                .map(Replay::RolledForward)
                .ok_or_else(|| "settled without an outcome".to_owned())
        }
        // What stands in the way is somebody's, or what was staged is no more: no later try can mend
        // that, a person must look.
        Err(error @ (PlaceError::Conflict(_) | PlaceError::Staged { .. })) => {
            let why = format!(
                "{}; what was to be placed is kept in {staging}",
                whole(&error)
            );
            Ok(Replay::Conflict(Outcome::Failed {
                class: Class::Guard,
                why,
            }))
        }
        Err(error) => Err(whole(&error)),
    }
}

/// Removes what a settled run left in staging. Call it with the deciding lock held.
///
/// # Errors
/// [`LedgerError`]; what cannot be removed now is tried again at the next tick.
pub fn sweep(ledger: &mut Ledger, run: &RunRow, now: Timestamp) -> Result<(), LedgerError> {
    let (Some(staging), RunState::Settled) = (&run.staging, run.state) else {
        return Ok(());
    };
    let Some(project) = ledger.project(&run.project)? else {
        return ledger.swept(&run.id);
    };
    let (Ok(fs), Ok(staging)) = (RealFs::open(&project.path), RelPath::new(staging)) else {
        // A project that is gone has taken its staging folders along.
        return if project.path.is_dir() {
            Ok(())
        } else {
            ledger.swept(&run.id)
        };
    };
    let fence = run.fence.unwrap_or_default();
    let mut log = ledger.placement_log(None, now);
    let gone = match log.manifest(&run.id) {
        // Settled without its placement: a conflict, whose staging is a person's.
        Ok(Some(recorded)) if !recorded.settled => return ledger.swept(&run.id),
        Ok(_) => placement::recover(&fs, &mut log, &run.id, fence, &staging).is_ok(),
        Err(_) => false,
    };
    if gone { ledger.swept(&run.id) } else { Ok(()) }
}

/// Sweeps after all settled runs that nobody swept after, and names them.
///
/// # Errors
/// [`LedgerError`].
pub fn sweep_all(
    ledger: &mut Ledger,
    driver: &Driver<'_>,
    now: Timestamp,
) -> Result<Vec<RunId>, LedgerError> {
    let mut swept = Vec::new();
    for run in ledger.unswept()? {
        let path = job_lock_path(driver.state, &run.project, &run.job_name);
        if let Ok(lock) = JobLock::try_take(&path) {
            let run = ledger.run(&run.id)?;
            sweep(ledger, &run, now)?;
            swept.push(run.id);
            drop(lock);
        }
    }
    Ok(swept)
}
