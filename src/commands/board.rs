//! `runner board`: a project's tasks, and what moves them.

use runner_text::counted;
use std::path::Path;

use runner_engine::ledger::Ledger;
use runner_engine::outcome::Exit;
use runner_engine::owner::Owner;
use runner_jobs::KindSpec;
use runner_jobs::act::{ActError, Hand};
use runner_jobs::lifecycle::BOARD;
use runner_jobs::lifecycle::board::{self, BoardError, Desk, Done, Record, Wish};
use runner_jobs::lifecycle::newest::newest;
use runner_text::org::{Board, Form, Keyword};
use serde::Serialize;
use serde_json::json;

use crate::cli::args::Listing;
use crate::cli::lifecycle::{BoardCommand, Which};
use crate::cli::{Failure, safe, show};
use crate::home::Home;
use crate::project::Here;

/// Carries out one of its commands.
pub fn run(home: &Home, here: &Path, command: &BoardCommand, quiet: bool) -> Result<Exit, Failure> {
    let here = Here::load(home, here)?;
    match command {
        BoardCommand::Show { which, listing } => tasks(&here, which, *listing),
        BoardCommand::Lint { which, listing } => lint(&here, which, *listing),
        BoardCommand::Apply { which, listing } => apply(home, &here, which, quiet, *listing),
        BoardCommand::Pick { which, listing } => {
            let done = change(home, &here, which, &[Wish::Pick])?;
            let picked = done.picked.as_ref().map(|task| task.heading.clone());
            let words = match (&picked, done.records.is_empty()) {
                (Some(task), true) => format!("{task} is DOING already"),
                (Some(task), false) => format!("picked {task}"),
                (None, _) => "nothing is open on the board".to_owned(),
            };
            tell(&done, &words, quiet, *listing);
            Ok(Exit::Done)
        }
        BoardCommand::Add {
            heading,
            which,
            listing,
        } => {
            let done = change(home, &here, which, &[Wish::Add(heading)])?;
            tell(&done, &format!("added {}", heading.trim()), quiet, *listing);
            Ok(Exit::Done)
        }
        BoardCommand::Done {
            heading,
            which,
            listing,
        } => {
            let done = change(home, &here, which, &[Wish::Done(heading)])?;
            let task = done.records.iter().flat_map(|it| &it.moves).next();
            let task = task.map_or(heading.as_str(), |it| &it.task);
            tell(&done, &format!("{task} is DONE"), quiet, *listing);
            Ok(Exit::Done)
        }
        BoardCommand::History { limit, listing } => history(&here, *limit, *listing),
    }
}

/// The board that is meant: the one that is named, else that of the agent's jobs.
pub(super) fn path(here: &Here, which: &Which) -> String {
    let of_agent = || {
        here.config.jobs.values().find_map(|job| {
            let (agent, board) = match &job.spec.kind {
                KindSpec::Cycle(cycle) => (&cycle.agent, &cycle.board),
                KindSpec::Work(work) => (&work.agent, &work.board),
                _ => return None,
            };
            (*agent == which.agent).then(|| board.clone())
        })
    };
    let named = which.board.clone().or_else(of_agent);
    named.unwrap_or_else(|| BOARD.to_owned())
}

fn read(here: &Here, path: &str) -> Result<Board, Failure> {
    let text = board::read(&here.root, path).map_err(|error| failure(error, path))?;
    Ok(Board::read(&text, Form::of(path)))
}

fn tasks(here: &Here, which: &Which, listing: Listing) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    if listing.json {
        let tasks: Vec<_> = board
            .tasks
            .iter()
            .map(|task| {
                json!({
                    "heading": task.heading, "keyword": task.keyword.word(),
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
                task.keyword.word().to_owned(),
                format!("{indent}{}", safe::line(&task.heading)),
            ]
        })
        .collect();
    show::out(&show::table(&rows));
    Ok(Exit::Done)
}

/// Something that a verdict could not act on.
#[derive(Serialize)]
struct Finding {
    line: usize,
    what: String,
}

fn lint(here: &Here, which: &Which, listing: Listing) -> Result<Exit, Failure> {
    let path = path(here, which);
    let board = read(here, &path)?;
    let mut found: Vec<Finding> = Vec::new();
    for (heading, lines) in board.doubles() {
        let others: Vec<String> = lines.iter().map(usize::to_string).collect();
        found.push(Finding {
            line: lines[0],
            what: format!(
                "{} tasks have the heading {heading:?} (lines {}): no verdict can mean one of them",
                lines.len(),
                others.join(", ")
            ),
        });
    }
    found.extend(board.odd.iter().map(|odd| Finding {
        line: odd.line,
        what: format!(
            "{:?} is no keyword that is moved: {}",
            odd.keyword, odd.heading
        ),
    }));
    let nameless = board.tasks.iter().filter(|task| task.heading.is_empty());
    found.extend(nameless.map(|task| Finding {
        line: task.line,
        what: format!("this {} has no heading", task.keyword),
    }));
    let doing: Vec<_> = board
        .tasks
        .iter()
        .filter(|it| it.keyword == Keyword::Doing)
        .collect();
    if let [_, second, ..] = doing.as_slice() {
        found.push(Finding {
            line: second.line,
            what: format!("{} tasks are DOING at once", doing.len()),
        });
    }
    found.sort_by_key(|finding| finding.line);
    if listing.json {
        show::json(&json!({ "board": path, "tasks": board.tasks.len(), "findings": found }));
    } else {
        for finding in &found {
            show::out(&format!(
                "{path}:{}: {}\n",
                finding.line,
                safe::line(&finding.what)
            ));
        }
        if found.is_empty() {
            show::out(&format!(
                "ok: {}\n",
                show::count(board.tasks.len() as u64, "task")
            ));
        }
    }
    Ok(if found.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn apply(
    home: &Home,
    here: &Here,
    which: &Which,
    quiet: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let entry = newest(&here.root, &which.agent)
        .map_err(|error| Failure::data(safe::line(&error.whole())))?;
    let Some((path, entry)) = entry else {
        tell(
            &Done::default(),
            "no dream yet: there is no verdict",
            quiet,
            listing,
        );
        return Ok(Exit::Done);
    };
    let done = change(home, here, which, &[Wish::Apply(&entry)])?;
    let words = match done.before.first() {
        Some(before) => format!("{path} was applied before, at {}", show::moment(before.ts)),
        None => format!("applied {path}"),
    };
    tell(&done, &words, quiet, listing);
    Ok(Exit::Done)
}

/// Does what is wished on the board that is meant.
fn change(home: &Home, here: &Here, which: &Which, wishes: &[Wish<'_>]) -> Result<Done, Failure> {
    let path = path(here, which);
    let mut ledger = home.ledger()?;
    here.register(&mut ledger, home.wall()?)?;
    let me = Owner::me();
    let mut desk = Desk {
        hand: hand(home, here, &me, &mut ledger)?,
        board: &path,
        agent: &which.agent,
    };
    desk.carry_out(wishes)
        .map_err(|error| failure(error, &path))
}

/// Who acts in a project for this command.
pub(super) fn hand<'h>(
    home: &'h Home,
    here: &'h Here,
    me: &'h Owner,
    ledger: &'h mut Ledger,
) -> Result<Hand<'h>, Failure> {
    let root = &here.root;
    let free = rustix::fs::statvfs(root)
        .map_err(|error| Failure::environment(format!("{}: {error}", root.display())))?;
    Ok(Hand {
        root,
        project: &here.id,
        state: &home.state,
        clock: &home.clock,
        me,
        ledger,
        free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
    })
}

fn tell(done: &Done, words: &str, quiet: bool, listing: Listing) {
    if listing.json {
        show::json(&json!({
            "records": done.records,
            "before": done.before,
            "picked": done.picked.as_ref().map(|task| &task.heading),
            "run": done.run.as_ref().map(ToString::to_string),
        }));
        return;
    }
    if quiet {
        return;
    }
    show::out(&format!("{}\n", safe::line(words)));
    for line in board::lines(&done.records) {
        show::out(&format!("  {}\n", safe::line(&line)));
    }
}

fn history(here: &Here, limit: usize, listing: Listing) -> Result<Exit, Failure> {
    let history = board::history(&here.root)
        .map_err(|error| Failure::environment(format!("cannot read {}: {error}", board::PATH)))?;
    let most = if limit == 0 { usize::MAX } else { limit };
    let newest: Vec<&Record> = history.records.iter().rev().take(most).collect();
    if history.unreadable > 0 {
        show::complain(&format!(
            "{} has {} that no record could be read from",
            board::PATH,
            counted(history.unreadable, "line")
        ));
    }
    if listing.json {
        show::json(&newest);
        return Ok(Exit::Done);
    }
    if newest.is_empty() {
        show::out("nothing was moved yet\n");
    }
    for record in newest {
        let of = match (&record.entry, record.agent.as_str()) {
            (Some(entry), "") => format!(" of entry {entry}"),
            (Some(entry), agent) => format!(" of {agent}'s entry {entry}"),
            (None, "") => String::new(),
            (None, agent) => format!(" for {agent}"),
        };
        let what = match record.what {
            board::What::Apply => "verdicts",
            board::What::Pick => "picked",
            board::What::Add => "added",
            board::What::Done => "done",
        };
        show::out(&format!("{}  {what}{of}\n", show::moment(record.ts)));
        for line in board::lines(std::slice::from_ref(record)) {
            show::out(&format!("  {}\n", safe::line(&line)));
        }
    }
    Ok(Exit::Done)
}

/// Why a board was not changed, with what mends it.
fn failure(error: BoardError, path: &str) -> Failure {
    let what = safe::line(&runner_engine::causes::whole(&error));
    match error {
        BoardError::Missing(_) => {
            let example = match Form::of(path) {
                Form::Org => "* TODO the first task",
                Form::Markdown => "- [ ] the first task",
            };
            Failure::data(what).mend(format!("echo '{example}' > {path}"))
        }
        BoardError::Unreadable { .. } => Failure::data(what),
        BoardError::Cannot(_) => Failure::data(what).mend("runner board show"),
        BoardError::Internal { .. } => Failure::internal(what),
        BoardError::Act(error) => act_failure(error),
    }
}

/// Why an act placed nothing.
pub(super) fn act_failure(error: ActError) -> Failure {
    let what = safe::line(&runner_engine::causes::whole(&error));
    match error {
        ActError::Busy(_) | ActError::Changed(_) => Failure::later(what).mend("repeat it"),
        ActError::Guard(_) | ActError::Conflict(_) => Failure::refused(what),
        ActError::Disk(_) => Failure::cannot_write(what),
        ActError::Unfinished { .. } => Failure::cannot_write(what).mend("runner tick"),
        ActError::Ledger(error) => error.into(),
    }
}
