//! Maintenance of the database file: the time of each task's last completion, the claim of the
//! daily maintenance, the length of the log, and the space of deleted rows. Except for
//! [`Store::vacuum`], this module must never make a writer wait for longer than one short
//! transaction.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, ErrorCode, params};

use super::columns::{Query as _, free, millis, time};
use super::database_file::beside;
use super::open::BUSY;
use super::{Fault, Result, Store};

/// The length in bytes above which the log is truncated.
pub const LOG_CEILING: u64 = 64 << 20;

/// A maintenance task whose last completion is stored in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Task {
    /// The complete daily maintenance.
    Daily,
    /// The start of the daily maintenance.
    #[strum(to_string = "daily begun")]
    DailyBegun,
    /// The backup during the daily maintenance.
    #[strum(to_string = "daily backup")]
    DailyBackup,
    /// The pruning during the daily maintenance.
    #[strum(to_string = "daily pruning")]
    DailyPruning,
    /// The check for jobs that have not succeeded for too long.
    Watch,
    /// Any backup.
    Backup,
    /// The time whose state a backup contains, which is stored in the backup.
    Copied,
    /// A restore.
    Restore,
}

impl Task {
    /// Returns the time after which the task is due again. A daily maintenance that was started but
    /// not completed is due again after an hour.
    fn interval(self) -> SignedDuration {
        match self {
            Self::DailyBegun | Self::Watch => SignedDuration::from_hours(1),
            _ => SignedDuration::from_hours(24),
        }
    }
}

/// Returns when a task was last completed, or `None` if it never was.
pub(super) fn last(db: &Connection, task: Task) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT done FROM maintenance WHERE task = ?1";
    db.first(sql, [task.into_str()], |row| time(row, 0))
}

/// Records that a task was completed.
pub(super) fn record(
    db: &Connection,
    task: Task,
    detail: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    db.change(
        "INSERT OR REPLACE INTO maintenance (task, done, detail) VALUES (?1, ?2, ?3)",
        params![task.into_str(), millis(now), free(detail)],
    )?;
    Ok(())
}

fn is_due(db: &Connection, task: Task, now: Timestamp) -> Result<bool, Fault> {
    // A time in the future was written while the clock was wrong.
    let old = |done: Timestamp| now.duration_since(done).abs() >= task.interval();
    Ok(last(db, task)?.is_none_or(old))
}

impl Store {
    /// Returns when a maintenance task was last completed, or `None` if it never was.
    pub fn last_maintenance(&self, task: Task) -> Result<Option<Timestamp>> {
        self.view(|db| last(db, task))
    }

    /// Records that a maintenance task was completed.
    pub fn record_maintenance(&mut self, task: Task, detail: &str, now: Timestamp) -> Result<()> {
        self.write(|tx| record(tx, task, detail, now))
    }

    /// Returns whether a task is due at `now`. The daily maintenance is not due while another
    /// process may still be performing it.
    pub fn maintenance_due(&self, task: Task, now: Timestamp) -> Result<bool> {
        self.view(|db| {
            let free = task != Task::Daily || is_due(db, Task::DailyBegun, now)?;
            Ok(free && is_due(db, task, now)?)
        })
    }

    /// Claims the daily maintenance for the caller if it is due. If several processes call this
    /// function, it returns true to only one of them. Usually, the call costs two lookups by key.
    pub fn claim_maintenance(&mut self, now: Timestamp) -> Result<bool> {
        if !self.maintenance_due(Task::Daily, now)? {
            return Ok(false);
        }
        self.write(|tx| {
            let free = is_due(tx, Task::DailyBegun, now)?;
            if free {
                record(tx, Task::DailyBegun, "", now)?;
            }
            Ok(free)
        })
    }

    /// Returns the length in bytes of the log beside the database file.
    pub fn log_length(&self) -> u64 {
        fs::metadata(beside(&self.path, "-wal")).map_or(0, |data| data.len())
    }

    /// Writes the log back to the database and truncates it if it is longer than `ceiling` bytes.
    /// Does nothing and never waits while another process is reading or writing; a later call can
    /// then truncate the log. Returns the log's length.
    pub fn cut_log(&self, ceiling: u64) -> Result<u64> {
        if self.log_length() <= ceiling {
            return Ok(self.log_length());
        }
        self.view(|db| {
            db.busy_timeout(std::time::Duration::ZERO)?;
            let done = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            db.busy_timeout(BUSY)?;
            match done {
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
                done => Ok(done?),
            }
        })?;
        Ok(self.log_length())
    }

    /// Shrinks the file to the size that its rows need. Other processes have to wait until this is
    /// done.
    pub fn vacuum(&mut self) -> Result<()> {
        self.view(|db| {
            db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA optimize;")?;
            Ok(())
        })
    }
}
