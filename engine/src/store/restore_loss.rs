//! Counts the records that a restore loses because only the current database contains them. Pauses
//! are not lost, because the restore applies them to the restored database.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Transaction, params};
use serde::Serialize;

use super::columns::{Query as _, millis};
use super::{Fault, Result, Store, changes, sql_error};

/// Counts of the records that were added to the current database after a copy was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreLoss {
    /// Number of runs that the copy does not contain.
    pub runs: u64,
    /// Number of lost circuit breaker resets. The failures before them count again.
    pub breaker_resets: u64,
    /// Number of lost budget grants.
    pub grants: u64,
    /// Number of lost provider limits. The providers are contacted again immediately.
    pub limits: u64,
    /// Number of current pauses, which the restore keeps.
    pub pauses: u64,
    #[serde(skip)]
    held: Pauses,
    /// The number of the last change in the current database.
    #[serde(skip)]
    pub(super) last_change: i64,
}

/// All pauses in a database. End times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pauses {
    /// The end time of the pause of all jobs, if there is one.
    all: Option<i64>,
    /// The project, job and end time of each job's pause.
    jobs: Vec<(String, String, i64)>,
}

/// Counts the records in the database at `path` that the copy does not contain, and reads the
/// database's pauses.
///
/// # Errors
/// Returns an error if the database or the copy cannot be read.
pub(super) fn since(path: &Path, copy: &Path, now: Timestamp) -> Result<RestoreLoss> {
    let store = Store::read(path)?;
    let copy = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(sql_error(copy))?;
    store.view(|db| {
        let keys = |db: &Connection, sql: &str| -> Result<BTreeSet<String>, Fault> {
            Ok(db.values(sql, [])?.into_iter().collect())
        };
        let more = |sql: &str| -> Result<u64, Fault> {
            let known = keys(&copy, sql)?;
            Ok(keys(db, sql)?.difference(&known).count() as u64)
        };
        let held = pauses(db)?;
        let lasting = |until: &i64| *until > millis(now);
        let pauses = held.jobs.iter().filter(|(.., until)| lasting(until)).count()
            + held.all.iter().filter(|until| lasting(until)).count();
        Ok(RestoreLoss {
            runs: more("SELECT id FROM runs")?,
            breaker_resets: more("SELECT job || ' ' || run || ' ' || at FROM breaker_resets")?,
            grants: more("SELECT id || ' ' || level || ' ' || key || ' ' || made FROM grants")?,
            limits: more("SELECT pool || ' ' || until || ' ' || noted FROM limits")?,
            pauses: pauses as u64,
            held,
            last_change: changes::last(db)?,
        })
    })
}

fn pauses(db: &Connection) -> Result<Pauses, Fault> {
    let sql = "SELECT project, name, paused_until FROM jobs WHERE paused_until IS NOT NULL";
    Ok(Pauses {
        all: super::pause::all(db)?.map(millis),
        jobs: db.all(sql, [], |row| row.try_into())?,
    })
}

impl RestoreLoss {
    /// Replaces a database's pauses with these pauses.
    pub(super) fn apply_pauses(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        tx.change("DELETE FROM pause", [])?;
        tx.change("UPDATE jobs SET paused_until = NULL WHERE paused_until IS NOT NULL", [])?;
        if let Some(until) = self.held.all {
            tx.change("INSERT INTO pause VALUES (1, ?1)", [until])?;
        }
        for (project, job, until) in &self.held.jobs {
            tx.change(
                "UPDATE jobs SET paused_until = ?3 WHERE project = ?1 AND name = ?2",
                params![project, job, until],
            )?;
        }
        Ok(())
    }
}
