//! `runner board show` and `runner board lint`: list the board's tasks and its problems.

use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::board;
use runner_text::org::{Board, BoardForm, Keyword};
use schemars::JsonSchema;
use serde::Serialize;

use super::{BoardArg, failure, path};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct BoardTasks<'a> {
    board: &'a str,
    tasks: Vec<BoardTask<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct BoardTask<'a> {
    heading: &'a str,
    keyword: &'static str,
    /// The agent that holds the task, or `null` if no agent is named.
    agent: Option<&'a str>,
    level: usize,
    line: usize,
}

impl View for BoardTasks<'_> {
    fn print(&self, _ui: Ui) {
        if self.tasks.is_empty() {
            return show::out(&format!("{} has no tasks\n", self.board));
        }
        let rows: Vec<Vec<String>> = (self.tasks.iter())
            .map(|task| {
                let indent = "  ".repeat(task.level.saturating_sub(1).min(8));
                let heading = format!("{indent}{}", safe::line(task.heading));
                let agent = task.agent.map_or_else(String::new, safe::line);
                show::row([&task.line.to_string(), task.keyword, &heading, &agent])
            })
            .collect();
        show::out(&show::table(&rows));
    }
}

#[derive(Serialize)]
struct BoardLint<'a> {
    board: &'a str,
    tasks: usize,
    findings: Vec<BoardProblem>,
}

#[derive(Serialize)]
struct BoardProblem {
    line: usize,
    what: String,
}

impl View for BoardLint<'_> {
    fn print(&self, _ui: Ui) {
        for finding in &self.findings {
            let what = safe::line(&finding.what);
            show::out(&format!("{}:{}: {what}\n", self.board, finding.line));
        }
        if self.findings.is_empty() {
            show::out(&format!("ok: {}\n", show::count(self.tasks as u64, "task")));
        }
    }
}

fn read(here: &LoadedProject, path: &str) -> Result<Board, Failure> {
    let text = board::read(&here.root, path).map_err(|error| failure(error, path))?;
    Ok(Board::read(&text, BoardForm::of(path)))
}

pub fn show(cli: &Cli<'_>, here: &LoadedProject, which: &BoardArg) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    let tasks = board.tasks.iter().map(|task| BoardTask {
        heading: &task.heading,
        keyword: task.keyword.as_str(),
        agent: task.agent.as_deref(),
        level: task.level,
        line: task.line,
    });
    cli.ui.show(&BoardTasks { board: &path, tasks: tasks.collect() });
    Ok(Exit::Done)
}

pub fn lint(cli: &Cli<'_>, here: &LoadedProject, which: &BoardArg) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    let findings = findings(&board);
    let exit = if findings.is_empty() { Exit::Done } else { Exit::Failed };
    cli.ui.show(&BoardLint { board: &path, tasks: board.tasks.len(), findings });
    Ok(exit)
}

fn findings(board: &Board) -> Vec<BoardProblem> {
    let mut found: Vec<BoardProblem> = Vec::new();
    for (heading, lines) in board.doubles() {
        let others: Vec<String> = lines.iter().map(usize::to_string).collect();
        found.push(BoardProblem {
            line: lines[0],
            what: format!(
                "{} tasks have the heading {heading:?} (lines {}): a verdict cannot identify one of them",
                lines.len(),
                others.join(", ")
            ),
        });
    }
    found.extend(board.odd.iter().map(|odd| BoardProblem {
        line: odd.line,
        what: format!(
            "runner cannot move a task with the keyword {:?}: {}",
            odd.keyword, odd.heading
        ),
    }));
    let nameless = board.tasks.iter().filter(|task| task.heading.is_empty());
    found.extend(nameless.map(|task| BoardProblem {
        line: task.line,
        what: format!("this {} has no heading", task.keyword),
    }));
    let doing: Vec<_> = board.tasks.iter().filter(|it| it.keyword == Keyword::Doing).collect();
    // An agent may work on only one task at a time.
    let repeated = doing
        .iter()
        .enumerate()
        .find(|(at, task)| doing[..*at].iter().any(|other| other.agent == task.agent));
    if let Some((_, second)) = repeated {
        let count = doing.iter().filter(|task| task.agent == second.agent).count();
        found.push(BoardProblem {
            line: second.line,
            what: format!("{count} tasks are DOING at once"),
        });
    }
    found.sort_by_key(|finding| finding.line);
    found
}
