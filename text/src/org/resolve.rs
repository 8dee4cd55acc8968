//! Finds the task that a text names.
//!
//! Each search runs only if the previous one found nothing. The first compares the exact heading.
//! The second compares the folded heading (NFKC, uniform hyphens and quotes, single spaces). The
//! third looks for the longest folded heading with which the text begins, if a dash (`X — why`), a
//! parenthesis (`X (why)`) or a final punctuation mark (`X.`) follows. The last finds a cancelled
//! task by its heading without the reason. A heading with more words is a different task: "Fix
//! login" does not name "Fix login page" or "Fix login-page". If two tasks have the same heading,
//! neither is chosen. The search must never guess.

use super::board::Board;
pub use super::task::fold;
use super::task::{Keyword, Task};

/// The result of a search for the task that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'b> {
    /// Exactly one task matches.
    One {
        task: &'b Task,
        /// The folded text after the heading, without the dash between them.
        rest: String,
    },
    /// Several tasks have this heading.
    Ambiguous {
        heading: &'b str,
        /// The line numbers of the tasks.
        lines: Vec<usize>,
    },
    /// No task has the heading.
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
            // An exact match takes precedence over headings that are equal only after folding.
            let same: Vec<usize> =
                places.iter().copied().filter(|at| self.tasks[*at].heading == exact).collect();
            return match same.len() {
                0 => self.one_of(places, ""),
                _ => self.one_of(&same, ""),
            };
        }
        // Tries every position at which a heading may end, the longest first.
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

    /// Finds a cancelled task by its original heading, because the reason was appended to its
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

/// Returns the text after a heading if it begins with something that can follow a heading.
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
