//! The maintenance of the file: when each task was last done, which process may do it now, the
//! length of the log, and the space of deleted rows. Must never make a writer wait for longer than
//! one short transaction, [`Store::vacuum`] apart.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, ErrorCode, params};

use super::columns::{Query as _, free, millis, time};
use super::database_file::beside;
use super::open::BUSY;
use super::{Fault, Result, Store};

/// The length in bytes that the log beside the file may reach before it is cut.
pub const LOG_CEILING: u64 = 64 << 20;

/// A maintenance task whose last completion the database stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The whole daily maintenance.
    Daily,
    /// A process has begun the daily maintenance.
    DailyBegun,
    /// The backup of the daily maintenance.
    DailyBackup,
    /// The pruning of the daily maintenance.
    DailyPruning,
    /// The check for jobs that have not succeeded for long.
    Watch,
    /// A backup, whoever asked for it.
    Backup,
    /// The time whose state a backup holds, stored in the backup itself.
    Copied,
    /// A restore.
    Restore,
}

impl Task {
    /// Returns the name of the task in the database.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::DailyBegun => "daily begun",
            Self::DailyBackup => "daily backup",
            Self::DailyPruning => "daily pruning",
            Self::Watch => "watch",
            Self::Backup => "backup",
            Self::Copied => "copied",
            Self::Restore => "restore",
        }
    }

    /// Returns the time after which the task is due again. A daily maintenance that was begun and
    /// not completed is begun again after an hour.
    fn interval(self) -> SignedDuration {
        match self {
            Self::DailyBegun | Self::Watch => SignedDuration::from_hours(1),
            _ => SignedDuration::from_hours(24),
        }
    }
}

/// Returns when a task was last done; `None` if never.
pub(super) fn last(db: &Connection, task: Task) -> Result<Option<Timestamp>, Fault> {
    let sql = "SELECT done FROM maintenance WHERE task = ?1";
    db.first(sql, [task.as_str()], |row| time(row, 0))
}

/// Records that a task was done.
pub(super) fn record(
    db: &Connection,
    task: Task,
    detail: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    db.change(
        "INSERT OR REPLACE INTO maintenance (task, done, detail) VALUES (?1, ?2, ?3)",
        params![task.as_str(), millis(now), free(detail)],
    )?;
    Ok(())
}

fn is_due(db: &Connection, task: Task, now: Timestamp) -> Result<bool, Fault> {
    // A time in the future was written while the clock was wrong.
    let old = |done: Timestamp| now.duration_since(done).abs() >= task.interval();
    Ok(last(db, task)?.is_none_or(old))
}

impl Store {
    /// Returns when a maintenance task was last done; `None` if never.
    pub fn last_maintenance(&self, task: Task) -> Result<Option<Timestamp>> {
        self.view(|db| last(db, task))
    }

    /// Records that a maintenance task was done.
    pub fn record_maintenance(&mut self, task: Task, detail: &str, now: Timestamp) -> Result<()> {
        self.write(|tx| record(tx, task, detail, now))
    }

    /// Returns whether a task is due at `now`. The daily maintenance is not due while a process may
    /// still be doing it.
    pub fn maintenance_due(&self, task: Task, now: Timestamp) -> Result<bool> {
        self.view(|db| {
            let free = task != Task::Daily || is_due(db, Task::DailyBegun, now)?;
            Ok(free && is_due(db, task, now)?)
        })
    }

    /// Claims the daily maintenance for the caller if it is due; returns true to only one of
    /// several callers. It mostly takes two reads by key.
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

    /// Returns the length in bytes of the log beside the file.
    pub fn log_length(&self) -> u64 {
        fs::metadata(beside(&self.path, "-wal")).map_or(0, |data| data.len())
    }

    /// Writes the log back and truncates it when it is longer than `ceiling` bytes, unless another
    /// process is reading or writing; a later call will then do it. Never waits. Returns the log's
    /// length.
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

    /// Makes the file as small as its rows allow. Others wait meanwhile.
    pub fn vacuum(&mut self) -> Result<()> {
        self.view(|db| {
            db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA optimize;")?;
            Ok(())
        })
    }
}
