//! Reads the event stream of an agent program: one JSON object per line.
//!
//! Each agent implements [`AgentEvents`], which maps its events to sink events. The reader must
//! never fail: a line that is not a JSON object is only counted.

use runner_engine::process::OutputVerdict;
use serde_json::{Map, Value};

use super::lines::Lines;
use crate::sink::OwnedEvent;

/// Maximum length of a line in bytes. A longer line is skipped.
const LONGEST: usize = 16 * 1024 * 1024;

/// Interprets the events of one agent program.
pub(crate) trait AgentEvents: Default + Send + 'static {
    /// Interprets one event, or skips an event of an unknown type.
    fn event(&mut self, event: Value, tell: &mut dyn FnMut(OwnedEvent)) -> OutputVerdict;
}

/// Reads one agent's event stream.
#[derive(Debug)]
pub(crate) struct EventStream<E> {
    /// The combined result of the events so far.
    pub events: E,
    /// The number of lines that are not events.
    pub unreadable: u64,
    lines: Lines,
}

impl<E: AgentEvents> EventStream<E> {
    pub fn new() -> Self {
        Self { events: E::default(), unreadable: 0, lines: Lines::new(LONGEST) }
    }

    /// Consumes a piece of the output. Returns the last verdict other than `Continue`, or
    /// `Continue` if there is none.
    pub fn feed(&mut self, piece: &[u8], tell: &mut dyn FnMut(OwnedEvent)) -> OutputVerdict {
        let mut verdict = OutputVerdict::Continue;
        let Self { events, unreadable, lines } = self;
        lines.feed(piece, &mut |line| match read_line(events, unreadable, line, tell) {
            OutputVerdict::Continue => {}
            other => verdict = other,
        });
        verdict
    }

    /// Consumes the last line if the output ended without a line feed.
    pub fn finish(&mut self, tell: &mut dyn FnMut(OwnedEvent)) {
        let Self { events, unreadable, lines } = self;
        lines.finish(&mut |line| {
            read_line(events, unreadable, line, tell);
        });
    }

    /// Returns the number of lines that were skipped because they were too long.
    pub fn overlong(&self) -> u64 {
        self.lines.overlong()
    }
}

fn read_line(
    events: &mut impl AgentEvents,
    unreadable: &mut u64,
    line: &[u8],
    tell: &mut dyn FnMut(OwnedEvent),
) -> OutputVerdict {
    if line.iter().all(u8::is_ascii_whitespace) {
        return OutputVerdict::Continue;
    }
    match serde_json::from_slice::<Map<String, Value>>(line) {
        Ok(event) => events.event(Value::Object(event), tell),
        Err(_) => {
            *unreadable += 1;
            OutputVerdict::Continue
        }
    }
}
