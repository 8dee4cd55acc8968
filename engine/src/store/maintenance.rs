//! Maintains the database: records when each task was last performed, and limits the lengths of the
//! log and the file. Except for [`Store::vacuum`], this module must never make a writer wait for
//! longer than one short transaction.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, ErrorCode, params};

use super::columns::{Query as _, free, millis, time};
use super::database_file::beside;
use super::open::BUSY;
use super::{Fault, Result, Store};

/// Length in bytes above which the log is truncated.
pub const LOG_CEILING: u64 = 64 << 20;

/// A maintenance task. The database records when each task was last performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Task {
    /// The whole daily maintenance.
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
    /// The start of a backup, recorded before the copy is made so that the copy contains the time.
    Copied,
    /// A restore.
    Restore,
}

impl Task {
    /// Returns the interval after which the task is due again. If the daily maintenance was started
    /// but not completed, it is due again after an hour.
    fn interval(self) -> SignedDuration {
        match self {
            Self::DailyBegun | Self::Watch => SignedDuration::from_hours(1),
            _ => SignedDuration::from_hours(24),
        }
    }
}

/// Returns the time recorded for a task, or `None` if the task has never been performed.
pub(super) fn last(db: &Connection, task: Task) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT done FROM maintenance WHERE task = ?1";
    db.first(sql, [task.into_str()], |row| time(row, 0))
}

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
    // A time that is at least a whole interval in the future was recorded with a wrong clock, so
    // the task is due.
    let old = |done: Timestamp| now.duration_since(done).abs() >= task.interval();
    Ok(last(db, task)?.is_none_or(old))
}

impl Store {
    /// Returns the time recorded for a task, or `None` if the task has never been performed.
    pub fn last_maintenance(&self, task: Task) -> Result<Option<Timestamp>> {
        self.view(|db| last(db, task))
    }

    pub fn record_maintenance(&mut self, task: Task, detail: &str, now: Timestamp) -> Result<()> {
        self.write(|tx| record(tx, task, detail, now))
    }

    /// Returns whether a task is due at `now`. The daily maintenance is not due while another
    /// process may be performing it.
    pub fn maintenance_due(&self, task: Task, now: Timestamp) -> Result<bool> {
        self.view(|db| {
            let free = task != Task::Daily || is_due(db, Task::DailyBegun, now)?;
            Ok(free && is_due(db, task, now)?)
        })
    }

    /// Claims the daily maintenance for the caller if it is due. Only one of several concurrent
    /// callers gets `true`.
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

    /// Returns the length of the write-ahead log in bytes.
    pub fn log_length(&self) -> u64 {
        fs::metadata(beside(&self.path, "-wal")).map_or(0, |data| data.len())
    }

    /// If the log is longer than `ceiling` bytes, writes it back to the database and truncates it.
    /// Never waits for other processes: while one of them is reading or writing, the log may keep
    /// its length. Returns the log's resulting length in bytes.
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

    /// Shrinks the database file and truncates the log. Writers wait until this method has
    /// finished.
    pub fn vacuum(&mut self) -> Result<()> {
        self.view(|db| {
            db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA optimize;")?;
            Ok(())
        })
    }
}
