//! The worker's folder: `queue/ processing/ done/ failed/ logs/ events/ findings/`.
//!
//! Several consumers may work on one folder. A claim records the start in `logs/hour.jsonl`, writes
//! the owner to `processing/ID.owner` and then renames the file. The lock is held during the claim
//! but not while the job is processed. All starts are recorded, so the hourly cap applies across
//! restarts and consumers. This module must never follow a link out of the folder.

mod claim;
mod files;
mod owners;
mod rate_limit;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::file_lock::FileLock;
use runner_engine::files::{beneath, write_atomic};
use runner_engine::publish::RelPath;
use runner_text::redact::Redacted;
use serde::Serialize;

use super::job::{CuratorJobKind, JobFile, LARGEST, Source};
pub use claim::{Claim, Claimed, Consumer, NextFile};
use files::names;

/// Maximum length of the reason in a `.reason.txt` file, in characters.
const REASON: usize = 2_000;
pub(super) use files::{append, read, remove};
pub use owners::IsOver;

/// The subfolders of a worker's folder.
pub const FOLDERS: [&str; 8] = [
    "queue",
    "processing",
    "done",
    "failed",
    "logs",
    "logs/pending-log-entries",
    "events",
    "findings",
];

/// A worker's folder.
#[derive(Clone, Debug)]
pub struct Worker {
    folder: PathBuf,
    below: String,
}

/// The number of job files in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depths {
    pub queue: u64,
    pub processing: u64,
    pub done: u64,
    pub failed: u64,
}

/// A job file that was moved without being processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedFile {
    pub name: String,
    /// The subfolder to which the file was moved: `queue` or `failed`.
    pub to: &'static str,
    pub why: String,
}

impl Worker {
    /// Opens the folder `dir` of the project at `root`. The folder need not exist.
    ///
    /// # Errors
    /// Returns a message if `dir` cannot be a worker's folder.
    pub fn of(root: &Path, dir: &str) -> Result<Self, String> {
        if is_windows(dir) {
            return Err(format!(
                "[curator] worker_dir {dir:?} is a Windows path, which this system does not support"
            ));
        }
        let path = RelPath::new(dir).map_err(|error| format!("[curator] worker_dir: {error}"))?;
        if let Some(name) = reserved(&path) {
            return Err(format!("[curator] worker_dir {dir:?}: the curator cannot use {name}"));
        }
        let folder = beneath(root, Path::new(path.as_str())).map_err(|error| error.to_string())?;
        if let Some(why) = foreign(&folder) {
            return Err(format!("[curator] worker_dir {dir:?}: {why}"));
        }
        Ok(Self { folder, below: dir.to_owned() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a job's file, relative to the project's root.
    pub fn below(&self, part: &str, id: &str) -> String {
        format!("{}/{part}/{id}.json", self.below)
    }

    /// Returns the path of `part` in the worker's folder.
    pub fn path(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    fn file(&self, part: &str, name: &str) -> PathBuf {
        self.folder.join(part).join(name)
    }

    /// Creates the missing subfolders.
    ///
    /// # Errors
    /// Returns an error if a file operation fails, or if a part of the path is a link.
    pub fn make(&self) -> io::Result<()> {
        for part in FOLDERS {
            let path = beneath(&self.folder, Path::new(part))?;
            fs::create_dir_all(path)?;
        }
        Ok(())
    }

    /// Locks the folder until the returned lock is dropped.
    ///
    /// # Errors
    /// Returns an error if the lock file cannot be opened or locked.
    pub fn lock(&self) -> io::Result<FileLock> {
        FileLock::wait(FileLock::open_no_link(&self.path(".lock"))?)
    }

    /// Returns whether a consumer has work: a waiting file, or a file left by a dead owner.
    pub fn waits(&self, now: Timestamp) -> bool {
        let any = |part: &str, is: &dyn Fn(&OsStr) -> bool| {
            let entries = fs::read_dir(self.path(part));
            entries.is_ok_and(|mut entries| {
                entries.any(|entry| entry.is_ok_and(|it| is(&it.file_name())))
            })
        };
        let left = |name: &OsStr| {
            let owner = self.path("processing").join(name).with_extension("owner");
            files::is_job(name) && !self.is_held(&owner, now)
        };
        any("queue", &files::is_job) || any("processing", &left)
    }

    /// Counts the job files in each folder.
    pub fn depths(&self) -> Depths {
        let count = |part: &str| names(&self.path(part)).map_or(0, |names| names.len() as u64);
        Depths {
            queue: count("queue"),
            processing: count("processing"),
            done: count("done"),
            failed: count("failed"),
        }
    }

    /// Adds a job to the queue.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn enqueue(
        &self,
        kind: CuratorJobKind,
        source: Option<Source>,
        priority: i32,
        now: Timestamp,
    ) -> io::Result<JobFile> {
        self.make()?;
        let hex = Digest::of(ulid::Ulid::new().to_string().as_bytes()).short();
        let mut job = JobFile::new(kind, source, &hex[..8], now);
        job.priority = priority;
        let path = self.file("queue", &format!("{}.json", job.id));
        write_atomic(&path, &job.text(), 0o644).map_err(|error| error.source)?;
        Ok(job)
    }

    /// Adds a job of each of these kinds, unless a job of the same kind is already waiting in the
    /// queue.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn enqueue_missing(&self, kinds: &[CuratorJobKind], now: Timestamp) -> io::Result<()> {
        for kind in kinds {
            let waiting = names(&self.path("queue"))?;
            // The contract requires a job's file name to contain its kind.
            if !waiting.iter().any(|name| name.contains(&format!("-{kind}-"))) {
                self.enqueue(*kind, None, 0, now)?;
            }
        }
        Ok(())
    }

    /// Returns a claimed job to the queue. If `why` is given, it is recorded as the error of a
    /// failed attempt.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn put_back(&self, claimed: &Claimed, why: Option<&str>) -> io::Result<()> {
        let mut job = claimed.job.clone();
        job.attempts += u32::from(why.is_some());
        job.last_error = why.map(str::to_owned).or(job.last_error);
        let _held = self.lock()?;
        self.return_as(&job)
    }

    /// Writes the job to `queue/` and then removes it from `processing/`. If the process dies in
    /// between, [`Worker::recover`] removes the file in `processing/`.
    fn return_as(&self, job: &JobFile) -> io::Result<()> {
        let name = format!("{}.json", job.id);
        write_atomic(&self.file("queue", &name), &job.text(), 0o644).map_err(|it| it.source)?;
        remove(&self.file("processing", &name))?;
        remove(&self.file("processing", &format!("{}.owner", job.id)))
    }

    /// Moves a claimed job to `failed/`.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn fail(&self, claimed: &Claimed, why: &str, now: Timestamp) -> io::Result<()> {
        let _held = self.lock()?;
        self.reject("processing", &format!("{}.json", claimed.job.id), why, now)?;
        remove(&self.file("processing", &format!("{}.owner", claimed.job.id)))
    }

    /// Writes the reason, redacted because it may quote the file, and then moves the file to
    /// `failed/`. Returns the reason as written.
    fn reject(&self, from: &str, name: &str, why: &str, now: Timestamp) -> io::Result<String> {
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let reason = self.file("failed", &format!("{stem}.reason.txt"));
        let why = Redacted::of(why).head(REASON);
        write_atomic(&reason, format!("{now} {why}\n").as_bytes(), 0o644)
            .map_err(|it| it.source)?;
        let to = self.file("failed", name);
        if to.is_dir() {
            return Err(io::Error::other(format!("{} is a folder", to.display())));
        }
        match fs::rename(self.file(from, name), to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(why.into_string()),
        }
    }
}

pub fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Paths that are reserved for other parts of runner, for git and for agents. The worker's folder
/// may be inside the first path, but must not be that path.
const RESERVED: [&str; 14] = [
    ".runner",
    ".runner/staging",
    ".runner/failed",
    ".runner/reports",
    ".runner/agents",
    ".git",
    "runner.toml",
    "dreams",
    "rem",
    "_steps.jsonl",
    ".claude",
    ".codex",
    ".mcp.json",
    ".agents/overnight",
];

/// Returns the reserved path that conflicts with `path`, if any.
fn reserved(path: &RelPath) -> Option<&'static str> {
    let lower = path.as_str().to_lowercase();
    let (own, rest) = RESERVED.split_first().expect("the list is not empty");
    let lies_in = |name: &str| {
        let below = lower.strip_prefix(name);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let found = rest.iter().find(|name| lies_in(name)).copied();
    let found = found.or_else(|| (lower == *own).then_some(*own));
    found.or_else(|| lower.split('/').any(|part| part == ".git").then_some(".git"))
}

/// Returns the reason why an existing folder cannot be a worker's folder. Files are moved and
/// removed in its subfolders, so a folder with other visible entries must also have the subfolders
/// of a queue.
fn foreign(folder: &Path) -> Option<String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Some("it is not a folder".to_owned());
        }
        // The operation that uses the folder reports this error with its context.
        Err(_) => return None,
    };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    let has = |part: &str| names.iter().any(|name| name == part) && folder.join(part).is_dir();
    let is_queue = has(FOLDERS[0]) && FOLDERS[1..4].iter().any(|part| has(part));
    let other = names.iter().find(|name| {
        let known = FOLDERS.iter().any(|part| *name == part);
        !known && !name.to_string_lossy().starts_with('.')
    });
    match other {
        Some(other) if !is_queue => Some(format!(
            "runner did not make this folder: it contains {:?}, but not the folders of a queue",
            other.to_string_lossy()
        )),
        _ => None,
    }
}

/// Returns whether a path has the form of a Windows path, such as `D:\dream` or `\\host\share`.
pub fn is_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    drive || path.starts_with("\\\\")
}
