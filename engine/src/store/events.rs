//! Events besides runs: refusals, recoveries, clock jumps. Rows are only ever added.

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::columns::{Query as _, free, millis, time};
use super::{Fault, Result, Store};
use crate::ids::{ProjectId, RunId};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which project.
    pub project: Option<ProjectId>,
    /// In which run.
    pub run: Option<RunId>,
    /// A short word: `recovered`, `conflict`, `retry`.
    pub kind: String,
    /// In words, already redacted.
    pub detail: String,
}

impl Store {
    /// Adds an event.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        self.write(|tx| insert(tx, event))
    }

    /// Returns the events of one run, oldest first.
    pub fn events_of(&self, run: &RunId) -> Result<Vec<Event>> {
        let sql = "SELECT at, project, run, kind, detail FROM events WHERE run = ?1 ORDER BY id";
        self.view(|db| {
            db.all(sql, [run], |row| {
                Ok(Event {
                    at: time(row, 0)?,
                    project: row.get(1)?,
                    run: row.get(2)?,
                    kind: row.get(3)?,
                    detail: row.get(4)?,
                })
            })
        })
    }
}

pub(super) fn insert(tx: &Transaction<'_>, event: &Event) -> Result<(), Fault> {
    tx.change(
        "INSERT INTO events (at, project, run, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![millis(event.at), event.project, event.run, event.kind, free(&event.detail)],
    )?;
    Ok(())
}
