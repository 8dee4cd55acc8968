//! Scans lines for the headings of an outline and the items of a checklist.
//!
//! In org, a line that begins with stars and a space is a heading even inside a block, so org
//! escapes such a line there as `,*`. In Markdown, code fences and comments hide their content.

use std::ops::Range;

use super::lines::{Line, lines};
use super::task::{BoardForm, Keyword, Odd, Task};

/// A heading of an outline: `** X` in org or `## X` in Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The number of stars or hashes.
    pub level: usize,
    /// The heading's text, without org tags.
    pub text: String,
    /// The line number, from 1.
    pub line: usize,
    /// The byte offset at which the line begins.
    pub start: usize,
    /// The byte offset at which the heading's content begins, after the line break.
    pub end: usize,
}

/// Returns all headings of an outline, in order.
pub fn headings(text: &str, form: BoardForm) -> Vec<Heading> {
    let mut hidden = Hidden::default();
    lines(text)
        .filter(|line| form == BoardForm::Org || !hidden.hides(line.text))
        .filter_map(|line| {
            let mark = match form {
                BoardForm::Org => '*',
                BoardForm::Markdown => '#',
            };
            let level = line.text.len() - line.text.trim_start_matches(mark).len();
            let rest = line.text[level..].strip_prefix(' ')?;
            let words = match form {
                BoardForm::Org => &rest[..untagged(rest)],
                BoardForm::Markdown => rest.trim_end_matches('#'),
            };
            let known = level > 0 && (form == BoardForm::Org || level <= 6);
            known.then(|| Heading {
                level,
                text: words.trim().to_owned(),
                line: line.number,
                start: line.range.start,
                end: line.end,
            })
        })
        .collect()
}

/// A line that is a task or resembles one.
pub(super) enum ScannedLine {
    Task(Task),
    Odd(Odd),
}

/// Classifies a board's lines in order, because a line's kind may depend on the lines before it.
pub(super) struct Scanner {
    form: BoardForm,
    hidden: Hidden,
    /// Keywords declared in the file but not supported by runner.
    declared: Vec<String>,
}

impl Scanner {
    pub(super) fn new(form: BoardForm) -> Self {
        Self { form, hidden: Hidden::default(), declared: Vec::new() }
    }

    pub(super) fn line(&mut self, line: &Line<'_>) -> Option<ScannedLine> {
        match self.form {
            BoardForm::Org => self.org(line),
            BoardForm::Markdown => {
                if self.hidden.hides(line.text) {
                    return None;
                }
                markdown(line)
            }
        }
    }

    fn org(&mut self, line: &Line<'_>) -> Option<ScannedLine> {
        if let Some(words) = declaration(line.text) {
            let foreign = words.split_whitespace().map(bare_keyword);
            let foreign = foreign.filter(|word| word.len() > 1 && Keyword::of(word).is_none());
            self.declared.extend(foreign.map(str::to_owned));
            return None;
        }
        let level = line.text.len() - line.text.trim_start_matches('*').len();
        if level == 0 || !line.text[level..].starts_with(' ') {
            return None;
        }
        let word = word_at(line.text, level)?;
        let Some(keyword) = Keyword::of(&line.text[word.clone()]) else {
            let said = &line.text[word];
            let foreign =
                self.declared.iter().any(|known| known == said) || FOREIGN.contains(&said);
            return foreign.then(|| {
                ScannedLine::Odd(Odd {
                    line: line.number,
                    keyword: said.to_owned(),
                    heading: line.text[level..].trim().to_owned(),
                })
            });
        };
        let mut begin = after_blanks(line.text, word.end);
        if let Some(cookie) = priority(&line.text[begin..]) {
            begin = after_blanks(line.text, begin + cookie);
        }
        let end = begin + untagged(&line.text[begin..]);
        Some(ScannedLine::Task(task(line, level, keyword, word, begin..end)))
    }
}

/// Common board keywords that runner does not support.
const FOREIGN: [&str; 10] = [
    "WAITING",
    "WAIT",
    "HOLD",
    "SOMEDAY",
    "STARTED",
    "CANCELED",
    "BLOCKED",
    "DELEGATED",
    "REVIEW",
    "PROJ",
];

fn task(
    line: &Line<'_>,
    level: usize,
    keyword: Keyword,
    state: Range<usize>,
    heading: Range<usize>,
) -> Task {
    let at = line.range.start;
    let begin = heading.start.min(heading.end);
    let heading = begin..heading.end;
    Task {
        heading: line.text[heading.clone()].to_owned(),
        keyword,
        agent: None,
        level,
        line: line.number,
        range: line.range.start..line.end,
        state: at + state.start..at + state.end,
        words: at + heading.start..at + heading.end,
    }
}

/// Parses a checklist item: a bullet or a number, `[ ]` or `[x]`, and text.
fn markdown(line: &Line<'_>) -> Option<ScannedLine> {
    let text = line.text;
    let bullet = after_blanks(text, 0);
    let rest = &text[bullet..];
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mark = match rest[digits..].chars().next()? {
        '-' | '*' | '+' if digits == 0 => 1,
        '.' | ')' if (1..=9).contains(&digits) => digits + 1,
        _ => return None,
    };
    let gap = after_blanks(text, bullet + mark);
    let tick = text.get(gap..gap + 3)?;
    let ticked = match tick {
        "[ ]" => false,
        "[x]" | "[X]" => true,
        _ => return None,
    };
    if gap == bullet + mark || !text[gap + 3..].starts_with([' ', '\t']) {
        return None;
    }
    let mut begin = after_blanks(text, gap + 3);
    let mut state = gap..gap + 3;
    let mut keyword = if ticked { Keyword::Done } else { Keyword::Todo };
    if let Some(word) = word_at(text, begin)
        && let Some(said) = Keyword::of(&text[word.clone()])
    {
        let agrees = ticked == matches!(said, Keyword::Done | Keyword::Cancelled);
        if !agrees {
            return Some(ScannedLine::Odd(Odd {
                line: line.number,
                keyword: format!("{tick} {}", said.as_str()),
                heading: text[word.end..].trim().to_owned(),
            }));
        }
        keyword = said;
        state.end = word.end;
        begin = after_blanks(text, word.end);
    }
    let columns: usize = text[..bullet].chars().map(|c| if c == '\t' { 4 } else { 1 }).sum();
    let end = text.trim_end().len();
    let task = task(line, columns / 2 + 1, keyword, state, begin..end.max(begin));
    Some(ScannedLine::Task(task))
}

/// Tracks the lines hidden by a code fence or a Markdown comment.
#[derive(Default)]
struct Hidden {
    fence: Option<(char, usize)>,
    comment: bool,
}

impl Hidden {
    /// Returns whether this line is hidden. The lines that open or close a fence or a comment are
    /// hidden too.
    fn hides(&mut self, text: &str) -> bool {
        let line = text.trim();
        let run = |mark: char| line.len() - line.trim_start_matches(mark).len();
        if let Some((mark, length)) = self.fence {
            if run(mark) >= length && run(mark) == line.len() {
                self.fence = None;
            }
            return true;
        }
        if self.comment || line.starts_with("<!--") {
            self.comment = !line.contains("-->");
            return true;
        }
        for mark in ['`', '~'] {
            // If the line contains more backticks, it is a code span rather than a fence.
            if run(mark) >= 3 && !(mark == '`' && line[run(mark)..].contains('`')) {
                self.fence = Some((mark, run(mark)));
                return true;
            }
        }
        false
    }
}

/// Returns the text after the colon if this line of an org file declares keywords.
fn declaration(text: &str) -> Option<&str> {
    let (key, rest) = text.strip_prefix("#+")?.split_once(':')?;
    let known = ["todo", "seq_todo", "typ_todo"];
    known.iter().any(|known| key.eq_ignore_ascii_case(known)).then_some(rest)
}

/// Returns a declared keyword without its shortcut: `WAIT(w@/!)` becomes `WAIT`.
fn bare_keyword(word: &str) -> &str {
    word.split('(').next().unwrap_or(word)
}

fn after_blanks(text: &str, from: usize) -> usize {
    text.len() - text[from..].trim_start_matches([' ', '\t']).len()
}

/// Returns the range of the word at or after `from`.
fn word_at(text: &str, from: usize) -> Option<Range<usize>> {
    let begin = after_blanks(text, from);
    let length = text[begin..].find([' ', '\t']).unwrap_or(text.len() - begin);
    (length > 0).then(|| begin..begin + length)
}

/// Returns the length of a leading priority such as `[#A]`.
fn priority(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("[#")?;
    let close = rest.find(']')?;
    let value = &rest[..close];
    let good = (1..=2).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_alphanumeric());
    good.then_some(close + 3)
}

/// Returns the length of the heading's text without its tags and trailing blanks.
fn untagged(text: &str) -> usize {
    let trimmed = text.trim_end();
    let Some(gap) = trimmed.rfind([' ', '\t']) else {
        return trimmed.len();
    };
    let last = &trimmed[gap + 1..];
    let inner = last.strip_prefix(':').and_then(|cut| cut.strip_suffix(':'));
    let tag = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '#' | '%');
    match inner {
        Some(inner) if inner.split(':').all(|one| !one.is_empty() && one.chars().all(tag)) => {
            trimmed[..gap].trim_end().len()
        }
        _ => trimmed.len(),
    }
}
