//! Small care of the file: what was done when, the log that must not grow, the space of rows that are
//! gone. Must never make a writer wait for longer than one short transaction, [`Store::vacuum`] apart.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension as _, params};

use super::open::{BUSY, beside};
use super::{Result, Store, millis, timestamp_opt};

/// The longest that the log beside the file is left to grow before it is cut.
pub const LOG_CEILING: u64 = 64 << 20;
/// Interval of the daily maintenance.
const DAILY: SignedDuration = SignedDuration::from_hours(24);
/// When care that was begun and not finished is begun again.
const AGAIN: SignedDuration = SignedDuration::from_hours(1);

impl Store {
    /// Returns when a maintenance task was last done; `None` if never.
    pub fn last_maintenance(&self, task: &str) -> Result<Option<Timestamp>> {
        self.view(|db| {
            let done: Option<i64> = db
                .prepare_cached("SELECT done FROM maintenance WHERE task = ?1")?
                .query_row([task], |row| row.get(0))
                .optional()?;
            timestamp_opt(done)
        })
    }

    /// Notes that something was done.
    pub fn record_maintenance(&mut self, task: &str, said: &str, now: Timestamp) -> Result<()> {
        self.write(|tx| {
            tx.prepare_cached(
                "INSERT OR REPLACE INTO maintenance (task, done, detail) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![task, millis(now), said])?;
            Ok(())
        })
    }

    /// Returns whether the daily maintenance is due at `now`. It takes two reads by key.
    pub fn maintenance_due(&self, now: Timestamp) -> Result<bool> {
        // A time in the future was written while the clock was wrong.
        let recent = |at: Option<Timestamp>, than: SignedDuration| {
            at.is_some_and(|at| now.duration_since(at).abs() < than)
        };
        Ok(!recent(self.last_maintenance("daily")?, DAILY)
            && !recent(self.last_maintenance("daily begun")?, AGAIN))
    }

    /// Returns the length in bytes of the log beside the file.
    pub fn log_length(&self) -> u64 {
        fs::metadata(beside(&self.path, "-wal")).map_or(0, |data| data.len())
    }

    /// Claims the daily maintenance for the caller; returns true to only one of several callers. It
    /// mostly takes two reads by key.
    pub fn claim_maintenance(&mut self, now: Timestamp) -> Result<bool> {
        if !self.maintenance_due(now)? {
            return Ok(false);
        }
        self.write(|tx| {
            let seen: Option<i64> = tx
                .prepare_cached("SELECT done FROM maintenance WHERE task = 'daily begun'")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let seen = timestamp_opt(seen)?;
            if seen.is_some_and(|seen| now.duration_since(seen).abs() < AGAIN) {
                return Ok(false);
            }
            tx.prepare_cached(
                "INSERT OR REPLACE INTO maintenance (task, done) VALUES ('daily begun', ?1)",
            )?
            .execute([millis(now)])?;
            Ok(true)
        })
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
                Err(error)
                    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {}
                done => done?,
            }
            Ok(())
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
