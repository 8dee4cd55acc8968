//! A task of a board, its keyword, and the form of the file that it is in.

use std::fmt;
use std::ops::Range;

/// How a board is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoardForm {
    /// Headings with keywords.
    Org,
    /// Items of a checklist.
    Markdown,
}

impl BoardForm {
    /// Returns the form of a file by its name: markdown if it has such an extension, else org.
    pub fn of(path: &str) -> Self {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        let known = ["md", "markdown"];
        if known.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
            Self::Markdown
        } else {
            Self::Org
        }
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keyword {
    /// Open.
    Todo,
    /// Promoted: to be done first.
    Next,
    /// In flight.
    Doing,
    /// Done.
    Done,
    /// Closed without being done.
    Cancelled,
}

impl Keyword {
    /// All, in the order of a task's life.
    pub const ALL: [Self; 5] = [Self::Todo, Self::Next, Self::Doing, Self::Done, Self::Cancelled];

    /// Returns the keyword as it is written in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Todo => "TODO",
            Self::Next => "NEXT",
            Self::Doing => "DOING",
            Self::Done => "DONE",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Returns the keyword for `word`, or `None` if it is not one.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// Checks whether nothing more is to be done.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

impl fmt::Display for Keyword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its words: no keyword, no priority, no tags. A verdict names a task by these.
    pub heading: String,
    /// Where it stands.
    pub keyword: Keyword,
    /// How deep it stands, from 1.
    pub level: usize,
    /// The number of its line, from 1.
    pub line: usize,
    /// Its line, the ending included.
    pub range: Range<usize>,
    /// Range of the task's state: the keyword; in markdown the box, and a keyword after it.
    pub(super) state: Range<usize>,
    /// Where the heading's words lie.
    pub(super) words: Range<usize>,
}

/// A line that looks like a task and is none that runner moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// The number of its line.
    pub line: usize,
    /// The keyword that is none of ours, or a box that contradicts its keyword.
    pub keyword: String,
    /// The rest.
    pub heading: String,
}
