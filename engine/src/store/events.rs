//! Stores events that are not part of a run's row, such as recoveries, clock jumps and user
//! actions. Event rows are never changed.

use jiff::Timestamp;
use rusqlite::{Transaction, params};
use schemars::JsonSchema;
use serde::Serialize;

use super::columns::{Query as _, free, millis, time};
use super::{Fault, Result, Store};
use crate::ids::{ProjectId, RunId};

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Event {
    pub at: Timestamp,
    /// The affected project, if any.
    pub project: Option<ProjectId>,
    /// The affected run, if any.
    pub run: Option<RunId>,
    /// A short name such as `recovered`, `stuck` or `overran`.
    pub kind: String,
    /// A description, which is redacted when the event is stored.
    pub detail: String,
}

impl Store {
    pub fn event(&mut self, event: &Event) -> Result<()> {
        self.write(|tx| insert(tx, event))
    }

    /// Returns a run's events, oldest first.
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
