//! Counts settled runs by job, outcome and duration, for metrics. The counts are updated in the
//! transaction that settles a run. No decision may depend on them.

use jiff::Timestamp;
use rusqlite::{Transaction, params};

use super::columns::{Count, Query as _, millis, time};
use super::{Fault, JobId, Result, Store};
use crate::ids::ProjectId;
use crate::outcome::Outcome;

/// The upper limits of the duration groups, in seconds. Longer runs are counted in an additional
/// group.
pub const DURATION_LIMITS: [u32; 8] = [1, 5, 15, 60, 300, 900, 3_600, 14_400];

/// The number of a job's settled runs with the same outcome and failure class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTotal {
    /// The job's project.
    pub project: ProjectId,
    /// The job's name.
    pub job: String,
    /// The job's kind.
    pub kind: String,
    /// The name of the outcome.
    pub outcome: String,
    /// The failure class, or an empty string if the outcome has none.
    pub class: String,
    /// Number of runs, including those that have been pruned since they were counted.
    pub runs: u64,
    /// The time at which the last of these runs was settled.
    pub last: Timestamp,
}

/// The durations of a job's settled runs. Runs that were never admitted are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDurations {
    /// The job's project.
    pub project: ProjectId,
    /// The job's name.
    pub job: String,
    /// Number of runs in each group of [`DURATION_LIMITS`], followed by the number of longer runs.
    pub groups: [u64; DURATION_LIMITS.len() + 1],
    /// The sum of all durations in milliseconds.
    pub millis: u64,
}

/// The number of a project's queued runs, and the earliest of their start times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    pub project: ProjectId,
    /// Number of queued runs.
    pub runs: u64,
    /// The earliest start time of the queued runs that do not wait for another run, if there are
    /// any.
    pub oldest: Option<Timestamp>,
}

impl Store {
    /// Returns the counts of all settled runs, ordered by project, job, outcome and class.
    pub fn run_totals(&self) -> Result<Vec<RunTotal>> {
        let sql = "SELECT j.project, j.name, j.kind, t.outcome, t.class, t.runs, t.last
                   FROM run_totals t JOIN jobs j ON j.id = t.job ORDER BY 1, 2, 4, 5";
        self.view(|db| {
            db.all(sql, [], |row| {
                let Count(runs) = row.get(5)?;
                let (project, job, kind) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let (outcome, class) = (row.get(3)?, row.get(4)?);
                Ok(RunTotal { project, job, kind, outcome, class, runs, last: time(row, 6)? })
            })
        })
    }

    /// Returns the durations of each job's settled runs, ordered by project and job. Jobs without
    /// an admitted run that has been settled are omitted.
    pub fn run_durations(&self) -> Result<Vec<RunDurations>> {
        let sql = "SELECT j.project, j.name, d.most, d.runs, d.millis
                   FROM run_durations d JOIN jobs j ON j.id = d.job ORDER BY 1, 2";
        let rows: Vec<(ProjectId, String, u32, u64, u64)> = self.view(|db| {
            db.all(sql, [], |row| {
                let (Count(runs), Count(millis)) = (row.get(3)?, row.get(4)?);
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, runs, millis))
            })
        })?;
        let mut all: Vec<RunDurations> = Vec::new();
        for (project, job, most, runs, millis) in rows {
            if all.last().is_none_or(|last| last.project != project || last.job != job) {
                all.push(RunDurations { project, job, groups: Default::default(), millis: 0 });
            }
            if let Some(last) = all.last_mut() {
                let longer = DURATION_LIMITS.len();
                let group = DURATION_LIMITS.iter().position(|limit| *limit == most);
                last.groups[group.unwrap_or(longer)] += runs;
                last.millis += millis;
            }
        }
        Ok(all)
    }

    /// Returns the number of queued runs of each project. Projects without queued runs are omitted.
    pub fn queue_depths(&self) -> Result<Vec<QueueDepth>> {
        let sql = "SELECT project, sum(runs), min(oldest) FROM (
                     SELECT j.project, count(*) AS runs, min(r.ready_at) AS oldest
                     FROM runs r INDEXED BY runs_ready JOIN jobs j ON j.id = r.job
                     WHERE r.state = 'queued' AND r.waits_for IS NULL AND r.ready_at IS NOT NULL
                     GROUP BY j.project
                     UNION ALL
                     SELECT j.project, count(*), NULL
                     FROM runs r INDEXED BY runs_waiting JOIN jobs j ON j.id = r.job
                     WHERE r.state = 'queued' AND r.waits_for IS NOT NULL GROUP BY j.project)
                   GROUP BY project ORDER BY project";
        self.view(|db| {
            db.all(sql, [], |row| {
                let Count(runs) = row.get(1)?;
                let oldest = super::columns::time_opt(row, 2)?;
                Ok(QueueDepth { project: row.get(0)?, runs, oldest })
            })
        })
    }

    /// Returns the earliest scheduled time that has passed without being recorded, if there is one.
    /// Paused and disabled jobs are omitted.
    pub fn oldest_due(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let sql = "SELECT next_due FROM jobs INDEXED BY jobs_due
                   WHERE enabled AND next_due IS NOT NULL AND next_due <= ?1
                     AND coalesce(paused_until, 0) <= ?1
                     AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                   ORDER BY next_due LIMIT 1";
        self.view(|db| db.first(sql, [millis(now)], |row| time(row, 0)))
    }
}

/// Adds a settled run to the counts.
pub(super) fn add(
    tx: &Transaction<'_>,
    job: JobId,
    outcome: &Outcome,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Fault> {
    count(tx, job, outcome, now)?;
    let Some(started) = started else { return Ok(()) };
    let took = (millis(now) - millis(started)).max(0);
    let most = DURATION_LIMITS.into_iter().find(|limit| took <= i64::from(*limit) * 1_000);
    tx.change(
        "INSERT INTO run_durations (job, most, runs, millis) VALUES (?1, ?2, 1, ?3)
         ON CONFLICT (job, most) DO UPDATE SET runs = runs + 1, millis = millis + excluded.millis",
        params![job, most.unwrap_or(0), took],
    )?;
    Ok(())
}

/// Replaces the counted outcome of a settled run.
pub(super) fn replace(
    tx: &Transaction<'_>,
    job: JobId,
    before: &Outcome,
    after: &Outcome,
    settled: Timestamp,
) -> Result<(), Fault> {
    tx.change(
        "UPDATE run_totals SET runs = runs - 1
         WHERE job = ?1 AND outcome = ?2 AND class = ?3 AND runs > 0",
        params![job, before.as_str(), class_of(before)],
    )?;
    count(tx, job, after, settled)
}

fn count(
    tx: &Transaction<'_>,
    job: JobId,
    outcome: &Outcome,
    settled: Timestamp,
) -> Result<(), Fault> {
    tx.change(
        "INSERT INTO run_totals (job, outcome, class, runs, last) VALUES (?1, ?2, ?3, 1, ?4)
         ON CONFLICT (job, outcome, class)
         DO UPDATE SET runs = runs + 1, last = max(last, excluded.last)",
        params![job, outcome.as_str(), class_of(outcome), millis(settled)],
    )?;
    Ok(())
}

fn class_of(outcome: &Outcome) -> &'static str {
    outcome.class().map_or("", Into::into)
}
