//! The history of a board: one line of JSON for each change, published together with the board.

use jiff::Timestamp;
use runner_text::org::Keyword;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where it lies, below the project.
pub const PATH: &str = ".runner/board.jsonl";
/// How many records are kept. Entries are applied while they are the newest, so that what is dropped
/// is never asked for again.
const KEPT: usize = 5000;

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryEvent {
    /// An entry's verdicts.
    Apply,
    /// The next task was begun.
    Pick,
    /// A task was added.
    Add,
    /// A task was finished.
    Done,
}

/// A task that was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMove {
    /// Its heading before.
    pub task: String,
    /// Its line, from 1.
    pub line: usize,
    /// Where it stood; none for one that is new.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "keyword")]
    pub from: Option<Keyword>,
    /// Where it stands.
    #[serde(with = "keyword")]
    pub to: Option<Keyword>,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A verdict that was understood and moves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnappliedVerdict {
    /// The verdict.
    pub said: String,
    /// Why nothing moves.
    pub why: String,
}

/// A verdict that names no one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// The verdict.
    pub said: String,
    /// Why it names none.
    pub why: String,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// When.
    pub ts: Timestamp,
    /// The run that published the change.
    pub run: String,
    /// The agent whose journal or run it was; empty for the one without a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The board, below the project.
    pub board: String,
    /// The kind of change.
    pub what: HistoryEvent,
    /// The entry whose verdicts these were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The tasks that moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<TaskMove>,
    /// The verdicts that were understood and moved no task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UnappliedVerdict>,
    /// The verdicts that could not be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<Unresolved>,
}

/// All that was done, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoardHistory {
    /// The records.
    pub records: Vec<HistoryRecord>,
    /// Lines that are none; they are kept as they are.
    pub unreadable: usize,
    lines: Vec<String>,
}

impl BoardHistory {
    /// Reads it; a line that is no record is counted and kept.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<String> =
            text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        let records: Vec<HistoryRecord> =
            lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { unreadable: lines.len() - records.len(), records, lines }
    }

    /// Returns the record of the change that applied the verdicts of an agent's entry.
    pub fn applied(&self, agent: &str, entry: &str) -> Option<&HistoryRecord> {
        self.records.iter().rev().find(|record| {
            record.what == HistoryEvent::Apply
                && record.agent == agent
                && record.entry.as_deref() == Some(entry)
        })
    }

    /// Its text with further records at its end, and without the oldest beyond what is kept.
    pub fn with(&self, more: &[HistoryRecord]) -> String {
        let more = more
            .iter()
            .map(|record| serde_json::to_string(record).expect("a record has string keys only"));
        let lines: Vec<String> = self.lines.iter().cloned().chain(more).collect();
        let mut out = lines[lines.len().saturating_sub(KEPT)..].join("\n");
        out.push('\n');
        out
    }
}

/// Keywords as they stand on a board.
mod keyword {
    use super::{Deserialize as _, Deserializer, Keyword, Serializer};

    #[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Keyword>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(keyword) => serializer.serialize_str(keyword.as_str()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Keyword>, D::Error> {
        let word = Option::<String>::deserialize(deserializer)?;
        let known = |word: String| {
            Keyword::of(&word)
                .ok_or_else(|| serde::de::Error::custom(format!("no keyword: {word}")))
        };
        word.map(known).transpose()
    }
}
