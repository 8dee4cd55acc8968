//! Reads the most recent changes to the database, in order, for programs that follow them.
//!
//! Database triggers write the changes and delete old ones. Except in [`interrupt`], this module
//! must never write.

use rusqlite::{Connection, Row, Transaction};
use serde::Serialize;

use super::columns::Query as _;
use super::{Fault, Result, Store};
use crate::ids::ProjectId;

/// A change to the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The number of the change. Later changes have higher numbers, and no number is used twice.
    pub id: i64,
    /// The affected project, or `None` if the change does not belong to a single project.
    pub project: Option<ProjectId>,
    /// `run`, `job`, `night`, `alert`, `grant`, `pause` or `event`.
    pub kind: String,
    /// The id or name of the changed item. For an event, this is the id of the event's run, if any.
    /// For a grant, it is the kind of budget level.
    pub subject: String,
    /// The item's state after the change, such as `running`, or the kind of change, such as
    /// `reset`. For an event, this is the event's kind.
    pub state: String,
}

/// The changes after a given number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangesAfter {
    /// All changes after the number, oldest first, up to the limit.
    All(Vec<Change>),
    /// Some changes after the number are no longer available. The reader must read everything again
    /// and continue after the number `last`.
    Lost { last: i64 },
}

impl Store {
    /// Returns the number of the last change, or 0 if there was none.
    pub fn last_change(&self) -> Result<i64> {
        self.view(last)
    }

    /// Returns at most `limit` changes after the number `after`.
    pub fn changes_after(&self, after: i64, limit: u32) -> Result<ChangesAfter> {
        let last = self.last_change()?;
        let sql = "SELECT id, project, kind, subject, state FROM changes WHERE id > ?1 ORDER BY id LIMIT ?2";
        let read = |row: &Row<'_>| {
            Ok(Change {
                id: row.get(0)?,
                project: row.get(1)?,
                kind: row.get(2)?,
                subject: row.get(3)?,
                state: row.get(4)?,
            })
        };
        let changes = self.view(|db| db.all(sql, (after, limit), read))?;
        let whole = match changes.first() {
            Some(first) => first.id == after + 1,
            None => after == last,
        };
        Ok(if whole { ChangesAfter::All(changes) } else { ChangesAfter::Lost { last } })
    }
}

/// Returns the number of the last change, or 0 if there was none.
pub(super) fn last(db: &Connection) -> Result<i64, Fault> {
    // Deleting changes does not reset the sequence.
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'changes'";
    db.value(sql, [])
}

/// Skips the number after `seen` or after the last change, whichever is higher. Every reader of the
/// changes then finds a gap and must read everything again. `seen` is the highest number that a
/// reader may have seen.
pub(super) fn interrupt(tx: &Transaction<'_>, seen: i64) -> Result<(), Fault> {
    let next = last(tx)?.max(seen) + 1;
    tx.change("DELETE FROM sqlite_sequence WHERE name = 'changes'", [])?;
    tx.change("INSERT INTO sqlite_sequence (name, seq) VALUES ('changes', ?1)", [next])?;
    Ok(())
}
