//! Takes a run's locks: first the contract's lock, then the deciding lock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::files::beneath;
use runner_engine::locks::{ContractLock, JobLock, LockError, LockHolder, job_lock_path};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::policy::Overlap;
use runner_engine::store::{Origin, RunRow, RunState, Store};
use runner_engine::time::boot_time;
use rustix::event::{Timespec, poll};

use super::{NotAdmitted, ResolvedRun, refuse};
use crate::env::Env;
use crate::ui::Failure;

/// The delay before retrying a run whose lock another process holds.
const TURN_WAIT: SignedDuration = SignedDuration::from_secs(60);
/// Interval between two attempts to take the lock of an active run.
const LOCK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(super) fn take_locks(
    home: &Env,
    store: &Store,
    setting: &ResolvedRun<'_>,
    holder: &LockHolder,
) -> Result<(JobLock, Option<ContractLock>), NotAdmitted> {
    let contract = match contract_lock_path(setting)? {
        Some(path) => Some(
            ContractLock::take(&path, holder, holder.since).map_err(|it| not_ours(setting, it))?,
        ),
        None => None,
    };
    // The path uses the names from the database, as recovery does.
    let path = job_lock_path(&home.state, &setting.row.project, &setting.row.job_name);
    let mut lock = take_lock(store, setting, &path).map_err(|it| not_ours(setting, it))?;
    lock.sign(holder)
        .map_err(|error| Failure::cannot_write(format!("cannot write the lock file: {error}")))?;
    if let Some(contract) = &contract
        && let Some(left) = contract.claim().map_err(|it| not_ours(setting, it))?
    {
        tracing::warn!(left, "another program's old lock file was replaced");
    }
    Ok((lock, contract))
}

/// Takes the deciding lock. A manual run waits for an active run, for at most the time that the
/// job's kind allows.
fn take_lock(store: &Store, setting: &ResolvedRun<'_>, path: &Path) -> Result<JobLock, LockError> {
    let at_work = |holder: &LockHolder| {
        let unsettled = |run: RunRow| !matches!(run.state, RunState::Settled { .. });
        holder.owner.is_alive() && store.run(&holder.run).is_ok_and(unsettled)
    };
    let wait = match setting.row.origin {
        Origin::Manual => setting.spec.kind.manual_wait(),
        Origin::Queue | Origin::Clock | Origin::Event => Duration::ZERO,
    };
    let until = boot_time() + wait;
    loop {
        match JobLock::take_for_run(path, at_work) {
            // `flock` has no timeout, so this loop polls.
            Err(LockError::Held { .. }) if boot_time() < until => {
                let _turn = poll(&mut [], Some(&LOCK_INTERVAL));
            }
            taken => return taken,
        }
    }
}

/// Returns the path of the contract's lock file, or `None` if the kind has no such file.
pub(super) fn contract_lock_path(
    setting: &ResolvedRun<'_>,
) -> Result<Option<PathBuf>, NotAdmitted> {
    let Some(path) = setting.spec.kind.lock_file() else { return Ok(None) };
    beneath(&setting.here.root, &path)
        .map(Some)
        .map_err(|error| refuse(Class::Environment, error.to_string()))
}

/// Converts a lock error to an outcome. If another process holds the lock, a queued run is
/// deferred, a manual run is skipped, and the job's overlap policy decides about any other run. Any
/// other error is a failure.
pub(super) fn not_ours(setting: &ResolvedRun<'_>, error: LockError) -> NotAdmitted {
    let waits = match setting.row.origin {
        Origin::Manual => false,
        Origin::Queue => true,
        Origin::Clock | Origin::Event => setting.overlap() != Overlap::Skip,
    };
    match &error {
        LockError::Held { .. } | LockError::Foreign { .. } if waits => {
            let now = setting.looked;
            NotAdmitted::Before(Outcome::Deferred {
                until: now.saturating_add(TURN_WAIT).unwrap_or(now),
                why: error.to_string(),
            })
        }
        LockError::Held { .. } | LockError::Foreign { .. } => {
            NotAdmitted::Before(Outcome::skipped(SkipReason::Busy, error.to_string()))
        }
        LockError::Io { source, .. } => refuse(Class::Environment, format!("{error}: {source}")),
    }
}
