//! Injects known bugs into publications, to verify that the crash simulation detects them.
//!
//! The publication code calls [`injected`] at each place where one of these bugs is possible.
//! Without the feature `fault-injection`, the result is the constant `false`. Only the publication
//! code and the crash simulation may use these items.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<InjectedFault>> = const { Cell::new(None) };
}

/// A bug that tests can inject into the publication code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub enum InjectedFault {
    /// A staged file is not synced.
    StagedFileUnsynced,
    /// The staging folder is not synced.
    StagingDirUnsynced,
    /// The staging folder's name in its parent is not synced.
    StagingParentUnsynced,
    /// The manifest is committed before the staged files are synced.
    ManifestBeforeStaging,
    /// The name of a new folder is not synced before a file moves into it.
    NewParentUnsynced,
    /// The folders of the targets are not synced.
    TargetDirUnsynced,
    /// The outcome is committed before the renames.
    OutcomeBeforeRenames,
    /// The outcome is committed after the renames but before their folders are synced.
    OutcomeBeforeSync,
    /// A target is replaced or removed without first being compared with `before`.
    NoCheckBefore,
    /// The content that an exchange displaced is not checked.
    NoCheckDisplaced,
    /// The file that a removal moved away is not checked.
    NoCheckRemoved,
    /// A rename that must not replace a file may replace one.
    ReplaceForNoreplace,
    /// Staged content is moved without being compared with `after`.
    TornAccepted,
    /// The last entry is skipped.
    LastEntrySkipped,
    /// The staging folder is removed after the renames but before they are durable.
    StagingRemovedEarly,
    /// Recovery replaces a target that matches neither `before` nor `after`.
    RecoveryOverwrites,
    /// Recovery discards the staging folder even though a manifest is recorded.
    RecoveryDiscards,
    /// Recovery assumes that the state it sees is durable.
    RecoveryTrustsCache,
    /// Recovery commits without checking the fence.
    RecoveryIgnoresFence,
    /// Recovery commits with the dead run's fence.
    RecoveryUsesDeadFence,
    /// Recovery removes the staging folder when it reports a conflict.
    ConflictDropsStaging,
    /// Recovery does not remove the staging folder.
    RecoveryLeavesStaging,
    /// Recovery applies a manifest whose outcome is already committed.
    RecoveryRepeatsSettled,
    /// A run that was taken over ignores the refusal of its outcome.
    StaleOutcomeAccepted,
}

/// Injects a fault into the publications of this thread, and returns the previous one.
pub fn inject(fault: Option<InjectedFault>) -> Option<InjectedFault> {
    CURRENT.replace(fault)
}

/// Returns whether this fault is injected.
#[inline]
pub(super) fn injected(fault: InjectedFault) -> bool {
    cfg!(feature = "fault-injection") && CURRENT.get() == Some(fault)
}
