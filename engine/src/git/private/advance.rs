//! Advances a branch of the project and updates the user's index accordingly.
//!
//! ```text
//! index.lock taken ──> new index written into it ──> branch moved, only from the expected value
//!       ──> index.lock becomes the index
//! ```
//!
//! Git's own lock on the index is held throughout, so that a user's commit cannot combine the new
//! branch with the old index and thereby revert the new commits. The lock file is a hard link to
//! one of the run's files, so that a repeated import recognizes a lock left behind by an
//! interrupted import.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::import::PathChange;
use super::index::entries;
use super::refs::Head;
use crate::failpoint;
use crate::files::{copy_host, open_no_link, sync_folder};
use crate::git::commit::Writes;
use crate::git::{Git, GitError, Read};
use crate::process::Stdin;
use crate::process::wait::poll_within;
use crate::sandbox::inert::Inert;
use crate::sandbox::private_git::Repository;

/// Maximum number of attempts to take git's locks, with [`PAUSE`] between two attempts. A git
/// command holds its locks only briefly.
const TRIES: usize = 100;
/// Delay between two attempts to take git's locks.
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why a branch was not advanced.
type NotAdvanced = String;

impl Git {
    /// Moves the branch that was checked out at the start from `old` to `new`, unless the branch
    /// already contains `new`. Returns the index paths that were not changed, each with the reason,
    /// or the reason why the branch was not moved.
    pub(super) fn advance(
        &self,
        one: &Repository,
        start: &Head,
        (old, new): (Option<&str>, &str),
        run: &str,
    ) -> Result<Result<Vec<String>, NotAdvanced>, GitError> {
        let name = match start {
            Head::Branch(name) => name.as_str(),
            Head::Detached(_) => "HEAD",
        };
        let failed = |source| GitError::Folder { path: one.git_dir.clone(), source };
        IndexLock::clear(&one.git_dir, run);
        for _ in 0..TRIES {
            let current = self.value(name)?;
            let here = self.is_checked_out(start)?;
            if let Some(current) = &current
                && Some(current.as_str()) != old
                && current != new
                && self.leads_to(new, current)?
            {
                // An interrupted import has already moved the branch, and other commits have been
                // added since.
                return Ok(Ok(Vec::new()));
            }
            if current.as_deref() != Some(new) {
                if current.as_deref() != old {
                    return Ok(Err(format!("{name} has changed since the run started")));
                }
                if let Some(old) = old
                    && !self.leads_to(old, new)?
                {
                    return Ok(Err(format!("{name} would lose commits")));
                }
                if matches!(start, Head::Detached(_)) && !here {
                    return Ok(Err("HEAD is no longer detached".to_owned()));
                }
            }
            let lock = match here {
                false => None,
                true => match IndexLock::take(&one.git_dir, run).map_err(failed)? {
                    Some(lock) => Some(lock),
                    None => {
                        poll_within(&mut [], Some(PAUSE));
                        continue;
                    }
                },
            };
            // The index changes are computed from the branch's value at the start, because a
            // repeated import may find that the branch has already moved.
            let left = match &lock {
                Some(lock) => self.align(lock, &self.tree_changes(old, new)?)?,
                None => Vec::new(),
            };
            if current.as_deref() == Some(new) || self.moved(name, current.as_deref(), new)? {
                failpoint::reach();
                if let Some(lock) = lock {
                    lock.commit().map_err(failed)?;
                }
                return Ok(Ok(left));
            }
            drop(lock);
            poll_within(&mut [], Some(PAUSE));
        }
        Ok(Err(format!("{name} or the index stayed locked by another git command")))
    }

    /// Returns whether the branch that was checked out at the start is still checked out. If no
    /// branch was checked out, returns whether `HEAD` is still detached.
    fn is_checked_out(&self, start: &Head) -> Result<bool, GitError> {
        let branch = self.ask_if_any(Read::SymbolicRef, &["HEAD"], Stdin::Null)?;
        let branch = branch.map(|name| String::from_utf8_lossy(&name).trim_end().to_owned());
        Ok(match start {
            Head::Branch(name) => branch.as_ref() == Some(name),
            Head::Detached(_) => branch.is_none(),
        })
    }

    /// Moves the reference if it still has the value `current`. Returns whether it was moved.
    fn moved(&self, name: &str, current: Option<&str>, new: &str) -> Result<bool, GitError> {
        failpoint::reach();
        let zeros = "0".repeat(new.len());
        let old = current.unwrap_or(&zeros);
        let update = ["update-ref", "--no-deref", "-m", "commit: runner", name, new, old];
        match self.change(Writes::Everything, &update, Vec::new()) {
            Ok(_) => Ok(true),
            // Another program has moved the reference or holds its lock.
            Err(GitError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the index with the changed paths into the lock file. An entry that differs from the
    /// old commit was staged by the user and is not changed. Returns a message for each such path.
    fn align(&self, lock: &IndexLock, changes: &[PathChange]) -> Result<Vec<String>, GitError> {
        let failed = |source| GitError::Folder { path: lock.copy.clone(), source };
        let mut own = self.clone();
        for (name, value) in [
            ("GIT_INDEX_FILE", lock.copy.display().to_string()),
            // Unlike a split index, the copy must not depend on other files in the project.
            ("GIT_CONFIG_COUNT", "1".to_owned()),
            ("GIT_CONFIG_KEY_0", "core.splitIndex".to_owned()),
            ("GIT_CONFIG_VALUE_0", "false".to_owned()),
        ] {
            own.env.insert(name.to_owned(), value);
        }
        let listing = own.ask(Read::LsFiles, &["--stage", "--full-name", "-z"])?;
        let entries = entries(&listing);
        let mut left = Vec::new();
        let mut text = Vec::new();
        for PathChange { path, old, new } in changes {
            let entry = entries.get(path);
            let entry = entry.map(|(mode, object)| (*mode, object.clone()));
            if entry == *new {
                continue;
            }
            if entry != *old {
                left.push(format!(
                    "{} was not changed in the index, because you staged a change to it",
                    path.display()
                ));
                continue;
            }
            // Mode 0 removes the entry.
            let (mode, object) = match (new, old) {
                (Some((mode, object)), _) => (*mode, object.clone()),
                (None, old) => (0, "0".repeat(old.as_ref().map_or(40, |(_, it)| it.len()))),
            };
            text.extend_from_slice(format!("{mode:o} {object}\t").as_bytes());
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        let args = ["update-index", "-z", "--index-info"];
        let folder = lock.copy.parent().unwrap_or(&lock.copy).to_owned();
        let rights = Inert { write: vec![folder] };
        let answer = own.started(&args, Stdin::Bytes(text), rights)?;
        own.successful(&args[..1], answer)?;
        lock.fill().map_err(failed)?;
        Ok(left)
    }

    /// Returns the object name that the unfiltered bytes of a file in the work tree have in git.
    /// Returns `None` if the file cannot be read.
    pub(super) fn blob_of(&self, path: &Path, length: usize) -> Option<String> {
        let bytes = crate::files::read_in(&self.root, path, crate::files::DOCUMENT).ok()?;
        crate::git::changes::hash(length, &mut bytes.as_slice()).ok()
    }
}

/// Git's lock on an index.
struct IndexLock {
    /// The run's folder inside git's folder, which contains a copy of the index.
    folder: PathBuf,
    copy: PathBuf,
    /// The lock file's first name. Its second name is `lock`.
    own: PathBuf,
    lock: PathBuf,
    index: PathBuf,
}

impl IndexLock {
    fn of(git_dir: &Path, run: &str) -> Self {
        let folder = git_dir.join(format!("runner-{run}"));
        Self {
            copy: folder.join("index"),
            own: folder.join("lock"),
            lock: git_dir.join("index.lock"),
            index: git_dir.join("index"),
            folder,
        }
    }

    /// Removes the lock left behind by an interrupted import of the run.
    fn clear(git_dir: &Path, run: &str) {
        drop(Self::of(git_dir, run));
    }

    /// Takes the lock and copies the index. Returns `None` if another program holds the lock.
    fn take(git_dir: &Path, run: &str) -> io::Result<Option<Self>> {
        let taken = Self::of(git_dir, run);
        fs::create_dir(&taken.folder)?;
        File::create_new(&taken.own)?;
        failpoint::reach();
        match fs::hard_link(&taken.own, &taken.lock) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            linked => linked?,
        }
        match copy_host(&taken.index, &taken.copy) {
            // A repository without an index has no entries.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(taken)),
            copied => copied.map(|()| Some(taken)),
        }
    }

    /// Writes the changed copy into the lock file.
    fn fill(&self) -> io::Result<()> {
        let mut file = File::create(&self.own)?;
        if let Ok(mut copy) = open_no_link(&self.copy) {
            io::copy(&mut copy, &mut file)?;
            file.set_permissions(copy.metadata()?.permissions())?;
        }
        file.flush()?;
        file.sync_all()
    }

    /// Replaces the index with the lock file, and releases the lock.
    fn commit(self) -> io::Result<()> {
        fs::rename(&self.own, &self.index)?;
        failpoint::reach();
        // Dropping the lock removes its second name.
        if let Some(parent) = self.index.parent() {
            sync_folder(parent)?;
        }
        Ok(())
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if same(&self.lock, &self.own) || same(&self.lock, &self.index) {
            let _ = fs::remove_file(&self.lock);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns whether two names refer to the same file.
fn same(one: &Path, other: &Path) -> bool {
    match (fs::symlink_metadata(one), fs::symlink_metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
