//! Bugs on purpose: the proof that the crash simulation would find them.
//!
//! The core asks its `Faults` parameter at each place where a known mistake could be made.
//! Production code passes [`NoFault`], a type without a value whose answer is the constant "no": no
//! switch is left in the program. Only the simulation passes a [`OneFault`]. Nothing outside this
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
    /// The manifest is committed first, what is staged is synced second.
    ManifestBeforeStaging,
    /// A new folder's own name is not synced before something moves into it.
    NewParentUnsynced,
    /// The targets' folders are not synced.
    TargetDirUnsynced,
    /// The outcome is committed before the renames.
    OutcomeBeforeRenames,
    /// The outcome is committed after the renames and before the sync of their folders.
    OutcomeBeforeSync,
    /// A target is not compared with `before` just before it is replaced or removed.
    NoCheckBefore,
    /// The content that an exchange displaced is not compared.
    NoCheckDisplaced,
    /// The file that a removal took away is not compared.
    NoCheckRemoved,
    /// A rename may replace where it should meet nothing.
    ReplaceForNoreplace,
    /// Staged content is moved without being compared with `after`.
    TornAccepted,
    /// The last entry is left out.
    LastEntrySkipped,
    /// Staging is removed once the renames are done, before they are durable.
    StagingRemovedEarly,
    /// Recovery replaces a target that is neither `before` nor `after`.
    RecoveryOverwrites,
    /// Recovery discards staging although there is a manifest.
    RecoveryDiscards,
    /// Recovery takes what it sees as durable.
    RecoveryTrustsCache,
    /// Recovery commits whatever fence it holds.
    RecoveryIgnoresFence,
    /// Recovery commits with the dead run's fence.
    RecoveryUsesDeadFence,
    /// Recovery removes staging when it reports a conflict.
    ConflictDropsStaging,
    /// Recovery leaves staging behind.
    RecoveryLeavesStaging,
    /// Recovery carries out a manifest whose outcome is committed.
    RecoveryRepeatsSettled,
    /// A run that was taken over takes the refusal of its outcome for success.
    StaleOutcomeAccepted,
}

impl InjectedFault {
    /// All of them.
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

/// Which mistakes are made.
pub trait Faults: Copy {
    /// Returns whether this fault is injected.
    fn has(self, plant: InjectedFault) -> bool;
}

/// None: what production code passes.
#[derive(Clone, Copy, Debug)]
pub struct NoFault;

impl Faults for NoFault {
    #[inline(always)]
    fn has(self, _: InjectedFault) -> bool {
        false
    }
}

/// One, for the simulation.
#[derive(Clone, Copy, Debug)]
pub struct OneFault(pub Option<InjectedFault>);

impl Faults for OneFault {
    fn has(self, plant: InjectedFault) -> bool {
        self.0 == Some(plant)
    }
}
