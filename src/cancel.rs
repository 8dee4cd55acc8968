//! Ending one run because somebody asked for it, from a command or through the daemon.
//!
//! ```text
//! queued, requested ──> settled as cancelled: it never begins
//! running ────────────> its process is asked to end, and settles itself; ticks see to it
//! settled ────────────> refused
//! ```

use runner_engine::ids::RunId;
use runner_engine::ledger::{Cancelled, Ledger};

use crate::cli::Failure;
use crate::drive;
use crate::home::Home;

/// Ends what `run` is an attempt at, whoever started it, and says what was done.
pub fn cancel(home: &Home, ledger: &mut Ledger, run: &RunId, why: &str) -> Result<String, Failure> {
    let job = ledger.run(run)?.job_name;
    match ledger.cancel(run, why, home.wall()?)? {
        Cancelled::Settled(run) => {
            drive::mark(home, ledger, &run)?;
            Ok(format!("{job} will not run"))
        }
        Cancelled::Asked(live) => {
            drive::end(ledger, &live.id)?;
            Ok(format!(
                "{job} was asked to end, and settles itself; the next ticks end it if it does not (run {})",
                live.id
            ))
        }
        Cancelled::Over(outcome) => Err(Failure::data(format!("{job} is over: {outcome}"))
            .mend(format!("runner runs show {run}"))),
    }
}
