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
use runner_text::redact::{Redacted, StreamRedactor};
use rustix::fs::inotify::WatchFlags;

use crate::env::Env;
use crate::ui::{Failure, log};
use crate::wait::{Waiter, WakeReason};

/// Maximum time to wait for a change, because notifications may be missed.
const WAIT: Duration = Duration::from_millis(500);
/// Maximum time to keep reading the files of a settled run.
const TRAIL: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(50);
/// Number of bytes to read at once.
const CHUNK: usize = 64 * 1024;

/// The followed files. Each has a prefix for its lines when all files are shown together.
pub const FILES: [(&str, &str); 3] =
    [(log::FILE, ""), (output::FILES[0], "out | "), (output::FILES[1], "err | ")];

/// Prefixes the lines of a file's text as specified in [`FILES`]. Redacts program output and
/// removes its control characters except tabs.
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
    /// The run is settled, and its files have been read to their end or for at most [`TRAIL`].
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

/// Passes the redacted contents of `files` in the run's folder to `sink`, each from the given
/// offset. The sink receives the index of the file, whole lines, and the offset after them. Stops
/// early if the other end of one of `stops` is closed, or if `sink` fails.
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
    // The folder contains the database's write-ahead log. Without the watch, changes are noticed
    // after the timeout.
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

/// Reads lines that are appended to a file, and redacts them. The file may not exist yet. A very
/// long line is passed on in parts, none of which contains a part of a secret.
pub struct FileTail {
    pub path: PathBuf,
    file: Option<File>,
    /// The offset up to which the file has been read.
    at: u64,
    /// Whether the next data may begin in the middle of a line. The remainder of that line is
    /// dropped, because part of a secret would not be recognized.
    is_cut: bool,
    /// Holds back an incomplete line.
    redactor: StreamRedactor,
}

impl FileTail {
    /// Creates a reader that begins with the first line that starts at this offset or later.
    pub fn new(path: PathBuf, from: u64) -> Self {
        // The byte before the offset shows whether a line starts there.
        Self {
            path,
            file: None,
            at: from.saturating_sub(1),
            is_cut: from > 0,
            redactor: Redacted::stream(),
        }
    }

    /// Skips unread data before the last `length` bytes of the file.
    pub fn skip_to_last(&mut self, length: u64) {
        let end = std::fs::metadata(&self.path).map_or(0, |data| data.len());
        if end.saturating_sub(self.at) > length {
            self.at = end - length;
            self.is_cut = true;
            self.redactor = Redacted::stream();
        }
    }

    /// Passes new lines to `sink`, with the offset after them, and returns the number of bytes
    /// read.
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
        let mut chunk = vec![0; CHUNK];
        while let Some(file) = &self.file {
            let count = match file.read_at(&mut chunk, self.at) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Stopped::Log(error)),
            };
            let from = self.at;
            self.at += count as u64;
            let mut new = &chunk[..count];
            if self.is_cut {
                let Some(end) = new.iter().position(|byte| *byte == b'\n') else { continue };
                self.is_cut = false;
                new = &new[end + 1..];
            }
            let text = self.redactor.push(new);
            if text.is_empty() {
                continue;
            }
            let line = chunk[..count].iter().rposition(|byte| *byte == b'\n');
            let passed = match line {
                Some(end) if text.ends_with('\n') => from + end as u64 + 1,
                _ => self.at,
            };
            sink(&text, passed).map_err(|_| Stopped::Sink)?;
        }
        Ok(self.at - before)
    }

    /// Passes on an unterminated last line.
    fn rest(&mut self, sink: &mut dyn FnMut(&str, u64) -> io::Result<()>) -> io::Result<()> {
        match self.redactor.finish() {
            text if text.is_empty() => Ok(()),
            text => sink(&text, self.at),
        }
    }
}
