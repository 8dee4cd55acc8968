//! Counts a job's consecutive failures since its last success, and records manual resets. Only the
//! job's last 50 runs that succeeded or failed are read.
//!
//! A reset deletes nothing. It records the id of the job's last run that succeeded or failed, and
//! the failures up to that run no longer count. That run is never pruned.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{Query as _, json, millis};
use super::{Event, Fault, JobId, Result, Store, events};
use crate::ids::{OccurrenceId, ProjectId};
use crate::outcome::{Class, Outcome};

/// A job's consecutive failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Streak {
    /// The number of occurrences that failed, timed out or were lost since the last success or
    /// reset. Several attempts at one occurrence count once.
    pub failures: u32,
    /// The number of these `failures` whose runs had started. Only these open the circuit breaker:
    /// a check that fails before a run starts costs nothing and is repeated at the next scheduled
    /// time.
    pub started: u32,
    /// The failure class of the last failed run that had started. `None` if no such run exists, or
    /// if it timed out or was lost.
    pub last: Option<Class>,
}

impl Store {
    /// Returns the job's consecutive failures since its last success or reset.
    pub fn streak(&self, job: JobId) -> Result<Streak> {
        self.view(|db| streak(db, job, None))
    }

    /// Returns the job's consecutive failures, excluding those of `occurrence`, because the
    /// occurrence's own failed attempts must not prevent its retries.
    pub fn streak_before(&self, job: JobId, occurrence: &OccurrenceId) -> Result<Streak> {
        self.view(|db| streak(db, job, Some(occurrence)))
    }

    /// Resets the job's circuit breaker. The schedule then starts the job again. Returns the number
    /// of acknowledged failures. If there are no failures, nothing is recorded.
    pub fn acknowledge(
        &mut self,
        project: &ProjectId,
        job: JobId,
        name: &str,
        who: &str,
        now: Timestamp,
    ) -> Result<u32> {
        self.write(|tx| {
            let failures = streak(tx, job, None)?.failures;
            if failures == 0 {
                return Ok(0);
            }
            // The reset refers to the run by its id, because rows may be renumbered in a copy of
            // the database. It refers to a settled run, so the failure of a run that is still in
            // progress counts.
            tx.change(
                "INSERT INTO breaker_resets (job, run, at, who)
                 SELECT ?1, id, ?2, ?3 FROM runs INDEXED BY runs_tried
                 WHERE job = ?1 AND state = 'settled'
                   AND outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
                 ORDER BY rowid DESC LIMIT 1",
                params![job, millis(now), who],
            )?;
            let event = Event {
                at: now,
                project: Some(project.clone()),
                run: None,
                kind: "acknowledged".to_owned(),
                detail: match failures {
                    1 => format!("{name}: 1 failure, by {who}"),
                    count => format!("{name}: {count} failures in a row, by {who}"),
                },
            };
            events::insert(tx, &event)?;
            Ok(failures)
        })
    }
}

/// Returns the job's consecutive failures, excluding those of the occurrence `but`.
pub(super) fn streak(
    db: &Connection,
    job: JobId,
    but: Option<&OccurrenceId>,
) -> Result<Streak, Fault> {
    // Runs with any other outcome, such as skipped runs, do not interrupt the streak.
    let tried: Vec<(Outcome, String, bool)> = db.all(
        "SELECT outcome, occurrence, started IS NOT NULL FROM runs INDEXED BY runs_tried
         WHERE job = ?1
           AND outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')
           AND rowid > (SELECT coalesce(max(seen.rowid), 0) FROM breaker_resets a
                        JOIN runs seen ON seen.id = a.run WHERE a.job = ?1)
           AND occurrence IS NOT ?2
         ORDER BY rowid DESC LIMIT 50",
        params![job, but],
        |row| Ok((json(row, 0)?, row.get(1)?, row.get(2)?)),
    )?;
    let (mut failed, mut started) = (BTreeSet::new(), BTreeSet::new());
    let mut last = None;
    for (outcome, occurrence, has_started) in tried {
        if outcome.published() {
            break;
        }
        if has_started {
            if started.is_empty() {
                last = outcome.class();
            }
            started.insert(occurrence.clone());
        }
        failed.insert(occurrence);
    }
    let count =
        |occurrences: BTreeSet<String>| u32::try_from(occurrences.len()).unwrap_or(u32::MAX);
    Ok(Streak { failures: count(failed), started: count(started), last })
}
