//! A journal entry under `rem/`. Its six org sections are parsed strictly, and rendered so that no
//! text can be mistaken for a heading.
//!
//! ```text
//! org text ──parse──> Entry ──render──> org text          parse(render(e)) == e for a parsed e
//!              └────> Malformed{line, why}                 discarded whole, nothing is salvaged
//! ```
//!
//! An entry with an invalid heading is discarded. An incorrect number of words or lines only causes
//! a warning. This module must never guess the meaning of a verdict. Lines that are not verdicts
//! are kept separately and reported.

mod parse;
mod render;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use parse::{LARGEST, Malformed, parse, parse_sections};
pub use render::render;

/// The six headings, in order.
pub const HEADINGS: [&str; 6] = ["tale", "goals", "blue sky", "fears", "verdicts", "carry"];

/// Maximum number of words in a tale. A longer tale only causes a warning.
pub const TALE_WORDS: usize = 120;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The permanent name of the entry: its file name without `.org`, such as `2026-06-10-1430`.
    pub id: String,
    /// The title, such as `rem — 2026-06-10 14:30 UTC`.
    pub title: String,
    /// The model that wrote the entry, or [`BY_RULE`].
    pub model: String,
    /// The paths, exit codes and tasks that the tale mentions but no source contains, and the
    /// commits that it mentions although they are not new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// The facts that runner read from the sources, one per item. Empty in a rule-based entry,
    /// because its tale contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
    pub sections: Sections,
}

/// The model name recorded for a rule-based entry.
pub const BY_RULE: &str = "by rule";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sections {
    /// The events, in plain past tense.
    pub tale: String,
    /// The next goals, one line each.
    pub goals: Vec<String>,
    /// Larger ideas.
    pub blue_sky: Vec<String>,
    /// Risks.
    pub fears: Vec<String>,
    /// Moves on the board.
    pub verdicts: Vec<Verdict>,
    /// Lines below `verdicts` that are not verdicts. They are reported and never applied.
    pub unread: Vec<String>,
    /// The point from which the next waking run continues.
    pub carry: Vec<String>,
}

/// One move on the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub act: VerdictMove,
    /// The task's name: in parsed text, the text before the first dash between spaces. `None` for
    /// [`VerdictMove::KeepCourse`]. A heading may also contain such a dash, so the task is
    /// identified by [`Verdict::said`].
    pub task: Option<String>,
    /// The reason, or empty if none is given.
    pub why: String,
    /// All text after the move: the task's heading, then the reason.
    /// [`runner_text::org::Board::resolve`] finds the task.
    pub said: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictMove {
    /// Move a task from TODO to NEXT.
    PickUp,
    /// Move a task from NEXT or DOING to TODO.
    PutDown,
    /// Change a task to `CANCELLED X — why`.
    Cancel,
    /// Move no task.
    KeepCourse,
}

impl VerdictMove {
    /// All moves, in the contract's order.
    pub const ALL: [Self; 4] = [Self::PickUp, Self::PutDown, Self::Cancel, Self::KeepCourse];

    /// Returns the wording used for the move in an entry.
    pub fn describe(self) -> &'static str {
        match self {
            Self::PickUp => "pick up",
            Self::PutDown => "put down",
            Self::Cancel => "cancel",
            Self::KeepCourse => "keep course",
        }
    }
}

impl Verdict {
    /// Creates a verdict from its parts.
    pub fn new(act: VerdictMove, task: Option<&str>, why: &str) -> Self {
        let (task, why) = (task.map(render::one_line), render::one_line(why));
        let task = task.filter(|it| !it.is_empty() && act != VerdictMove::KeepCourse);
        let said = match &task {
            None => why.clone(),
            Some(task) if why.is_empty() => task.clone(),
            Some(task) => format!("{task} — {why}"),
        };
        Self { act, task, why, said }
    }
}

impl Sections {
    /// Returns warnings about sections with too few or too many words or lines, and about lines
    /// that are not verdicts.
    pub fn warnings(&self) -> Vec<String> {
        let mut reported = Vec::new();
        let words = self.tale.split_whitespace().count();
        if words == 0 {
            reported.push("tale is empty".to_owned());
        } else if words > TALE_WORDS {
            reported.push(format!("tale has {words} words, more than {TALE_WORDS}"));
        }
        for (name, lines, least, most) in [
            ("goals", self.goals.len(), 3, 5),
            ("blue sky", self.blue_sky.len(), 2, 3),
            ("fears", self.fears.len(), 2, 3),
        ] {
            if !(least..=most).contains(&lines) {
                reported.push(format!("{name} has {lines} lines, not {least} to {most}"));
            }
        }
        if self.verdicts.is_empty() {
            reported.push("no verdict".to_owned());
        }
        reported.extend((self.unread.iter()).map(|line| format!("not a verdict: {line}")));
        if self.carry.is_empty() {
            reported.push("carry is empty".to_owned());
        }
        reported
    }
}

/// Returns the position of the first semicolon that separates two claims, if there is one. A
/// semicolon between backticks is part of a command.
pub fn separator(said: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += said[at..].find([';', '`'])?;
        if said[at..].starts_with(';') {
            return Some(at);
        }
        // An unpaired backtick quotes nothing.
        let end = said[at + 1..].find('`');
        at += end.map_or(1, |end| end + 2);
    }
}

impl Entry {
    /// Returns the claims that the carry lists as verified, for an audit to check again.
    pub fn claims(&self) -> Vec<String> {
        let verified = self.sections.carry.iter().filter_map(|line| {
            let head = line.get(.."verified".len())?;
            let (_, said) = line.split_once(':')?;
            head.eq_ignore_ascii_case("verified").then_some(said)
        });
        let claims = verified.flat_map(|said| {
            let (mut parts, mut rest) = (Vec::new(), said);
            while let Some(at) = separator(rest) {
                parts.push(&rest[..at]);
                rest = &rest[at + 1..];
            }
            parts.push(rest);
            parts
        });
        claims
            .map(|claim| claim.trim().trim_end_matches('.').to_owned())
            .filter(|claim| !claim.is_empty())
            .collect()
    }
}
