//! The records of a database that a copy of it lacks: the ones that a restore of the copy loses,
//! and the pauses, which are carried over. This module only reads both databases.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};
use serde::Serialize;

use super::{Fault, Result, Store, millis};

/// The records and decisions made since a copy was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreLoss {
    /// Runs that the copy does not know.
    pub runs: u64,
    /// Resets of circuit breakers: the failures before them count again.
    pub breaker_resets: u64,
    /// Extras to budgets: they are gone.
    pub grants: u64,
    /// Waits that a provider asked for: it is asked again at once.
    pub limits: u64,
    /// Pauses that last now, of everything and of jobs: they are carried over.
    pub pauses: u64,
    #[serde(skip)]
    held: Pauses,
}

/// All pauses there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pauses {
    all: Option<i64>,
    /// Project, job, end.
    jobs: Vec<(String, String, i64)>,
}

/// Returns the records of the database at `path` that the copy lacks.
///
/// # Errors
/// Returns an error if the database cannot be read, because the loss is then unknown.
pub(super) fn since(path: &Path, copy: &Path, now: Timestamp) -> Result<RestoreLoss> {
    let store = Store::read(path)?;
    let copy = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Fault::Sql(error).at(copy))?;
    store.view(|db| {
        let more = |sql: &str| -> Result<u64, Fault> {
            let known = keys(&copy, sql).or_else(older)?;
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
        })
    })
}

fn keys(db: &Connection, sql: &str) -> Result<BTreeSet<String>, rusqlite::Error> {
    db.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()
}

/// Treats an unknown table or column as empty, because a copy of an older format does not have it.
fn older(error: rusqlite::Error) -> Result<BTreeSet<String>, rusqlite::Error> {
    match error.sqlite_error_code() {
        Some(ErrorCode::Unknown) => Ok(BTreeSet::new()),
        _ => Err(error),
    }
}

fn pauses(db: &Connection) -> Result<Pauses, Fault> {
    Ok(Pauses {
        all: super::pause::all(db)?.map(millis),
        jobs: db
            .prepare("SELECT project, name, paused_until FROM jobs WHERE paused_until IS NOT NULL")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?,
    })
}

impl RestoreLoss {
    /// Gives a database these pauses, and takes those away that ended since.
    pub(super) fn apply_pauses(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        tx.execute("DELETE FROM pause", [])?;
        tx.execute("UPDATE jobs SET paused_until = NULL WHERE paused_until IS NOT NULL", [])?;
        if let Some(until) = self.held.all {
            tx.execute("INSERT INTO pause VALUES (1, ?1)", [until])?;
        }
        for (project, job, until) in &self.held.jobs {
            tx.execute(
                "UPDATE jobs SET paused_until = ?3 WHERE project = ?1 AND name = ?2",
                params![project, job, until],
            )?;
        }
        Ok(())
    }
}
