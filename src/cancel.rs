//! Cancels one run on request, from a command or through the daemon.
//!
//! ```text
//! queued, requested ──> settled as cancelled: it never begins
//! running ────────────> its process receives TERM and settles the run; later ticks enforce it
//! settled ────────────> refused
//! ```

use runner_engine::ids::RunId;
use runner_engine::store::{Cancelled, Store};

use crate::env::Env;
use crate::spawn;
use crate::ui::Failure;

/// Cancels a run's occurrence, regardless of which process started the run. Returns a message for
/// the user about what was done.
pub fn cancel(home: &Env, store: &mut Store, run: &RunId, why: &str) -> Result<String, Failure> {
    let job = store.run(run)?.job_name;
    match store.cancel(run, why, home.wall()?)? {
        Cancelled::Settled(run) => {
            spawn::mark(home, store, &run)?;
            Ok(format!("{job} will not run"))
        }
        Cancelled::Asked(live) => {
            spawn::end(store, &live.id)?;
            Ok(format!(
                "{job} was asked to end and is shutting down; if it does not end, one of the next ticks ends it (run {})",
                live.id
            ))
        }
        Cancelled::Over(outcome) => {
            Err(Failure::data(format!("{job} has already ended: {outcome}"))
                .hint(format!("runner runs show {run}")))
        }
    }
}
