//! Events besides runs: refusals, recoveries, clock jumps. Rows are only ever added.

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::{Fault, Result, Store, id, millis, timestamp};
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
        self.view(|db| {
            let mut statement = db.prepare(
                "SELECT at, project, kind, detail FROM events WHERE run = ?1 ORDER BY id",
            )?;
            let rows = statement.query_map([run.as_str()], |row| {
                Ok((row.get(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.map(|row| {
                let (at, project, kind, detail) = row?;
                Ok(Event {
                    at: timestamp(at)?,
                    project: project.map(id).transpose()?,
                    run: Some(run.clone()),
                    kind,
                    detail,
                })
            })
            .collect()
        })
    }
}

pub(super) fn insert(tx: &Transaction<'_>, event: &Event) -> Result<(), Fault> {
    tx.prepare_cached(
        "INSERT INTO events (at, project, run, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        millis(event.at),
        event.project.as_ref().map(ProjectId::as_str),
        event.run.as_ref().map(RunId::as_str),
        event.kind,
        event.detail
    ])?;
    Ok(())
}
