//! The COMMIT step: applies changes to the corpus, either completely or not at all.
//!
//! ```text
//! staged ──READY{manifest, iteration}──> moved one by one ──DONE──> noted ──> marker gone
//!                      └── crash ──> settle() by the next process, under run.lock ──┘
//! ```
//!
//! Every iteration is a separate publication within the run that the database admitted. A marker
//! ([`runner_engine::publish::marker`]) records the publication. The run's final publication
//! settles the run and contains only the summary. The iterations have no database rows of their
//! own, because a night has one admission, one budget and one outcome. With a marker, a commit can
//! also be completed after the tree has been copied to another machine. The run that makes a commit
//! checks its fence before it writes each state of the marker.
//!
//! A program that checks the marker never sees a partly applied iteration, even after a crash.
//! Without the check, a program may see new and old files together, but never an incomplete file.

use std::fs;
use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, WriteError, read_in, write_atomic};
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Outcome;
use runner_engine::publish::marker::{
    self, Marker, MarkerFs as _, MarkerLog, MarkerOutcome, MarkerState,
};
use runner_engine::publish::{
    BadPath, Draft, FsError, LogError, Manifest, NEW_FILE_MODE, PublishError, PublishFs as _,
    RealFs, RelPath, discard, publish,
};
use serde_json::Value;

use super::corpus::oscillation::FileHistory;
use super::corpus::{Changes, Corpus, FOLDER as CORPUS, NodeKind, SUBPATHS};
use super::lock::{CommitLock, FOLDER, LockError};
use crate::json::pretty;

/// The file with the history of added, removed and merged files.
const HISTORY: &str = "oscillation.json";
/// Maximum size in bytes of a file that [`live`] reads.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Why a commit could not be made, finished or inspected.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// [`Commit::make`] recorded nothing, and the corpus is unchanged. [`targets`], [`settle`] and
    /// [`is_pending`] return this variant if a path is not allowed, or if a file or the commit lock
    /// cannot be used.
    #[error("nothing was committed: {0}")]
    Before(String),
    /// The commit is recorded but not finished, or its marker cannot be read. The next process that
    /// takes the run lock tries to finish the commit.
    #[error("the commit is recorded but could not be finished yet: {0}")]
    Unfinished(String),
    /// The marker or the folder of a finished commit cannot be removed.
    #[error("the marker or the folder of a finished commit cannot be removed: {0}")]
    Marker(String),
    /// The run lost its fence to another process.
    #[error("another process took over the run during its commit")]
    TakenOver,
}

pub struct Commit<'a> {
    /// The project's root.
    pub root: &'a Path,
    pub run: RunId,
    pub fence: Fence,
    /// Checks that the run still holds its fence.
    pub guard: &'a marker::CommitGuard<'a>,
    /// The number in the marker's name.
    pub number: u64,
    pub iteration_id: String,
    /// The time at which the iteration began.
    pub started_at: String,
    /// The iteration's record, which recovery returns, or null if there is none.
    pub record: Value,
}

/// A file to change, with the digest of the content that was read and the new content.
pub struct Target {
    /// The file's path, relative to the corpus.
    pub path: String,
    /// Digest of the content that the step saw, or `None` if there was no file.
    pub before: Option<Digest>,
    /// The new content, or `None` to remove the file.
    pub after: Option<Vec<u8>>,
}

impl Target {
    /// Returns whether the target already has its new content.
    pub fn is_idle(&self) -> bool {
        self.before == self.after.as_deref().map(Digest::of)
    }
}

/// Returns a target for each changed file. The commit does not replace a node whose content has
/// changed since `corpus` was read.
///
/// # Errors
/// Returns an error if a file that `corpus` does not contain cannot be read.
pub fn targets(root: &Path, corpus: &Corpus, changes: Changes) -> Result<Vec<Target>, CommitError> {
    let target = |(path, after): (String, _)| {
        let is_unread = || corpus.troubles.iter().any(|it| it.path == path);
        let before = match corpus.at(&path) {
            Some(node) => Some(node.digest),
            // An import also restores other files than nodes, and nodes that could not be read.
            None if NodeKind::of(&path).is_none() || is_unread() => {
                live(root, &path)?.as_deref().map(Digest::of)
            }
            None => None,
        };
        Ok(Target { path, before, after })
    };
    changes.into_iter().map(target).collect()
}

impl Commit<'_> {
    /// Changes all targets to their new content, and returns the number of files that were written
    /// or removed.
    ///
    /// # Errors
    /// Returns [`CommitError::Before`] if nothing was recorded, [`CommitError::Unfinished`] if the
    /// commit was recorded but not finished, and [`CommitError::TakenOver`] if the run lost its
    /// fence.
    pub fn make(self, targets: Vec<Target>) -> Result<usize, CommitError> {
        let targets: Vec<Target> = targets.into_iter().filter(|target| !target.is_idle()).collect();
        if targets.is_empty() {
            return Ok(0);
        }
        let fs = open(self.root)?;
        let folder = overnight();
        let name = |text: String| folder.join(&text).expect("the name is valid");
        let prev = name(format!("prev.{}", self.number));
        // An iteration that stopped before its commit may have left files behind.
        discard(&fs, &prev).map_err(before)?;
        let manifest = self.manifest(&fs, &prev, targets);
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => {
                let _next_time = discard(&fs, &prev);
                return Err(error);
            }
        };
        let path = name(format!("{}{}", marker::PREFIX, self.number));
        let draft = Marker {
            state: MarkerState::Ready,
            iteration_id: self.iteration_id,
            started_at: self.started_at,
            record: self.record,
            manifest: None,
            staging: None,
        };
        let _held = CommitLock::exclusive(self.root).map_err(locked)?;
        let mut log = MarkerLog::new(&fs, path.clone(), draft, self.guard);
        match publish(&fs, &mut log, &manifest) {
            Ok(published) => Ok(published.entries),
            Err(PublishError::Log(LogError::StaleFence { .. })) => Err(CommitError::TakenOver),
            Err(error) => match marker::inspect(&fs, &path) {
                Ok(None) => Err(CommitError::Before(runner_engine::error_chain::whole(&error))),
                _ => Err(CommitError::Unfinished(runner_engine::error_chain::whole(&error))),
            },
        }
    }

    fn manifest(
        &self,
        fs: &RealFs,
        prev: &RelPath,
        targets: Vec<Target>,
    ) -> Result<Manifest, CommitError> {
        let mut draft = Draft::new(prev.clone());
        for target in targets {
            let path = rel(&target.path)?;
            match (target.after, target.before) {
                (Some(bytes), held) => {
                    let regular = fs.regular(&path).map_err(before)?;
                    let mode = regular.map_or(NEW_FILE_MODE, |it| it.mode);
                    draft.put(fs, path, held, &bytes, mode).map_err(before)?;
                }
                (None, Some(held)) => draft.remove(fs, path, held).map_err(before)?,
                (None, None) => {}
            }
        }
        draft.seal(fs, self.run.clone(), self.fence, Outcome::Succeeded).map_err(before)
    }
}

/// The earlier commits found during recovery.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Iterations whose commits were finished during recovery, each with its record.
    pub rolled_forward: Vec<(String, Value)>,
    /// Iterations whose commits were already finished, each with its record.
    pub done: Vec<(String, Value)>,
    /// Markers that other programs wrote or that are invalid. They are not changed.
    pub foreign: Vec<String>,
}

impl Recovered {
    pub fn is_empty(&self) -> bool {
        self.rolled_forward.is_empty() && self.done.is_empty() && self.foreign.is_empty()
    }
}

/// Finishes every unfinished commit that runner made. The caller must hold `run.lock`. The markers
/// remain until [`clear`] removes them.
///
/// # Errors
/// Returns an error if the commit lock cannot be taken, if a target has content that the commit
/// does not expect, or if a file operation fails.
pub fn settle(root: &Path) -> Result<Recovered, CommitError> {
    let mut recovered = Recovered::default();
    if !root.join(FOLDER).is_dir() {
        return Ok(recovered);
    }
    let fs = open(root)?;
    let _held = match marker::list(&fs, &overnight()).map_err(before)?.is_empty() {
        true => None,
        false => Some(CommitLock::exclusive(root).map_err(locked)?),
    };
    let allowed: Vec<RelPath> = SUBPATHS
        .iter()
        .map(|path| RelPath::new(&format!("{CORPUS}/{path}")).expect("a constant path"))
        .collect();
    let settled = marker::settle(&fs, &overnight(), &allowed);
    for one in settled
        .map_err(|error| CommitError::Unfinished(runner_engine::error_chain::whole(&error)))?
    {
        match one {
            MarkerOutcome::RolledForward(it) => {
                recovered.rolled_forward.push((it.iteration_id, it.record))
            }
            MarkerOutcome::Done(it) => recovered.done.push((it.iteration_id, it.record)),
            MarkerOutcome::Foreign(path) => recovered.foreign.push(path.to_string()),
        }
    }
    Ok(recovered)
}

/// Removes the markers and folders of finished commits, and the folders of commits that were never
/// recorded.
///
/// # Errors
/// Returns an error if a file operation fails.
pub fn clear(root: &Path) -> Result<(), CommitError> {
    let fs = open(root).map_err(marker_left)?;
    marker::finish(&fs, &overnight()).map_err(marker_left)?;
    let left = marker::list(&fs, &overnight()).map_err(marker_left)?;
    for name in fs.list(&overnight()).map_err(marker_left)?.unwrap_or_default() {
        let Some(number) = name.strip_prefix("prev.") else {
            continue;
        };
        let has_marker = left.iter().any(|it| it.name() == format!("{}{number}", marker::PREFIX));
        let (Ok(path), false) = (overnight().join(&name), has_marker) else {
            continue;
        };
        // A folder that contains a copy of the corpus belongs to another program.
        if root.join(FOLDER).join(&name).join(CORPUS).exists() {
            continue;
        }
        discard(&fs, &path).map_err(marker_left)?;
    }
    Ok(())
}

/// Removes the marker of commit `number` if that commit is finished.
///
/// # Errors
/// Returns an error if a file operation fails.
pub fn clear_one(root: &Path, number: u64) -> Result<(), CommitError> {
    let fs = open(root).map_err(marker_left)?;
    let name = format!("{}{number}", marker::PREFIX);
    let path = overnight().join(&name).expect("the name is valid");
    let done = marker::inspect(&fs, &path).map_err(marker_left)?;
    if done.is_some_and(|it| it.state == MarkerState::Done) {
        fs.remove_file(&path).map_err(marker_left)?;
        fs.sync_dir(Some(&overnight())).map_err(marker_left)?;
    }
    Ok(())
}

/// Returns whether a commit that runner made is recorded but not finished.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn is_pending(root: &Path) -> Result<bool, CommitError> {
    if !root.join(FOLDER).is_dir() {
        return Ok(false);
    }
    let fs = open(root)?;
    for path in marker::list(&fs, &overnight()).map_err(before)? {
        let marker = marker::inspect(&fs, &path).map_err(before)?;
        if marker.is_some_and(|it| it.state == MarkerState::Ready) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a file in the corpus. Returns `None` if the file does not exist, is not a regular file or
/// is longer than 64 MiB.
///
/// # Errors
/// Returns an error if the path is not one of the corpus's own paths, or if the file cannot be
/// read.
pub fn live(root: &Path, path: &str) -> Result<Option<Vec<u8>>, CommitError> {
    open(root)?.read(&rel(path)?, LONGEST).map_err(before)
}

/// Copies each file that a commit will remove to the folder `into`.
///
/// # Errors
/// Returns an error if a file operation fails.
pub fn keep_removed(root: &Path, into: &Path, targets: &[Target]) -> Result<(), CommitError> {
    for target in targets.iter().filter(|target| target.after.is_none()) {
        let from = root.join(CORPUS).join(&target.path);
        let to = into.join(&target.path);
        let done = fs::create_dir_all(to.parent().unwrap_or(into)).and_then(|()| {
            let bytes = read_in(root, &from, DOCUMENT)?;
            fs::write(&to, bytes)
        });
        done.map_err(|error| CommitError::Before(format!("cannot copy {}: {error}", target.path)))?;
    }
    Ok(())
}

/// Reads the history of added, removed and merged files, or returns an empty history if the file
/// cannot be read or parsed.
pub fn history(root: &Path) -> FileHistory {
    let bytes = read_in(root, Path::new(FOLDER).join(HISTORY), DOCUMENT);
    bytes.map(|bytes| FileHistory::parse(&bytes)).unwrap_or_default()
}

/// Writes the history of added, removed and merged files. The caller must hold `run.lock`.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write_history(root: &Path, history: &FileHistory) -> Result<(), WriteError> {
    write_atomic(&root.join(FOLDER).join(HISTORY), pretty(history).as_bytes(), 0o644)
}

fn open(root: &Path) -> Result<RealFs, CommitError> {
    RealFs::open(root).map_err(before)
}

fn overnight() -> RelPath {
    RelPath::new(FOLDER).expect("a constant path")
}

/// Returns a corpus file's path relative to the project. Refuses a file that no commit may change.
fn rel(path: &str) -> Result<RelPath, CommitError> {
    let bad = |error: BadPath| CommitError::Before(error.to_string());
    let own = RelPath::new(path).map_err(bad)?;
    let allowed = SUBPATHS.iter().any(|it| RelPath::new(it).is_ok_and(|it| own.is_within(&it)));
    if !allowed {
        return Err(CommitError::Before(format!("{path} is not one of the corpus's own paths")));
    }
    RelPath::new(&format!("{CORPUS}/{path}")).map_err(bad)
}

fn marker_left(error: impl std::error::Error) -> CommitError {
    CommitError::Marker(runner_engine::error_chain::whole(&error))
}

fn before(error: FsError) -> CommitError {
    CommitError::Before(runner_engine::error_chain::whole(&error))
}

fn locked(error: LockError) -> CommitError {
    CommitError::Before(error.to_string())
}
