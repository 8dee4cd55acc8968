//! `runner board apply`, `pick`, `add` and `done`: change the board.

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_jobs::lifecycle::board::{self, BoardChange, BoardEditor, BoardRequest, HistoryRecord};
use runner_jobs::lifecycle::manifest::{Newest, newest};
use runner_jobs::lifecycle::provenance::{Provenance, adopt_command};
use serde::Serialize;

use super::{BoardArg, edit_actor, failure, path};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// A completed change to a board.
#[derive(Serialize)]
struct BoardEdit {
    records: Vec<HistoryRecord>,
    before: Vec<HistoryRecord>,
    /// The heading of the picked task, if one was picked.
    picked: Option<String>,
    run: Option<String>,
    /// A sentence that describes the change.
    #[serde(skip)]
    text: String,
}

impl BoardEdit {
    fn new(done: BoardChange, text: String) -> Self {
        Self {
            records: done.records,
            before: done.before,
            picked: done.picked.map(|task| task.heading),
            run: done.run.map(|run| run.to_string()),
            text,
        }
    }
}

impl View for BoardEdit {
    fn print(&self, ui: Ui) {
        if ui.quiet {
            return;
        }
        show::out(&format!("{}\n", safe::line(&self.text)));
        for line in board::lines(&self.records) {
            show::out(&format!("  {}\n", safe::line(&line)));
        }
    }
}

pub fn apply(cli: &Cli<'_>, here: &LoadedProject, which: &BoardArg) -> Result<Exit, Failure> {
    let entry = newest(&here.root, &which.agent)
        .map_err(|error| Failure::data(safe::line(&error.whole())))?;
    let edit = match &entry {
        None => {
            let text = "there is no entry yet, so there are no verdicts".to_owned();
            BoardEdit::new(BoardChange::default(), text)
        }
        Some(newest) => {
            let Newest { path, entry, .. } = newest;
            if let Some(why) = provenance(cli, here, newest)?.describe(path, &which.agent) {
                return Err(Failure::refused(format!("no verdict was applied: {why}"))
                    .hint(adopt_command(&which.agent)));
            }
            let done = change(cli, here, which, &BoardRequest::Apply(entry))?;
            let text = match done.before.first() {
                Some(before) => {
                    format!("{path} was already applied at {}", show::format_time(before.ts))
                }
                None => format!("applied {path}"),
            };
            BoardEdit::new(done, text)
        }
    };
    cli.ui.show(&edit);
    Ok(Exit::Done)
}

/// Returns the entry's origin, which is unknown if there is no database.
pub(in crate::commands) fn provenance(
    cli: &Cli<'_>,
    here: &LoadedProject,
    newest: &Newest,
) -> Result<Provenance, Failure> {
    match cli.env.store_to_identify()? {
        Some(store) => Ok(Provenance::of(&store, &here.id, newest)?),
        None => Ok(Provenance::Unknown),
    }
}

/// Picks, adds or finishes a task.
pub fn edit(
    cli: &Cli<'_>,
    here: &LoadedProject,
    which: &BoardArg,
    wish: &BoardRequest<'_>,
) -> Result<Exit, Failure> {
    let done = change(cli, here, which, wish)?;
    let text = match (wish, &done.picked) {
        (BoardRequest::Add(heading), _) => format!("added {}", heading.trim()),
        (BoardRequest::Done(heading), _) => {
            let task = done.records.iter().flat_map(|it| &it.moves).next();
            format!("{} is DONE", task.map_or(*heading, |it| &it.task))
        }
        (_, Some(task)) if done.records.is_empty() => format!("{} is already DOING", task.heading),
        (_, Some(task)) => format!("picked {}", task.heading),
        (_, None) => "the board has no open task".to_owned(),
    };
    cli.ui.show(&BoardEdit::new(done, text));
    Ok(Exit::Done)
}

fn change(
    cli: &Cli<'_>,
    here: &LoadedProject,
    which: &BoardArg,
    wish: &BoardRequest<'_>,
) -> Result<BoardChange, Failure> {
    let path = path(here, which);
    let mut store = cli.env.store()?;
    here.register(&mut store, cli.env.wall()?)?;
    let me = ProcessIdentity::me();
    let hand = edit_actor(cli.env, here, &me, &mut store)?;
    let mut editor = BoardEditor { hand, board: &path, agent: &which.agent };
    editor.carry_out(std::slice::from_ref(wish)).map_err(|error| failure(error, &path))
}
