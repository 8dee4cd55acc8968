//! The state of all projects. Each question is one statement over all projects, so that the cost
//! does not grow with their number. This module must never read anything that only one project's
//! configuration contains.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rusqlite::{Row, params};
use serde::Deserialize;

use super::runs::RunSummary;
use super::{
    Amounts, Fault, JobId, Night, NightId, Result, Store, from_json, id, millis, timestamp,
    timestamp_opt, to_json,
};
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
    /// The name of the folder that it lies in, where that was kept.
    pub folder: Option<String>,
}

/// Only the zone of a schedule: the rest need not be looked at.
#[derive(Deserialize)]
struct Zone {
    zone: String,
}

fn zone(schedule: &str) -> String {
    serde_json::from_str::<Zone>(schedule).map_or_else(|_| "UTC".to_owned(), |found| found.zone)
}

/// Outcomes of runs that tried: the condition of the index `runs_tried`.
const TRIED: &str =
    "outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost')";

/// Outcomes of those that came to nothing: the condition of the index `runs_failed`.
const FAILED: &str = "outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost')";

impl Store {
    /// Returns the next job that a clock makes due in each project; paused jobs are left out.
    pub fn next_due(&self, now: Timestamp) -> Result<BTreeMap<ProjectId, NextDue>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                // One look into the index a project, however many jobs it has, and into no row of a job.
                "SELECT p.id, (
                   SELECT next_due || ' ' || name FROM jobs INDEXED BY jobs_next
                   WHERE project = p.id AND enabled AND next_due IS NOT NULL
                     AND coalesce(paused_until, 0) <= ?1
                   ORDER BY next_due, name LIMIT 1)
                 FROM projects p WHERE NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)",
            )?;
            let rows = statement.query_map([millis(now)], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            })?;
            let mut found = BTreeMap::new();
            for row in rows {
                let (project, next) = row?;
                let next = next.as_deref().and_then(|next| next.split_once(' '));
                let Some((at, job)) = next else {
                    continue;
                };
                let at = at.parse().map_err(|_| {
                    Fault::Nonsense(format!("{at:?} is no moment at which {job} is due"))
                })?;
                let next = NextDue { job: job.to_owned(), at: timestamp(at)? };
                found.insert(id(project)?, next);
            }
            Ok(found)
        })
    }

    /// Returns whether any clock, or any pause of a clock, waits for a tick.
    pub fn has_clocks(&self) -> Result<bool> {
        self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM jobs WHERE enabled AND next_due IS NOT NULL)",
                )?
                .query_row([], |row| row.get(0))?)
        })
    }

    /// Pauses of single jobs that last, by project and name.
    pub fn own_pauses(&self, now: Timestamp) -> Result<Vec<JobPause>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT project, name, paused_until, schedule FROM jobs INDEXED BY jobs_paused
                 WHERE paused_until IS NOT NULL AND paused_until > ?1 ORDER BY project, name",
            )?;
            let mut rows = statement.query([millis(now)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(JobPause {
                    project: id(row.get(0)?)?,
                    job: row.get(1)?,
                    until: timestamp(row.get(2)?)?,
                    zone: zone(&row.get::<_, String>(3)?),
                });
            }
            Ok(found)
        })
    }

    /// Returns stretches of missed scheduled times of all projects recorded since a given time,
    /// newest first.
    pub fn all_missed_since(&self, since: Timestamp) -> Result<Vec<MissedStretch>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT j.project, j.name, o.outcome, j.schedule
                 FROM occurrences o INDEXED BY occurrences_missed JOIN jobs j ON j.id = o.job
                 WHERE o.missed AND o.recorded >= ?1 ORDER BY o.recorded DESC, o.rowid DESC",
            )?;
            let mut rows = statement.query([millis(since)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(MissedStretch {
                    project: id(row.get(0)?)?,
                    job: row.get(1)?,
                    outcome: from_json(&row.get::<_, String>(2)?)?,
                    zone: zone(&row.get::<_, String>(3)?),
                });
            }
            Ok(found)
        })
    }

    /// Returns the last night of each project that had one. Nights are named by their date, so that
    /// the last ones are found without reading all of them.
    pub fn last_nights(&self) -> Result<BTreeMap<ProjectId, LastNight>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT n.id, n.project, n.name, n.opens, n.closes, n.closed,
                   n.headline, n.worst, n.folder,
                   -- Of a report of before the night kept it, what its run said.
                   CASE WHEN n.worst IS NULL THEN
                   (SELECT r.summary FROM jobs j
                    JOIN occurrences o ON o.job = j.id AND o.key = 'night-' || n.id
                    JOIN runs r ON r.occurrence = o.id
                    WHERE j.project = n.project AND j.name = 'report' AND o.outcome ->> 'outcome' = 'succeeded'
                    ORDER BY r.attempt DESC LIMIT 1) END
                 FROM projects p JOIN nights n ON n.id = (
                   SELECT id FROM nights WHERE project = p.id AND name >=
                     (SELECT substr(max(name), 1, 10) FROM nights WHERE project = p.id)
                   ORDER BY opens DESC, id DESC LIMIT 1)",
            )?;
            let mut rows = statement.query([])?;
            let mut found = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let last = last_night(row)?;
                found.insert(last.night.project.clone(), last);
            }
            Ok(found)
        })
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
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| Ok(JobId(row.get(0)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Returns the projects that have queued runs.
    pub fn projects_with_queues(&self) -> Result<BTreeSet<ProjectId>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT j.project FROM runs r INDEXED BY runs_ready JOIN jobs j ON j.id = r.job
                   WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at IS NOT NULL
                 UNION SELECT j.project FROM runs r INDEXED BY runs_waiting JOIN jobs j ON j.id = r.job
                   WHERE r.state = 'queued' AND r.waits_for IS NOT NULL",
            )?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            rows.map(|row| id(row?)).collect()
        })
    }

    /// Returns the amounts spent or reserved at many budget levels of one kind; those without any
    /// are left out.
    pub fn accounts(&self, level: &str, keys: &[String]) -> Result<BTreeMap<String, Amounts>> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT k.value, a.calls, a.tokens, a.micros, a.seconds, a.ideas
                 FROM json_each(?2) k JOIN budget_usage a ON a.level = ?1 AND a.key = k.value
                 UNION ALL
                 SELECT k.value, r.calls, r.tokens, r.micros, r.seconds, r.ideas
                 FROM json_each(?2) k JOIN reservations r INDEXED BY reservations_open
                   ON r.level = ?1 AND r.key = k.value AND r.open",
            )?;
            let mut rows = statement.query(params![level, to_json(&keys)])?;
            let mut found: BTreeMap<String, Amounts> = BTreeMap::new();
            while let Some(row) = rows.next()? {
                let unit =
                    |column| row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or(0));
                let some = Amounts {
                    calls: unit(1)?,
                    tokens: unit(2)?,
                    micros: unit(3)?,
                    seconds: unit(4)?,
                    ideas: unit(5)?,
                };
                let sum = found.entry(row.get(0)?).or_default();
                *sum = sum.plus(some);
            }
            Ok(found)
        })
    }

    /// Counts the last scheduled times of a job, in a row, that were each replaced by the next
    /// before they produced a result.
    pub fn replaced_in_a_row(&self, project: &ProjectId, job: &str) -> Result<u32> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT outcome FROM occurrences WHERE job = (SELECT id FROM jobs WHERE project = ?1 AND name = ?2)
                   AND outcome IS NOT NULL ORDER BY due DESC, rowid DESC LIMIT 50",
            )?;
            let mut rows = statement.query(params![project.as_str(), job])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                match from_json::<Outcome>(&row.get::<_, String>(0)?)? {
                    Outcome::Cancelled { why } if why.starts_with("replaced by ") => count += 1,
                    // A skipped scheduled time neither adds to the count nor ends it.
                    Outcome::Skipped { .. } => {}
                    _ => break,
                }
            }
            Ok(count)
        })
    }
}

fn last_night(row: &Row<'_>) -> Result<LastNight, Fault> {
    let night = Night {
        id: NightId(row.get(0)?),
        project: id(row.get(1)?)?,
        name: row.get(2)?,
        opens: timestamp(row.get(3)?)?,
        closes: timestamp(row.get(4)?)?,
        closed: timestamp_opt(row.get(5)?)?,
    };
    let (headline, worst): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
    let summary: Option<String> = row.get(9)?;
    let reported = match (headline, worst, summary) {
        (Some(headline), Some(worst), _) => {
            Some(NightRunReport { headline, worst, folder: row.get(8)? })
        }
        (_, _, Some(summary)) => {
            let summary: RunSummary = from_json(&summary)?;
            let worst = summary.facts.get("worst").and_then(|worst| worst.as_str());
            worst.map(|worst| NightRunReport {
                worst: worst.to_owned(),
                headline: summary.headline.clone(),
                folder: None,
            })
        }
        _ => None,
    };
    Ok(LastNight { night, reported })
}
