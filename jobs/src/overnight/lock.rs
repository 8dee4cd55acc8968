//! The two locks on a corpus.
//!
//! `run.lock` admits one run, one manual change or one recovery at a time. Only the kernel's lock
//! on the file determines the holder, never the file's age, and the file is never deleted. While
//! the lock is held, the first line of the file is the holder's PID, which other programs read.
//!
//! A reader of the corpus holds `commit.lock` in shared mode and a commit holds it exclusively, so
//! a reader never sees a partial commit. No process may wait for a lock without a time limit.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::file_lock::{FileLock, FileLockError, LockMode};
use runner_engine::files::{beneath, open_no_link};

/// The overnight run's folder, relative to the project.
pub const FOLDER: &str = ".agents/overnight";
/// The name of the run lock's file.
pub const RUN_LOCK: &str = "run.lock";
/// The name of the lock file that keeps readers and commits apart.
pub const COMMIT_LOCK: &str = "commit.lock";
/// Maximum time to wait for the commit lock.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time to wait for the run lock. A process that inspects the lock holds it briefly.
const INSPECTION: Duration = Duration::from_millis(200);

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("the corpus is locked by {} ({path})", .pid.map_or("another process".to_owned(), |pid| format!("PID {pid}")))]
    Held {
        /// Process id of the holder, read from the lock file. `None` if the file does not contain
        /// one.
        pid: Option<u32>,
        path: String,
    },
    /// The lock file could not be used.
    #[error("cannot use the lock {path}: {source}")]
    Io { path: String, source: io::Error },
}

/// Opens a lock file inside the project, creating it if needed. No part of the path may be a link.
fn open(root: &Path, name: &str) -> Result<(File, PathBuf), LockError> {
    let below = Path::new(FOLDER).join(name);
    let io = |source| LockError::Io { path: below.display().to_string(), source };
    let path = beneath(root, &below).map_err(io)?;
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(io)?;
    Ok((FileLock::open_no_link(&path).map_err(io)?, path))
}

/// Opens a lock file inside the project for reading, or returns `None` if it does not exist.
fn open_existing(root: &Path, name: &str) -> Result<Option<(File, PathBuf)>, LockError> {
    let below = Path::new(FOLDER).join(name);
    let io = |source| LockError::Io { path: below.display().to_string(), source };
    let path = beneath(root, &below).map_err(io)?;
    match path.exists() {
        true => Ok(Some((open_no_link(&path).map_err(io)?, path))),
        false => Ok(None),
    }
}

/// The run lock, held until it is dropped.
#[derive(Debug)]
pub struct RunLock {
    file: FileLock,
}

impl RunLock {
    /// Takes the lock, and writes this process's PID, `holder` and `now` to the file.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if another process still holds the lock after 200 ms, and
    /// [`LockError::Io`] if the lock file cannot be used.
    pub fn take(root: &Path, holder: &str, now: Timestamp) -> Result<Self, LockError> {
        let (file, path) = open(root, RUN_LOCK)?;
        let taken = FileLock::take_within(file, LockMode::Exclusive, INSPECTION);
        let mut lock = Self { file: taken.map_err(|error| refused(error, &path))? };
        let text = format!("{}\nrunner {holder} {now}\n", std::process::id());
        lock.file.write(text.as_bytes()).map_err(|error| refused(error.into(), &path))?;
        Ok(lock)
    }

    /// Checks that no process holds the lock, by taking it briefly in shared mode. The lock file is
    /// not changed.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if a process holds the lock, and [`LockError::Io`] if the lock
    /// file cannot be used.
    pub fn inspect(root: &Path) -> Result<(), LockError> {
        let Some((file, path)) = open_existing(root, RUN_LOCK)? else {
            return Ok(());
        };
        FileLock::take(file, LockMode::Shared).map(drop).map_err(|error| refused(error, &path))
    }
}

fn refused(error: FileLockError, path: &Path) -> LockError {
    let path = path.display().to_string();
    match error {
        FileLockError::Held { content } => {
            let pid = content.lines().next().and_then(|line| line.trim().parse().ok());
            LockError::Held { pid, path }
        }
        FileLockError::Io(source) => LockError::Io { path, source },
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A later reader of the file must not find the PID of a process that released the lock.
        let _kept = self.file.write(b"");
    }
}

/// The lock that keeps readers and commits apart, held until it is dropped.
#[derive(Debug)]
pub struct CommitLock {
    _file: Option<FileLock>,
}

impl CommitLock {
    /// Takes the lock for a reader. No commit is made while a reader holds the lock. If the lock
    /// file does not exist, nothing has been committed yet, and no lock is taken.
    ///
    /// # Errors
    /// Returns an error if a commit holds the lock for longer than a minute, or if the lock file
    /// cannot be used.
    pub fn shared(root: &Path) -> Result<Self, LockError> {
        match open_existing(root, COMMIT_LOCK)? {
            Some(file) => Self::wait(file, LockMode::Shared),
            None => Ok(Self { _file: None }),
        }
    }

    /// Takes the lock for a commit. No reader reads the corpus while a commit holds the lock.
    ///
    /// # Errors
    /// Returns an error if another process holds the lock for longer than a minute, or if the lock
    /// file cannot be used.
    pub fn exclusive(root: &Path) -> Result<Self, LockError> {
        Self::wait(open(root, COMMIT_LOCK)?, LockMode::Exclusive)
    }

    fn wait((file, path): (File, PathBuf), mode: LockMode) -> Result<Self, LockError> {
        let taken = FileLock::take_within(file, mode, PATIENCE);
        Ok(Self { _file: Some(taken.map_err(|error| refused(error, &path))?) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn inspection_does_not_block_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let take = || RunLock::take(folder.path(), "test", Timestamp::UNIX_EPOCH);
        drop(take().unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|threads| {
            let inspect = || {
                while !done.load(Ordering::Relaxed) {
                    let _held = RunLock::inspect(folder.path());
                }
            };
            threads.spawn(inspect);
            let refused = (0..5_000).find_map(|_| take().err());
            done.store(true, Ordering::Relaxed);
            assert!(refused.is_none(), "{refused:?}");
        });
    }
}
