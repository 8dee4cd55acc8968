//! The lock on a corpus, which admits one run, one manual change or one recovery at a time.
//!
//! `run.lock` is never deleted. The kernel's lock on the file decides who holds it; the file's age
//! never does. The first line of the file is the holder's PID, in the form that other programs
//! read; runner's own lines follow. A process that reads the corpus holds `commit.lock` in shared
//! mode, and a process that makes a commit holds it exclusively, so a reader never sees a partial
//! commit. No process may wait for a lock without a time limit.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::open_with_no_link;
use runner_engine::process::Cancel;
use runner_engine::time::boot_time;

/// The folder of the overnight run, below the project.
pub const FOLDER: &str = ".agents/overnight";
/// The name of the run's lock file.
pub const RUN_LOCK: &str = "run.lock";
/// The name of the lock file that separates readers and commits.
pub const COMMIT_LOCK: &str = "commit.lock";
/// Maximum time to wait for the commit lock.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two attempts to take the commit lock.
const TURN: Duration = Duration::from_millis(20);

/// The reason why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("the corpus is locked by PID {pid} ({path})")]
    Held {
        /// Process id of the holder in the lock file, or 0 if the file states none.
        pid: u32,
        /// The path of the lock file.
        path: String,
    },
    /// The lock file could not be used.
    #[error("cannot use the lock {path}: {source}")]
    Io {
        /// The path of the lock file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The lock of a run, held until it is dropped.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

/// Opens a lock file beneath the project, and creates it if it is missing. No part of the path may
/// be a link.
fn create(root: &Path, name: &str) -> Result<(File, PathBuf), LockError> {
    let (below, path) = place(root, name)?;
    fs::create_dir_all(path.parent().unwrap_or(root)).map_err(unusable(&below))?;
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let file = open_with_no_link(&mut options, &path).map_err(unusable(&below))?;
    Ok((file, path))
}

/// Opens a lock file beneath the project for reading, if it exists.
fn open(root: &Path, name: &str) -> Result<Option<(File, PathBuf)>, LockError> {
    let (below, path) = place(root, name)?;
    if !path.exists() {
        return Ok(None);
    }
    let file = open_with_no_link(File::options().read(true), &path).map_err(unusable(&below))?;
    Ok(Some((file, path)))
}

fn place(root: &Path, name: &str) -> Result<(PathBuf, PathBuf), LockError> {
    let below = Path::new(FOLDER).join(name);
    let path = runner_engine::files::beneath(root, &below).map_err(unusable(&below))?;
    Ok((below, path))
}

fn unusable(below: &Path) -> impl Fn(io::Error) -> LockError {
    let path = below.display().to_string();
    move |source| LockError::Io { path: path.clone(), source }
}

impl RunLock {
    /// Takes the lock and writes the holder and the time to the file.
    ///
    /// # Errors
    /// Returns [`LockError::Held`], which names the holder, if another process holds the lock, and
    /// [`LockError::Io`] if the lock file cannot be used.
    pub fn take(root: &Path, holder: &str, now: Timestamp) -> Result<Self, LockError> {
        let (mut file, path) = create(root, RUN_LOCK)?;
        let shown = path.display().to_string();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&mut file, shown)),
            Err(TryLockError::Error(source)) => {
                return Err(LockError::Io { path: shown, source });
            }
        }
        let mut lock = Self { file };
        let text = format!("{}\nrunner {holder} {now}\n", std::process::id());
        let done = lock
            .file
            .set_len(0)
            .and_then(|()| lock.file.rewind())
            .and_then(|()| lock.file.write_all(text.as_bytes()));
        done.map_err(|source| LockError::Io { path: shown, source })?;
        Ok(lock)
    }

    /// Checks that no process holds the lock, without taking or changing anything.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if a process holds the lock, and [`LockError::Io`] if the lock
    /// file cannot be used.
    pub fn inspect(root: &Path) -> Result<(), LockError> {
        let Some((mut file, path)) = open(root, RUN_LOCK)? else {
            return Ok(());
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(held(&mut file, path.display().to_string())),
            Err(TryLockError::Error(source)) => {
                Err(LockError::Io { path: path.display().to_string(), source })
            }
        }
    }
}

fn held(file: &mut File, path: String) -> LockError {
    let mut text = String::new();
    // A failed or empty read is not an error, because the holder may not have written its PID yet.
    let _unreadable = file.take(200).read_to_string(&mut text);
    let pid = text.lines().next().and_then(|line| line.trim().parse().ok());
    LockError::Held { pid: pid.unwrap_or(0), path }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A later reader of the file must not find the PID of a process that no longer exists.
        let _kept = self.file.set_len(0);
        let _already_gone = self.file.unlock();
    }
}

/// The lock between readers and commits, held until it is dropped.
#[derive(Debug)]
pub struct CommitLock {
    file: Option<File>,
}

impl CommitLock {
    /// Takes the lock for a reader: no commit is made while it is held. If the lock file does not
    /// exist, because nothing has ever been committed, no lock is taken.
    ///
    /// # Errors
    /// Returns an error if a commit takes longer than a minute.
    pub fn shared(root: &Path) -> Result<Self, LockError> {
        let Some((file, path)) = open(root, COMMIT_LOCK)? else {
            return Ok(Self { file: None });
        };
        wait(&path, || file.try_lock_shared())?;
        Ok(Self { file: Some(file) })
    }

    /// Takes the lock for a commit: there are no readers while it is held.
    ///
    /// # Errors
    /// Returns an error if a reader holds the lock for longer than a minute.
    pub fn exclusive(root: &Path) -> Result<Self, LockError> {
        let (file, path) = create(root, COMMIT_LOCK)?;
        wait(&path, || file.try_lock())?;
        Ok(Self { file: Some(file) })
    }
}

fn wait(path: &Path, attempt: impl Fn() -> Result<(), TryLockError>) -> Result<(), LockError> {
    let until = boot_time() + PATIENCE;
    let io = |source| LockError::Io { path: path.display().to_string(), source };
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if boot_time() >= until => {
                return Err(LockError::Held { pid: 0, path: path.display().to_string() });
            }
            Err(TryLockError::WouldBlock) => {
                // `flock` cannot wait with a time limit, so the lock is polled at a short interval.
                Cancel::new().map_err(io)?.wait(Some(TURN));
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
    }
}

impl Drop for CommitLock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _already_gone = file.unlock();
        }
    }
}
