//! The state of all projects. Each question is one statement over all projects, so that the cost
//! does not grow with their number. This module must never read anything that only one project's
//! configuration contains.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{Row, params};
use serde::Deserialize;

use super::columns::{Json, Query as _, json, millis, time, to_json};
use super::usage::amounts_from;
use super::{Amounts, JobId, Night, Result, Store, nights};
use crate::ids::ProjectId;
use crate::outcome::Outcome;

/// The next job that a clock makes due in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The job.
    pub job: String,
    /// When.
    pub at: Timestamp,
}

/// The pause of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPause {
    /// Its project.
    pub project: ProjectId,
    /// Its name.
    pub job: String,
    /// Until when.
    pub until: Timestamp,
    /// The zone of its schedule.
    pub zone: String,
}

/// A stretch of missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedStretch {
    /// Its project.
    pub project: ProjectId,
    /// Its job.
    pub job: String,
    /// First, last, how many and why.
    pub outcome: Outcome,
    /// The zone of the job's schedule.
    pub zone: String,
}

/// The last night of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastNight {
    /// The night.
    pub night: Night,
    /// The one-line summary of its report; absent while there is none.
    pub reported: Option<NightRunReport>,
}

/// The result of the run that made a night's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NightRunReport {
    /// The night in one line.
    pub headline: String,
    /// The word of the worst outcome.
    pub worst: String,
    /// The name of the folder that it lies in.
    pub folder: String,
}

/// The zone of a schedule, without reading the rest; UTC if it cannot be read.
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

/// Outcomes of runs that tried: the condition of the index `runs_tried`.
const TRIED: &str =
    "outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')";

/// Outcomes of those that came to nothing: the condition of the index `runs_failed`.
const FAILED: &str = "outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost')";

impl Store {
    /// Returns the next job that a clock makes due in each project; paused jobs are left out.
    pub fn next_due(&self, now: Timestamp) -> Result<BTreeMap<ProjectId, NextDue>> {
        // One look into the index a project, however many jobs it has, and into no row of a job.
        let sql = "SELECT p.id, (
                     SELECT json_array(next_due, name) FROM jobs INDEXED BY jobs_next
                     WHERE project = p.id AND enabled AND next_due IS NOT NULL
                       AND coalesce(paused_until, 0) <= ?1
                     ORDER BY next_due, name LIMIT 1) AS next
                   FROM projects p
                   WHERE next IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)";
        let found = self.view(|db| {
            db.all(sql, [millis(now)], |row| {
                let (at, job): (i64, String) = json(row, 1)?;
                Ok((
                    row.get(0)?,
                    NextDue { job, at: Timestamp::from_millisecond(at).unwrap_or(now) },
                ))
            })
        })?;
        Ok(found.into_iter().collect())
    }

    /// Returns whether any clock, or any pause of a clock, waits for a tick.
    pub fn has_clocks(&self) -> Result<bool> {
        self.view(|db| db.exists("SELECT 1 FROM jobs WHERE enabled AND next_due IS NOT NULL", []))
    }

    /// Returns the pauses of single jobs that last, by project and name.
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

    /// Returns stretches of missed scheduled times of all projects recorded since a given time,
    /// newest first.
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

    /// Returns the last night of each project that had one. Nights are named by their date, so that
    /// the last ones are found without reading all of them.
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

    /// Returns the jobs whose last attempt that ran did not succeed: those that may have a failmark
    /// or may have been stopped.
    pub fn failing_jobs(&self) -> Result<Vec<JobId>> {
        self.view(|db| {
            // From each job that ever failed to the next, and of each two looks into indices: whether
            // the last attempt that failed is the last that tried.
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

    /// Returns the amounts spent or reserved at many budget levels of one kind; those without any
    /// are left out.
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

    /// Counts the last scheduled times of a job, in a row, that were each replaced by the next
    /// before they produced a result.
    pub fn replaced_in_a_row(&self, project: &ProjectId, job: &str) -> Result<u32> {
        let sql = "SELECT outcome FROM occurrences
                   WHERE job = (SELECT id FROM jobs WHERE project = ?1 AND name = ?2)
                     AND outcome IS NOT NULL ORDER BY due DESC, rowid DESC LIMIT 50";
        let outcomes: Vec<Json<Outcome>> = self.view(|db| db.values(sql, params![project, job]))?;
        let mut count = 0;
        for Json(outcome) in outcomes {
            match outcome {
                Outcome::Cancelled { why } if why.starts_with("replaced by ") => count += 1,
                // A skipped scheduled time neither adds to the count nor ends it.
                Outcome::Skipped { .. } => {}
                _ => break,
            }
        }
        Ok(count)
    }
}

/// Maps the columns of a night, and after them the headline, the worst outcome and the folder of
/// its report.
fn last_night(row: &Row<'_>) -> rusqlite::Result<LastNight> {
    let worst: Option<String> = row.get(7)?;
    let reported = match worst {
        Some(worst) => Some(NightRunReport { headline: row.get(6)?, worst, folder: row.get(8)? }),
        None => None,
    };
    Ok(LastNight { night: nights::night(row)?, reported })
}
