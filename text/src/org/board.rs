//! Reads the tasks of a board, and computes the edits that move, assign or add a task.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::edits::Edit;
use super::lines::lines;
use super::owner::{self, agent_below};
use super::scan::{ScannedLine, Scanner, headings};
use super::task::fold;
pub use super::task::{BoardForm, Keyword, Odd, Task};

/// The tasks of a board.
#[derive(Clone, Debug)]
pub struct Board {
    form: BoardForm,
    /// The tasks, in the order in which they appear in the text.
    pub tasks: Vec<Task>,
    /// Lines that resemble tasks but cannot be moved.
    pub odd: Vec<Odd>,
    /// Indices in `tasks` by folded heading, computed on first use because folding takes longer
    /// than reading.
    folded: OnceLock<BTreeMap<String, Vec<usize>>>,
}

impl Board {
    /// Reads the tasks in a board's text. Text without tasks is an empty board.
    pub fn read(text: &str, form: BoardForm) -> Self {
        let mut scanner = Scanner::new(form);
        let (mut tasks, mut odd) = (Vec::new(), Vec::new());
        for line in lines(text) {
            match scanner.line(&line) {
                Some(ScannedLine::Task(mut task)) => {
                    task.agent = agent_below(text, line.end, form);
                    tasks.push(task);
                }
                Some(ScannedLine::Odd(one)) => odd.push(one),
                None => {}
            }
        }
        Self { form, tasks, odd, folded: OnceLock::new() }
    }

    pub(super) fn folded(&self) -> &BTreeMap<String, Vec<usize>> {
        self.folded.get_or_init(|| {
            let mut folded = BTreeMap::<String, Vec<usize>>::new();
            for (at, task) in self.tasks.iter().enumerate() {
                folded.entry(fold(&task.heading)).or_default().push(at);
            }
            // A task with an empty heading cannot be referred to.
            folded.remove("");
            folded
        })
    }

    pub fn form(&self) -> BoardForm {
        self.form
    }

    /// Returns the first task with this keyword.
    pub fn first(&self, keyword: Keyword) -> Option<&Task> {
        self.tasks.iter().find(|task| task.keyword == keyword)
    }

    /// Returns the headings that several tasks share after folding, each with the tasks' line
    /// numbers.
    pub fn doubles(&self) -> Vec<(&str, Vec<usize>)> {
        let several = self.folded().values().filter(|places| places.len() > 1);
        let mut out: Vec<_> = several
            .map(|places| {
                let lines = places.iter().map(|at| self.tasks[*at].line).collect();
                (self.tasks[places[0]].heading.as_str(), lines)
            })
            .collect();
        out.sort_by_key(|(_, lines): &(&str, Vec<usize>)| lines[0]);
        out
    }

    /// Returns the edits that set a task's state to `to` and append `why` to its heading.
    pub fn moved(&self, task: &Task, to: Keyword, why: Option<&str>) -> Vec<Edit> {
        // A heading that begins with a keyword needs an explicit state, or the keyword would become
        // the state.
        let first = task.heading.split([' ', '\t']).next().unwrap_or_default();
        let plain = Keyword::of(first).is_none();
        let state = match (self.form, to) {
            (BoardForm::Org, to) => to.as_str().to_owned(),
            (BoardForm::Markdown, Keyword::Todo) if plain => "[ ]".to_owned(),
            (BoardForm::Markdown, Keyword::Done) if plain => "[x]".to_owned(),
            (BoardForm::Markdown, closed) if closed.is_closed() => format!("[x] {closed}"),
            (BoardForm::Markdown, open) => format!("[ ] {open}"),
        };
        let mut edits = vec![Edit { range: task.state.clone(), with: state }];
        let why = why.map(one_line).filter(|why| !why.is_empty());
        if let Some(why) = why {
            edits.push(Edit { range: task.words.end..task.words.end, with: format!(" — {why}") });
        }
        edits
    }

    /// Returns the edits that assign a task to an agent, or unassign it if `agent` is empty. `text`
    /// is the board's text.
    pub fn given(&self, text: &str, task: &Task, agent: &str) -> Vec<Edit> {
        owner::given(self.form(), text, task, agent)
    }

    /// Returns the edit that adds an open task after the last task, at the same level, or at the
    /// end of the text if the board has no tasks.
    pub fn added(&self, text: &str, heading: &str) -> Edit {
        let ending =
            lines(text).map(|line| line.ending()).find(|ending| !ending.is_empty()).unwrap_or("\n");
        let heading = one_line(heading);
        let (at, line) = match (self.form, self.tasks.last()) {
            (BoardForm::Org, last) => {
                let all = headings(text, BoardForm::Org);
                let level =
                    last.map_or_else(|| if all.is_empty() { 1 } else { 2 }, |task| task.level);
                // The new task follows all content of the last task.
                let at = last.and_then(|task| {
                    let next = |heading: &&super::Heading| {
                        heading.start >= task.range.end && heading.level <= task.level
                    };
                    all.iter().find(next).map(|heading| heading.start)
                });
                let stars = "*".repeat(level);
                (at.unwrap_or(text.len()), format!("{stars} TODO {heading}"))
            }
            (BoardForm::Markdown, Some(task)) => {
                let line = &text[task.range.clone()];
                let blanks = line.len() - line.trim_start_matches([' ', '\t', '\u{feff}']).len();
                let indent = line[..blanks].trim_start_matches('\u{feff}');
                // The new task follows the indented lines of the last task.
                let (mut at, mut end) = (task.range.end, task.range.end);
                for line in text[end..].split_inclusive('\n') {
                    at += line.len();
                    let blanks = line.len() - line.trim_start_matches([' ', '\t']).len();
                    match line.trim().is_empty() {
                        true => {}
                        false if blanks > indent.len() => end = at,
                        false => break,
                    }
                }
                (end, format!("{indent}- [ ] {heading}"))
            }
            (BoardForm::Markdown, None) => (text.len(), format!("- [ ] {heading}")),
        };
        let open = at > 0 && !text[..at].ends_with('\n');
        let before = if open { ending } else { "" };
        Edit { range: at..at, with: format!("{before}{line}{ending}") }
    }
}

/// Joins text into one line. A full stop is added if the end of the line would otherwise be read as
/// org tags.
fn one_line(words: &str) -> String {
    let spaced = crate::fence::without_breaks(words);
    let mut line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    let last = line.rsplit(' ').next().unwrap_or_default();
    if last.len() > 2 && last.starts_with(':') && last.ends_with(':') {
        line.push('.');
    }
    line
}
