//! `runner board`: shows a project's tasks and changes them.

use runner_text::counted;
use std::path::Path;

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::Store;
use runner_jobs::lifecycle::BOARD;
use runner_jobs::lifecycle::board::{
    self, BoardChange, BoardEditor, BoardError, BoardRequest, HistoryRecord,
};
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::newest::newest;
use runner_jobs::lifecycle::work::WorkSpec;
use runner_jobs::manual_edit::{EditActor, ManualEditError};
use runner_text::org::{Board, BoardForm, Keyword};
use serde::Serialize;
use serde_json::json;

use crate::commands::args::lifecycle::{BoardArg, BoardCommand};
use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, safe, show};

/// Carries out one of the `board` commands.
pub fn run(home: &Env, here: &Path, command: &BoardCommand, ui: Ui) -> Result<Exit, Failure> {
    let here = LoadedProject::load(home, here)?;
    match command {
        BoardCommand::Show { which, .. } => tasks(&here, which, ui),
        BoardCommand::Lint { which, .. } => lint(&here, which, ui),
        BoardCommand::Apply { which, .. } => apply(home, &here, which, ui),
        BoardCommand::Pick { which, .. } => {
            let done = change(home, &here, which, &[BoardRequest::Pick])?;
            let picked = done.picked.as_ref().map(|task| task.heading.clone());
            let words = match (&picked, done.records.is_empty()) {
                (Some(task), true) => format!("{task} is DOING already"),
                (Some(task), false) => format!("picked {task}"),
                (None, _) => "nothing is open on the board".to_owned(),
            };
            print_change(&done, &words, ui);
            Ok(Exit::Done)
        }
        BoardCommand::Add { heading, which, .. } => {
            let done = change(home, &here, which, &[BoardRequest::Add(heading)])?;
            print_change(&done, &format!("added {}", heading.trim()), ui);
            Ok(Exit::Done)
        }
        BoardCommand::Done { heading, which, .. } => {
            let done = change(home, &here, which, &[BoardRequest::Done(heading)])?;
            let task = done.records.iter().flat_map(|it| &it.moves).next();
            let task = task.map_or(heading.as_str(), |it| &it.task);
            print_change(&done, &format!("{task} is DONE"), ui);
            Ok(Exit::Done)
        }
        BoardCommand::History { limit, .. } => history(&here, *limit, ui),
    }
}

/// Returns the path of the board that the arguments name, or else of the board of the agent's jobs.
pub(super) fn path(here: &LoadedProject, which: &BoardArg) -> String {
    let of_agent = || {
        here.config.jobs.values().find_map(|job| {
            let kind = &job.spec.kind;
            let cycle = kind.of::<CycleSpec>().map(|it| (&it.agent, &it.board));
            let work = || kind.of::<WorkSpec>().map(|it| (&it.agent, &it.board));
            let (agent, board) = cycle.or_else(work)?;
            (*agent == which.agent).then(|| board.clone())
        })
    };
    let named = which.board.clone().or_else(of_agent);
    named.unwrap_or_else(|| BOARD.to_owned())
}

fn read(here: &LoadedProject, path: &str) -> Result<Board, Failure> {
    let text = board::read(&here.root, path).map_err(|error| failure(error, path))?;
    Ok(Board::read(&text, BoardForm::of(path)))
}

fn tasks(here: &LoadedProject, which: &BoardArg, ui: Ui) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    if ui.json {
        let tasks: Vec<_> = board
            .tasks
            .iter()
            .map(|task| {
                json!({
                    "heading": task.heading, "keyword": task.keyword.as_str(),
                    "level": task.level, "line": task.line,
                })
            })
            .collect();
        show::json(&json!({ "board": path, "tasks": tasks }));
        return Ok(Exit::Done);
    }
    if board.tasks.is_empty() {
        show::out(&format!("{path} has no task\n"));
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = board
        .tasks
        .iter()
        .map(|task| {
            let indent = "  ".repeat(task.level.saturating_sub(1).min(8));
            vec![
                task.line.to_string(),
                task.keyword.as_str().to_owned(),
                format!("{indent}{}", safe::line(&task.heading)),
            ]
        })
        .collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

/// A part of a verdict that could not be applied.
#[derive(Serialize)]
struct UnresolvedVerdict {
    line: usize,
    what: String,
}

fn lint(here: &LoadedProject, which: &BoardArg, ui: Ui) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    let mut found: Vec<UnresolvedVerdict> = Vec::new();
    for (heading, lines) in board.doubles() {
        let others: Vec<String> = lines.iter().map(usize::to_string).collect();
        found.push(UnresolvedVerdict {
            line: lines[0],
            what: format!(
                "{} tasks have the heading {heading:?} (lines {}): a verdict cannot name a single one of them",
                lines.len(),
                others.join(", ")
            ),
        });
    }
    found.extend(board.odd.iter().map(|odd| UnresolvedVerdict {
        line: odd.line,
        what: format!("{:?} is not a keyword that runner moves: {}", odd.keyword, odd.heading),
    }));
    let nameless = board.tasks.iter().filter(|task| task.heading.is_empty());
    found.extend(nameless.map(|task| UnresolvedVerdict {
        line: task.line,
        what: format!("this {} has no heading", task.keyword),
    }));
    let doing: Vec<_> = board.tasks.iter().filter(|it| it.keyword == Keyword::Doing).collect();
    if let [_, second, ..] = doing.as_slice() {
        found.push(UnresolvedVerdict {
            line: second.line,
            what: format!("{} tasks are DOING at once", doing.len()),
        });
    }
    found.sort_by_key(|finding| finding.line);
    if ui.json {
        show::json(&json!({ "board": path, "tasks": board.tasks.len(), "findings": found }));
    } else {
        for finding in &found {
            show::out(&format!("{path}:{}: {}\n", finding.line, safe::line(&finding.what)));
        }
        if found.is_empty() {
            show::out(&format!("ok: {}\n", show::count(board.tasks.len() as u64, "task")));
        }
    }
    Ok(if found.is_empty() { Exit::Done } else { Exit::Failed })
}

fn apply(home: &Env, here: &LoadedProject, which: &BoardArg, ui: Ui) -> Result<Exit, Failure> {
    let entry = newest(&here.root, &which.agent)
        .map_err(|error| Failure::data(safe::line(&error.whole())))?;
    let Some((path, entry)) = entry else {
        print_change(&BoardChange::default(), "no dream yet: there is no verdict", ui);
        return Ok(Exit::Done);
    };
    let done = change(home, here, which, &[BoardRequest::Apply(&entry)])?;
    let words = match done.before.first() {
        Some(before) => format!("{path} was already applied, at {}", show::format_time(before.ts)),
        None => format!("applied {path}"),
    };
    print_change(&done, &words, ui);
    Ok(Exit::Done)
}

/// Makes the requested changes on the selected board.
fn change(
    home: &Env,
    here: &LoadedProject,
    which: &BoardArg,
    wishes: &[BoardRequest<'_>],
) -> Result<BoardChange, Failure> {
    let path = path(here, which);
    let mut store = home.store()?;
    here.register(&mut store, home.wall()?)?;
    let me = ProcessIdentity::me();
    let mut desk =
        BoardEditor { hand: hand(home, here, &me, &mut store)?, board: &path, agent: &which.agent };
    desk.carry_out(wishes).map_err(|error| failure(error, &path))
}

/// Creates the actor that edits a project for this command.
pub(super) fn hand<'h>(
    home: &'h Env,
    here: &'h LoadedProject,
    me: &'h ProcessIdentity,
    store: &'h mut Store,
) -> Result<EditActor<'h>, Failure> {
    let root = &here.root;
    let free = rustix::fs::statvfs(root)
        .map_err(|error| Failure::environment(format!("{}: {error}", root.display())))?;
    Ok(EditActor {
        root,
        project: &here.id,
        state: &home.state,
        clock: &home.clock,
        me,
        store,
        free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
    })
}

fn print_change(done: &BoardChange, words: &str, ui: Ui) {
    if ui.json {
        show::json(&json!({
            "records": done.records,
            "before": done.before,
            "picked": done.picked.as_ref().map(|task| &task.heading),
            "run": done.run.as_ref().map(ToString::to_string),
        }));
        return;
    }
    if ui.quiet {
        return;
    }
    show::out(&format!("{}\n", safe::line(words)));
    for line in board::lines(&done.records) {
        show::out(&format!("  {}\n", safe::line(&line)));
    }
}

fn history(here: &LoadedProject, limit: usize, ui: Ui) -> Result<Exit, Failure> {
    let history = board::history(&here.root)
        .map_err(|error| Failure::environment(format!("cannot read {}: {error}", board::PATH)))?;
    let most = if limit == 0 { usize::MAX } else { limit };
    let newest: Vec<&HistoryRecord> = history.records.iter().rev().take(most).collect();
    if history.unreadable > 0 {
        show::complain(&format!(
            "{} has {} that could not be read as a record",
            board::PATH,
            counted(history.unreadable, "line")
        ));
    }
    if ui.json {
        show::json(&newest);
        return Ok(Exit::Done);
    }
    if newest.is_empty() {
        show::out("no task was moved yet\n");
    }
    for record in newest {
        let of = match (&record.entry, record.agent.as_str()) {
            (Some(entry), "") => format!(" of entry {entry}"),
            (Some(entry), agent) => format!(" of {agent}'s entry {entry}"),
            (None, "") => String::new(),
            (None, agent) => format!(" for {agent}"),
        };
        let what = match record.what {
            board::HistoryEvent::Apply => "verdicts",
            board::HistoryEvent::Pick => "picked",
            board::HistoryEvent::Add => "added",
            board::HistoryEvent::Done => "done",
        };
        show::out(&format!("{}  {what}{of}\n", show::format_time(record.ts)));
        for line in board::lines(std::slice::from_ref(record)) {
            show::out(&format!("  {}\n", safe::line(&line)));
        }
    }
    Ok(Exit::Done)
}

fn failure(error: BoardError, path: &str) -> Failure {
    let what = safe::line(&runner_engine::error_chain::whole(&error));
    match error {
        BoardError::Missing(_) => {
            let example = match BoardForm::of(path) {
                BoardForm::Org => "* TODO the first task",
                BoardForm::Markdown => "- [ ] the first task",
            };
            Failure::data(what).hint(format!("echo '{example}' > {path}"))
        }
        BoardError::Unreadable { .. } => Failure::data(what),
        BoardError::Cannot(_) => Failure::data(what).hint("runner board show"),
        BoardError::Internal { .. } => Failure::internal(what),
        BoardError::Act(error) => act_failure(error),
    }
}

pub(super) fn act_failure(error: ManualEditError) -> Failure {
    let what = safe::line(&runner_engine::error_chain::whole(&error));
    match error {
        ManualEditError::Busy(_) | ManualEditError::Changed(_) => {
            Failure::later(what).hint("repeat it")
        }
        ManualEditError::Guard(_) | ManualEditError::Conflict(_) => Failure::refused(what),
        ManualEditError::Disk(_) => Failure::cannot_write(what),
        ManualEditError::Unfinished { .. } => Failure::cannot_write(what).hint("runner tick"),
        ManualEditError::Ledger(error) => error.into(),
    }
}
