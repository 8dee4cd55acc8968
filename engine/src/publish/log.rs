//! The log that records a publication's two commits.
//!
//! ```text
//! (no manifest) ──commit_manifest──> recorded ──commit_outcome──> settled
//! ```
//!
//! The database implements the log in SQLite; tests use `MemoryLog` and the crash simulation's
//! log instead. Each commit is one durable, atomic step that compares the fence and the state in
//! the same transaction. A commit must never be split, retried with another fence, or cached.

use std::error::Error;

use super::manifest::Manifest;
use crate::ids::{Fence, RunId};

/// The reason why the log refused a request or failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process took over the run, so the request may not change anything.
    #[error("run {run} was taken over: it holds fence {}, the job is at {}", .held.0, .current.0)]
    StaleFence {
        run: RunId,
        /// The fence that the request carried.
        held: Fence,
        current: Fence,
    },
    /// The run already has a manifest.
    #[error("run {run} already has a manifest")]
    ManifestExists { run: RunId },
    /// The run has no recorded manifest.
    #[error("run {run} has no manifest")]
    NoManifest { run: RunId },
    /// The run's outcome is already committed.
    #[error("the outcome of run {run} is already committed")]
    Settled { run: RunId },
    /// The store failed.
    #[error("the database could not answer")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

/// A manifest as recorded in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedManifest {
    /// The manifest that was committed before any file was moved.
    pub manifest: Manifest,
    /// Whether the outcome is committed, so that only the cleanup remains.
    pub settled: bool,
}

/// The two commits and the query for recovery. Only [`super::publish`] and [`super::recover`] call
/// these methods, under the job's lock. A richer log (one row per entry, or a state per rename) was
/// rejected: the disk itself shows which renames were made.
pub trait PublishLog {
    /// Returns the manifest recorded for `run`, if there is one.
    ///
    /// # Errors
    /// Returns [`LogError::Store`] only.
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError>;

    /// Records the manifest durably before the first rename.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`] if `fence` is not the job's current fence,
    /// [`LogError::ManifestExists`] if the run already has a manifest, or [`LogError::Store`] if
    /// the store fails.
    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError>;

    /// Settles the run durably, after the last sync, with the outcome in its manifest. `fence` is
    /// the caller's fence: a recovery passes the fence that it got when it took over the run.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`], [`LogError::NoManifest`], [`LogError::Settled`] or
    /// [`LogError::Store`].
    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError>;
}
