//! Reads transcripts of coding agents as one stream of events: those of every Claude Code version,
//! Codex rollouts, `_steps.jsonl`, and rows with `ts`, `type` and `detail`.
//!
//! ```text
//! bytes ──records──> one JSON object each, with its line ──row, other──> events: text, call, outcome
//!            └── blank, bad, too long, torn: counted                 └── foreign: counted
//! ```
//!
//! Every line is counted in exactly one category of [`Tally`]. Memory use depends on the maximum
//! line length and not on the file size. This module must never panic on the content of a file, and
//! never mistake a damaged line for the end of the file.

mod lenient;
mod other;
mod records;
mod row;

use std::io::BufRead;

use jiff::Timestamp;

pub use records::{LineGap, MAX_LINE, Tally};
use records::{RecordContent, Records};
use row::Row;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The 1-based line number of the event in the file. For an object that spans several lines,
    /// this is the first line.
    pub line: u64,
    /// The time of the event, if the row contains one.
    pub at: Option<Timestamp>,
    /// The working directory of the session.
    pub cwd: Option<String>,
    /// The git branch of the session.
    pub branch: Option<String>,
    /// Whether the event is from a sub-agent.
    pub sidechain: bool,
    /// A digest of the row's id, which the copies of the row in a fork of the session share.
    pub row: Option<u64>,
    pub what: SessionEventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEventKind {
    /// Text from the user.
    Prompt(String),
    /// Text from the model.
    Answer(String),
    /// A tool use by the model.
    Call {
        /// The id of the call, which its outcome shares.
        id: String,
        /// The name of the tool, such as `Bash` or `Edit`.
        tool: String,
        /// The path, command or pattern that the tool was used on.
        target: String,
        /// The start of the text that the tool writes to a file. Empty for a tool that writes none.
        written: String,
    },
    /// The result of a call.
    Outcome {
        id: String,
        /// Whether the tool reported a failure.
        failed: bool,
        text: String,
    },
    /// Text that a hook added to the conversation.
    Injected(String),
    /// The agent program's own summary of a session.
    Summary(String),
    /// Any other row or block written by the agent's program. The value is its type.
    Other(String),
}

/// The events of a file, in order.
#[derive(Debug)]
pub struct Transcript<R> {
    records: Records<R>,
    ready: std::vec::IntoIter<SessionEvent>,
}

impl<R: BufRead> Transcript<R> {
    /// Creates a transcript that reads from the current position of `reader`, which is `from`.
    pub fn new(reader: R, from: LineGap) -> Self {
        Self::with_cap(reader, from, MAX_LINE)
    }

    /// Creates a transcript with a custom maximum line length, in bytes.
    pub fn with_cap(reader: R, from: LineGap, cap: usize) -> Self {
        Self { records: Records::new(reader, from, cap), ready: Vec::new().into_iter() }
    }

    /// Makes the transcript end after this line.
    #[must_use]
    pub fn until(mut self, line: u64) -> Self {
        self.records.stop_after(line);
        self
    }

    /// Skips all lines before `line` without inspecting them.
    ///
    /// # Errors
    /// Returns an error if the reader fails.
    pub fn skip_to(&mut self, line: u64) -> std::io::Result<()> {
        self.records.skip_to(line)
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        self.records.tally()
    }

    /// Returns the position from which a later reader may continue: after everything counted so
    /// far, and before any unfinished end of the file.
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
            let line = record.line;
            let events = match record.content {
                RecordContent::Row(row) => Some(row::events(line, *row)),
                RecordContent::Json(json) => match Row::of_json(&json) {
                    Some(row) => Some(row::events(line, row)),
                    None => other::events(line, &json),
                },
            };
            match events {
                Some(events) => self.ready = events.into_iter(),
                None => self.records.note_foreign(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
