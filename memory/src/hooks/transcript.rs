//! Reads the answers of a session from its transcript, in the formats of Claude Code and Codex.
//!
//! ```text
//! row of a person ── begins a turn ──> segment, segment, … ──> open segment
//!                                         each ends with a tool or a row of a person
//! ```
//!
//! Only text from the assistant is part of an answer. Sub-agent rows, tool results and unreadable
//! lines are skipped. A last line without a line break is left for the next call.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::open_host;
use runner_engine::time::boot_time;
use runner_text::jsonl::{Jsonl, JsonlRecord};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json;

/// Maximum length of a line in bytes. Longer lines are skipped.
const LONGEST_LINE: usize = 8 << 20;

/// Minimum number of lines to read, regardless of the time limit.
const FEWEST: u64 = 64;

/// The answers to one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The id of the row that began the turn, if the row has an id.
    pub id: Option<String>,
    /// The id that the host assigned to the prompt.
    pub prompt: Option<String>,
    pub at: Option<Timestamp>,
    /// The byte offset of the row that began the turn, or of the first row that no earlier call has
    /// read.
    pub offset: u64,
    /// Whether the row that began the turn is known. Otherwise, the turn began before the first
    /// line read.
    pub begun: bool,
    /// The pieces of text followed by a tool use or another row.
    pub segments: Vec<String>,
    /// The text after the last tool use, which may still grow.
    pub open: String,
    /// Whether a row that is neither an answer nor a tool use followed the open text.
    pub followed: bool,
    /// The number of the turn's elements before `offset`, by digest, if an earlier call read the
    /// beginning of the turn.
    pub earlier: HashMap<String, u32>,
}

/// The turns in a part of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub turns: Vec<Turn>,
    /// The byte offsets of the lines that were skipped because they are too long or invalid.
    pub skipped: Vec<u64>,
    /// The byte offset after the last complete line.
    pub end: u64,
    pub extent: Extent,
}

/// How far a transcript was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All complete lines.
    #[default]
    Whole,
    /// The lines before this byte offset, because the time limit was reached. The last turn has no
    /// open text and may continue after the offset.
    Cut(u64),
}

#[derive(Deserialize)]
struct Row<'r> {
    #[serde(default, rename = "type", borrow)]
    kind: Option<Cow<'r, str>>,
    #[serde(default)]
    uuid: Option<String>,
    #[serde(default, rename = "promptId")]
    prompt: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default, rename = "isSidechain")]
    sidechain: Option<bool>,
    #[serde(default, rename = "isMeta")]
    meta: Option<bool>,
    #[serde(default, rename = "isCompactSummary")]
    compact: Option<bool>,
    #[serde(default, borrow)]
    message: Option<&'r RawValue>,
    #[serde(default, borrow)]
    payload: Option<&'r RawValue>,
}

/// A Claude Code message or a Codex item.
#[derive(Default, Deserialize)]
struct Message {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    turn_id: Option<String>,
    #[serde(default)]
    content: serde_json::Value,
}

/// The effect of a row on the turns.
enum Step {
    /// A person's prompt.
    Begin {
        id: Option<String>,
        prompt: Option<String>,
    },
    /// The assistant's pieces of text and tool uses, in order.
    Answer(Vec<Part>),
    /// A row that ends a piece of text.
    End(Part),
    Nothing,
}

enum Part {
    Text(String),
    Tool,
    /// A row written by the host, such as a compaction summary. The text before it remains the last
    /// message until more text follows.
    Host,
}

/// Returns the byte offset after the last complete line of a transcript.
///
/// # Errors
/// Returns an error if the file cannot be read.
fn end(path: &Path) -> io::Result<u64> {
    let mut file = open_host(path)?;
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut chunk = vec![0; 64 * 1024];
    while end > 0 {
        let length = end.min(chunk.len() as u64);
        file.seek(SeekFrom::Start(end - length))?;
        let part = &mut chunk[..length as usize];
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(end - length + at as u64 + 1);
        }
        end -= length;
    }
    Ok(0)
}

/// Reads the turns after the offset of `begun`, which is the turn at this offset as far as an
/// earlier call has read it. A file shorter than the offset has been replaced, and is read from its
/// start. Reading stops after `limit`, but never between a text and the row that follows it. At
/// least `FEWEST` lines are read, so each call makes progress.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(path: &Path, begun: Turn, limit: Duration) -> io::Result<Read> {
    let end = end(path)?;
    let mut current = if begun.offset > end { Turn::default() } else { begun };
    let from = current.offset;
    let mut file = open_host(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut out = Read { end, ..Read::default() };
    let until = boot_time() + limit;
    let rows: Jsonl<_, Box<RawValue>> =
        Jsonl::new(BufReader::new(file.take(end - from)), LONGEST_LINE);
    for (row, number) in rows.zip(0_u64..) {
        let start = from + row.as_ref().map_or_else(|bad| bad.offset, |record| record.offset);
        if number >= FEWEST && current.open.is_empty() && boot_time() > until {
            out.extent = Extent::Cut(start);
            break;
        }
        let Ok(JsonlRecord { value, .. }) = row else {
            out.skipped.push(start);
            continue;
        };
        let Ok(row) = serde_json::from_str::<Row<'_>>(value.get()) else {
            out.skipped.push(start);
            continue;
        };
        let at = row.timestamp.as_deref().and_then(|at| at.parse().ok());
        let Ok(step) = step(&row) else {
            out.skipped.push(start);
            continue;
        };
        match step {
            Step::Begin { id, prompt } => {
                // Codex names a turn in several rows.
                if id.is_some() && id == current.id {
                    continue;
                }
                let next = Turn { id, prompt, at, offset: start, begun: true, ..Turn::default() };
                let last = std::mem::replace(&mut current, next);
                if !last.is_empty() {
                    out.turns.push(last);
                }
            }
            Step::Answer(parts) => parts.into_iter().for_each(|part| current.add(part)),
            Step::End(part) => current.add(part),
            Step::Nothing => {}
        }
    }
    if !current.is_empty() {
        out.turns.push(current);
    }
    Ok(out)
}

impl Turn {
    fn is_empty(&self) -> bool {
        !self.begun && self.segments.is_empty() && self.open.is_empty()
    }

    fn add(&mut self, part: Part) {
        match part {
            Part::Text(text) => {
                if std::mem::take(&mut self.followed) {
                    self.add(Part::Tool);
                }
                if !self.open.is_empty() {
                    self.open.push_str("\n\n");
                }
                self.open.push_str(&text);
            }
            Part::Tool | Part::Host if self.open.is_empty() => {}
            Part::Tool => {
                self.followed = false;
                self.segments.push(std::mem::take(&mut self.open));
            }
            Part::Host => self.followed = true,
        }
    }
}

/// Returns the effect of a row.
///
/// # Errors
/// Returns an error if the row's message does not have the expected structure.
fn step(row: &Row<'_>) -> serde_json::Result<Step> {
    if row.sidechain == Some(true) {
        return Ok(Step::Nothing);
    }
    let parse = |raw: Option<&RawValue>| -> serde_json::Result<Message> {
        raw.map_or(Ok(Message::default()), |raw| json::parse(raw.get()))
    };
    Ok(match row.kind.as_deref() {
        Some("user") => {
            let message = parse(row.message)?;
            let blocks = message.content.as_array();
            let is = |block: &serde_json::Value, kind: &str| block["type"] == kind;
            let result = blocks.is_some_and(|all| all.iter().any(|it| is(it, "tool_result")));
            if row.meta == Some(true) || row.compact == Some(true) {
                return Ok(Step::End(Part::Host));
            }
            if result {
                return Ok(Step::End(Part::Tool));
            }
            Step::Begin { id: row.uuid.clone(), prompt: row.prompt.clone() }
        }
        Some("assistant") => Step::Answer(parts(&parse(row.message)?.content, "text")),
        // The remaining kinds of rows are from Codex.
        Some("turn_context") => match parse(row.payload)?.turn_id {
            Some(id) => Step::Begin { id: Some(id), prompt: None },
            None => Step::Nothing,
        },
        Some("response_item") => {
            let message = parse(row.payload)?;
            match (message.kind.as_deref(), message.role.as_deref()) {
                (Some("message"), Some("assistant")) => {
                    Step::Answer(parts(&message.content, "output_text"))
                }
                (Some("message" | "reasoning"), _) | (None, _) => Step::Nothing,
                _ => Step::End(Part::Tool),
            }
        }
        _ => Step::Nothing,
    })
}

/// Returns the pieces of text and the tool uses in a message's content, which is a string or a list
/// of blocks.
fn parts(content: &serde_json::Value, text_kind: &str) -> Vec<Part> {
    if let Some(text) = content.as_str() {
        return vec![Part::Text(text.to_owned())];
    }
    let blocks = content.as_array().into_iter().flatten();
    let part = |block: &serde_json::Value| match block["type"].as_str() {
        Some(kind) if kind == text_kind => {
            Some(Part::Text(block["text"].as_str().unwrap_or_default().to_owned()))
        }
        Some("tool_use" | "server_tool_use") => Some(Part::Tool),
        _ => None,
    };
    blocks.filter_map(part).collect()
}
