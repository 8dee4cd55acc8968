//! Reads a board, decides on a change and publishes the change, all under one lock.
//!
//! This module must never publish a changed board without its history record, or a record of moves
//! without the changed board.

use std::io;

use runner_engine::digest::Digest;
use runner_engine::files::DOCUMENT;
use runner_engine::ids::RunId;
use runner_engine::scope::{Expect, FileLook, Scope};
use runner_text::org::{Board, BoardForm, Task};

use super::history::{self, BoardHistory, HistoryEvent, HistoryRecord};
use super::moves::{self, BoardEdit};
use crate::lifecycle::entry::Entry;
use crate::manual_edit::{self, EditActor, HeldJobLock, ManualEdit, ManualEditError};

/// The job name recorded for changes to a project's board. No configured job can have this name.
pub const JOB: &str = "board:apply";
/// Maximum number of attempts to change a board that another process is changing at the same time.
const ATTEMPTS: u32 = 5;

/// Why a board was not changed.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The board's file does not exist.
    #[error("there is no board: {0} does not exist")]
    Missing(String),
    /// The board cannot be read or is not UTF-8.
    #[error("the board {path} cannot be read: {why}")]
    Unreadable { path: String, why: String },
    /// The request cannot be carried out on this board.
    #[error("{0}")]
    Cannot(String),
    /// The change could not be published.
    #[error(transparent)]
    Act(#[from] ManualEditError),
    /// The change would affect other tasks, which is a bug in runner.
    #[error("the board {path} was not changed: {why}")]
    Internal { path: String, why: String },
}

#[derive(Clone, Copy, Debug)]
pub enum BoardRequest<'w> {
    /// Apply an entry's verdicts, unless they have already been applied.
    Apply(&'w Entry),
    /// Begin the next task.
    Pick,
    /// Add a task.
    Add(&'w str),
    /// Finish a task.
    Done(&'w str),
}

/// The result of one or more requests.
#[derive(Clone, Debug, Default)]
pub struct BoardChange {
    /// The records added to the history, in order. Empty if there was nothing to record.
    pub records: Vec<HistoryRecord>,
    /// The run that published the change, or `None` if there was nothing to publish.
    pub run: Option<RunId>,
    /// The earlier records of entries that had already been applied.
    pub before: Vec<HistoryRecord>,
    /// The agent's task after a `Pick`, or `None` if no task remained.
    pub picked: Option<Task>,
}

/// Edits a project's board for an agent.
pub struct BoardEditor<'d> {
    pub hand: EditActor<'d>,
    /// The board's path, relative to the project.
    pub board: &'d str,
    /// The agent's name, which is empty for the default agent.
    pub agent: &'d str,
}

/// The board and its history, read under the lock.
struct BoardSnapshot {
    text: String,
    digest: Digest,
    looks: FileLook,
    history: Option<Vec<u8>>,
}

impl BoardEditor<'_> {
    /// Makes all requested changes, in order and in one publication.
    ///
    /// # Errors
    /// Returns a [`BoardError`]. Nothing has changed, unless the error is
    /// [`ManualEditError::Conflict`], [`ManualEditError::Unfinished`] or
    /// [`ManualEditError::Ledger`].
    pub fn carry_out(&mut self, wishes: &[BoardRequest<'_>]) -> Result<BoardChange, BoardError> {
        let mut held = self.hand.lock(JOB)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.once(&mut held, wishes) {
                // Another process has changed the board or its history since they were read, so
                // read both again.
                Err(BoardError::Act(ManualEditError::Changed(_))) if attempts < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    fn once(
        &mut self,
        held: &mut HeldJobLock,
        wishes: &[BoardRequest<'_>],
    ) -> Result<BoardChange, BoardError> {
        let seen = self.inspect()?;
        let history = BoardHistory::parse(seen.history.as_deref().unwrap_or_default());
        let form = BoardForm::of(self.board);
        let mut done = BoardChange::default();
        let mut text = seen.text.clone();
        for wish in wishes {
            let board = Board::read(&text, form);
            let (what, entry, change) = match wish {
                BoardRequest::Apply(entry) => {
                    if let Some(before) = history.applied(self.agent, &entry.id) {
                        done.before.push(before.clone());
                        continue;
                    }
                    let change = moves::apply(&board, &text, &entry.sections, self.agent);
                    (HistoryEvent::Apply, Some(entry.id.clone()), change)
                }
                BoardRequest::Pick => match moves::pick(&board, &text, &history, self.agent) {
                    None => continue,
                    Some((task, change)) => {
                        done.picked = Some(task.clone());
                        if change.moves.is_empty() {
                            continue;
                        }
                        (HistoryEvent::Pick, None, change)
                    }
                },
                BoardRequest::Add(heading) => {
                    let change = moves::add(&board, &text, heading).map_err(BoardError::Cannot)?;
                    (HistoryEvent::Add, None, change)
                }
                BoardRequest::Done(said) => {
                    let change = moves::done(&board, said).map_err(BoardError::Cannot)?;
                    (HistoryEvent::Done, None, change)
                }
            };
            let after = change
                .text(&text, &board)
                .map_err(|why| BoardError::Internal { path: self.board.to_owned(), why })?;
            let digest = |text: &str| Some(Digest::of(text.as_bytes()).to_string());
            done.records.push(HistoryRecord {
                before: digest(&text),
                after: digest(&after),
                ..self.record(what, entry, change)
            });
            text = after;
        }
        if !done.records.is_empty() {
            self.place(held, &seen, &history, &text, &mut done)?;
        }
        Ok(done)
    }

    /// Creates a history record. The time and the run are filled in at publication.
    fn record(
        &self,
        what: HistoryEvent,
        entry: Option<String>,
        change: BoardEdit,
    ) -> HistoryRecord {
        HistoryRecord {
            ts: jiff::Timestamp::UNIX_EPOCH,
            run: String::new(),
            agent: self.agent.to_owned(),
            board: self.board.to_owned(),
            what,
            entry,
            moves: change.moves,
            kept: change.kept,
            unresolved: change.unresolved,
            before: None,
            after: None,
        }
    }

    fn inspect(&self) -> Result<BoardSnapshot, BoardError> {
        let path = self.board;
        let scope = Scope::open(self.hand.root, &[], ".runner/staging/look")
            .map_err(ManualEditError::from)?;
        let read = |path: &str| scope.inspect(path, super::LARGEST).map_err(ManualEditError::from);
        let Some((bytes, looks)) = read(path)? else {
            return Err(BoardError::Missing(path.to_owned()));
        };
        let digest = Digest::of(&bytes);
        let text = String::from_utf8(bytes).map_err(|error| BoardError::Unreadable {
            path: path.to_owned(),
            why: format!("it is not UTF-8: {}", error.utf8_error()),
        })?;
        Ok(BoardSnapshot {
            text,
            digest,
            looks,
            history: read(history::PATH)?.map(|(bytes, _)| bytes),
        })
    }

    fn place(
        &mut self,
        held: &mut HeldJobLock,
        seen: &BoardSnapshot,
        history: &BoardHistory,
        text: &str,
        done: &mut BoardChange,
    ) -> Result<(), BoardError> {
        let act = ManualEdit {
            job: JOB,
            allowed: &[self.board, ".runner"],
            staging: manual_edit::STAGING,
            headline: headline(&done.records),
            lines: lines(&done.records),
        };
        let board = self.board;
        let records = &mut done.records;
        let mut stage = |scope: &mut Scope, run: &RunId, now: jiff::Timestamp| {
            for record in records.iter_mut() {
                record.run = run.to_string();
                record.ts = now;
            }
            if text != seen.text {
                let looks = FileLook {
                    modified: i64::try_from(now.as_nanosecond()).unwrap_or(seen.looks.modified),
                    ..seen.looks
                };
                let expect = Expect::Digest(seen.digest);
                scope.stage_as(board, text.as_bytes(), expect, Some(looks))?;
            }
            let expect = match &seen.history {
                Some(bytes) => Expect::Digest(Digest::of(bytes)),
                None => Expect::Absent,
            };
            scope.stage(history::PATH, history.with(records).as_bytes(), expect)?;
            Ok(())
        };
        let run = self.hand.place(held, &act, &mut stage)?;
        done.run = Some(run);
        Ok(())
    }
}

/// Summarizes the records in one line.
fn headline(records: &[HistoryRecord]) -> String {
    let parts = records.iter().map(|record| match record.what {
        HistoryEvent::Apply => format!(
            "entry {}: {} moved, {} unchanged, {} unresolved",
            record.entry.as_deref().unwrap_or_default(),
            record.moves.len(),
            record.kept.len(),
            record.unresolved.len()
        ),
        HistoryEvent::Pick | HistoryEvent::Add | HistoryEvent::Done => {
            let word = match record.what {
                HistoryEvent::Pick => "picked",
                HistoryEvent::Add => "added",
                _ => "done:",
            };
            let task = record.moves.first().map_or("", |it| it.task.as_str());
            format!("{word} {task:?}")
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Describes each moved task, and each verdict or line that moved no task, with the reason.
pub fn lines(records: &[HistoryRecord]) -> Vec<String> {
    let mut out = Vec::new();
    for record in records {
        for it in &record.moves {
            let from = it.from.map_or("new", |from| from.as_str());
            let to = it.to.map_or("", |to| to.as_str());
            let why = match it.why.as_str() {
                "" => String::new(),
                why => format!(" ({why})"),
            };
            out.push(format!("{from} → {to}: {}{why}", it.task));
        }
        let kept = record.kept.iter();
        out.extend(kept.map(|it| format!("unchanged: {}: {}", it.said, it.why)));
        let unresolved = record.unresolved.iter();
        out.extend(unresolved.map(|it| format!("unresolved: {}: {}", it.said, it.why)));
    }
    out
}

/// Reads a board's text.
///
/// # Errors
/// Returns [`BoardError::Missing`] or [`BoardError::Unreadable`].
pub fn read(root: &std::path::Path, path: &str) -> Result<String, BoardError> {
    let unreadable = |why: String| BoardError::Unreadable { path: path.to_owned(), why };
    let scope = Scope::open(root, &[], ".runner/staging/look")
        .map_err(|error| unreadable(error.to_string()))?;
    read_in(&scope, path)
}

/// Reads a board's text through a scope.
///
/// # Errors
/// Returns the same errors as [`read`].
pub fn read_in(scope: &Scope, path: &str) -> Result<String, BoardError> {
    let unreadable = |why: String| BoardError::Unreadable { path: path.to_owned(), why };
    match scope.inspect(path, super::LARGEST) {
        Ok(Some((bytes, _))) => String::from_utf8(bytes)
            .map_err(|error| unreadable(format!("it is not UTF-8: {error}"))),
        Ok(None) => Err(BoardError::Missing(path.to_owned())),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// Reads the history of a project's boards. A missing file yields an empty history.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub fn history(root: &std::path::Path) -> io::Result<BoardHistory> {
    match runner_engine::files::read_in(root, history::PATH, DOCUMENT) {
        Ok(bytes) => Ok(BoardHistory::parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BoardHistory::default()),
        Err(error) => Err(error),
    }
}
