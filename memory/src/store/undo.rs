//! Reverses changes. The schema's triggers write the statements that reverse each change.

use rusqlite::Transaction;
use serde::Serialize;

use super::{Change, Memory};
use crate::error::{MemoryError, Result};

/// Maximum number of changes that can be undone.
const KEPT: i64 = 500;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// The number of the change.
    pub change: i64,
    /// The time of the change in RFC 3339 format.
    pub at: String,
    /// A description of the change, such as the command that made it.
    pub what: String,
}

/// Removes changes that are too old to be undone.
pub(super) fn prune(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM undo_steps WHERE change_id <= (SELECT max(id) FROM changes) - ?1",
        "DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?1",
    ] {
        tx.prepare_cached(sql)?.execute([KEPT])?;
    }
    Ok(())
}

impl Memory {
    /// Reverses the last change that has not been undone yet.
    ///
    /// # Errors
    /// Returns an error if there is no such change.
    pub fn undo(&mut self, now: jiff::Timestamp) -> Result<Undone> {
        self.change("undo", now, |change| change.undo())
    }
}

impl Change<'_> {
    fn undo(&mut self) -> Result<Undone> {
        let last: Option<i64> =
            self.one("SELECT max(id) FROM changes WHERE NOT undone", [])?.flatten();
        let Some(change) = last else {
            return Err(MemoryError::Invalid("there is nothing to undo".to_owned()));
        };
        let steps: Vec<String> = self.sql(|tx| {
            let sql = "SELECT statement FROM undo_steps WHERE change_id = ?1 ORDER BY seq DESC";
            tx.prepare(sql)?.query_map([change], |row| row.get(0))?.collect()
        })?;
        self.begin()?;
        self.sql(|tx| {
            // The rows of deleted nodes may be restored in any order.
            tx.execute_batch("PRAGMA defer_foreign_keys = ON")?;
            steps.iter().try_for_each(|step| tx.execute(step, []).map(drop))?;
            let sql =
                "UPDATE changes SET undone = 1 WHERE id = ?1 OR id = (SELECT max(id) FROM changes)";
            tx.execute(sql, [change])?;
            tx.query_row("SELECT at, what FROM changes WHERE id = ?1", [change], |row| {
                Ok(Undone { change, at: row.get(0)?, what: row.get(1)? })
            })
        })
    }
}
