//! Splits byte chunks of any size into events: server-sent events, JSON lines, or a single JSON
//! document.
//!
//! ```text
//! piece ──> Sse    line feed, carriage return or both end a line; an empty line ends an event
//!       ──> Lines  one JSON text per line
//!       ──> Whole  the complete body is one JSON text
//! ```
//!
//! The crate `eventsource-stream` is not used, because it buffers events of any size, rescans an
//! event from the start for each chunk, and may lose the last event if lines end in carriage
//! returns. Tests compare the two parsers on input with other line endings. This module must never
//! keep more than one event, and must never interpret an event's content.

use std::ops::ControlFlow;

use memchr::memchr2;

use crate::agent::lines::Lines;

/// Maximum size in bytes of an event, a line or a whole body.
pub(crate) const LONGEST: usize = 16 * 1024 * 1024;

/// A callback that receives an event's name, which may be empty, and the event's data.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// The error for an event that is larger than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The format of a body.
#[derive(Debug)]
pub(crate) enum Framing {
    /// `text/event-stream`.
    Sse(Sse),
    /// `application/x-ndjson`.
    Lines(Lines),
    /// `application/json`.
    Whole(Vec<u8>),
}

impl Framing {
    /// Returns the framing for a content type, or `None` if the type is unknown.
    pub fn of(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        match kind.to_ascii_lowercase().as_str() {
            "text/event-stream" => Some(Self::Sse(Sse::new(LONGEST))),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Some(Self::Lines(Lines::new(LONGEST)))
            }
            "application/json" => Some(Self::Whole(Vec::new())),
            _ => None,
        }
    }

    /// Returns whether the body is a single JSON document rather than a stream.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Consumes a chunk and passes each completed event to `each`, until `each` asks to stop.
    pub fn feed(&mut self, piece: &[u8], each: &mut Each<'_>) -> Result<(), TooLarge> {
        match self {
            Self::Sse(sse) => sse.feed(piece, each),
            Self::Lines(lines) => {
                let mut stopped = false;
                lines.feed(piece, &mut |line| {
                    if !stopped && !line.trim_ascii().is_empty() {
                        stopped = each(b"", line).is_break();
                    }
                });
                match lines.overlong() {
                    0 => Ok(()),
                    _ => Err(TooLarge),
                }
            }
            Self::Whole(all) if all.len() + piece.len() > LONGEST => Err(TooLarge),
            Self::Whole(all) => {
                all.extend_from_slice(piece);
                Ok(())
            }
        }
    }

    /// Passes on the event completed by the end of the body, if any. An unfinished server-sent
    /// event is dropped.
    pub fn finish(&mut self, each: &mut Each<'_>) {
        match self {
            Self::Sse(_) => {}
            Self::Lines(lines) => lines.finish(&mut |line| {
                if !line.trim_ascii().is_empty() {
                    let _nothing_follows = each(b"", line);
                }
            }),
            Self::Whole(all) => {
                let _nothing_follows = each(b"", &std::mem::take(all));
            }
        }
    }
}

/// A reader for server-sent events (WHATWG HTML, section 9.2). Only event names and data are used.
#[derive(Debug)]
pub(crate) struct Sse {
    longest: usize,
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// Whether the last line ended with a carriage return. A line feed immediately after it belongs
    /// to the same line ending.
    returned: bool,
    /// Whether no line has been read yet, in which case a byte order mark may come first.
    fresh: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    /// Whether the event has data, which may be empty.
    has_data: bool,
}

impl Sse {
    /// Creates a reader for events of at most `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            line: Vec::new(),
            returned: false,
            fresh: true,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
        }
    }

    fn feed(&mut self, mut piece: &[u8], each: &mut Each<'_>) -> Result<(), TooLarge> {
        while !piece.is_empty() {
            if std::mem::take(&mut self.returned) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', piece);
            let part = &piece[..end.unwrap_or(piece.len())];
            if self.line.len() + self.data.len() + part.len() > self.longest {
                return Err(TooLarge);
            }
            let Some(end) = end else {
                self.line.extend_from_slice(part);
                return Ok(());
            };
            self.returned = piece[end] == b'\r';
            piece = &piece[end + 1..];
            let flow = if self.line.is_empty() {
                self.take(part, each)
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                let flow = self.take(&line, each);
                line.clear();
                self.line = line;
                flow
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8], each: &mut Each<'_>) -> ControlFlow<()> {
        let line = match std::mem::take(&mut self.fresh) {
            true => line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            let flow = match std::mem::take(&mut self.has_data) {
                true => each(&self.name, &self.data),
                false => ControlFlow::Continue(()),
            };
            self.name.clear();
            self.data.clear();
            return flow;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.name = value.to_vec(),
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            // Comments, ids and reconnection times are ignored.
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
