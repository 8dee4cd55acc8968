//! Where a publication's two commits go.
//!
//! ```text
//! (no manifest) ──commit_manifest──> recorded ──commit_outcome──> settled
//! ```
//!
//! The database implements it in SQLite; [`MemoryLog`] and the crash simulation's log stand in for
//! it in tests. Each commit is one durable, atomic step that compares the fence and the state in
//! the same transaction. It must never be split, retried with another fence, or cached.

use std::collections::BTreeMap;
use std::error::Error;

use super::manifest::Manifest;
use crate::ids::{Fence, RunId};

/// Why the log refused or could not answer.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The run was taken over: whatever it does now is no longer its to do.
    #[error("run {run} was taken over: it holds fence {}, the job is at {}", .held.0, .current.0)]
    StaleFence {
        /// The run that asked.
        run: RunId,
        /// The fence it came with.
        held: Fence,
        /// The job's current fence.
        current: Fence,
    },
    /// A manifest is written once.
    #[error("run {run} already has a manifest")]
    ManifestExists {
        /// The run that asked.
        run: RunId,
    },
    /// Nothing was recorded that could be settled.
    #[error("run {run} has no manifest")]
    NoManifest {
        /// The run that asked.
        run: RunId,
    },
    /// An outcome is committed once.
    #[error("the outcome of run {run} is already committed")]
    Settled {
        /// The run that asked.
        run: RunId,
    },
    /// The store itself failed.
    #[error("the database could not answer")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

/// A manifest as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedManifest {
    /// The manifest that was committed before anything was moved.
    pub manifest: Manifest,
    /// Whether its outcome is committed, so that nothing but cleaning is left.
    pub settled: bool,
}

/// The two commits and the query that recovery makes. Called by [`super::publish`] and
/// [`super::recover`] only, under the job's lock. A richer log (a row per entry, a state per
/// rename) was rejected: the disk itself shows how far the renames got.
pub trait PublishLog {
    /// Returns the manifest that was recorded for `run`, if there is one.
    ///
    /// # Errors
    /// Returns [`LogError::Store`] only.
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError>;

    /// Records the manifest, durably, before the first rename.
    ///
    /// # Errors
    /// [`LogError::StaleFence`] if `fence` is not the job's current one,
    /// [`LogError::ManifestExists`] if the run has one, [`LogError::Store`].
    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError>;

    /// Settles the run with the outcome its manifest names, durably, after the last sync. `fence`
    /// is the caller's own: a recovery comes with the one it was given at the take-over.
    ///
    /// # Errors
    /// [`LogError::StaleFence`], [`LogError::NoManifest`], [`LogError::Settled`],
    /// [`LogError::Store`].
    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError>;
}

/// A log of one job in memory, for tests: nothing in it outlives the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    /// The job's current fence; raise it to take over.
    pub fence: Fence,
    records: BTreeMap<RunId, RecordedManifest>,
}

impl MemoryLog {
    /// Creates a log whose job is at `fence`.
    pub fn new(fence: Fence) -> Self {
        Self { fence, records: BTreeMap::new() }
    }

    fn guard(&self, run: &RunId, held: Fence) -> Result<(), LogError> {
        if held == self.fence {
            return Ok(());
        }
        Err(LogError::StaleFence { run: run.clone(), held, current: self.fence })
    }
}

impl PublishLog for MemoryLog {
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError> {
        Ok(self.records.get(run).cloned())
    }

    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        self.guard(run, fence)?;
        if self.records.contains_key(run) {
            return Err(LogError::ManifestExists { run: run.clone() });
        }
        self.records
            .insert(run.clone(), RecordedManifest { manifest: manifest.clone(), settled: false });
        Ok(())
    }

    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        self.guard(run, fence)?;
        let record =
            self.records.get_mut(run).ok_or_else(|| LogError::NoManifest { run: run.clone() })?;
        if record.settled {
            return Err(LogError::Settled { run: run.clone() });
        }
        record.settled = true;
        Ok(())
    }
}
