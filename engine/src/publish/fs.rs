//! The few acts on files that a publication consists of.
//!
//! The seam exists so that a simulated disk can be put under the very same code: `SimFs` (in the
//! crash simulation) enumerates power cuts, errors and other programs at each of these acts, and
//! [`super::RealFs`] does them. A richer trait (handles, partial writes) was rejected: every act
//! here is one that a crash either precedes or follows, and what lies between is the disk's model.

use std::io;

use super::path::RelPath;
use crate::digest::Digest;

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing, or not even the folder.
    Absent,
    /// A regular file with this content.
    Content(Digest),
    /// An entry that is never read, replaced or removed; the text names its type.
    NotAFile(&'static str),
}

impl PathState {
    /// Returns whether the state is what an entry's `before` or `after` asks for.
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

/// An act on a file that did not happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {path}: {trouble}")]
pub struct FsError {
    /// The act, as a verb.
    pub act: &'static str,
    /// The path, beneath the root.
    pub path: String,
    /// Why.
    pub trouble: FsFailure,
}

impl FsError {
    /// Returns whether the file or its folder is missing.
    pub fn is_missing(&self) -> bool {
        matches!(self.trouble, FsFailure::Missing)
    }

    /// Returns whether the name is taken.
    pub fn is_taken(&self) -> bool {
        matches!(self.trouble, FsFailure::Exists)
    }

    /// Returns whether the file system lacks this operation.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.trouble, FsFailure::Unsupported)
    }
}

/// Why an act on a file did not happen.
#[derive(Debug, thiserror::Error)]
pub enum FsFailure {
    /// The file or its folder is not there.
    #[error("it is not there")]
    Missing,
    /// The name is taken.
    #[error("the name already exists")]
    Exists,
    /// The file system has no such act.
    #[error("the file system cannot do this")]
    Unsupported,
    /// It is, or lies behind, something that is never touched.
    #[error("it is {0}")]
    NotAFile(&'static str),
    /// Any other error from the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The acts. All paths are beneath one root; no act follows a symbolic link, crosses a mount or
/// leaves the root. An act that returns an error has changed nothing that a reader of the live
/// tree could see. Nothing is durable until the sync of its file and of its folder returns.
pub trait PublishFs {
    /// Returns the state of `path`; reads all of its content.
    fn inspect(&self, path: &RelPath) -> Result<PathState, FsError>;
    /// Makes a new file with these permission bits; [`FsFailure::Exists`] if the name is taken.
    fn write_new(&self, path: &RelPath, bytes: &[u8], mode: u32) -> Result<(), FsError>;
    /// Makes the content of a file durable; not its name.
    fn sync_file(&self, path: &RelPath) -> Result<(), FsError>;
    /// Makes one folder, whose parent exists; a folder that is there already is fine.
    fn create_dir(&self, path: &RelPath) -> Result<(), FsError>;
    /// Makes the names in a folder durable; `None` is the root.
    fn sync_dir(&self, dir: Option<&RelPath>) -> Result<(), FsError>;
    /// Renames, if nothing is at `to`: [`FsFailure::Exists`] otherwise.
    fn rename_noreplace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError>;
    /// Swaps two names in one step.
    fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), FsError>;
    /// Renames over whatever is at `to`; only for file systems without the two above.
    fn rename_replace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError>;
    /// Lists the names in a folder, in no order; returns `None` if there is no such folder.
    fn list(&self, dir: &RelPath) -> Result<Option<Vec<String>>, FsError>;
    /// Removes a name that is no folder.
    fn remove_file(&self, path: &RelPath) -> Result<(), FsError>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &RelPath) -> Result<(), FsError>;
}

/// Makes every folder above `path` and makes their names durable, those that were there already
/// included: a run that died may have made them and not synced them.
pub(super) fn make_parents(fs: &impl PublishFs, path: &RelPath) -> Result<(), FsError> {
    for dir in path.ancestors() {
        fs.create_dir(&dir)?;
        fs.sync_dir(dir.parent().as_ref())?;
    }
    Ok(())
}
