//! Transcripts of Claude Code, of all versions, as one stream of events.
//!
//! ```text
//! bytes ──records──> one JSON object each, with its line ──row──> events: said, called, came back
//!            └── blank, bad, too long, torn: counted            └── foreign: counted
//! ```
//!
//! Every line is counted under exactly one heading of [`Tally`]. A file of any size is read in the
//! memory of one line of the allowed length. Must never panic on what a file holds, and never take a
//! damaged line for the end of the file.

mod records;
mod row;

use std::io::BufRead;

use jiff::Timestamp;

pub use records::{LineGap, MAX_LINE, Record, Records, Tally};

/// One thing that happened in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The line of the file that contains the event, from 1; the first line of an object that spans
    /// several.
    pub line: u64,
    /// The time of the event, if the row states one.
    pub at: Option<Timestamp>,
    /// The folder in which the session was at work.
    pub cwd: Option<String>,
    /// It belongs to a sub-agent.
    pub sidechain: bool,
    pub what: SessionEventKind,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEventKind {
    /// A person said this.
    Prompt(String),
    /// The model said this.
    Answer(String),
    /// The model used a tool.
    Call {
        /// Names the call; its outcome has the same.
        id: String,
        /// `Bash`, `Edit`, …
        tool: String,
        /// A path, a command, a pattern: what it was used on.
        target: String,
    },
    /// The result of a call.
    Outcome {
        /// The call.
        id: String,
        /// True if the tool reports that it failed.
        failed: bool,
        /// Its words.
        text: String,
    },
    /// The program's own summary of a session.
    Summary(String),
    /// Any other row of the program's: its type.
    Other(String),
}

/// The events of a file, in order.
#[derive(Debug)]
pub struct Transcript<R> {
    records: Records<R>,
    ready: std::vec::IntoIter<SessionEvent>,
}

impl<R: BufRead> Transcript<R> {
    /// Reads from where `reader` stands, which is at `from`.
    pub fn new(reader: R, from: LineGap) -> Self {
        Self::with_cap(reader, from, MAX_LINE)
    }

    /// Makes a reader with another maximum length of a line, in bytes.
    pub fn with_cap(reader: R, from: LineGap, cap: usize) -> Self {
        Self { records: Records::new(reader, from, cap), ready: Vec::new().into_iter() }
    }

    /// Stops the reader after this line.
    #[must_use]
    pub fn until(mut self, line: u64) -> Self {
        self.records.stop_after(line);
        self
    }

    /// Passes over all lines before this one, without a look at them.
    ///
    /// # Errors
    /// The reader failed.
    pub fn skip_to(&mut self, line: u64) -> std::io::Result<()> {
        self.records.skip_to(line)
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        self.records.tally()
    }

    /// Returns the position at which a later reader may continue: behind everything that was
    /// counted, and before an unfinished end.
    pub fn place(&self) -> LineGap {
        self.records.place()
    }
}

impl<R: BufRead> Iterator for Transcript<R> {
    type Item = std::io::Result<SessionEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(Ok(event));
            }
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            match row::events(record.line, &record.json) {
                Some(events) => self.ready = events.into_iter(),
                None => self.records.note_foreign(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
