//! Finds the task that a string refers to.
//!
//! Each search runs only if the previous one found nothing:
//!
//! 1. The heading equals the string after folding (NFKC, uniform hyphens and quotes, single
//!    spaces). If several headings do, an exact match takes precedence.
//! 2. The string begins with the heading, followed by a dash (`X — why`), a parenthesis (`X (why)`)
//!    or a final punctuation mark (`X.`). The longest such heading is used.
//! 3. The string is the heading of a cancelled task without the appended reason.
//!
//! A heading with more words is a different task: "Fix login" does not refer to "Fix login page" or
//! "Fix login-page". If several tasks match, none is chosen.

use super::board::Board;
pub use super::task::fold;
use super::task::{Keyword, Task};

/// The result of [`Board::resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved<'b> {
    One {
        task: &'b Task,
        /// The folded text after the heading, without the dash between them.
        rest: String,
    },
    /// Several tasks match.
    Ambiguous {
        heading: &'b str,
        /// The tasks' line numbers.
        lines: Vec<usize>,
    },
    /// No task matches.
    Unknown,
}

impl Board {
    /// Finds the task that `said` refers to.
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
        // Try every position at which a heading may end, the longest heading first.
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

    /// Finds a cancelled task by its heading without the appended reason.
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

/// Returns the text after a heading, if a dash, a parenthesis or a final punctuation mark separates
/// the two.
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
