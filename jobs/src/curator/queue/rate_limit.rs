//! Records the job starts of the last hour in `logs/hour.jsonl`, one line per start.
//!
//! The line is written before a file is claimed, so the cap applies across restarts and consumers.
//! If the process dies before it claims the file, the recorded start still counts towards the cap,
//! so the cap is never exceeded. Only the start of a job that had to wait is removed again.

use std::io;

use jiff::{SignedDuration, Timestamp};
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use serde::{Deserialize, Serialize};

use super::Worker;
use super::files::append;

pub(super) const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StartRecord {
    pub(super) at: Timestamp,
    pub(super) id: String,
}

/// The starts of the last hour.
#[derive(Debug, Default)]
pub(super) struct StartWindow {
    pub(super) list: Vec<StartRecord>,
    /// The number of lines that are at least an hour old.
    over: usize,
    /// Whether a start's time was replaced with the current time. The list must then be rewritten,
    /// because otherwise that start would never expire.
    pub(super) odd: bool,
}

impl Worker {
    /// Returns the number of jobs that were started in the last 60 minutes.
    ///
    /// # Errors
    /// Returns an error if the record cannot be read.
    pub fn started_within_hour(&self, now: Timestamp) -> io::Result<u32> {
        Ok(u32::try_from(self.starts(now)?.list.len()).unwrap_or(u32::MAX))
    }

    /// Reads the starts of the last hour. If the clock was set back, a start may be in the future.
    /// Such a start is treated as if it were made at `now`.
    pub(super) fn starts(&self, now: Timestamp) -> io::Result<StartWindow> {
        let mut starts = StartWindow::default();
        let text = match read_no_link(self.path("logs/hour.jsonl"), DOCUMENT) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(starts),
            Err(error) => return Err(error),
        };
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // An unreadable line is counted as a start.
            let read = serde_json::from_slice::<StartRecord>(line).ok();
            let mut start = read.unwrap_or_else(|| {
                starts.odd = true;
                StartRecord { at: now, id: String::new() }
            });
            starts.odd |= start.at > now;
            start.at = start.at.min(now);
            if now.duration_since(start.at) < HOUR {
                starts.list.push(start);
            } else {
                starts.over += 1;
            }
        }
        Ok(starts)
    }

    /// Appends the last start to the file, or rewrites the file if most of its lines are older than
    /// an hour.
    pub(super) fn note(&self, starts: &StartWindow) -> io::Result<()> {
        if starts.over > starts.list.len() {
            return self.rewrite(&starts.list);
        }
        let last = &starts.list[starts.list.len() - 1..];
        append(&self.path("logs/hour.jsonl"), &lines(last)?)
    }

    /// Removes the last recorded start of a job that had to wait.
    pub(crate) fn forget(&self, id: &str, now: Timestamp) -> io::Result<()> {
        let _held = self.lock()?;
        let mut starts = self.starts(now)?.list;
        if let Some(at) = starts.iter().rposition(|start| start.id == id) {
            starts.remove(at);
            self.rewrite(&starts)?;
        }
        Ok(())
    }

    pub(super) fn rewrite(&self, starts: &[StartRecord]) -> io::Result<()> {
        let path = self.path("logs/hour.jsonl");
        write_atomic(&path, &lines(starts)?, 0o644).map_err(|it| it.source)
    }
}

fn lines(starts: &[StartRecord]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for start in starts {
        serde_json::to_writer(&mut text, start)?;
        text.push(b'\n');
    }
    Ok(text)
}
