//! The file operations of a publication.
//!
//! The trait has two implementations: [`super::RealFs`] and the crash simulation's `SimFs`. `SimFs`
//! injects power cuts, errors and writes by other programs at each operation.
//!
//! Rejected: a richer trait with handles and partial writes. The simulated disk already models the
//! states that a crash during an operation can leave.

use std::io;

use super::path::RelPath;
use crate::digest::Digest;

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The file does not exist, and its folder may not exist either.
    Absent,
    /// A regular file whose content has this digest.
    Content(Digest),
    /// An entry of another type, which is never read, replaced or removed. The string names the
    /// type.
    NotAFile(&'static str),
}

impl PathState {
    /// Returns whether the state matches `wanted`, an entry's `before` or `after`.
    pub fn is(self, wanted: Option<Digest>) -> bool {
        match (self, wanted) {
            (Self::Absent, None) => true,
            (Self::Content(found), Some(wanted)) => found == wanted,
            _ => false,
        }
    }
}

impl std::fmt::Display for PathState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent => f.write_str("nothing"),
            Self::Content(digest) => write!(f, "content {}", digest.short()),
            Self::NotAFile(what) => f.write_str(what),
        }
    }
}

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {path}: {trouble}")]
pub struct FsError {
    /// The operation as a verb phrase.
    pub act: &'static str,
    /// The path relative to the root.
    pub path: String,
    /// The cause of the failure.
    pub trouble: FsFailure,
}

impl FsError {
    pub fn new(
        act: &'static str,
        path: impl std::fmt::Display,
        trouble: impl Into<FsFailure>,
    ) -> Self {
        Self { act, path: path.to_string(), trouble: trouble.into() }
    }

    /// Returns whether the file or its folder is missing.
    pub fn is_missing(&self) -> bool {
        matches!(self.trouble, FsFailure::Missing)
    }

    /// Returns whether the name already exists.
    pub fn is_taken(&self) -> bool {
        matches!(self.trouble, FsFailure::Exists)
    }

    /// Returns whether the file system does not support the operation.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.trouble, FsFailure::Unsupported)
    }
}

/// The cause of a failed file operation.
#[derive(Debug, thiserror::Error)]
pub enum FsFailure {
    /// The file or its folder does not exist.
    #[error("it does not exist")]
    Missing,
    /// The name is already in use.
    #[error("the name already exists")]
    Exists,
    /// The file system does not support the operation.
    #[error("the file system does not support this")]
    Unsupported,
    /// The path is, or leads through, an entry that publications never read or change.
    #[error("it is {0}")]
    NotAFile(&'static str),
    /// Any other error from the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The file operations of a publication. All paths are relative to one root. No operation follows a
/// symbolic link, crosses a mount or leaves the root. A failed operation changes nothing that a
/// reader of the live tree could see. A change is durable only after both the file and its folder
/// are synced.
pub trait PublishFs {
    /// Reads the complete content of `path` and returns its state.
    fn inspect(&self, path: &RelPath) -> Result<PathState, FsError>;
    /// Creates a file with these permission bits. Returns [`FsFailure::Exists`] if the name already
    /// exists.
    fn write_new(&self, path: &RelPath, bytes: &[u8], mode: u32) -> Result<(), FsError>;
    /// Makes a file's content durable, but not its name.
    fn sync_file(&self, path: &RelPath) -> Result<(), FsError>;
    /// Creates one folder, whose parent must exist. An existing folder is accepted.
    fn create_dir(&self, path: &RelPath) -> Result<(), FsError>;
    /// Makes the names in a folder durable. `None` is the root.
    fn sync_dir(&self, dir: Option<&RelPath>) -> Result<(), FsError>;
    /// Renames `from` to `to`. Returns [`FsFailure::Exists`] if `to` exists.
    fn rename_noreplace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError>;
    /// Swaps two names atomically.
    fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), FsError>;
    /// Renames `from` to `to` and replaces an existing `to`. Publications use this operation only
    /// on file systems that lack [`PublishFs::rename_noreplace`] or [`PublishFs::exchange`].
    fn rename_replace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError>;
    /// Lists the names in a folder in no particular order. Returns `None` if the folder does not
    /// exist.
    fn list(&self, dir: &RelPath) -> Result<Option<Vec<String>>, FsError>;
    /// Removes an entry that is not a folder.
    fn remove_file(&self, path: &RelPath) -> Result<(), FsError>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &RelPath) -> Result<(), FsError>;
}

/// Creates all folders above `path` and makes their names durable. The names of existing folders
/// are synced too, because a dead run may have created the folders without a sync.
pub(super) fn make_parents(fs: &impl PublishFs, path: &RelPath) -> Result<(), FsError> {
    for dir in path.ancestors() {
        fs.create_dir(&dir)?;
        fs.sync_dir(dir.parent().as_ref())?;
    }
    Ok(())
}
