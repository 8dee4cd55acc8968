//! Computes moves on a board as edits of its text.

use std::collections::BTreeSet;

use runner_text::org::{self, Board, Edit, Keyword, Resolved, Task, fold};

use super::history::{BoardHistory, HistoryEvent, TaskMove, UnappliedVerdict, Unresolved};
use crate::lifecycle::entry::{Sections, VerdictMove};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoardEdit {
    /// The edits of the board's text.
    pub edits: Vec<Edit>,
    pub moves: Vec<TaskMove>,
    /// The verdicts that were understood but move no task.
    pub kept: Vec<UnappliedVerdict>,
    /// The lines that are not verdicts, and the verdicts that identify no task, several tasks or a
    /// task that an earlier verdict moves.
    pub unresolved: Vec<Unresolved>,
}

impl BoardEdit {
    /// Returns the board's text with the edits applied. Checks that no task is lost and that,
    /// unless a task is added, only the moved tasks change.
    ///
    /// # Errors
    /// Returns a message if the edits overlap or a check fails, either of which is a bug in runner.
    pub fn text(&self, before: &str, board: &Board) -> Result<String, String> {
        let after = org::apply(before, self.edits.clone()).map_err(|error| error.to_string())?;
        let new = Board::read(&after, board.form());
        let added = self.moves.iter().filter(|it| it.from.is_none()).count();
        if new.tasks.len() != board.tasks.len() + added {
            return Err("the board would gain or lose a task".to_owned());
        }
        let moved: BTreeSet<usize> = self.moves.iter().map(|it| it.line).collect();
        // If a task is added, only the number of tasks is checked.
        let pairs = board.tasks.iter().zip(&new.tasks).filter(|_| added == 0);
        for (old, new) in pairs {
            let same = old.heading == new.heading && old.keyword == new.keyword;
            if !(same || moved.contains(&old.line)) {
                return Err(format!("the task on line {} would change too", old.line));
            }
        }
        Ok(after)
    }
}

/// Computes the moves that the verdicts in an entry by `agent` make on a board. `text` is the
/// board's text. A second verdict that would move the same task is reported as unresolved, and so
/// is a line that is not a verdict. A verdict on a DOING task that another agent or a person holds
/// is reported but not applied.
pub fn apply(board: &Board, text: &str, entry: &Sections, agent: &str) -> BoardEdit {
    let mut change = BoardEdit::default();
    let mut touched = BTreeSet::new();
    change.unresolved.extend(
        entry
            .unread
            .iter()
            .map(|line| Unresolved { said: line.clone(), why: "it is not a verdict".to_owned() }),
    );
    for verdict in &entry.verdicts {
        let said = format!("{}: {}", verdict.act.describe(), verdict.said);
        if verdict.act == VerdictMove::KeepCourse {
            let why = "the order is kept".to_owned();
            change.kept.push(UnappliedVerdict { said, why });
            continue;
        }
        let (task, rest) = match board.resolve(&verdict.said) {
            Resolved::One { task, rest } => (task, rest),
            Resolved::Ambiguous { heading, lines } => {
                let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
                let why = format!(
                    "several tasks have the heading {heading:?}: lines {}",
                    lines.join(", ")
                );
                change.unresolved.push(Unresolved { said, why });
                continue;
            }
            Resolved::Unknown => {
                let why = unknown(board, &verdict.said);
                change.unresolved.push(Unresolved { said, why });
                continue;
            }
        };
        let to = match (verdict.act, task.keyword) {
            (VerdictMove::PickUp, Keyword::Todo) => Keyword::Next,
            (VerdictMove::PutDown, Keyword::Next | Keyword::Doing) => Keyword::Todo,
            (VerdictMove::Cancel, Keyword::Todo | Keyword::Next | Keyword::Doing) => {
                Keyword::Cancelled
            }
            (_, stands) => {
                let why = format!("{:?} (line {}) is {stands}", task.heading, task.line);
                change.kept.push(UnappliedVerdict { said, why });
                continue;
            }
        };
        if task.keyword == Keyword::Doing && !is_held_by(task, agent) {
            let why = match &task.agent {
                Some(other) => format!("the agent {other:?} is working on {:?}", task.heading),
                None => format!("another agent or a person is working on {:?}", task.heading),
            };
            change.kept.push(UnappliedVerdict { said, why });
            continue;
        }
        if !touched.insert(task.line) {
            let why = format!("another verdict has already moved {:?}", task.heading);
            change.unresolved.push(Unresolved { said, why });
            continue;
        }
        // The verdict was split at its first dash. If that dash is part of the heading, the reason
        // is the text after the heading.
        let split = verdict.task.as_deref().is_some_and(|said| fold(said) == fold(&task.heading));
        let why = if split { verdict.why.clone() } else { rest };
        let reason = (to == Keyword::Cancelled).then_some(why.as_str());
        change.edits.extend(board.moved(task, to, reason));
        if task.keyword == Keyword::Doing {
            change.edits.extend(board.given(text, task, ""));
        }
        change.moves.push(moved(task, to, why));
    }
    change
}

/// Explains why a name matches no task on the board. If the name matches a task that runner never
/// moves because of its keyword, the explanation gives the task's line and keyword.
fn unknown(board: &Board, said: &str) -> String {
    let wanted = fold(said);
    let odd = board.odd.iter().find(|odd| {
        let words = fold(&odd.heading);
        words.split_once(' ').is_some_and(|(_, rest)| {
            !rest.is_empty() && (wanted == rest || wanted.starts_with(&format!("{rest} -")))
        })
    });
    match odd {
        Some(odd) => format!(
            "the task on line {} has the keyword {:?}, so runner does not move it",
            odd.line, odd.keyword
        ),
        None => "no task on the board has this heading".to_owned(),
    }
}

/// Returns the task that an agent is working on. If the agent holds several DOING tasks, returns
/// the one that it picked most recently or, if it picked none of them, the first. Returns `None` if
/// the agent holds no DOING task.
pub fn current<'b>(board: &'b Board, history: &BoardHistory, agent: &str) -> Option<&'b Task> {
    let own = || {
        let doing = |task: &&Task| task.keyword == Keyword::Doing && is_held_by(task, agent);
        board.tasks.iter().filter(doing)
    };
    let picks = history.records.iter().rev();
    let picks = picks.filter(|it| it.what == HistoryEvent::Pick && it.agent == agent);
    let mut picked = picks.flat_map(|it| &it.moves);
    picked.find_map(|it| own().find(|task| task.heading == it.task)).or_else(|| own().next())
}

/// Chooses an agent's next task, and computes the edits that begin it. The next task is the first
/// NEXT task, otherwise the agent's [`current`] task, which needs no edits, otherwise the first
/// TODO task. Tasks assigned to another agent are skipped. Returns `None` if no task remains.
/// `text` is the board's text.
pub fn pick<'b>(
    board: &'b Board,
    text: &str,
    history: &BoardHistory,
    agent: &str,
) -> Option<(&'b Task, BoardEdit)> {
    let free = |keyword: Keyword| {
        let mine = |task: &&Task| task.agent.as_deref().is_none_or(|name| name == agent);
        board.tasks.iter().filter(mine).find(|task| task.keyword == keyword)
    };
    let begun = |task, why| {
        let mut edit = one(board, task, Keyword::Doing, why);
        edit.edits.extend(board.given(text, task, agent));
        Some((task, edit))
    };
    if let Some(task) = free(Keyword::Next) {
        return begun(task, "first NEXT");
    }
    if let Some(task) = current(board, history, agent) {
        return Some((task, BoardEdit::default()));
    }
    begun(free(Keyword::Todo)?, "top TODO")
}

/// Returns whether `agent` holds `task`. The default agent, whose name is empty, holds the tasks
/// that are not assigned to an agent.
fn is_held_by(task: &Task, agent: &str) -> bool {
    task.agent.as_deref().unwrap_or_default() == agent
}

/// Computes the edit that adds an open task.
///
/// # Errors
/// Returns an error if `heading` is not valid on this board or already identifies a task.
pub fn add(board: &Board, text: &str, heading: &str) -> Result<BoardEdit, String> {
    match board.resolve(heading) {
        Resolved::Unknown => {}
        // The heading of that task is only the beginning of the new one.
        Resolved::One { rest, .. } if !rest.is_empty() => {}
        _ => return Err(format!("the board already has a task {heading:?}")),
    }
    let edit = board.added(text, heading);
    let after = org::apply(text, vec![edit.clone()]).map_err(|error| error.to_string())?;
    let new = Board::read(&after, board.form());
    let Resolved::One { task, .. } = new.resolve(heading) else {
        return Err(format!("{heading:?} would not be a valid task on this board"));
    };
    if task.keyword != Keyword::Todo || new.tasks.len() != board.tasks.len() + 1 {
        return Err(format!("{heading:?} would not be a valid open task"));
    }
    Ok(BoardEdit {
        edits: vec![edit],
        moves: vec![TaskMove {
            task: task.heading.clone(),
            line: task.line,
            from: None,
            to: Some(Keyword::Todo),
            why: String::new(),
        }],
        ..BoardEdit::default()
    })
}

/// Computes the edits that mark a task as done.
///
/// # Errors
/// Returns an error if `said` does not identify exactly one task, or if that task is closed.
pub fn done(board: &Board, said: &str) -> Result<BoardEdit, String> {
    match board.resolve(said) {
        Resolved::One { task, rest } if rest.is_empty() && task.keyword.is_closed() => {
            Err(format!("{:?} is already {}", task.heading, task.keyword))
        }
        Resolved::One { task, rest } if !rest.is_empty() => {
            Err(format!("no task has the heading {said:?}; did you mean {:?}?", task.heading))
        }
        Resolved::One { task, .. } => Ok(one(board, task, Keyword::Done, "")),
        Resolved::Ambiguous { heading, lines } => {
            let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
            Err(format!("several tasks have the heading {heading:?}: lines {}", lines.join(", ")))
        }
        Resolved::Unknown => Err(format!("{said:?}: {}", unknown(board, said))),
    }
}

fn one(board: &Board, task: &Task, to: Keyword, why: &str) -> BoardEdit {
    BoardEdit {
        edits: board.moved(task, to, None),
        moves: vec![moved(task, to, why.to_owned())],
        ..BoardEdit::default()
    }
}

fn moved(task: &Task, to: Keyword, why: String) -> TaskMove {
    TaskMove {
        task: task.heading.clone(),
        line: task.line,
        from: Some(task.keyword),
        to: Some(to),
        why,
    }
}
