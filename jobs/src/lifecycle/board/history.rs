//! The history of a project's boards: one line of JSON for each change, published together with the
//! changed board.

use jiff::Timestamp;
use runner_text::org::Keyword;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The path of the history, relative to the project.
pub const PATH: &str = ".runner/board.jsonl";
/// Maximum number of lines to keep. An entry is applied only while it is the newest, so dropping
/// the record of an old entry cannot cause its verdicts to be applied again.
const KEPT: usize = 5000;

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryEvent {
    /// An entry's verdicts were applied.
    Apply,
    /// The next task was begun.
    Pick,
    /// A task was added.
    Add,
    /// A task was finished.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMove {
    /// The task's heading before the move.
    pub task: String,
    /// The task's 1-based line number.
    pub line: usize,
    /// The keyword before the move, or `None` for a new task.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "keyword")]
    pub from: Option<Keyword>,
    /// The keyword after the move.
    #[serde(with = "keyword")]
    pub to: Option<Keyword>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A verdict that was understood but moved no task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnappliedVerdict {
    pub said: String,
    pub why: String,
}

/// A line that is not a verdict, or a verdict that identifies no task, several tasks or a task that
/// an earlier verdict moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    pub said: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    pub ts: Timestamp,
    /// The run that published the change.
    pub run: String,
    /// The agent for which the board was changed. Empty for the default agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The board's path, relative to the project.
    pub board: String,
    pub what: HistoryEvent,
    /// The id of the entry whose verdicts were applied, or `None` for any other change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<TaskMove>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<UnappliedVerdict>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<Unresolved>,
    /// The digest of the board before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The digest of the board after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoardHistory {
    /// The valid records, oldest first.
    pub records: Vec<HistoryRecord>,
    /// Number of invalid lines, which are kept unchanged.
    pub unreadable: usize,
    lines: Vec<String>,
}

impl BoardHistory {
    /// Returns the records of the board at `path`, oldest first.
    pub fn of_board(&self, path: &str) -> impl DoubleEndedIterator<Item = &HistoryRecord> {
        self.records.iter().filter(move |record| record.board == path)
    }

    /// Parses the history. Invalid lines are counted and kept.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<String> =
            text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        let records: Vec<HistoryRecord> =
            lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { unreadable: lines.len() - records.len(), records, lines }
    }

    /// Returns the record of the change that applied the verdicts in an agent's entry, or `None` if
    /// they were not applied.
    pub fn applied(&self, agent: &str, entry: &str) -> Option<&HistoryRecord> {
        self.records.iter().rev().find(|record| {
            record.what == HistoryEvent::Apply
                && record.agent == agent
                && record.entry.as_deref() == Some(entry)
        })
    }

    /// Returns when work on a task last began, or `None` if the history does not show it.
    pub fn begun(&self, task: &str) -> Option<Timestamp> {
        let begun = |it: &TaskMove| it.task == task && it.to == Some(Keyword::Doing);
        self.records.iter().rev().find(|record| record.moves.iter().any(begun)).map(|it| it.ts)
    }

    /// Returns the history's text with `more` appended, dropping the oldest lines beyond the limit.
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

/// Serializes and deserializes keywords as they are written on a board.
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
                .ok_or_else(|| serde::de::Error::custom(format!("unknown keyword: {word}")))
        };
        word.map(known).transpose()
    }
}
