//! The two locks that a run holds.
//!
//! The *deciding* lock is an `flock` on a file in the state folder. The file is never deleted, and
//! the kernel releases the lock when its process dies. The *contract's* lock file is in the
//! project, where other programs can see it. A lock file that runner wrote never blocks a run by
//! its mere existence.
//!
//! The locking order is contract lock, deciding lock, database. Code must never wait for a lock
//! inside a transaction, and must never take over a deciding lock because of its age.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::event::{Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::file_lock::{FileLock, FileLockError, LockMode};
use crate::files::{create_new, open_host, open_no_link};
use crate::ids::{ProjectId, RunId};
use crate::process_id::ProcessIdentity;
use crate::time::boot_time;

/// The age from which another program's lock file no longer blocks a run.
const FOREIGN: SignedDuration = SignedDuration::from_hours(1);

/// Maximum time that a run waits for a lock that no active run holds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two attempts to take the lock.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The holder of a lock, as recorded in the lock file for diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    #[serde(flatten)]
    pub owner: ProcessIdentity,
    /// The run that this process executes.
    pub run: RunId,
    /// The time at which the lock was taken.
    pub since: Timestamp,
}

/// The reason why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("{}", held(.holder.as_deref(), .path))]
    Held {
        /// The holder, if it is already recorded in the lock file.
        holder: Option<Box<LockHolder>>,
        path: PathBuf,
    },
    /// Another program's recent lock file exists.
    #[error("lock held by another program: {path} ({content}) is less than an hour old")]
    Foreign {
        path: PathBuf,
        /// The file's first line.
        content: String,
    },
    /// The lock file could not be used.
    #[error("cannot lock {path}")]
    Io { path: PathBuf, source: io::Error },
}

fn held(holder: Option<&LockHolder>, path: &Path) -> String {
    match holder {
        Some(holder) => format!(
            "lock held by PID {} since {} (run {})",
            holder.owner.pid,
            holder.since.strftime("%Y-%m-%dT%H:%M:%SZ"),
            holder.run
        ),
        None => format!("lock held ({})", path.display()),
    }
}

/// The deciding lock for one job of a project.
#[derive(Debug)]
pub struct JobLock {
    file: FileLock,
    /// Whether the lock file names the holder of this lock.
    signed: bool,
}

/// Returns the path of a job's deciding lock under the state folder.
pub fn job_lock_path(state: &Path, project: &ProjectId, job: &str) -> PathBuf {
    let safe: String = job
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '.' })
        .collect();
    state.join("locks").join(project.as_str()).join(format!("{safe}.lock"))
}

impl JobLock {
    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if another process holds the lock, or [`LockError::Io`] if the
    /// lock file cannot be created, opened or locked.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        if let Some(folder) = path.parent() {
            let io = |source| LockError::Io { path: path.to_owned(), source };
            fs::create_dir_all(folder).map_err(io)?;
        }
        Self::of(FileLock::open(path), LockMode::Exclusive, path)
    }

    /// Checks whether the lock is free, without creating or changing a file. The check briefly
    /// holds a shared lock, which may delay a run.
    ///
    /// # Errors
    /// Returns the errors of [`JobLock::try_take`].
    pub fn inspect(path: &Path) -> Result<(), LockError> {
        match open_host(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            file => Self::of(file, LockMode::Shared, path).map(drop),
        }
    }

    fn of(file: io::Result<File>, mode: LockMode, path: &Path) -> Result<Self, LockError> {
        let path = path.to_owned();
        match file.map_err(FileLockError::from).and_then(|file| FileLock::take(file, mode)) {
            Ok(file) => Ok(Self { file, signed: false }),
            Err(FileLockError::Held { content }) => {
                Err(LockError::Held { holder: serde_json::from_str(&content).ok(), path })
            }
            Err(FileLockError::Io(source)) => Err(LockError::Io { path, source }),
        }
    }

    /// Takes the lock for a run. Fails at once if the lock file names a holder that `at_work`
    /// confirms to be an active run. Otherwise, retries for up to five seconds, because recovery
    /// also takes the lock briefly, and a new run writes its record only after it has taken the
    /// lock.
    ///
    /// # Errors
    /// Returns [`LockError::Held`] if an active run holds the lock, or if the lock is still held
    /// after five seconds. Also returns the other errors of [`JobLock::try_take`].
    pub fn take_for_run(
        path: &Path,
        at_work: impl Fn(&LockHolder) -> bool,
    ) -> Result<Self, LockError> {
        let until = boot_time() + PATIENCE;
        loop {
            match Self::try_take(path) {
                Err(LockError::Held { holder, path }) => {
                    let named = holder.as_deref().is_some_and(&at_work);
                    if named || boot_time() >= until {
                        return Err(LockError::Held { holder, path });
                    }
                    // `flock` has no timeout, so this loop polls. Other processes hold the lock
                    // only briefly.
                    let _turn = poll(&mut [], Some(&TURN));
                }
                taken => return taken,
            }
        }
    }

    /// Writes the holder into the lock file, where other processes can read it.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the file cannot be written. The lock is still held.
    pub fn sign(&mut self, holder: &LockHolder) -> io::Result<()> {
        let text = serde_json::to_vec(holder).expect("a holder has string keys only");
        self.signed = true;
        self.file.write(&text)
    }
}

impl Drop for JobLock {
    /// Removes the holder from the lock file, because the process may continue without the lock.
    fn drop(&mut self) {
        if self.signed
            && let Err(error) = self.file.write(b"")
        {
            tracing::debug!(%error, "a lock file still names its last holder");
        }
    }
}

/// The lock file that a contract requires in the project. Dropping this value removes the file if
/// its content is unchanged.
#[derive(Debug)]
pub struct ContractLock {
    path: PathBuf,
    content: String,
}

impl ContractLock {
    /// Creates the lock file if none exists. `path` must be [`beneath`](crate::files::beneath) the
    /// project. An existing file that runner wrote is kept until [`ContractLock::claim`], because
    /// only the deciding lock shows whether its writer is alive. Another program's file that is at
    /// least an hour old is also kept until then.
    ///
    /// # Errors
    /// Returns [`LockError::Foreign`] if another program's file is less than an hour old, or
    /// [`LockError::Io`] if the file cannot be inspected or created.
    pub fn take(path: &Path, holder: &LockHolder, now: Timestamp) -> Result<Self, LockError> {
        let io = |source| LockError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        let lock = Self {
            path: path.to_owned(),
            content: format!("{}\n{MARK} {} {}\n", holder.owner.pid, holder.run, holder.since),
        };
        if !Self::inspect(path, now)? {
            lock.create()?;
        }
        Ok(lock)
    }

    /// Returns whether a lock file exists that this run may replace. No file is changed.
    ///
    /// # Errors
    /// Returns [`LockError::Foreign`] if another program's file is less than an hour old, or
    /// [`LockError::Io`] if the file cannot be inspected.
    pub fn inspect(path: &Path, now: Timestamp) -> Result<bool, LockError> {
        let io = |source| LockError::Io { path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io(error)),
            Ok(data) if !data.is_file() => {
                Err(io(io::Error::other("it exists and is not a regular file")))
            }
            Ok(data) => {
                let found = head(path).map_err(io)?;
                let changed = data.modified().map_err(io)?;
                let age = Timestamp::try_from(changed).map(|at| now.duration_since(at));
                if !ours(&found) && age.is_ok_and(|age| age.abs() < FOREIGN) {
                    let content = found.lines().next().unwrap_or_default().to_owned();
                    return Err(LockError::Foreign { path: path.to_owned(), content });
                }
                Ok(true)
            }
        }
    }

    /// Replaces the lock file of a dead run or another program with this run's file. The caller
    /// must hold the deciding lock. If another program wrote the previous file, returns its first
    /// 400 bytes.
    ///
    /// # Errors
    /// Returns [`LockError::Io`] if the file cannot be read or replaced.
    pub fn claim(&self) -> Result<Option<String>, LockError> {
        let io = |source| LockError::Io { path: self.path.clone(), source };
        let found = match head(&self.path) {
            Ok(found) if found == self.content => return Ok(None),
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create()?;
                return Ok(None);
            }
            Err(error) => return Err(io(error)),
        };
        fs::remove_file(&self.path).map_err(io)?;
        self.create()?;
        Ok((!ours(&found)).then_some(found))
    }

    /// Creates the file atomically with its complete content, because a partly written file would
    /// be mistaken for another program's file. Keeps an existing file.
    fn create(&self) -> Result<(), LockError> {
        let io = |source| LockError::Io { path: self.path.clone(), source };
        // The name is unpredictable and `create_new` follows no links, so a prepared link cannot
        // redirect the write.
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", ulid::Ulid::new()));
        let draft = self.path.with_file_name(name);
        let made = create_new(&draft, 0o666)
            .and_then(|mut file| file.write_all(self.content.as_bytes()))
            .and_then(|()| fs::hard_link(&draft, &self.path));
        let _draft_is_spent = fs::remove_file(&draft);
        match made {
            // Another process created the file first. The deciding lock, taken next, determines
            // which run starts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map_err(io),
        }
    }
}

fn ours(content: &str) -> bool {
    content.lines().nth(1).is_some_and(|line| line.starts_with(MARK))
}

/// The text that begins the second line of runner's lock files. The first line is a bare PID for
/// other programs.
const MARK: &str = "runner";

fn head(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_no_link(path)?.take(400).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Drop for ContractLock {
    fn drop(&mut self) {
        if head(&self.path).is_ok_and(|found| found == self.content) {
            let _already_gone = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> LockHolder {
        let now = Timestamp::UNIX_EPOCH;
        LockHolder {
            owner: ProcessIdentity { pid: 7, start: 1, boot: "b".into() },
            run: RunId::new(now),
            since: now,
        }
    }

    #[test]
    fn a_held_lock_names_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p/dream.lock");
        let mut first = JobLock::try_take(&path).unwrap();
        assert!(matches!(JobLock::try_take(&path), Err(LockError::Held { holder: None, .. })));
        first.sign(&holder()).unwrap();
        let error = JobLock::try_take(&path).unwrap_err().to_string();
        assert!(error.starts_with("lock held by PID 7 since 1970"), "{error}");
        let inspected = JobLock::inspect(&path).unwrap_err().to_string();
        assert_eq!(inspected, error, "`inspect` reports the same error");
        drop(first);
        assert_eq!(fs::read(&path).unwrap(), b"");
        JobLock::inspect(&path).unwrap();
        JobLock::try_take(&path).unwrap();
        assert!(path.exists(), "the lock file is kept");
    }

    #[test]
    fn run_waits_for_an_inactive_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dream.lock");
        let mut first = JobLock::try_take(&path).unwrap();
        first.sign(&holder()).unwrap();
        let held = JobLock::take_for_run(&path, |_| true).unwrap_err();
        assert!(matches!(held, LockError::Held { .. }));
        // The first lock is released during the second check.
        let first = std::cell::RefCell::new(Some(first));
        let checks = std::cell::Cell::new(0);
        let taken = JobLock::take_for_run(&path, |_| {
            checks.set(checks.get() + 1);
            if checks.get() == 2 {
                first.take();
            }
            false
        });
        assert!(taken.is_ok());
    }

    #[test]
    fn only_recent_foreign_contract_locks_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dreams/.lock");
        let now = crate::time::Clock::Host.read().unwrap().wall;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "4242\n").unwrap();
        let refused = ContractLock::take(&path, &holder(), now).unwrap_err();
        assert!(refused.to_string().contains("4242"), "{refused}");
        let later = now.saturating_add(SignedDuration::from_hours(2)).unwrap();
        let lock = ContractLock::take(&path, &holder(), later).unwrap();
        assert_eq!(lock.claim().unwrap().as_deref(), Some("4242\n"));
        drop(lock);
        assert!(!path.exists());
        fs::write(&path, "4242\nrunner left over\n").unwrap();
        let lock = ContractLock::take(&path, &holder(), now).unwrap();
        assert_eq!(lock.claim().unwrap(), None);
        assert!(fs::read_to_string(&path).unwrap().starts_with("7\nrunner "));
        drop(lock);
        assert!(!path.exists());
    }

    #[test]
    fn losing_process_keeps_the_winners_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dreams/.lock");
        let winner = ContractLock::take(&path, &holder(), Timestamp::UNIX_EPOCH).unwrap();
        let loser = ContractLock::take(&path, &holder(), Timestamp::UNIX_EPOCH).unwrap();
        drop(loser);
        assert!(path.exists());
        drop(winner);
        assert!(!path.exists());
    }

    #[test]
    fn job_names_cannot_leave_the_lock_folder() {
        let project = ProjectId::new(Timestamp::UNIX_EPOCH);
        let path = job_lock_path(Path::new("/s"), &project, "../../etc/x");
        assert_eq!(path.parent().unwrap(), Path::new("/s/locks").join(project.as_str()));
    }
}
