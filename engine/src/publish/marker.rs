//! Publications recorded in a file next to the published files: `COMMIT-MARKER.<n>`.
//!
//! Markers are for trees that are read by other programs and that may be on a host without the
//! database. Writing the marker commits the manifest, so the next process needs only the tree to
//! finish the publication.
//!
//! ```text
//! (no marker) ──commit_manifest──> READY{manifest} ──renames──commit_outcome──> DONE ──finish──> (no marker)
//!                                     │  ▲
//!                               crash └──┘ settle: the next process, under the tree's lock
//! ```
//!
//! A reader that respects the marker never treats a READY tree as complete. It calls [`settle`], or
//! waits for the process that is publishing. Each change to the marker is one rename, which is
//! durable before the next step. Both commits check the fence through a [`CommitGuard`]. A commit
//! must never be split, and a marker must never be overwritten in place.
//!
//! Rejected: recording these commits in the database. A run commits many times, and a commit could
//! not be finished if the database and the tree were on different machines.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fs::{FsError, PublishFs};
use super::log::{LogError, PublishLog, RecordedManifest};
use super::manifest::Manifest;
use super::path::RelPath;
use super::{PublishError, Recovery, recover};
use crate::ids::{Fence, RunId};

/// Prefix of a marker's file name, followed by a number.
pub const PREFIX: &str = "COMMIT-MARKER.";
/// Name prefix of a commit's folder, which is located next to the commit's marker.
pub const FOLDER_PREFIX: &str = "prev.";
/// Maximum size of a marker in bytes. Larger files are not read.
const LONGEST: u64 = 256 * 1024 * 1024;

/// A disk that can also read files.
pub trait MarkerFs: PublishFs {
    /// Reads a file of at most `limit` bytes. Returns `None` if the file does not exist, is not a
    /// regular file, or is larger.
    ///
    /// # Errors
    /// Returns an error if the disk operation fails.
    fn read(&self, path: &RelPath, limit: u64) -> Result<Option<Vec<u8>>, FsError>;
}

/// The state of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MarkerState {
    /// The manifest is recorded. Its moves may be incomplete.
    Ready,
    /// All entries are in place.
    Done,
}

/// The content of a marker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Marker {
    pub state: MarkerState,
    /// The id of the iteration that created the commit.
    pub iteration_id: String,
    /// The start time of the iteration in RFC 3339 format.
    pub started_at: String,
    /// The committer's own data. It is kept even if another process finishes the commit.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub record: Value,
    /// The manifest, until all of its entries are in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Manifest>,
    /// The publication's staging folder, which is removed after the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<RelPath>,
}

/// A check that a run still holds its fence.
pub type CommitGuard<'a> = dyn Fn(&RunId, Fence) -> Result<(), LogError> + 'a;

/// The log of one commit, stored in a marker file.
pub struct MarkerLog<'a, F> {
    fs: &'a F,
    path: RelPath,
    draft: Marker,
    guard: &'a CommitGuard<'a>,
}

impl<'a, F: MarkerFs> MarkerLog<'a, F> {
    /// Creates a log for the marker at `path`. The log sets the state, the manifest and the staging
    /// folder, and takes the other fields from `draft`.
    pub fn new(fs: &'a F, path: RelPath, draft: Marker, guard: &'a CommitGuard<'a>) -> Self {
        Self { fs, path, draft, guard }
    }

    fn write(&self, marker: &Marker) -> Result<(), LogError> {
        let bytes = serde_json::to_vec(marker).expect("a marker has string keys only");
        let temp = beside(&self.path);
        let done = || -> Result<(), FsError> {
            match self.fs.remove_file(&temp) {
                Err(error) if !error.is_missing() => return Err(error),
                _ => {}
            }
            self.fs.write_new(&temp, &bytes, 0o644)?;
            self.fs.sync_file(&temp)?;
            self.fs.rename_replace(&temp, &self.path)?;
            self.fs.sync_dir(self.path.parent().as_ref())
        };
        done().map_err(store)
    }
}

impl<F: MarkerFs> PublishLog for MarkerLog<'_, F> {
    fn manifest(&self, run: &RunId) -> Result<Option<RecordedManifest>, LogError> {
        let Some(marker) = inspect(self.fs, &self.path).map_err(store)? else {
            return Ok(None);
        };
        Ok(marker.manifest.filter(|manifest| manifest.run == *run).map(|manifest| {
            RecordedManifest { manifest, settled: marker.state == MarkerState::Done }
        }))
    }

    fn commit_manifest(
        &mut self,
        run: &RunId,
        fence: Fence,
        manifest: &Manifest,
    ) -> Result<(), LogError> {
        (self.guard)(run, fence)?;
        let there = self.fs.inspect(&self.path).map_err(store)?;
        if there != super::PathState::Absent {
            return Err(LogError::ManifestExists { run: run.clone() });
        }
        self.write(&Marker {
            state: MarkerState::Ready,
            manifest: Some(manifest.clone()),
            staging: Some(manifest.staging.clone()),
            ..self.draft.clone()
        })
    }

    fn commit_outcome(&mut self, run: &RunId, fence: Fence) -> Result<(), LogError> {
        let marker = inspect(self.fs, &self.path).map_err(store)?;
        let Some(marker) = marker else {
            return Err(LogError::NoManifest { run: run.clone() });
        };
        if marker.state == MarkerState::Done {
            return Err(LogError::Settled { run: run.clone() });
        }
        (self.guard)(run, fence)?;
        self.write(&Marker { state: MarkerState::Done, manifest: None, ..marker })
    }
}

/// The result of settling a marker left by an earlier process.
#[derive(Debug)]
pub enum MarkerOutcome {
    /// The publication was finished.
    RolledForward(Box<Marker>),
    /// The publication was already complete.
    Done(Box<Marker>),
    /// Another program wrote the marker, or the marker is unreadable or invalid. It is unchanged.
    Foreign(RelPath),
}

/// Lists the markers in `folder` in numerical order.
///
/// # Errors
/// Returns an error if the disk operation fails.
pub fn list(fs: &impl MarkerFs, folder: &RelPath) -> Result<Vec<RelPath>, FsError> {
    let mut found: Vec<(u64, RelPath)> = Vec::new();
    for name in fs.list(folder)?.unwrap_or_default() {
        let number = name.strip_prefix(PREFIX).and_then(|rest| rest.parse::<u64>().ok());
        if let (Some(number), Ok(path)) = (number, folder.join(&name)) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Reads the marker at `path`. Returns `None` if the file does not exist, is not a valid marker, or
/// was written by another program.
///
/// # Errors
/// Returns an error if the disk operation fails.
pub fn inspect(fs: &impl MarkerFs, path: &RelPath) -> Result<Option<Marker>, FsError> {
    let bytes = fs.read(path, LONGEST)?;
    let marker = bytes.and_then(|bytes| serde_json::from_slice::<Marker>(&bytes).ok());
    // Any program can write a file in the tree. runner's own markers always name a staging folder
    // next to the marker.
    let own = |staging: &RelPath| {
        staging.parent() == path.parent() && staging.name().starts_with(FOLDER_PREFIX)
    };
    Ok(marker.filter(|marker| {
        let manifest = marker.manifest.as_ref();
        let same = manifest.is_none_or(|it| Some(&it.staging) == marker.staging.as_ref());
        same && marker.staging.as_ref().is_some_and(own)
    }))
}

/// Finishes every incomplete commit in `folder`. The markers of finished commits remain until
/// [`finish`] removes them. A marker that would change anything outside `allowed` is treated as
/// another program's and left unchanged. The caller must hold the tree's lock. The function is
/// idempotent, even after an interruption.
///
/// # Errors
/// Returns the errors of [`recover`], and an error if a marker cannot be listed, read or synced.
pub fn settle(
    fs: &impl MarkerFs,
    folder: &RelPath,
    allowed: &[RelPath],
) -> Result<Vec<MarkerOutcome>, PublishError> {
    let mut all = Vec::new();
    for path in list(fs, folder)? {
        let Some(marker) = inspect(fs, &path)? else {
            all.push(MarkerOutcome::Foreign(path));
            continue;
        };
        let Some(manifest) = marker.manifest.clone() else {
            all.push(MarkerOutcome::Done(Box::new(marker)));
            continue;
        };
        let ours = |target: &RelPath| allowed.iter().any(|it| target.is_within(it));
        let sound = manifest.check().is_ok();
        if !sound || !manifest.entries.iter().all(|entry| ours(&entry.target)) {
            all.push(MarkerOutcome::Foreign(path));
            continue;
        }
        // The marker may not be durable yet. If a power cut removed it after the moves, a
        // half-finished commit would remain without a record.
        fs.sync_file(&path)?;
        fs.sync_dir(Some(folder))?;
        // The process that recorded the manifest is dead, and the tree's lock replaces its fence.
        let free = |_: &RunId, _: Fence| Ok(());
        let mut log = MarkerLog::new(fs, path, marker.clone(), &free);
        let staging = manifest.staging.clone();
        match recover(fs, &mut log, &manifest.run, manifest.fence, &staging)? {
            Recovery::RolledForward(_) => all.push(MarkerOutcome::RolledForward(Box::new(marker))),
            Recovery::Nothing | Recovery::Cleaned => {
                all.push(MarkerOutcome::Done(Box::new(marker)))
            }
        }
    }
    Ok(all)
}

/// Removes the markers and the staging folders of finished commits.
///
/// # Errors
/// Returns an error if the disk operation fails.
pub fn finish(fs: &impl MarkerFs, folder: &RelPath) -> Result<(), FsError> {
    for path in list(fs, folder)? {
        let Some(marker) = inspect(fs, &path)? else {
            continue;
        };
        if marker.state == MarkerState::Done {
            if let Some(staging) = &marker.staging {
                super::stage::discard(fs, staging)?;
            }
            fs.remove_file(&path)?;
            fs.sync_dir(Some(folder))?;
        }
    }
    Ok(())
}

/// Returns the temporary path from which a marker is renamed into place.
fn beside(path: &RelPath) -> RelPath {
    let name = format!(".{}.tmp", path.name().to_lowercase());
    match path.parent() {
        Some(folder) => folder.join(&name),
        None => RelPath::new(&name),
    }
    .expect("a marker's name with a leading dot is a valid name")
}

fn store(error: FsError) -> LogError {
    LogError::Store(Box::new(error))
}
