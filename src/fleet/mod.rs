//! Jobs shared by the hosts of a fleet.
//!
//! ```text
//! home host:  due run ──offer──> fleet ──deliver──> run that applies the result ──> settled
//! any member: claim ──> run in a copy of the project ──> deliver
//! ```
//!
//! A tick calls [`step`] after its local work. Without the `fleet` feature, the runs of shared jobs
//! are deferred. This module must never start a run's process; the caller starts the returned runs.

#[cfg(feature = "fleet")]
mod apply;
#[cfg(feature = "fleet")]
mod backoff;
#[cfg(feature = "fleet")]
mod checkout;
#[cfg(feature = "fleet")]
pub mod copies;
pub mod figures;
#[cfg(feature = "fleet")]
pub mod health;
#[cfg(feature = "fleet")]
mod host;
#[cfg(feature = "fleet")]
mod lease;
#[cfg(feature = "fleet")]
pub mod membership;
#[cfg(feature = "fleet")]
mod notes;
#[cfg(feature = "fleet")]
mod source;
#[cfg(feature = "fleet")]
pub mod wakeups;

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{FleetNote, FleetRun, Store};

use crate::env::Env;
use crate::ui::Failure;

#[cfg(feature = "fleet")]
pub use apply::replace_kind;
#[cfg(feature = "fleet")]
pub use lease::{guard_recovery, hold};

/// The fleet-related result of a tick.
#[derive(Debug, Default)]
pub struct FleetStep {
    /// Runs that the caller must start now.
    pub start: Vec<RunId>,
    /// Problems that did not prevent the rest of the tick.
    pub troubles: Vec<String>,
    /// The fleets with silent hosts or a silent database. `None` if the build does not support
    /// fleets, or if this machine has never joined a fleet and no run is waiting for one.
    pub silent: Option<Vec<SilentFleet>>,
}

/// A fleet with hosts that have not been seen for too long, or whose database does not respond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentFleet {
    pub fleet: String,
    /// The time at which the most recent of these problems began.
    pub since: Timestamp,
    /// Names the silent hosts, and the database if it does not respond, each with the time of the
    /// last contact.
    pub why: String,
}

/// How long to wait before retrying a run whose fleet cannot be used.
const WAIT: SignedDuration = SignedDuration::from_mins(5);

/// Offers due runs, claims work, delivers results and applies them.
///
/// # Errors
/// Returns an error if the host's own database, files or settings cannot be used. Errors of a
/// fleet's database are included in the returned troubles instead.
pub fn step(home: &Env, store: &mut Store, me: &ProcessIdentity) -> Result<FleetStep, Failure> {
    let waiting = store.fleet_runs(home.wall()?)?;
    if waiting.is_empty() && !folder(home).is_dir() {
        return Ok(FleetStep::default());
    }
    #[cfg(feature = "fleet")]
    return apart(|| host::step(home, store, me, &waiting));
    #[cfg(not(feature = "fleet"))]
    {
        let why = format!("{} ({})", ABSENT.0, ABSENT.1);
        defer(home, store, me, &waiting, &why)?;
        Ok(FleetStep::default())
    }
}

/// Runs `work` on a separate thread. A connection to a fleet's database has its own runtime, which
/// must neither run nor be dropped on the daemon loop's thread.
#[cfg(feature = "fleet")]
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The message for a build without fleet support, and the command that fixes it.
pub const ABSENT: (&str, &str) =
    ("this build of runner does not support fleets", "cargo build --release --features fleet");

/// Removes the rows that were settled more than `age` ago from the databases of the fleets that
/// this host has joined. Returns any problems. On a host without a fleet, reads only one folder.
pub fn prune(home: &Env, age: SignedDuration) -> Vec<String> {
    #[cfg(feature = "fleet")]
    return membership::prune(home, age);
    #[cfg(not(feature = "fleet"))]
    {
        let (_, _) = (home, age);
        Vec::new()
    }
}

/// Returns the folder with the files of the fleets that this host has joined.
fn folder(home: &Env) -> PathBuf {
    home.state.join("fleets")
}

/// Defers waiting runs that have not been offered yet. An offered run waits for its result.
fn defer(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    waiting: &[FleetRun],
    why: &str,
) -> Result<(), Failure> {
    let now = home.wall()?;
    let until = now.saturating_add(WAIT).unwrap_or(now);
    for one in waiting.iter().filter(|one| !one.offered) {
        let fleet = one.policy.fleet.as_ref().map_or("", |fleet| fleet.name.as_str());
        let why = format!("fleet {fleet}: {why}");
        if store.start_for_fleet(&one.run, me, (FleetNote::Reported, &why), now)? {
            store.decline(&one.run, &Outcome::Deferred { until, why }, now)?;
        }
    }
    Ok(())
}
