//! The transcripts of a session's sub-agents, which are separate files.
//!
//! ```text
//! <session>.jsonl  ──────────┐
//! <session>/subagents/agent-*.jsonl ──by time──> events of the session
//! agent-*.jsonl of the session ─┘
//! ```
//!
//! A sub-agent's event is inserted before the first event of the session that is not earlier. It
//! gets the line number of the preceding session event: the call that started the sub-agent, or a
//! later event. This module must never keep the events of more than one row from each file.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Take};

use jiff::Timestamp;
use runner_engine::files::open_host;

use super::sources::Source;
use super::transcript::{LineGap, SessionEvent, Tally, Transcript};

/// Maximum number of sub-agents to read per session.
const MOST: usize = 200;
/// Size of the buffer of one file, in bytes.
const BUFFER: usize = 16 * 1024;

/// The sub-agents of a session, as one stream of events in time order.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    transcript: Transcript<BufReader<Take<File>>>,
    next: Option<SessionEvent>,
}

impl Parts {
    /// Opens the files of a session's sub-agents.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn of(source: &Source) -> io::Result<Self> {
        let mut parts = Vec::new();
        for path in source.agents.iter().take(MOST) {
            let file = open_host(path)?;
            let size = file.metadata()?.len();
            let reader = BufReader::with_capacity(BUFFER, file.take(size));
            let mut transcript = Transcript::new(reader, LineGap::default());
            let next = transcript.next().transpose()?;
            parts.push(Part { transcript, next });
        }
        Ok(Self { parts })
    }

    /// Returns the next event that is not later than `until`. Events without a time are returned
    /// immediately.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn next_until(&mut self, until: Timestamp) -> io::Result<Option<SessionEvent>> {
        let waiting = self.parts.iter_mut().filter(|part| part.next.is_some());
        let first = waiting.min_by_key(|part| part.next.as_ref().and_then(|event| event.at));
        let Some(part) = first else { return Ok(None) };
        if part.next.as_ref().and_then(|event| event.at).is_some_and(|at| at > until) {
            return Ok(None);
        }
        let event = part.next.take();
        part.next = part.transcript.next().transpose()?;
        Ok(event.map(|event| SessionEvent { sidechain: true, ..event }))
    }

    /// Adds the counts of all files.
    pub fn count(&self, tally: &mut Tally) {
        self.parts.iter().for_each(|part| tally.add(part.transcript.tally()));
    }
}
