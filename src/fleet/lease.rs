//! Renews the lease of a run in progress, and stops the run when the lease cannot be renewed.
//!
//! ```text
//! every third of the lease: renew ──ok──> the lease starts again
//!                              ├─ claim is over, or cancelled ──> the run is asked to stop
//!                              └─ no answer ──> shortly before expiry: the run is asked to stop
//! ```
//!
//! A run that finishes too late changes nothing on the home host, which checks the fence at both
//! commits.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use runner_engine::ids::{Fence, RunId};
use runner_engine::process::Cancel;
use runner_engine::publish::LogError;
use runner_engine::store::{CommitGuard, FleetNote, Store};
use runner_engine::time::boot_time;
use runner_fleet::{FleetError, FleetStore as _, Postgres};

use super::notes::{ApplyNote, ClaimNote};
use super::{backoff, membership};
use crate::config::Fleet;
use crate::env::Env;
use crate::ui::Failure;

/// Maximum time between the request to stop a run and the expiry of its lease.
const MARGIN: Duration = Duration::from_secs(20);

/// A lease that is renewed until this value is dropped.
#[derive(Debug)]
pub struct HeldLease {
    /// Dropping it stops the thread.
    _stop: Sender<()>,
}

/// Keeps renewing the lease of a run that works on a claim, and installs the check for the run's
/// commits. Returns `None` for a run without a claim.
///
/// # Errors
/// Returns an error if the run's note or the fleet's settings cannot be used, or if the thread that
/// renews the lease cannot be started.
pub fn hold(
    home: &Env,
    store: &mut Store,
    run: &RunId,
    cancel: &Cancel,
) -> Result<Option<HeldLease>, Failure> {
    let Some(guard) = guard_of(home, store, run)? else { return Ok(None) };
    let claim = match &guard.note {
        CheckedNote::Worker(note) => Some(note.clone()),
        CheckedNote::Home(_) => None,
    };
    store.set_commit_guard(Box::new(guard));
    let Some(note) = claim else { return Ok(None) };
    let database = membership::database(&membership::settings(home, &note.fleet)?)?;
    let (stop, stopped) = mpsc::channel();
    let cancel = cancel.clone();
    let mut keeper = LeaseKeeper { end: Duration::from_millis(note.until), note, database };
    // Without the thread, the run would lose its lease and its result.
    thread::Builder::new()
        .spawn(move || {
            let mut wait = Duration::ZERO;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
                match keeper.renew() {
                    Ok(next) => wait = next,
                    Err(why) => return cancel.cancel(why),
                }
            }
        })
        .map_err(|error| Failure::environment(format!("cannot start a thread: {error}")))?;
    Ok(Some(HeldLease { _stop: stop }))
}

/// Lets recovery complete a fleet run's publication only while the run's claim or result is valid.
/// Other runs are not affected.
pub fn guard_recovery(home: &Env, store: &mut Store) {
    if super::folder(home).is_dir() {
        store.set_commit_guard(Box::new(RecoveryGuard(home.clone())));
    }
}

struct RecoveryGuard(Env);

impl CommitGuard for RecoveryGuard {
    fn check(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        super::apart(|| self.allows(run, fence))
    }
}

impl RecoveryGuard {
    fn allows(&self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        let home = &self.0;
        let unknown = |failure: Failure| LogError::Store(failure.to_string().into());
        let store = home.store_to_read().map_err(|error| unknown(error.into()))?;
        let note = store.map(|store| CheckedNote::of(&store, run)).transpose().map_err(unknown)?;
        let Some(note) = note.flatten() else { return Ok(()) };
        let fleet = note.fleet();
        if let Some(why) = backoff::reason(home, fleet) {
            return Err(LogError::Store(why.into()));
        }
        let settings = membership::settings_if_any(home, fleet).map_err(unknown)?;
        // Without settings, nothing can ever allow the commit, and the commit must not wait
        // forever.
        let Some(settings) = settings else { return Err(stale(run, fence)) };
        let mut database = membership::database(&settings).map_err(unknown)?;
        note.check(&mut database).map_err(|error| {
            if error.is_transient() {
                let why = error.to_string();
                let noted = backoff::note(home, (fleet, lease(&settings)), &why);
                noted.unwrap_or_else(|failure| tracing::warn!(%failure, "the wait was not noted"));
            }
            refused(error, run, fence)
        })
    }
}

/// Returns the check for a run's commits, or `None` for a run without a claim or a result.
fn guard_of(home: &Env, store: &Store, run: &RunId) -> Result<Option<FleetGuard>, Failure> {
    let Some(note) = CheckedNote::of(store, run)? else { return Ok(None) };
    let database = membership::database(&membership::settings(home, note.fleet())?)?;
    Ok(Some(FleetGuard { note, database: Box::new(database) }))
}

/// Returns the configured length of a lease.
pub fn lease(settings: &Fleet) -> Duration {
    settings.lease.try_into().unwrap_or(Duration::ZERO)
}

struct LeaseKeeper {
    note: ClaimNote,
    database: Postgres,
    /// The boot time at which the lease expires.
    end: Duration,
}

impl LeaseKeeper {
    /// Renews the lease once. Returns the time until the next attempt, or the reason the run must
    /// stop.
    fn renew(&mut self) -> Result<Duration, String> {
        let lease = Duration::from_millis(self.note.lease);
        let ends = self.end.saturating_sub((lease / 4).min(MARGIN));
        // The lease is measured from just before the request is sent, so it never expires later
        // here than in the database.
        let asked = boot_time();
        if asked >= ends {
            return Err(
                "the lease of its claim is about to expire, and the fleet's database does not answer".to_owned()
            );
        }
        let note = &self.note;
        // A server that stops responding must not delay the end of the run.
        self.database.limit(ends.saturating_sub(asked));
        match self.database.renew(&note.occurrence, note.fence, &note.worker) {
            Ok(renewed) => {
                self.end = asked.saturating_add(lease);
                renewed.cancel.map_or(Ok(lease / 3), Err)
            }
            Err(FleetError::Unreachable(why)) => {
                tracing::warn!(why, "the lease was not renewed");
                Ok((lease / 12).min(ends.saturating_sub(boot_time())))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A run's role in a fleet, which determines when the run may commit.
#[derive(Debug)]
enum CheckedNote {
    /// The run works on a claim in a copy of the project. It may commit while the claim is valid.
    Worker(ClaimNote),
    /// The run publishes a result on the home host. It may commit while no other result has
    /// replaced that result.
    Home(Box<ApplyNote>),
}

impl CheckedNote {
    /// Returns a run's note, or `None` if the run has neither a claim nor a result.
    fn of(store: &Store, run: &RunId) -> Result<Option<Self>, Failure> {
        let broken = |error: serde_json::Error| {
            Failure::internal(format!("the claim or the result of run {run}: {error}"))
        };
        if let Some(text) = store.fleet_note(run, FleetNote::Applies)? {
            return Ok(Some(Self::Home(serde_json::from_str(&text).map_err(broken)?)));
        }
        let Some(text) = store.fleet_note(run, FleetNote::Claimed)? else { return Ok(None) };
        Ok(Some(Self::Worker(serde_json::from_str(&text).map_err(broken)?)))
    }

    fn fleet(&self) -> &str {
        match self {
            Self::Worker(note) => &note.fleet,
            Self::Home(note) => &note.fleet,
        }
    }

    fn check(&self, database: &mut Postgres) -> Result<(), FleetError> {
        match self {
            Self::Worker(note) => {
                database.renew(&note.occurrence, note.fence, &note.worker).map(drop)
            }
            Self::Home(note) => database.begin_publish(&note.occurrence, note.fence, &note.home),
        }
    }
}

/// Lets a run commit while the fleet allows it.
struct FleetGuard {
    note: CheckedNote,
    database: Box<Postgres>,
}

impl CommitGuard for FleetGuard {
    fn check(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.note.check(&mut self.database).map_err(|error| refused(error, run, fence))
    }
}

fn refused(error: FleetError, run: &RunId, fence: Fence) -> LogError {
    match error {
        FleetError::Stale(_) => stale(run, fence),
        other => LogError::Store(Box::new(other)),
    }
}

fn stale(run: &RunId, fence: Fence) -> LogError {
    LogError::StaleFence { run: run.clone(), held: fence, current: Fence(fence.0 + 1) }
}
