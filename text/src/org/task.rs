//! Tasks on a board, their keywords, and the formats of boards.

use std::ops::Range;

use strum::{Display, EnumString, IntoStaticStr};
use unicode_normalization::UnicodeNormalization as _;

/// The format of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoardForm {
    /// Headings with keywords.
    Org,
    /// Checklist items.
    Markdown,
}

impl BoardForm {
    /// Returns the format for a path: Markdown for `.md` and `.markdown`, otherwise org.
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

/// The state of a task.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumString, IntoStaticStr,
)]
#[strum(serialize_all = "UPPERCASE", const_into_str)]
pub enum Keyword {
    /// Open.
    Todo,
    /// Promoted, to be done first.
    Next,
    /// In progress.
    Doing,
    Done,
    /// Closed without being done.
    Cancelled,
}

impl Keyword {
    /// All keywords, in the order of a task's life cycle.
    pub const ALL: [Self; 5] = [Self::Todo, Self::Next, Self::Doing, Self::Done, Self::Cancelled];

    /// Returns the keyword as written in a file.
    pub fn as_str(self) -> &'static str {
        self.into_str()
    }

    pub fn of(word: &str) -> Option<Self> {
        word.parse().ok()
    }

    /// Returns whether the task is done or cancelled.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

/// A task on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The heading's text without its keyword, priority or tags. A verdict refers to a task by this
    /// text.
    pub heading: String,
    pub keyword: Keyword,
    /// The agent to which the task is assigned, or `None` if the task names no agent.
    pub agent: Option<String>,
    /// The level in the outline, from 1.
    pub level: usize,
    /// The line number, from 1.
    pub line: usize,
    /// The byte range of the line, including its line break.
    pub range: Range<usize>,
    /// The byte range of the keyword or, in Markdown, of the box and any keyword after it.
    pub(super) state: Range<usize>,
    /// The byte range of the heading's text.
    pub(super) words: Range<usize>,
}

/// A line that resembles a task but cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    pub line: usize,
    /// A keyword that runner does not support, or a box with the keyword that it contradicts.
    pub keyword: String,
    /// The text after the stars, including the keyword, or in Markdown the text after the keyword.
    pub heading: String,
}

/// Returns the text in a form for comparison: NFKC, uniform hyphens and quotes, single spaces.
pub fn fold(words: &str) -> String {
    // Most text is ASCII and needs no normalization.
    if words.is_ascii() {
        return joined(words.chars(), words.len());
    }
    joined(words.nfkc(), words.len())
}

fn joined(words: impl Iterator<Item = char>, length: usize) -> String {
    let mut out = String::with_capacity(length);
    let mut blank = false;
    for c in words {
        let c = match c {
            '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{00ad}' => '-',
            '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{00b4}' | '`' => '\'',
            '\u{201c}'..='\u{201f}' | '\u{2033}' | '«' | '»' => '"',
            c => c,
        };
        if c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}' | '\u{feff}') {
            blank = !out.is_empty();
            continue;
        }
        if blank {
            out.push(' ');
            blank = false;
        }
        out.push(c);
    }
    out
}
