//! Publication: moves all of a run's verified files to their targets, or none of them, despite
//! crashes.
//!
//! A job writes its artifacts to a staging folder under the targets' root ([`Draft`], through
//! `Scope`). The job's caller verifies them, and [`publish`] moves them. After a crash, [`recover`]
//! finishes the publication under the job's lock.
//!
//! ```text
//! drafted ──seal──> staged ──(b) commit manifest──> recorded ──(c) renames, syncs──> in place
//!    │                 │                                │ ▲                             │
//!    └──── dead ───────┴──> discarded            crash  └─┘ recover: roll forward       │
//!                                                       │               (d) commit outcome
//!                           a target is neither         ▼                               ▼
//!                           before nor after ──> conflict (kept,    settled ──clean──> done
//!                                                until it is fixed)
//! ```
//!
//! Before (b), the live tree is unchanged. After (d), all targets are updated. In between, each
//! target has either its old or its new content, and recovery completes the publication. The order
//! of the syncs guarantees this, and `tests/crash_simulation.rs` verifies it. `docs/RELIABILITY.md`
//! describes the model and the figures.
//!
//! This module must never write into a live file, replace content that it has not compared,
//! overwrite another program's content, or move a file before the manifest is durable. It never
//! judges the content, which the caller verifies before the publication.

mod apply;
mod fs;
mod injected_faults;
mod log;
mod manifest;
pub mod marker;
#[cfg(feature = "fault-injection")]
mod memory_log;
mod path;
mod real;
mod stage;
#[cfg(test)]
mod tests;

pub use fs::{FsError, FsFailure, PathState, PublishFs};
#[doc(hidden)]
pub use injected_faults::{InjectedFault, inject};
pub use log::{LogError, PublishLog, RecordedManifest};
pub use manifest::{BadManifest, Manifest, ManifestEntry};
#[cfg(feature = "fault-injection")]
pub use memory_log::MemoryLog;
pub use path::{BadPath, RelPath};
pub use real::{RealFs, Regular};
pub use stage::{Draft, NEW_FILE_MODE};

pub use stage::discard;

use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use apply::Publisher;
use injected_faults::injected;

/// A target that another program has changed. The target keeps that program's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{target} was changed by another program: found {found}, which is neither the old nor the new \
     content"
)]
pub struct Conflict {
    pub target: RelPath,
    /// The target's content, or the type of the entry at its path.
    pub found: PathState,
}

/// A publication that did not finish.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A target changed before the manifest was recorded. The live tree is unchanged, and the
    /// staging folder has been removed.
    #[error("nothing was published: {0}")]
    Changed(Conflict),
    /// A target changed after the manifest was recorded. The preceding entries are in place, and
    /// the staging folder is kept. Every recovery reports the conflict until the target has its old
    /// or its new content.
    #[error("the publication stopped halfway: {0}")]
    Conflict(Conflict),
    /// A staged file does not have the expected content.
    #[error("{staged}, which was staged for {target}, is damaged or lost: found {found}")]
    Staged {
        /// The target for which the file was staged.
        target: RelPath,
        staged: RelPath,
        /// The state of the staged file.
        found: PathState,
    },
    /// The manifest contradicts itself.
    #[error(transparent)]
    Manifest(#[from] BadManifest),
    /// The log failed or refused a commit, for example because the run was taken over or is already
    /// settled.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A disk operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// A complete and settled publication.
#[derive(Debug)]
pub struct Published {
    /// The number of targets that were written or removed.
    pub entries: usize,
    /// The error that prevented the removal of the staging folder, if any. The folder is no longer
    /// needed, and [`recover`] tries again to remove it.
    pub leftover: Option<FsError>,
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The run had recorded no manifest. The live tree is unchanged, and the staging folder has
    /// been removed. The caller must still settle the run.
    Nothing,
    /// The publication is now complete, and the run is settled with this outcome.
    RolledForward(Outcome),
    /// The run was already settled, and the staging folder has been removed.
    Cleaned,
}

/// Publishes the entries of `manifest`, whose staged files must be durable and verified. The
/// function checks every target, records the manifest, moves the files, syncs the folders, commits
/// the outcome and removes the staging folder. The caller must hold the job's lock.
///
/// # Errors
/// An error before the manifest is recorded leaves the live tree unchanged and removes the staging
/// folder. After a later error, the next [`recover`] continues from the state on disk.
pub fn publish(
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    manifest: &Manifest,
) -> Result<Published, PublishError> {
    let Manifest { run, fence, staging, .. } = manifest;
    let checked = manifest.check().map_err(PublishError::from);
    let recorded = checked
        .and_then(|()| check_all(fs, manifest))
        .and_then(|()| Ok(log.commit_manifest(run, *fence, manifest)?));
    if let Err(error) = recorded {
        // A log that returned an error may still have recorded the manifest.
        if matches!(log.manifest(run), Ok(None))
            && let Err(other) = discard(fs, staging)
        {
            tracing::warn!(error = %other, "the staging folder is removed later");
        }
        return Err(error);
    }
    if injected(InjectedFault::ManifestBeforeStaging) {
        for entry in &manifest.entries {
            entry.staged.as_ref().map_or(Ok(()), |staged| fs.sync_file(staged))?;
        }
        fs.sync_dir(Some(staging))?;
    }
    let carrier = Publisher { fs, manifest, recovering: false };
    if injected(InjectedFault::OutcomeBeforeRenames) {
        log.commit_outcome(run, *fence)?;
        carrier.carry_out()?;
    } else {
        carrier.carry_out()?;
        match log.commit_outcome(run, *fence) {
            Err(LogError::StaleFence { .. }) if injected(InjectedFault::StaleOutcomeAccepted) => {}
            done => done?,
        }
        if injected(InjectedFault::OutcomeBeforeSync) {
            carrier.sync_targets()?;
        }
    }
    let leftover = discard(fs, staging).err();
    Ok(Published { entries: manifest.entries.len(), leftover })
}

/// Finishes or discards the publication of a dead `run`. The caller must hold the job's lock and
/// pass its own fence. `staging` is used only if no manifest is recorded. The function is
/// idempotent, even after an interruption.
///
/// # Errors
/// Returns [`PublishError::Conflict`] if a target has another program's content. That content is
/// unchanged, the staging folder is kept, and every call returns the same error until someone
/// resolves the conflict. Returns another error if the disk or the log fails or a staged file is
/// damaged. In that case, nothing is overwritten and the next call tries again.
pub fn recover(
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    run: &RunId,
    fence: Fence,
    staging: &RelPath,
) -> Result<Recovery, PublishError> {
    let Some(RecordedManifest { manifest, settled }) = log.manifest(run)? else {
        discard(fs, staging)?;
        return Ok(Recovery::Nothing);
    };
    if injected(InjectedFault::RecoveryDiscards) {
        discard(fs, staging)?;
        return Ok(Recovery::Nothing);
    }
    if settled && !injected(InjectedFault::RecoveryRepeatsSettled) {
        discard(fs, &manifest.staging)?;
        return Ok(Recovery::Cleaned);
    }
    let carrier = Publisher { fs, manifest: &manifest, recovering: true };
    if let Err(error) = carrier.carry_out() {
        let conflict = matches!(error, PublishError::Conflict(_));
        if conflict && injected(InjectedFault::ConflictDropsStaging) {
            discard(fs, &manifest.staging)?;
        }
        return Err(error);
    }
    let held = if injected(InjectedFault::RecoveryUsesDeadFence) { manifest.fence } else { fence };
    match log.commit_outcome(run, held) {
        Err(LogError::StaleFence { current, .. })
            if injected(InjectedFault::RecoveryIgnoresFence) =>
        {
            log.commit_outcome(run, current)?;
        }
        done => done?,
    }
    if injected(InjectedFault::OutcomeBeforeSync) {
        carrier.sync_targets()?;
    }
    if !injected(InjectedFault::RecoveryLeavesStaging) {
        discard(fs, &manifest.staging)?;
    }
    Ok(Recovery::RolledForward(manifest.outcome.clone()))
}

/// Checks that every target has its old or its new content, and that every staged file is intact.
/// Nothing has been recorded yet, so a mismatch is harmless.
fn check_all(fs: &impl PublishFs, manifest: &Manifest) -> Result<(), PublishError> {
    for entry in &manifest.entries {
        let found = fs.inspect(&entry.target)?;
        if !found.is(entry.before) && !found.is(entry.after) {
            let target = entry.target.clone();
            return Err(PublishError::Changed(Conflict { target, found }));
        }
        if found.is(entry.after) && found != PathState::Absent {
            // Another program wrote the new content. Without a sync, a power cut could revert it
            // after the manifest is recorded.
            fs.sync_file(&entry.target)?;
        }
        let Some(staged) = &entry.staged else {
            continue;
        };
        let found = fs.inspect(staged)?;
        if !found.is(entry.after) {
            let (target, staged) = (entry.target.clone(), staged.clone());
            return Err(PublishError::Staged { target, staged, found });
        }
    }
    Ok(())
}
