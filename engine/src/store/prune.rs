//! Finds and deletes old database rows. A plan lists the rows to delete, and several transactions
//! check the rows again and delete them. This module must never delete a row that the plan does not
//! cover.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, ISOWeekDate, Weekday};
use jiff::tz::TimeZone;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, Transaction, params};

use super::columns::{Count, Query as _, millis, time, time_opt};
use super::retention::{
    Deferral, OldNight, OldOccurrence, OldUsage, PruneFacts, PrunePlan, Retention, UsageKey,
};
use super::usage::{DAY, JOB, POOL_DAY, POOL_WEEK, WINDOW};
use super::{Fault, Result, Store};
use crate::failpoint;
use crate::ids::{AlertId, BadId, OccurrenceId, RunId};

/// Maximum number of occurrences, deferrals or alerts to delete in one transaction, so that writers
/// wait only briefly.
const BATCH: usize = 50;
/// Maximum number of events to delete in one transaction.
const EVENTS: usize = 500;

impl Store {
    /// Returns the old rows from which a plan is made. The caller adds the files.
    pub fn old_rows(&self, retention: &Retention, now: Timestamp) -> Result<PruneFacts> {
        let limit = retention.limit(now);
        self.view(|db| {
            Ok(PruneFacts {
                occurrences: old_occurrences(db, limit)?,
                deferrals: deferrals(db)?,
                nights: old_nights(db, limit)?,
                events: events(db, limit)?,
                alerts: old_alerts(db, limit)?,
                budget_usage: old_usage(db)?,
                files: Vec::new(),
            })
        })
    }

    /// Returns the time at which a run was settled, or `None` if the run's files must be kept
    /// because it has not yet been settled and swept. For an unknown run, returns the time encoded
    /// in its id.
    pub fn over_since(&self, run: &RunId) -> Result<Option<Timestamp>> {
        let sql = "SELECT CASE WHEN state = 'settled' AND staging IS NULL THEN finished END
                   FROM runs WHERE id = ?1";
        let found = self.view(|db| db.first(sql, [run], |row| time_opt(row, 0)))?;
        Ok(found.unwrap_or_else(|| run.at()))
    }

    /// Returns whether a run has been settled and swept, and none of its staged files are kept for
    /// the user.
    pub fn is_swept(&self, run: &RunId) -> Result<bool> {
        let sql = "SELECT 1 FROM runs r WHERE id = ?1 AND state = 'settled' AND staging IS NULL
                   AND NOT EXISTS (SELECT 1 FROM publications WHERE run = r.id AND published IS NULL)";
        self.view(|db| db.exists(sql, [run]))
    }

    /// Deletes the rows in a plan, except those that have become needed since the plan was made.
    pub fn prune_rows(&mut self, plan: &PrunePlan) -> Result<()> {
        for some in plan.rows.deferrals.chunks(BATCH) {
            failpoint::before("remove deferrals");
            self.write(|tx| {
                for run in some {
                    remove_deferral(tx, run)?;
                }
                Ok(())
            })?;
        }
        for some in plan.rows.occurrences.chunks(BATCH) {
            failpoint::before("remove occurrences");
            self.write(|tx| {
                for occurrence in some {
                    remove_occurrence(tx, occurrence, plan.limit)?;
                }
                Ok(())
            })?;
        }
        for some in plan.rows.alerts.chunks(BATCH) {
            failpoint::before("remove alerts");
            self.write(|tx| {
                for alert in some {
                    // An alert's messages are deleted along with it.
                    tx.change(
                        "DELETE FROM alerts WHERE id = ?1 AND ended IS NOT NULL AND ended < ?2",
                        params![alert, millis(plan.limit)],
                    )?;
                }
                Ok(())
            })?;
        }
        failpoint::before("remove nights and budget usage");
        self.write(|tx| {
            for night in &plan.rows.nights {
                let gone = tx.change(
                    "DELETE FROM nights WHERE id = ?1 AND closed IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM occurrences WHERE night = ?1)",
                    [night],
                )?;
                for table in ["budget_usage", "grants"].into_iter().filter(|_| gone > 0) {
                    let sql = format!("DELETE FROM {table} WHERE level = 'night' AND key = ?1");
                    tx.change(&sql, [night.to_string()])?;
                }
            }
            for old in &plan.rows.budget_usage {
                // Since the plan was made, a run may have reserved an amount at this level.
                for table in ["budget_usage", "grants"] {
                    let sql = format!(
                        "DELETE FROM {table} WHERE level = ?1 AND key = ?2 AND NOT EXISTS
                           (SELECT 1 FROM reservations INDEXED BY reservations_by_level
                            WHERE level = ?1 AND key = ?2)"
                    );
                    tx.change(&sql, params![old.level, old.key])?;
                }
            }
            Ok(())
        })?;
        loop {
            failpoint::before("remove events");
            let sql = "DELETE FROM events WHERE id IN
                         (SELECT id FROM events INDEXED BY events_by_time WHERE at < ?1 LIMIT ?2)";
            let gone =
                self.write(|tx| tx.change(sql, params![millis(plan.limit), EVENTS as i64]))?;
            if gone < EVENTS {
                return Ok(());
            }
        }
    }
}

fn old_occurrences(db: &Connection, limit: Timestamp) -> Result<Vec<OldOccurrence>, Fault> {
    // A job's newest occurrences show how the job last ended and when it last started. The circuit
    // breaker counts the runs back to the last success, but at most 50 runs.
    db.all(
        "WITH newest AS (
           SELECT occurrence FROM runs WHERE rowid IN (SELECT max(rowid) FROM runs GROUP BY job)
           UNION SELECT occurrence FROM runs WHERE rowid IN
             (SELECT max(rowid) FROM runs WHERE started IS NOT NULL GROUP BY job)
           UNION SELECT id FROM occurrences WHERE rowid IN (SELECT max(rowid) FROM occurrences GROUP BY job)),
         counted AS (
           SELECT r.occurrence FROM runs r INDEXED BY runs_tried
           WHERE r.outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
             AND r.rowid >= coalesce((SELECT max(p.rowid) FROM runs p INDEXED BY runs_tried WHERE p.job = r.job
               AND p.outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
               AND p.outcome ->> 'outcome' IN ('succeeded', 'degraded')), 0)
             AND r.rowid >= coalesce((SELECT p.rowid FROM runs p INDEXED BY runs_tried WHERE p.job = r.job
               AND p.outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
               ORDER BY p.rowid DESC LIMIT 1 OFFSET 49), 0))
         SELECT o.id, (SELECT group_concat(id, ' ') FROM runs WHERE occurrence = o.id), CASE
           WHEN EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND state <> 'settled')
             THEN 'not finished'
           WHEN o.id IN (SELECT occurrence FROM newest) THEN 'the newest of their jobs'
           WHEN o.id IN (SELECT occurrence FROM counted) THEN 'counted by a circuit breaker'
           WHEN EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND id IN (SELECT run FROM breaker_resets))
             THEN 'named by a circuit breaker reset'
           WHEN EXISTS (SELECT 1 FROM runs WHERE waits_for = o.id) THEN 'another run is waiting'
           WHEN EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND staging IS NOT NULL)
             THEN 'with a staging folder'
           WHEN EXISTS (SELECT 1 FROM nights WHERE id = o.night AND closed IS NULL) THEN 'in an open night'
         END
         FROM occurrences o INDEXED BY occurrences_settled
         WHERE o.settled IS NOT NULL AND o.settled < ?1",
        [millis(limit)],
        |row| {
            let List(runs) = row.get(1)?;
            Ok(OldOccurrence { id: row.get(0)?, runs, needed: row.get(2)? })
        },
    )
}

/// A column of ids separated by spaces. A null column yields an empty list.
struct List<T>(Vec<T>);

impl<T: FromStr<Err = BadId>> FromSql for List<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str_or_null()?.unwrap_or_default();
        let ids = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        ids.map(Self).map_err(FromSqlError::other)
    }
}

fn deferrals(db: &Connection) -> Result<Vec<Deferral>, Fault> {
    db.all(
        "SELECT r.id, r.finished FROM runs r INDEXED BY runs_deferred
         WHERE r.outcome ->> 'outcome' = 'deferred' AND r.started IS NULL AND r.staging IS NULL
           AND r.id NOT IN (SELECT run FROM breaker_resets)
           AND r.attempt > (SELECT min(attempt) FROM runs WHERE occurrence = r.occurrence)
           AND EXISTS (SELECT 1 FROM runs n INDEXED BY runs_deferred WHERE n.occurrence = r.occurrence
             AND n.attempt > r.attempt AND n.outcome ->> 'outcome' = 'deferred')",
        [],
        |row| Ok(Deferral { run: row.get(0)?, finished: time(row, 1)? }),
    )
}

fn old_nights(db: &Connection, limit: Timestamp) -> Result<Vec<OldNight>, Fault> {
    db.all(
        "SELECT n.id, n.id IN (SELECT max(id) FROM nights)
             OR NOT EXISTS (SELECT 1 FROM nights m WHERE m.project = n.project AND m.opens > n.opens),
           (SELECT group_concat(id, ' ') FROM occurrences WHERE night = n.id)
         FROM nights n WHERE n.closed IS NOT NULL AND n.closed < ?1",
        [millis(limit)],
        |row| {
            let List(occurrences) = row.get(2)?;
            Ok(OldNight { id: row.get(0)?, newest: row.get(1)?, occurrences })
        },
    )
}

fn events(db: &Connection, limit: Timestamp) -> Result<u64, Fault> {
    let sql = "SELECT count(*) FROM events INDEXED BY events_by_time WHERE at < ?1";
    db.value(sql, [millis(limit)]).map(|Count(count)| count)
}

/// Returns the alerts that ended before the limit.
fn old_alerts(db: &Connection, limit: Timestamp) -> Result<Vec<AlertId>, Fault> {
    let sql = "SELECT id FROM alerts INDEXED BY alerts_ended
               WHERE ended IS NOT NULL AND ended < ?1 ORDER BY id";
    db.values(sql, [millis(limit)])
}

/// Returns the keys of the budget usage and grants of days, weeks and windows, including keys that
/// have only grants. Keys without a date, a week or an opening time are omitted. The last window of
/// each pool is also omitted, because it may still be open.
fn old_usage(db: &Connection) -> Result<Vec<OldUsage>, Fault> {
    let found: Vec<Option<OldUsage>> = db.all(
        "WITH named AS (SELECT level, key FROM budget_usage UNION SELECT level, key FROM grants)
         SELECT n.level, n.key, replace(group_concat(DISTINCT r.occurrence), ',', ' ') FROM named n
         LEFT JOIN reservations v INDEXED BY reservations_by_level ON v.level = n.level AND v.key = n.key
         LEFT JOIN runs r ON r.id = v.run
         WHERE n.level IN (?1, ?2, ?3, ?4, ?5) AND NOT EXISTS
           (SELECT 1 FROM windows WHERE n.level = ?5 AND n.key = pool || ' ' || opened)
         GROUP BY n.level, n.key",
        params![DAY, JOB, POOL_DAY, POOL_WEEK, WINDOW],
        |row| {
            let usage = UsageKey { level: row.get(0)?, key: row.get(1)? };
            let List(occurrences) = row.get(2)?;
            let date = last_day(&usage.level, &usage.key);
            Ok(date.map(|date| OldUsage { usage, date, occurrences }))
        },
    )?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the last day of a budget level's period, as encoded in the level's key. For a window,
/// returns the day in UTC on which the window opened. Returns `None` if the key contains no such
/// time.
fn last_day(level: &str, key: &str) -> Option<Date> {
    let date = key.rsplit(' ').next()?;
    match level {
        WINDOW => {
            let opened = Timestamp::from_millisecond(date.parse().ok()?).ok()?;
            Some(opened.to_zoned(TimeZone::UTC).date())
        }
        POOL_WEEK => {
            let (year, week) = date.split_once("-W")?;
            ISOWeekDate::new(year.parse().ok()?, week.parse().ok()?, Weekday::Sunday)
                .ok()
                .map(Date::from)
        }
        _ => date.parse().ok(),
    }
}

fn remove_deferral(tx: &Transaction<'_>, run: &RunId) -> Result<(), Fault> {
    let unneeded = tx.exists(
        "SELECT 1 FROM runs WHERE id = ?1 AND state = 'settled' AND started IS NULL
           AND outcome ->> 'outcome' = 'deferred' AND id NOT IN (SELECT run FROM breaker_resets)",
        [run],
    )?;
    if unneeded { remove_run(tx, run) } else { Ok(()) }
}

fn remove_occurrence(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    limit: Timestamp,
) -> Result<(), Fault> {
    // Since the plan was made, the user may have reopened the occurrence or reset the circuit
    // breaker.
    let old = tx.exists(
        "SELECT 1 FROM occurrences WHERE id = ?1 AND settled IS NOT NULL AND settled < ?2
           AND NOT EXISTS (SELECT 1 FROM runs WHERE occurrence = ?1 AND (state <> 'settled' OR staging IS NOT NULL))
           AND NOT EXISTS (SELECT 1 FROM runs WHERE occurrence = ?1 AND id IN (SELECT run FROM breaker_resets))
           AND NOT EXISTS (SELECT 1 FROM runs WHERE waits_for = ?1)",
        params![occurrence, millis(limit)],
    )?;
    if !old {
        return Ok(());
    }
    let runs: Vec<RunId> = tx.values("SELECT id FROM runs WHERE occurrence = ?1", [occurrence])?;
    for run in runs {
        remove_run(tx, &run)?;
    }
    tx.change("DELETE FROM occurrences WHERE id = ?1", [occurrence])?;
    Ok(())
}

fn remove_run(tx: &Transaction<'_>, run: &RunId) -> Result<(), Fault> {
    for sql in [
        // Usage at the level `parent` is keyed by the parent run. This version records no such
        // usage.
        "DELETE FROM budget_usage WHERE level = 'parent' AND key = ?1
           AND NOT EXISTS (SELECT 1 FROM reservations WHERE level = 'parent' AND key = ?1)",
        "DELETE FROM requests WHERE run = ?1",
        "DELETE FROM reservations WHERE run = ?1",
        "DELETE FROM publications WHERE run = ?1",
        "DELETE FROM events WHERE run = ?1",
        "DELETE FROM runs WHERE id = ?1",
    ] {
        tx.change(sql, [run])?;
    }
    Ok(())
}
