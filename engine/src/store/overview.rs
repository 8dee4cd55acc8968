//! Reads the state of all projects. A query about all projects is a single statement, so the number
//! of statements does not grow with the number of projects. This module must never read data that
//! is only in a project's configuration.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{Row, params};
use serde::Deserialize;

use super::columns::{Json, Query as _, json, millis, time, to_json};
use super::runs::in_a_row;
use super::usage::amounts_from;
use super::{Amounts, JobId, Night, Result, Store, nights};
use crate::ids::ProjectId;
use crate::outcome::Outcome;

/// The job that is due next in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    pub job: String,
    /// The job's next scheduled time.
    pub at: Timestamp,
}

/// The pause of a single job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPause {
    pub project: ProjectId,
    pub job: String,
    /// The end of the pause.
    pub until: Timestamp,
    /// The zone of the job's schedule.
    pub zone: String,
}

/// A stretch of a job's missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedStretch {
    pub project: ProjectId,
    pub job: String,
    /// The outcome, which is always [`Outcome::Missed`].
    pub outcome: Outcome,
    /// The zone of the job's schedule.
    pub zone: String,
}

/// A night with the data from its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastNight {
    pub night: Night,
    /// The data from the night's report, or `None` if there is no report yet.
    pub reported: Option<NightRunReport>,
}

/// The data from a night's report that an overview shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NightRunReport {
    /// The one-line summary of the night.
    pub headline: String,
    /// The name of the worst outcome.
    pub worst: String,
    /// The name of the report's folder.
    pub folder: String,
}

/// The time zone of a schedule, parsed without the rest of the schedule. If it cannot be parsed, it
/// is UTC.
struct Zone(String);

impl FromSql for Zone {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        #[derive(Deserialize)]
        struct OnlyZone {
            zone: String,
        }
        let found = serde_json::from_str(value.as_str()?);
        Ok(Self(found.map_or_else(|_| "UTC".to_owned(), |OnlyZone { zone }| zone)))
    }
}

/// The condition for runs that succeeded or failed, including degraded, timed-out and lost runs. It
/// must be the same as that of the index `runs_tried`.
const TRIED: &str =
    "outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')";

/// The condition for failed, timed-out and lost runs. It must be the same as that of the index
/// `runs_failed`.
const FAILED: &str = "outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost')";

impl Store {
    /// Returns, for each project, the job that is due next, omitting paused jobs and the jobs in
    /// `without`. Returns an empty map during a pause of all jobs.
    pub fn next_due(
        &self,
        without: &[JobId],
        now: Timestamp,
    ) -> Result<BTreeMap<ProjectId, NextDue>> {
        // The index contains all columns that the query needs, in the right order, so the query
        // reads no job rows and stops at the first matching job of each project.
        let sql = "SELECT p.id, (
                     SELECT json_array(next_due, name) FROM jobs INDEXED BY jobs_next
                     WHERE project = p.id AND enabled AND next_due IS NOT NULL
                       AND coalesce(paused_until, 0) <= ?1
                       AND id NOT IN (SELECT value FROM json_each(?2))
                     ORDER BY next_due, name LIMIT 1) AS next
                   FROM projects p
                   WHERE next IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)";
        let found = self.view(|db| {
            let without: Vec<i64> = without.iter().map(|job| job.0).collect();
            db.all(sql, params![millis(now), to_json(&without)], |row| {
                let (at, job): (i64, String) = json(row, 1)?;
                Ok((
                    row.get(0)?,
                    NextDue { job, at: Timestamp::from_millisecond(at).unwrap_or(now) },
                ))
            })
        })?;
        Ok(found.into_iter().collect())
    }

    /// Returns whether any enabled job, even a paused one, has a next scheduled time.
    pub fn has_clocks(&self) -> Result<bool> {
        self.view(|db| db.exists("SELECT 1 FROM jobs WHERE enabled AND next_due IS NOT NULL", []))
    }

    /// Returns the current pauses of single jobs, ordered by project and job name.
    pub fn own_pauses(&self, now: Timestamp) -> Result<Vec<JobPause>> {
        let sql = "SELECT project, name, paused_until, schedule FROM jobs INDEXED BY jobs_paused
                   WHERE paused_until IS NOT NULL AND paused_until > ?1 ORDER BY project, name";
        self.view(|db| {
            db.all(sql, [millis(now)], |row| {
                let Zone(zone) = row.get(3)?;
                let (project, job) = (row.get(0)?, row.get(1)?);
                Ok(JobPause { project, job, until: time(row, 2)?, zone })
            })
        })
    }

    /// Returns all projects' missed stretches that were recorded at or after `since`, newest first.
    pub fn all_missed_since(&self, since: Timestamp) -> Result<Vec<MissedStretch>> {
        let sql = "SELECT j.project, j.name, o.outcome, j.schedule
                   FROM occurrences o INDEXED BY occurrences_missed JOIN jobs j ON j.id = o.job
                   WHERE o.missed AND o.recorded >= ?1 ORDER BY o.recorded DESC, o.rowid DESC";
        self.view(|db| {
            db.all(sql, [millis(since)], |row| {
                let Zone(zone) = row.get(3)?;
                let (project, job) = (row.get(0)?, row.get(1)?);
                Ok(MissedStretch { project, job, outcome: json(row, 2)?, zone })
            })
        })
    }

    /// Returns the last night of each project. Night names begin with the date, so the query does
    /// not have to read all nights.
    pub fn last_nights(&self) -> Result<BTreeMap<ProjectId, LastNight>> {
        let sql = format!(
            "SELECT {}, n.headline, n.worst, n.folder FROM projects p JOIN nights n ON n.id = (
               SELECT id FROM nights WHERE project = p.id AND name >=
                 (SELECT substr(max(name), 1, 10) FROM nights WHERE project = p.id)
               ORDER BY opens DESC, id DESC LIMIT 1)",
            nights::COLUMNS
        );
        let last = self.view(|db| db.all(&sql, [], last_night))?;
        Ok(last.into_iter().map(|last| (last.night.project.clone(), last)).collect())
    }

    /// Returns the jobs whose last settled run failed, timed out or was lost, ignoring skipped,
    /// deferred and cancelled runs. These jobs may have a failure marker or an open circuit
    /// breaker. If `only` is given, only that project's jobs are examined.
    pub fn failing_jobs(&self, only: Option<&ProjectId>) -> Result<Vec<JobId>> {
        self.view(|db| {
            if let Some(project) = only {
                let sql = format!(
                    "SELECT id FROM jobs j WHERE project = ?1
                       AND (SELECT max(rowid) FROM runs INDEXED BY runs_failed
                            WHERE {FAILED} AND job = j.id)
                         = (SELECT max(rowid) FROM runs INDEXED BY runs_tried
                            WHERE {TRIED} AND job = j.id)"
                );
                return db.values(&sql, [project]);
            }
            // The query steps from one job with failures to the next. Two index lookups per job
            // determine whether its last failed run is also its last run that succeeded or failed.
            let sql = format!(
                "WITH RECURSIVE failed (job) AS (
                   SELECT min(job) FROM runs INDEXED BY runs_failed WHERE {FAILED}
                   UNION ALL
                   SELECT (SELECT min(job) FROM runs INDEXED BY runs_failed
                           WHERE {FAILED} AND job > failed.job)
                   FROM failed WHERE failed.job IS NOT NULL)
                 SELECT job FROM failed WHERE job IS NOT NULL
                   AND (SELECT max(rowid) FROM runs INDEXED BY runs_failed
                        WHERE {FAILED} AND job = failed.job)
                     = (SELECT max(rowid) FROM runs INDEXED BY runs_tried
                        WHERE {TRIED} AND job = failed.job)"
            );
            db.values(&sql, [])
        })
    }

    /// Returns the projects that have queued runs.
    pub fn projects_with_queues(&self) -> Result<BTreeSet<ProjectId>> {
        let sql = "SELECT j.project FROM runs r INDEXED BY runs_ready JOIN jobs j ON j.id = r.job
                     WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at IS NOT NULL
                   UNION SELECT j.project FROM runs r INDEXED BY runs_waiting
                     JOIN jobs j ON j.id = r.job
                     WHERE r.state = 'queued' AND r.waits_for IS NOT NULL";
        Ok(self.view(|db| db.values(sql, []))?.into_iter().collect())
    }

    /// Returns the sum of the amounts spent and reserved at each budget level that has the kind
    /// `level` and one of the `keys`. Levels where nothing was spent or reserved are omitted.
    pub fn budget_usage(&self, level: &str, keys: &[String]) -> Result<BTreeMap<String, Amounts>> {
        let sql = "SELECT k.value, a.calls, a.tokens, a.micros, a.seconds, a.ideas
                   FROM json_each(?2) k JOIN budget_usage a ON a.level = ?1 AND a.key = k.value
                   UNION ALL
                   SELECT k.value, r.calls, r.tokens, r.micros, r.seconds, r.ideas
                   FROM json_each(?2) k JOIN reservations r INDEXED BY reservations_open
                     ON r.level = ?1 AND r.key = k.value AND r.open";
        let rows: Vec<(String, Amounts)> = self.view(|db| {
            let params = params![level, to_json(&keys)];
            db.all(sql, params, |row| Ok((row.get(0)?, amounts_from(row, 1)?)))
        })?;
        let mut found: BTreeMap<String, Amounts> = BTreeMap::new();
        for (key, amounts) in rows {
            let sum = found.entry(key).or_default();
            *sum = sum.plus(amounts);
        }
        Ok(found)
    }

    /// Counts the job's most recent consecutive occurrences whose runs were replaced by a later run
    /// before they ended. Skipped occurrences are ignored, and the count is at most 50.
    pub fn replaced_in_a_row(&self, project: &ProjectId, job: &str) -> Result<u32> {
        let sql = "SELECT outcome FROM occurrences
                   WHERE job = (SELECT id FROM jobs WHERE project = ?1 AND name = ?2)
                     AND outcome IS NOT NULL ORDER BY due DESC, rowid DESC LIMIT 50";
        let outcomes: Vec<Json<Outcome>> = self.view(|db| db.values(sql, params![project, job]))?;
        Ok(in_a_row(
            outcomes,
            |outcome| matches!(outcome, Outcome::Cancelled { why } if why.starts_with("replaced by ")),
        ))
    }
}

/// Reads a night from its columns, which are followed by the headline, the worst outcome and the
/// folder of its report.
pub(super) fn last_night(row: &Row<'_>) -> rusqlite::Result<LastNight> {
    let worst: Option<String> = row.get(7)?;
    let reported = match worst {
        Some(worst) => Some(NightRunReport { headline: row.get(6)?, worst, folder: row.get(8)? }),
        None => None,
    };
    Ok(LastNight { night: nights::night(row)?, reported })
}
