//! Publication: verified bytes move to their targets, all of them or none, whatever happens.
//!
//! This is the only journal in the program. A job drafts its artifacts into a staging folder under
//! the root of the targets ([`Draft`], behind `Scope`), its caller verifies them, and [`publish`]
//! does the rest; [`recover`], under the job's lock, finishes what a dead run began.
//!
//! ```text
//! drafted ──seal──> staged ──(b) commit manifest──> recorded ──(c) renames, syncs──> in place
//!    │                 │                                │ ▲                             │
//!    └──── dead ───────┴──> discarded            crash  └─┘ recover: roll forward       │
//!                                                       │               (d) commit outcome
//!                           a target is neither         ▼                               ▼
//!                           before nor after ──> conflict (kept,    settled ──clean──> done
//!                                                until it is mended)
//! ```
//!
//! Before (b) the live tree is untouched; after (d) it is wholly new; between them every target is
//! whole, and recovery completes it. The order of syncs guarantees this, and
//! `tests/crash_simulation.rs` proves it; `docs/RELIABILITY.md` has the model and the figures.
//!
//! This module must never write into a live file, never replace bytes it has not compared, never
//! overwrite another program's content, never move anything before its manifest is durable, and
//! never decide whether the bytes are good: the caller decides that before.

mod apply;
mod fs;
mod injected_faults;
mod log;
mod manifest;
pub mod marker;
mod path;
mod real;
mod stage;
#[cfg(test)]
mod tests;

pub use fs::{FsError, FsFailure, PathState, PublishFs};
#[doc(hidden)]
pub use injected_faults::{Faults, InjectedFault, NoFault, OneFault};
pub use log::{LogError, MemoryLog, PublishLog, RecordedManifest};
pub use manifest::{BadManifest, Manifest, ManifestEntry};
pub use path::{BadPath, RelPath};
pub use real::{RealFs, Regular};
pub use stage::{Draft, NEW_FILE_MODE};

pub use stage::discard;

use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use apply::Publisher;
use stage::clean;

/// Somebody else changed a target. Their bytes are in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{target} was changed by somebody else: it holds {found}, neither the old nor the new")]
pub struct Conflict {
    /// Which target.
    pub target: RelPath,
    /// The target's content, or the obstacle at its path.
    pub found: PathState,
}

/// A publication that did not finish.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A target changed before anything was recorded: nothing was touched, staging is gone.
    #[error("nothing was published: {0}")]
    Changed(Conflict),
    /// A target changed after the manifest was recorded. Entries before it are in place; staging is
    /// kept; every recovery reports the same until the target holds the old or the new content.
    #[error("the publication stopped half-way: {0}")]
    Conflict(Conflict),
    /// A staged file does not hold what it should.
    #[error("{staged}, which was staged for {target}, is damaged or lost: it holds {found}")]
    Staged {
        /// The target for which the file was staged.
        target: RelPath,
        /// The staged file.
        staged: RelPath,
        /// The state of the staged file.
        found: PathState,
    },
    /// The manifest contradicts itself.
    #[error(transparent)]
    Manifest(#[from] BadManifest),
    /// The database refused: taken over, or done already.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The disk refused.
    #[error(transparent)]
    Fs(#[from] FsError),
}

/// A publication that is complete and settled.
#[derive(Debug)]
pub struct Published {
    /// How many targets were written or removed.
    pub entries: usize,
    /// Why staging could not be removed; it holds nothing that is needed, and [`recover`] tries
    /// again.
    pub leftover: Option<FsError>,
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The run had recorded nothing: the live tree is as it was, staging is gone. The run itself
    /// is still to be settled by the caller.
    Nothing,
    /// The publication is complete, and the run settled with this outcome.
    RolledForward(Outcome),
    /// The run was settled already; staging is gone.
    Cleaned,
}

/// Places what `manifest` names, whose staged files are durable and verified: checks every target,
/// records the manifest, moves, syncs, commits the outcome, removes staging. Called by the run's
/// own process, which holds the job's lock.
///
/// # Errors
/// Before the manifest is recorded an error leaves the live tree untouched and no staging; after
/// it, the next [`recover`] carries on from whatever state this one left.
pub fn publish(
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    manifest: &Manifest,
) -> Result<Published, PublishError> {
    place_with(NoFault, fs, log, manifest)
}

/// Finishes or discards what a dead `run` left. Called under the job's lock, with the `fence` that
/// the caller holds and the `staging` folder that the run was given; a recorded manifest names its
/// own. Any number of calls, interrupted anywhere, come to the same end.
///
/// # Errors
/// Returns [`PublishError::Conflict`] if another program's content is at the path of a target: that
/// content was not touched, staging is kept, and the result stays the same until a person fixes it.
/// Returns another error if the disk or the database refused, or a staged file was damaged: nothing
/// was overwritten, and the next call tries again.
pub fn recover(
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    run: &RunId,
    fence: Fence,
    staging: &RelPath,
) -> Result<Recovery, PublishError> {
    recover_with(NoFault, fs, log, run, fence, staging)
}

#[doc(hidden)]
pub fn place_with<F: Faults>(
    faults: F,
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    manifest: &Manifest,
) -> Result<Published, PublishError> {
    let Manifest { run, fence, staging, .. } = manifest;
    manifest.check()?;
    let recorded =
        check_all(fs, manifest).and_then(|()| Ok(log.commit_manifest(run, *fence, manifest)?));
    if let Err(error) = recorded {
        // A store that failed may still have recorded it: only its own word counts.
        if matches!(log.manifest(run), Ok(None)) {
            clean(fs, staging)?;
        }
        return Err(error);
    }
    if faults.has(InjectedFault::ManifestBeforeStaging) {
        for entry in &manifest.entries {
            entry.staged.as_ref().map_or(Ok(()), |staged| fs.sync_file(staged))?;
        }
        fs.sync_dir(Some(staging))?;
    }
    let carrier = Publisher { faults, fs, manifest, recovering: false };
    if faults.has(InjectedFault::OutcomeBeforeRenames) {
        log.commit_outcome(run, *fence)?;
        carrier.carry_out()?;
    } else {
        carrier.carry_out()?;
        match log.commit_outcome(run, *fence) {
            Err(LogError::StaleFence { .. }) if faults.has(InjectedFault::StaleOutcomeAccepted) => {
            }
            done => done?,
        }
        if faults.has(InjectedFault::OutcomeBeforeSync) {
            carrier.sync_targets()?;
        }
    }
    let leftover = clean(fs, staging).err();
    Ok(Published { entries: manifest.entries.len(), leftover })
}

#[doc(hidden)]
pub fn recover_with<F: Faults>(
    faults: F,
    fs: &impl PublishFs,
    log: &mut impl PublishLog,
    run: &RunId,
    fence: Fence,
    staging: &RelPath,
) -> Result<Recovery, PublishError> {
    let Some(RecordedManifest { manifest, settled }) = log.manifest(run)? else {
        clean(fs, staging)?;
        return Ok(Recovery::Nothing);
    };
    if faults.has(InjectedFault::RecoveryDiscards) {
        clean(fs, staging)?;
        return Ok(Recovery::Nothing);
    }
    if settled && !faults.has(InjectedFault::RecoveryRepeatsSettled) {
        clean(fs, &manifest.staging)?;
        return Ok(Recovery::Cleaned);
    }
    let carrier = Publisher { faults, fs, manifest: &manifest, recovering: true };
    if let Err(error) = carrier.carry_out() {
        let conflict = matches!(error, PublishError::Conflict(_));
        if conflict && faults.has(InjectedFault::ConflictDropsStaging) {
            clean(fs, &manifest.staging)?;
        }
        return Err(error);
    }
    let held =
        if faults.has(InjectedFault::RecoveryUsesDeadFence) { manifest.fence } else { fence };
    match log.commit_outcome(run, held) {
        Err(LogError::StaleFence { current, .. })
            if faults.has(InjectedFault::RecoveryIgnoresFence) =>
        {
            log.commit_outcome(run, current)?;
        }
        done => done?,
    }
    if faults.has(InjectedFault::OutcomeBeforeSync) {
        carrier.sync_targets()?;
    }
    if !faults.has(InjectedFault::RecoveryLeavesStaging) {
        clean(fs, &manifest.staging)?;
    }
    Ok(Recovery::RolledForward(manifest.outcome.clone()))
}

/// Checks that every target is still as the draft saw it (or already as it will be), and that every
/// staged file is as it should be. A change that is found before anything is recorded costs
/// nothing.
fn check_all(fs: &impl PublishFs, manifest: &Manifest) -> Result<(), PublishError> {
    for entry in &manifest.entries {
        let found = fs.inspect(&entry.target)?;
        if !found.is(entry.before) && !found.is(entry.after) {
            let target = entry.target.clone();
            return Err(PublishError::Changed(Conflict { target, found }));
        }
        if found.is(entry.after) && found != PathState::Absent {
            // Another program's file: a power cut after the manifest must not take it back.
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
