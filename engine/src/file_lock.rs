//! File locks (`flock`). The kernel releases a lock when its process dies, so a lock is never stale
//! and lock files are never deleted.
//!
//! Rejected: byte-range locks, which a process loses when it closes any descriptor of the file.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::event::{Timespec, poll};

use crate::files::{open_with, open_with_no_link};
use crate::time::boot_time;

/// Interval between two attempts to take a lock. `flock` itself has no timeout.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Whether several processes may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Any number of processes may hold the lock in this mode.
    Shared,
    /// Only one process may hold the lock.
    Exclusive,
}

/// The reason why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    /// Another process holds the lock.
    #[error("another process holds the lock")]
    Held {
        /// The first 4 KiB of the lock file. Empty if the holder has not written to it yet or if
        /// it cannot be read.
        content: String,
    },
    /// The file could not be opened or locked.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A lock on a file, held until dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Opens a lock file, and creates it if needed. No child inherits the descriptor.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the file cannot be opened for reading and writing.
    pub fn open(path: &Path) -> io::Result<File> {
        open_with(File::options().create(true).truncate(false).read(true).write(true), path)
    }

    /// Opens a lock file like [`FileLock::open`], but refuses a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of [`FileLock::open`], and an error if the path is a symbolic link.
    pub fn open_no_link(path: &Path) -> io::Result<File> {
        open_with_no_link(File::options().create(true).truncate(false).read(true).write(true), path)
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// Returns [`FileLockError::Held`] if another process holds the lock, or [`FileLockError::Io`]
    /// if the file cannot be locked.
    pub fn take(file: File, mode: LockMode) -> Result<Self, FileLockError> {
        Self::take_within(file, mode, Duration::ZERO)
    }

    /// Takes the lock, waiting at most `patience` for it.
    ///
    /// # Errors
    /// Returns [`FileLockError::Held`] if another process still holds the lock after `patience`, or
    /// [`FileLockError::Io`] if the file cannot be locked.
    pub fn take_within(
        mut file: File,
        mode: LockMode,
        patience: Duration,
    ) -> Result<Self, FileLockError> {
        let until = boot_time() + patience;
        loop {
            let taken = match mode {
                LockMode::Shared => file.try_lock_shared(),
                LockMode::Exclusive => file.try_lock(),
            };
            match taken {
                Ok(()) => return Ok(Self { file }),
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) if boot_time() >= until => {
                    let mut content = Vec::new();
                    // The content is only for diagnosis.
                    let _unreadable = (&mut file).take(4096).read_to_end(&mut content);
                    let content = String::from_utf8_lossy(&content).into_owned();
                    return Err(FileLockError::Held { content });
                }
                Err(TryLockError::WouldBlock) => {
                    let _turn = poll(&mut [], Some(&TURN));
                }
            }
        }
    }

    /// Takes the lock exclusively and waits without a time limit.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the file cannot be locked.
    pub fn wait(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self { file })
    }

    /// Replaces the file's content, which other processes see in [`FileLockError::Held`].
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the file cannot be written. The lock is still held.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(content)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The unlock is explicit, because a child between fork and exec may have a copy of the
        // descriptor. Closing only this process's descriptor would leave the lock held.
        let _already_gone = self.file.unlock();
    }
}
