//! Counts the records that a restore loses because only the current database contains them. Pauses
//! are not lost, because the restore applies them to the restored database.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Transaction, params_from_iter};
use serde::Serialize;

use super::columns::{Query as _, millis};
use super::{Fault, Result, Store, changes, sql_error};

/// The records that a restore loses, and the pauses that it keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RestoreLoss {
    /// Number of runs that the copy does not contain.
    pub runs: u64,
    /// Number of lost circuit breaker resets. The failures before them count again.
    pub breaker_resets: u64,
    /// Number of lost budget grants.
    pub grants: u64,
    /// Number of lost provider limits. The next requests to these providers do not wait.
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
#[derive(Clone, Debug, Default, PartialEq)]
struct Pauses {
    /// The end time of the pause of all jobs, if there is one.
    all: Option<i64>,
    /// The paused jobs. The restored database may not contain them or their projects.
    jobs: Vec<PausedJob>,
}

/// A paused job with its row, in the order of [`JOB`], and the row of its project, in the order of
/// [`PROJECT`].
#[derive(Clone, Debug, PartialEq)]
struct PausedJob {
    until: i64,
    project: Vec<Value>,
    job: Vec<Value>,
}

/// The columns that a restore fills when it adds a project. Reading the project's settings later
/// fills the other columns.
const PROJECT: [&str; 7] =
    ["id", "path", "device", "inode", "folder_created", "owns_id", "created"];
/// The columns that a restore fills when it adds a job, which are all columns except `id`.
const JOB: [&str; 13] = [
    "project",
    "name",
    "kind",
    "schedule",
    "policy",
    "slot_group",
    "after_job",
    "enabled",
    "next_due",
    "watermark",
    "paused_until",
    "fence",
    "watched_since",
];

/// Counts the records in the database at `path` that the copy does not contain, and reads the
/// database's pauses. The database may have an older format.
///
/// # Errors
/// Returns an error if the database or the copy cannot be read, or if an earlier restore was
/// interrupted.
pub(super) fn since(path: &Path, copy: &Path, now: Timestamp) -> Result<RestoreLoss> {
    let store = Store::dry_run_copy(path)?;
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
        let ends = held.jobs.iter().map(|job| job.until).chain(held.all);
        let pauses = ends.filter(|until| *until > millis(now)).count();
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
    let columns = PROJECT.map(|name| format!("p.{name}")).join(", ");
    let own = JOB.map(|name| format!("j.{name}")).join(", ");
    let sql = format!(
        "SELECT j.paused_until, {columns}, {own} FROM jobs j JOIN projects p ON p.id = j.project
         WHERE j.paused_until IS NOT NULL"
    );
    let jobs = db.all(&sql, [], |row| {
        let values = |from: usize, count: usize| -> rusqlite::Result<Vec<Value>> {
            (from..from + count).map(|at| row.get(at)).collect()
        };
        Ok(PausedJob {
            until: row.get(0)?,
            project: values(1, PROJECT.len())?,
            job: values(1 + PROJECT.len(), JOB.len())?,
        })
    })?;
    Ok(Pauses { all: super::pause::all(db)?.map(millis), jobs })
}

impl RestoreLoss {
    /// Replaces the pauses in the restored database with those recorded in `self`.
    pub(super) fn apply_pauses(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        tx.change("DELETE FROM pause", [])?;
        tx.change("UPDATE jobs SET paused_until = NULL WHERE paused_until IS NOT NULL", [])?;
        if let Some(until) = self.held.all {
            tx.change("INSERT INTO pause VALUES (1, ?1)", [until])?;
        }
        // A paused job that the copy does not contain is added, because otherwise the next tick
        // would add it without its pause.
        let (columns, values) = (PROJECT.join(", "), places(PROJECT.len()));
        let project = format!("INSERT OR IGNORE INTO projects ({columns}) VALUES ({values})");
        let (columns, values) = (JOB.join(", "), places(JOB.len()));
        let job = format!(
            "INSERT INTO jobs ({columns}) SELECT {values}
             WHERE EXISTS (SELECT 1 FROM projects WHERE id = ?1)
             ON CONFLICT (project, name) DO UPDATE SET paused_until = excluded.paused_until"
        );
        for paused in &self.held.jobs {
            tx.change(&project, params_from_iter(&paused.project))?;
            tx.change(&job, params_from_iter(&paused.job))?;
        }
        Ok(())
    }
}

/// Returns the parameters `?1` to `?count` of a statement, separated by commas.
fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|at| format!("?{at}")).collect();
    places.join(", ")
}
