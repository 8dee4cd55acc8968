//! Injected faults, which prove that the crash simulation would find such bugs.
//!
//! The core asks its `Faults` parameter at each place where a known mistake could be made.
//! Production code passes [`NoFault`], a zero-sized type that always answers `false`, so that no
//! switch is left in the program. Only the simulation passes a [`OneFault`]. No code outside this
//! folder's core and that test may name these types.

/// A mistake that tests can inject into the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InjectedFault {
    /// A staged file is not synced.
    StagedFileUnsynced,
    /// The staging folder is not synced.
    StagingDirUnsynced,
    /// The staging folder's own name is not synced.
    StagingParentUnsynced,
    /// The manifest is committed before the staged files are synced.
    ManifestBeforeStaging,
    /// The name of a new folder is not synced before a file moves into it.
    NewParentUnsynced,
    /// The targets' folders are not synced.
    TargetDirUnsynced,
    /// The outcome is committed before the renames.
    OutcomeBeforeRenames,
    /// The outcome is committed after the renames and before the sync of their folders.
    OutcomeBeforeSync,
    /// A target is not compared with `before` right before it is replaced or removed.
    NoCheckBefore,
    /// The content that an exchange displaced is not compared.
    NoCheckDisplaced,
    /// The file that a removal took away is not compared.
    NoCheckRemoved,
    /// A rename that must not replace anything may replace a file.
    ReplaceForNoreplace,
    /// Staged content is moved without being compared with `after`.
    TornAccepted,
    /// The last entry is skipped.
    LastEntrySkipped,
    /// The staging folder is removed after the renames, before they are durable.
    StagingRemovedEarly,
    /// Recovery replaces a target that matches neither `before` nor `after`.
    RecoveryOverwrites,
    /// Recovery discards the staging folder although there is a manifest.
    RecoveryDiscards,
    /// Recovery assumes that the state it sees is durable.
    RecoveryTrustsCache,
    /// Recovery commits with any fence it holds, without a check.
    RecoveryIgnoresFence,
    /// Recovery commits with the dead run's fence.
    RecoveryUsesDeadFence,
    /// Recovery removes the staging folder when it reports a conflict.
    ConflictDropsStaging,
    /// Recovery does not remove the staging folder.
    RecoveryLeavesStaging,
    /// Recovery carries out a manifest whose outcome is already committed.
    RecoveryRepeatsSettled,
    /// A run that was taken over treats the refusal of its outcome as success.
    StaleOutcomeAccepted,
}

impl InjectedFault {
    /// All faults.
    pub const ALL: [Self; 24] = [
        Self::StagedFileUnsynced,
        Self::StagingDirUnsynced,
        Self::StagingParentUnsynced,
        Self::ManifestBeforeStaging,
        Self::NewParentUnsynced,
        Self::TargetDirUnsynced,
        Self::OutcomeBeforeRenames,
        Self::OutcomeBeforeSync,
        Self::NoCheckBefore,
        Self::NoCheckDisplaced,
        Self::NoCheckRemoved,
        Self::ReplaceForNoreplace,
        Self::TornAccepted,
        Self::LastEntrySkipped,
        Self::StagingRemovedEarly,
        Self::RecoveryOverwrites,
        Self::RecoveryDiscards,
        Self::RecoveryTrustsCache,
        Self::RecoveryIgnoresFence,
        Self::RecoveryUsesDeadFence,
        Self::ConflictDropsStaging,
        Self::RecoveryLeavesStaging,
        Self::RecoveryRepeatsSettled,
        Self::StaleOutcomeAccepted,
    ];
}

/// Decides which faults are injected.
pub trait Faults: Copy {
    /// Returns whether this fault is injected.
    fn has(self, plant: InjectedFault) -> bool;
}

/// No fault, for production code.
#[derive(Clone, Copy, Debug)]
pub struct NoFault;

impl Faults for NoFault {
    #[inline(always)]
    fn has(self, _: InjectedFault) -> bool {
        false
    }
}

/// At most one fault, for the simulation.
#[derive(Clone, Copy, Debug)]
pub struct OneFault(pub Option<InjectedFault>);

impl Faults for OneFault {
    fn has(self, plant: InjectedFault) -> bool {
        self.0 == Some(plant)
    }
}
