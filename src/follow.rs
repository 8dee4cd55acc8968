//! Follows a run's log and its program's output until the run is settled.
//!
//! ```text
//! read the row ──> read the files to their end ──> was it settled? ──no──> wait for a change ──┐
//!     ^                                              └ yes, and no process writes: end         │
//!     └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The row is read before the files, so no output from before the settlement is lost. Changes to
//! the files and the database wake the follower, and a timeout covers missed notifications. This
//! module must never write.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use runner_engine::files::open_host;
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{RunRow, RunState, StoreError};
use runner_engine::time::boot_time;
use runner_jobs::output;
use runner_text::redact::Redacted;
use rustix::fs::inotify::WatchFlags;

use crate::env::Env;
use crate::ui::{Failure, log};
use crate::wait::{Waiter, WakeReason};

/// Maximum time to wait for a change, because notifications may be missed.
const WAIT: Duration = Duration::from_millis(500);
/// Maximum time to keep reading the files of a settled run.
const TRAIL: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(50);
/// Maximum length of a line in bytes. A longer line is passed on in parts.
const LINE: usize = 64 * 1024;

/// The followed files. Each has a prefix for its lines when all files are shown together.
pub const FILES: [(&str, &str); 3] =
    [(log::FILE, ""), (output::FILES[0], "out | "), (output::FILES[1], "err | ")];

/// Prefixes a file's lines as specified in [`FILES`]. Program output is redacted, has no control
/// characters, and cannot be mistaken for log lines.
pub fn shown(which: usize, text: &str) -> String {
    let (_, mark) = FILES[which];
    if mark.is_empty() {
        return text.to_owned();
    }
    let ends = text
        .split_inclusive('\n')
        .map(|line| format!("{mark}{}\n", Redacted::of(line.trim_end_matches(['\r', '\n']))));
    ends.collect()
}

pub enum FollowEnd {
    /// The run is settled and its files have been read to their end.
    Settled(Box<RunRow>),
    /// The other end of one of the `stops` was closed, or the sink failed.
    Abandoned,
}

/// Describes in one line how a run ended.
pub fn outcome(row: &RunRow) -> String {
    let outcome = row.outcome();
    let outcome = outcome.map_or_else(|| "not settled".to_owned(), Outcome::to_string);
    format!("{}: {outcome}", row.job_name)
}

/// Passes the contents of `files` in the run's folder to `sink`, each from the given offset. The
/// sink receives the index of the file, whole lines, and the offset after them. Stops early if the
/// other end of one of `stops` is closed, or if `sink` fails.
pub fn follow(
    home: &Env,
    run: &RunId,
    files: &[(&str, u64)],
    stops: &[BorrowedFd<'_>],
    sink: &mut dyn FnMut(usize, &str, u64) -> io::Result<()>,
) -> Result<FollowEnd, Failure> {
    let store = home
        .store_to_read()?
        .ok_or_else(|| StoreError::NotFound { what: "run", name: run.to_string() })?;
    let folder = home.run_folder(run.as_str());
    let waiter = Waiter::new();
    // The folder contains the database's log. Without the watch, changes are noticed after the
    // timeout.
    waiter.watch(&home.state, WatchFlags::MODIFY);
    let mut watched = false;
    let tail = |(name, from): &(&str, u64)| FileTail::new(folder.join(name), *from);
    let mut tails: Vec<FileTail> = files.iter().map(tail).collect();
    let mut over_since = None;
    loop {
        let row = store.run(run)?;
        let mut read = 0;
        for (which, tail) in tails.iter_mut().enumerate() {
            match tail.read(&mut |text, end| sink(which, text, end)) {
                Ok(more) => read += more,
                Err(Stopped::Sink) => return Ok(FollowEnd::Abandoned),
                Err(Stopped::Log(error)) => {
                    let what = format!("cannot read {}: {error}", tail.path.display());
                    return Err(Failure::environment(what));
                }
            }
        }
        let mut wait = WAIT;
        if matches!(row.state, RunState::Settled { .. }) {
            let now = boot_time();
            let since = *over_since.get_or_insert(now);
            let writes = row.owner().is_some_and(|owner| owner.is_alive());
            let quiet = read == 0 && now.saturating_sub(since) >= QUIET;
            if (quiet && !writes) || now.saturating_sub(since) >= TRAIL {
                for (which, tail) in tails.iter_mut().enumerate() {
                    if tail.rest(&mut |text, end| sink(which, text, end)).is_err() {
                        return Ok(FollowEnd::Abandoned);
                    }
                }
                return Ok(FollowEnd::Settled(Box::new(row)));
            }
            wait = QUIET;
        }
        if !watched && waiter.watch(&folder, WatchFlags::MODIFY) {
            watched = true;
            // The file may have been written between the last read and the start of the watch.
            wait = Duration::ZERO;
        }
        if waiter.wait(stops, wait)? == WakeReason::Closed {
            return Ok(FollowEnd::Abandoned);
        }
    }
}

pub enum Stopped {
    /// The sink failed.
    Sink,
    /// The file cannot be read.
    Log(io::Error),
}

/// Reads data that is appended to a file. The file may not exist yet.
pub struct FileTail {
    pub path: PathBuf,
    file: Option<File>,
    /// The offset up to which the file has been read.
    at: u64,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
}

impl FileTail {
    /// Creates a reader that begins at an offset.
    pub fn new(path: PathBuf, from: u64) -> Self {
        Self { path, file: None, at: from, rest: Vec::new() }
    }

    /// Skips unread data before the last `length` bytes of the file. Returns whether it skipped any,
    /// in which case the next read may start in the middle of a line.
    pub fn skip_to_last(&mut self, length: u64) -> bool {
        let end = std::fs::metadata(&self.path).map_or(0, |data| data.len());
        let skips = end.saturating_sub(self.at) > length;
        if skips {
            self.at = end - length;
            self.rest.clear();
        }
        skips
    }

    /// Passes new lines to `sink` and returns the number of bytes read.
    ///
    /// # Errors
    /// Returns an error if the sink fails, or if the file cannot be read.
    pub fn read(
        &mut self,
        sink: &mut dyn FnMut(&str, u64) -> io::Result<()>,
    ) -> Result<u64, Stopped> {
        if self.file.is_none() {
            match open_host(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(Stopped::Log(error)),
            }
        }
        let before = self.at;
        let mut chunk = vec![0; LINE];
        while let Some(file) = &self.file {
            let count = match file.read_at(&mut chunk, self.at) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Stopped::Log(error)),
            };
            self.at += count as u64;
            self.rest.extend_from_slice(&chunk[..count]);
            let whole = match self.rest.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None if self.rest.len() >= LINE => self.rest.len(),
                None => continue,
            };
            let rest = self.rest.split_off(whole);
            let text = std::mem::replace(&mut self.rest, rest);
            let passed = self.at - self.rest.len() as u64;
            sink(&String::from_utf8_lossy(&text), passed).map_err(|_| Stopped::Sink)?;
        }
        Ok(self.at - before)
    }

    /// Passes on an unterminated last line.
    fn rest(&mut self, sink: &mut dyn FnMut(&str, u64) -> io::Result<()>) -> io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.rest);
        sink(&String::from_utf8_lossy(&text), self.at)
    }
}
