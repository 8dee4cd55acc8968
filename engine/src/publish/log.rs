//! The log that records a publication's two commits.
//!
//! ```text
//! (no manifest) ──commit_manifest──> recorded ──commit_outcome──> settled
//! ```
//!
//! The log is the database, a marker file (see `marker.rs`), or a test log. Each commit is atomic
//! and durable, and checks the fence and the state first. A commit must never be split, retried
//! with another fence, or cached.

use std::error::Error;

use super::manifest::Manifest;
use crate::ids::{Fence, RunId};

/// Why the log refused a request or failed to process it.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process took over the run, so the request must not change anything.
    #[error("run {run} was taken over: its fence {} is behind the job's {}", .held.0, .current.0)]
    StaleFence {
        run: RunId,
        /// The fence in the request.
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
    /// The database or a marker file could not be read or written.
    #[error("the publication log could not be read or written")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

/// A manifest as recorded in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedManifest {
    /// The manifest that was committed before any file was moved.
    pub manifest: Manifest,
    /// Whether the outcome is committed. If it is, only the cleanup remains.
    pub settled: bool,
}

/// The two commits of a publication, and the query that recovery needs.
///
/// Rejected: one row per entry or a state per rename. The disk itself shows which renames were
/// made.
pub trait PublishLog {
    /// Returns the manifest recorded for `run`, if there is one.
    ///
    /// # Errors
    /// Returns only [`LogError::Store`].
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

    /// Settles the run durably with the outcome in its manifest, after the last sync. A recovery
    /// passes the fence that it obtained when it took over the run.
    ///
    /// # Errors
    /// Returns [`LogError::StaleFence`], [`LogError::NoManifest`], [`LogError::Settled`] or
    /// [`LogError::Store`].
    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError>;
}
