//! Reads and edits the agent to which a task is assigned: the task's `AGENT` property.
//!
//! | | org | markdown |
//! | --- | --- | --- |
//! | below the task | `:PROPERTIES:`, `:AGENT: two`, `:END:` | `  - AGENT: two` |
//!
//! This module must never change another property or an unterminated drawer.

use std::ops::Range;

use super::edits::Edit;
use super::lines::{Line, lines};
use super::task::{BoardForm, Task};

/// The name of the property.
const KEY: &str = "AGENT";

/// The position of a task's property.
#[derive(Debug, Default)]
struct Place {
    agent: Option<String>,
    /// The byte range to remove along with the agent: the agent's own line, or the whole drawer if
    /// it contains nothing else.
    own: Range<usize>,
    /// Whether `own` is the whole drawer.
    is_whole: bool,
    /// The offset at which a new property is inserted.
    at: usize,
    /// The blanks before a new property.
    indent: String,
    /// Whether a new property needs a new drawer.
    needs_drawer: bool,
}

/// Returns the agent assigned to the task whose line ends at `end`.
pub(super) fn agent_below(text: &str, end: usize, form: BoardForm) -> Option<String> {
    place(text, end, form).agent
}

fn place(text: &str, end: usize, form: BoardForm) -> Place {
    let below = lines(&text[end..]);
    match form {
        BoardForm::Org => drawer(below, end),
        BoardForm::Markdown => item(below, end),
    }
}

fn drawer<'t>(below: impl Iterator<Item = Line<'t>>, end: usize) -> Place {
    let planning = |line: &Line<'_>| {
        let text = line.text.trim_start();
        ["SCHEDULED:", "DEADLINE:", "CLOSED:"].iter().any(|key| text.starts_with(key))
    };
    let mut below = below.peekable();
    let mut at = end;
    if let Some(line) = below.next_if(|line| planning(line)) {
        at = end + line.end;
    }
    let none = Place { at, needs_drawer: true, ..Place::default() };
    let Some(begin) = below.next_if(|line| line.text.trim().eq_ignore_ascii_case(":PROPERTIES:"))
    else {
        return none;
    };
    let mut found: Option<(String, Range<usize>)> = None;
    let mut others = 0;
    for line in below {
        let words = line.text.trim();
        if words.eq_ignore_ascii_case(":END:") {
            let whole = end + begin.range.start..end + line.end;
            let agent = found.as_ref().map(|(agent, _)| agent.clone());
            let own = found.map_or(whole.clone(), |(_, range)| range);
            return Place {
                agent,
                own: if others == 0 { whole } else { own },
                is_whole: others == 0,
                at: end + line.range.start,
                indent: blanks(begin.text),
                needs_drawer: false,
            };
        }
        if line.text.starts_with('*') {
            break;
        }
        let property = words.strip_prefix(':').and_then(|rest| rest.split_once(':'));
        match property {
            Some((key, value)) if key.eq_ignore_ascii_case(KEY) && found.is_none() => {
                let range = end + line.range.start..end + line.end;
                found = Some((value.trim().to_owned(), range));
            }
            _ => others += 1,
        }
    }
    none
}

fn item<'t>(mut below: impl Iterator<Item = Line<'t>>, end: usize) -> Place {
    let none = Place { at: end, ..Place::default() };
    let Some(line) = below.next() else { return none };
    let words = line.text.trim_start();
    let key = words.strip_prefix(['-', '*', '+']).and_then(|rest| rest.split_once(':'));
    match key {
        Some((key, value)) if key.trim() == KEY && words.len() < line.text.len() => Place {
            agent: Some(value.trim().to_owned()),
            own: end + line.range.start..end + line.end,
            ..none
        },
        _ => none,
    }
}

fn blanks(line: &str) -> String {
    line[..line.len() - line.trim_start().len()].to_owned()
}

/// Returns the edits that assign a task to an agent, or unassign it if `agent` is empty. `text` is
/// the board's text.
pub(super) fn given(form: BoardForm, text: &str, task: &Task, agent: &str) -> Vec<Edit> {
    let place = place(text, task.range.end, form);
    if place.agent.as_deref().unwrap_or_default() == agent {
        return Vec::new();
    }
    if agent.is_empty() {
        return vec![Edit { range: place.own, with: String::new() }];
    }
    let ending = lines(text).map(|line| line.ending()).find(|ending| !ending.is_empty());
    let ending = ending.unwrap_or("\n");
    let line = match form {
        BoardForm::Org => format!("{}:{KEY}: {agent}{ending}", place.indent),
        BoardForm::Markdown => {
            let head = &text[task.range.clone()];
            format!("{}  - {KEY}: {agent}{ending}", blanks(head.trim_start_matches('\u{feff}')))
        }
    };
    if place.agent.is_some() {
        let with = if place.is_whole { wrapped(&line, &place.indent, ending) } else { line };
        return vec![Edit { range: place.own, with }];
    }
    let line = match form {
        BoardForm::Org if place.needs_drawer => wrapped(&line, "", ending),
        _ => line,
    };
    let open = place.at > 0 && !text[..place.at].ends_with('\n');
    let before = if open { ending } else { "" };
    vec![Edit { range: place.at..place.at, with: format!("{before}{line}") }]
}

fn wrapped(line: &str, indent: &str, ending: &str) -> String {
    format!("{indent}:PROPERTIES:{ending}{line}{indent}:END:{ending}")
}

#[cfg(test)]
mod tests {
    use super::super::{Board, BoardForm, apply};

    fn given(text: &str, form: BoardForm, agent: &str) -> String {
        let board = Board::read(text, form);
        let edits = board.given(text, &board.tasks[0], agent);
        let after = apply(text, edits).unwrap();
        let read = Board::read(&after, form);
        assert_eq!(read.tasks[0].agent.as_deref().unwrap_or_default(), agent, "{after}");
        assert_eq!(read.tasks.len(), board.tasks.len());
        after
    }

    #[test]
    fn agents_are_added_replaced_and_removed() {
        for (form, text, owned) in [
            (
                BoardForm::Org,
                "* DOING X\nwords\n* TODO Y",
                "* DOING X\n:PROPERTIES:\n:AGENT: two\n:END:\nwords\n* TODO Y",
            ),
            (
                BoardForm::Org,
                "* DOING X\r\n  SCHEDULED: <2026-06-10>\r\n  :PROPERTIES:\r\n  :ID: 1\r\n  :END:\r\n",
                "* DOING X\r\n  SCHEDULED: <2026-06-10>\r\n  :PROPERTIES:\r\n  :ID: 1\r\n  :AGENT: two\r\n  :END:\r\n",
            ),
            (
                BoardForm::Org,
                "* DOING X\n:PROPERTIES:\nno end\n* TODO Y\n",
                "* DOING X\n:PROPERTIES:\n:AGENT: two\n:END:\n:PROPERTIES:\nno end\n* TODO Y\n",
            ),
            (
                BoardForm::Markdown,
                "  - [ ] DOING X\n    words\n",
                "  - [ ] DOING X\n    - AGENT: two\n    words\n",
            ),
        ] {
            let two = given(text, form, "two");
            assert_eq!(two, owned);
            assert_eq!(given(&two, form, "two"), two);
            assert_eq!(given(&two, form, "three"), two.replace("two", "three"));
            assert_eq!(given(&two, form, ""), text);
            assert_eq!(given(text, form, ""), text);
        }
        // A line break is added before the drawer if the last line has none.
        let last = given("* DOING X", BoardForm::Org, "two");
        assert_eq!(last, "* DOING X\n:PROPERTIES:\n:AGENT: two\n:END:\n");
        let marked = given("\u{feff}- [ ] X\n", BoardForm::Markdown, "two");
        assert_eq!(marked, "\u{feff}- [ ] X\n  - AGENT: two\n");
    }
}
