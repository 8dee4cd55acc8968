//! Which task some words name.
//!
//! Three looks, each only where the one before found nothing: the heading exactly; folded (NFKC, one
//! hyphen for all, one quote for all, one blank for many); the longest heading that the words begin
//! with, folded, where a dash follows it (`X — why`), a parenthesis (`X (why)`) or a last stop (`X.`).
//! A heading that is followed by more words is another thing: "Fix login" is not meant by "Fix login
//! page", nor by "Fix login-page". Two tasks of one heading are never chosen between. Must never guess.

use super::board::Board;
use super::task::{Keyword, Task};
pub use super::words::fold;

/// The result of a search for the task that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'b> {
    /// This task; and what followed its heading, folded, without the dash between.
    One {
        /// The task.
        task: &'b Task,
        /// The text after the heading.
        rest: String,
    },
    /// Several have this heading: the lines they stand in.
    Ambiguous {
        /// Their heading.
        heading: &'b str,
        /// Their lines.
        lines: Vec<usize>,
    },
    /// None has it.
    Unknown,
}

impl Board {
    /// Finds the task that `said` names.
    pub fn resolve(&self, said: &str) -> Resolved<'_> {
        let exact = said.trim();
        let wanted = fold(said);
        if wanted.is_empty() {
            return Resolved::Unknown;
        }
        if let Some(places) = self.folded().get(&wanted) {
            // Exactly one has these very bytes, others only look like it: those bytes were said.
            let same: Vec<usize> =
                places.iter().copied().filter(|at| self.tasks[*at].heading == exact).collect();
            return match same.len() {
                0 => self.one_of(places, ""),
                _ => self.one_of(&same, ""),
            };
        }
        // Backwards from the end: every place at which a heading may end.
        let ends = wanted.char_indices().rev().map(|(at, _)| at);
        for at in ends {
            let (head, rest) = wanted.split_at(at);
            if let Some(rest) = behind(rest)
                && let Some(places) = self.folded().get(head)
            {
                return self.one_of(places, rest);
            }
        }
        self.cancelled(&wanted)
    }

    /// Finds a closed task by its original heading, because such a task carries its reason in its
    /// heading.
    fn cancelled(&self, wanted: &str) -> Resolved<'_> {
        let begins = format!("{wanted} - ");
        let places: Vec<usize> = self
            .folded()
            .range(begins.clone()..)
            .take_while(|(heading, _)| heading.starts_with(&begins))
            .flat_map(|(_, places)| places.iter().copied())
            .filter(|at| self.tasks[*at].keyword == Keyword::Cancelled)
            .collect();
        if places.is_empty() { Resolved::Unknown } else { self.one_of(&places, "") }
    }

    fn one_of(&self, places: &[usize], rest: &str) -> Resolved<'_> {
        match places {
            [only] => Resolved::One { task: &self.tasks[*only], rest: rest.to_owned() },
            several => Resolved::Ambiguous {
                heading: &self.tasks[several[0]].heading,
                lines: several.iter().map(|at| self.tasks[*at].line).collect(),
            },
        }
    }
}

/// Returns the text after a heading, if it begins in a way that can follow one.
fn behind(rest: &str) -> Option<&str> {
    if let Some(words) = rest.strip_prefix(" -") {
        let words = words.trim_start_matches('-');
        return (words.is_empty() || words.starts_with(' ')).then(|| words.trim_start());
    }
    if rest.starts_with(" (") {
        return Some(&rest[1..]);
    }
    matches!(rest, "." | ";" | "," | ":" | "!").then_some("")
}
