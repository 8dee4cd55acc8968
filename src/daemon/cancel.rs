//! Ending one run because somebody asked for it.
//!
//! ```text
//! requested ──> settled as cancelled: it never begins
//! running ────> its process is asked to end, and settles itself
//! settled ────> refused
//! ```
//!
//! Must never signal by number alone, and never settle what another process has begun.

use runner_engine::ids::RunId;
use runner_engine::ledger::{Ledger, RunState};
use runner_engine::outcome::Outcome;
use runner_engine::owner::Owner;
use runner_engine::time::Moment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cli::Failure;

/// Ends a run, whoever started it: one that has not begun is settled, one that runs is asked to end
/// and settles itself. Says what was done.
pub fn cancel(ledger: &mut Ledger, run: &RunId, now: Moment) -> Result<String, Failure> {
    let row = ledger.run(run)?;
    let why = "cancelled through the daemon".to_owned();
    let state = match row.state {
        RunState::Requested if ledger.decline(run, &Outcome::Cancelled { why }, now.wall)? => {
            return Ok("it had not begun, and never will".to_owned());
        }
        // It has begun meanwhile.
        RunState::Requested => ledger.run(run)?,
        _ => row,
    };
    let outcome = state.outcome.as_ref().map(Outcome::to_string);
    if let Some(outcome) = outcome {
        return Err(Failure::data(format!("run {run} is over: {outcome}")));
    }
    let owner = state.owner.filter(Owner::is_alive);
    let ended = owner.and_then(|owner| {
        let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Only now: the number may have changed hands before there was a handle.
        owner.is_alive().then_some(())?;
        pidfd_send_signal(&handle, Signal::TERM).ok()
    });
    match ended {
        Some(()) => Ok("it was asked to end, and settles itself".to_owned()),
        None => Err(Failure::environment(format!(
            "the process of run {run} is gone; the next tick settles it"
        ))
        .mend("runner tick")),
    }
}
