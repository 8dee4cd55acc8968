//! Stores jobs as described by the configuration files, with their next scheduled times.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};

use super::columns::{Query as _, json, millis, time, time_opt, to_json};
use super::{Fault, JobId, Result, Store, settle};
use crate::ids::{ProjectId, RunId};
use crate::outcome::SkipReason;
use crate::policy::Policy;
use crate::schedule::{Due, Schedule, Trigger};

/// A job as described by the configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The job's name within the project.
    pub name: String,
    /// The kind of job, such as `dream`, `command` or `prompt`.
    pub kind: String,
    pub schedule: Schedule,
    pub policy: Policy,
    /// Whether schedules may start the job.
    pub enabled: bool,
}

/// A job as stored in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: JobId,
    pub project: ProjectId,
    /// The job's name within the project.
    pub name: String,
    /// The kind of job.
    pub kind: String,
    pub schedule: Schedule,
    pub policy: Policy,
    /// Whether schedules may start the job.
    pub enabled: bool,
    /// The next scheduled time. `None` if the job is disabled or has no further scheduled time.
    pub next_due: Option<Timestamp>,
    /// The end of the job's pause or of the pause of all jobs, whichever is later. The time may
    /// have passed. `None` if no pause is recorded.
    pub paused_until: Option<Timestamp>,
}

/// A job whose `next_due` has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueJob {
    pub job: JobRow,
    /// The time up to which scheduled times have been recorded.
    pub watermark: Timestamp,
}

/// Maximum time by which a watermark may be in the future. If a watermark is further ahead, the
/// clock was set back, and the job's schedule restarts.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// The columns for [`job`].
const COLUMNS: &str = "id, project, name, kind, schedule, policy, enabled, next_due,
    nullif(max(coalesce(paused_until, 0), coalesce((SELECT until FROM pause), 0)), 0), watermark";

fn job(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        id: row.get(0)?,
        project: row.get(1)?,
        name: row.get(2)?,
        kind: row.get(3)?,
        schedule: json(row, 4)?,
        policy: json(row, 5)?,
        enabled: row.get(6)?,
        next_due: time_opt(row, 7)?,
        paused_until: time_opt(row, 8)?,
    })
}

impl Store {
    /// Updates the jobs of `project` to match its configuration files. Also stores the `stamp` of
    /// these files and the `projection`, a string containing the configuration needed for an
    /// overview of the project. A new or changed schedule starts at `now`. A removed job keeps its
    /// history and is no longer due. Its queued runs that came from a schedule or an event are
    /// skipped.
    pub fn project_jobs(
        &mut self,
        project: &ProjectId,
        stamp: &str,
        projection: &str,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            tx.change(
                "UPDATE jobs SET enabled = 0, next_due = NULL WHERE project = ?1
                 AND name NOT IN (SELECT value FROM json_each(?2))",
                params![project, to_json(&names)],
            )?;
            for job in jobs {
                describe(tx, project, job, now)?;
            }
            drop_unwanted(tx, project, now)?;
            tx.change(
                "UPDATE projects SET config_stamp = ?2, projection = ?3 WHERE id = ?1",
                params![project, stamp, projection],
            )?;
            Ok(())
        })
    }

    /// Returns the id of the job named `name`, under which manual edits are recorded. If there is
    /// no such job, creates it as disabled, because no configuration file describes it.
    pub fn manual_job(
        &mut self,
        project: &ProjectId,
        name: &str,
        kind: &str,
        now: Timestamp,
    ) -> Result<JobId> {
        let job = NewJob {
            name: name.to_owned(),
            kind: kind.to_owned(),
            schedule: Schedule::manual(),
            policy: Policy::default(),
            enabled: false,
        };
        let sql = "SELECT id FROM jobs WHERE project = ?1 AND name = ?2";
        self.write(|tx| {
            if let Some(known) = tx.first(sql, params![project, name], |row| row.get(0))? {
                return Ok(known);
            }
            describe(tx, project, &job, now)?;
            tx.value(sql, params![project, name])
        })
    }

    /// Returns a project's jobs, ordered by name.
    pub fn jobs(&self, project: &ProjectId) -> Result<Vec<JobRow>> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE project = ?1 ORDER BY name");
        self.view(|db| db.all(&sql, [project], job))
    }

    /// Restarts the schedules whose watermark is more than [`AHEAD`] in the future, because the
    /// clock was set back. Without a restart, these jobs would not be due until the clock catches
    /// up. Returns the names of the jobs.
    pub fn reset_jobs_ahead(&mut self, now: Timestamp) -> Result<Vec<String>> {
        let limit = millis(now.saturating_add(AHEAD).unwrap_or(now));
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE watermark > ?1 AND enabled AND next_due IS NOT NULL"
        );
        let ahead = self.view(|db| db.all(&sql, [limit], job))?;
        let mut restarted = Vec::new();
        for job in ahead {
            // A job whose zone is unknown keeps its schedule, and each tick reports it.
            let Ok(next) = job.schedule.next_after(now, now) else { continue };
            let next = next.map(millis);
            let sql = "UPDATE jobs SET watermark = ?2, next_due = ?3 WHERE id = ?1";
            self.write(|tx| tx.change(sql, params![job.id, millis(now), next]))?;
            restarted.push(job.name);
        }
        Ok(restarted)
    }

    /// Returns the job named `name`.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`](super::StoreError::NotFound) if there is none.
    pub fn job(&self, project: &ProjectId, name: &str) -> Result<JobRow> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE project = ?1 AND name = ?2");
        self.view(|db| {
            let found = db.first(&sql, params![project, name], job)?;
            found.ok_or_else(|| Fault::not_found("job", name))
        })
    }

    pub fn job_by_id(&self, wanted: JobId) -> Result<JobRow> {
        let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
        self.view(|db| {
            let found = db.first(&sql, [wanted], job)?;
            found.ok_or_else(|| Fault::not_found("job", wanted.0))
        })
    }

    /// Returns the enabled jobs that are due and not paused. The cost grows with the number of due
    /// jobs, including paused jobs.
    pub fn due_jobs(&self, now: Timestamp) -> Result<Vec<DueJob>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM jobs WHERE enabled AND next_due IS NOT NULL AND next_due <= ?1
               AND coalesce(paused_until, 0) <= ?1
               AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
             ORDER BY next_due, id"
        );
        self.view(|db| {
            db.all(&sql, [millis(now)], |row| {
                Ok(DueJob { job: job(row)?, watermark: time(row, 9)? })
            })
        })
    }
}

/// Creates or updates a job's row. If the job is new, its schedule changed, or it was enabled or
/// disabled, the schedule starts at `now`. Otherwise, the schedule continues.
fn describe(
    tx: &Transaction<'_>,
    project: &ProjectId,
    job: &NewJob,
    now: Timestamp,
) -> Result<(), Fault> {
    let after = match &job.schedule.trigger {
        Trigger::After(after) => Some(&after.job),
        _ => None,
    };
    let next = match job.enabled {
        true => job.schedule.next_after(now, now),
        false => Ok(None),
    };
    let next = next.map_err(|error| Fault::Nonsense(error.to_string()))?.map(millis);
    let (schedule, policy) = (to_json(&job.schedule), to_json(&job.policy));
    tx.change(
        "INSERT INTO jobs (project, name, kind, schedule, policy, slot_group, after_job, enabled,
           next_due, watermark) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (project, name) DO UPDATE SET
           kind = ?3, policy = ?5, slot_group = ?6, after_job = ?7, schedule = ?4, enabled = ?8,
           next_due = CASE WHEN schedule <> ?4 OR enabled <> ?8 THEN ?9 ELSE next_due END,
           watermark = CASE WHEN schedule <> ?4 OR enabled <> ?8 THEN ?10 ELSE watermark END",
        params![
            project,
            job.name,
            job.kind,
            schedule,
            policy,
            job.policy.group.name,
            after,
            job.enabled,
            next,
            millis(now)
        ],
    )?;
    Ok(())
}

/// Advances a job's watermark and next scheduled time, and removes the job's pause if it has ended.
/// Returns `false` and changes nothing if another process has moved the watermark.
pub(super) fn advance(
    tx: &Transaction<'_>,
    due_job: &DueJob,
    due: &Due,
    now: Timestamp,
) -> Result<bool, Fault> {
    let (before, after) = (millis(due_job.watermark), millis(due.watermark));
    let moved = tx.change(
        "UPDATE jobs SET watermark = ?3, next_due = ?4,
           paused_until = CASE WHEN paused_until > ?5 THEN paused_until END
         WHERE id = ?1 AND watermark = ?2",
        params![due_job.job.id, before, after, due.next.map(millis), millis(now)],
    )?;
    Ok(moved > 0)
}

pub(super) fn policy(db: &Connection, job: JobId) -> Result<Policy, Fault> {
    let found = db.first("SELECT policy FROM jobs WHERE id = ?1", [job], |row| json(row, 0))?;
    found.ok_or_else(|| Fault::not_found("job", job.0))
}

/// Skips the queued runs of disabled jobs that came from a schedule or an event. Runs queued by the
/// user are kept.
fn drop_unwanted(tx: &Transaction<'_>, project: &ProjectId, now: Timestamp) -> Result<(), Fault> {
    let unwanted: Vec<RunId> = tx.values(
        "SELECT r.id FROM jobs j JOIN runs r INDEXED BY runs_open_by_job ON r.job = j.id
         JOIN occurrences o ON o.id = r.occurrence
         WHERE j.project = ?1 AND NOT j.enabled AND r.state <> 'settled' AND r.state = 'queued'
           AND o.origin IN ('clock', 'event')",
        [project],
    )?;
    for run in unwanted {
        let why = "its job was disabled or removed while it waited".to_owned();
        settle::skip(tx, &run, SkipReason::Idle, why, now)?;
    }
    Ok(())
}
