//! Finds the part of a transcript that belongs to another session.
//!
//! A program that forks a session copies the rows of the session into a new transcript. The copies
//! keep the ids of the rows, or name them as their origin, so they are counted only for the session
//! that was analyzed first.

use std::collections::HashMap;
use std::io::{self, BufReader};

use jiff::Timestamp;
use runner_engine::files::open_host;

use super::record::SessionRecord;
use super::transcript::{LineGap, SessionEvent, Transcript};

/// Maximum number of rows to compare, which limits the use of memory.
const MOST: usize = 200_000;

/// The rows of a transcript that may be copies.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The line of each row, keyed by the digest of the row's id.
    lines: HashMap<u64, u64>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Rows {
    /// Adds the row of an event.
    pub fn add(&mut self, event: &SessionEvent) {
        let Some(row) = event.row.filter(|_| self.lines.len() < MOST) else { return };
        self.lines.insert(row, event.line);
        if let Some(at) = event.at {
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = self.last.max(Some(at));
        }
    }

    /// Returns the last line that one of the other sessions also has and counts, or 0 if there is
    /// none. A transcript that no longer exists is skipped.
    ///
    /// # Errors
    /// Returns an error if a transcript cannot be read, or an error of kind `Interrupted` if
    /// `cancelled` returns true.
    pub fn shared_until<'r>(
        &self,
        others: impl Iterator<Item = &'r SessionRecord>,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let mut until = 0;
        for other in others.filter(|it| it.started_at <= self.last && it.ended_at >= self.first) {
            let Ok(file) = open_host(&other.path) else { continue };
            let reader = BufReader::with_capacity(256 << 10, file);
            for event in Transcript::new(reader, LineGap::default()) {
                let event = event?;
                // The other session may itself be a fork.
                if event.line > other.shared_until.unwrap_or_default() {
                    let line = event.row.and_then(|row| self.lines.get(&row));
                    until = until.max(line.copied().unwrap_or_default());
                }
                if cancelled() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(until)
    }
}
