//! Jobs: a projection of the config files, with what is due next.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::{
    Fault, JobId, Result, Store, StoreError, from_json, id, millis, settle, timestamp,
    timestamp_opt, to_json,
};
use crate::ids::ProjectId;
use crate::policy::Policy;
use crate::schedule::{Schedule, Trigger};

/// A job as the config files describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Its name within the project.
    pub name: String,
    /// The kind of work: `dream`, `command`, `prompt`.
    pub kind: String,
    /// When it is due.
    pub schedule: Schedule,
    /// How it is started, held back and tried again.
    pub policy: Policy,
    /// Whether clocks may start it.
    pub enabled: bool,
}

/// A job as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its row.
    pub id: JobId,
    /// Its project.
    pub project: ProjectId,
    /// Its name within the project.
    pub name: String,
    /// The kind of work.
    pub kind: String,
    /// When it is due.
    pub schedule: Schedule,
    /// How it is started, held back and tried again.
    pub policy: Policy,
    /// Whether clocks may start it.
    pub enabled: bool,
    /// The next time at which a clock makes the job due.
    pub next_due: Option<Timestamp>,
    /// The end of its pause or of that of everything, whichever is later; it may be past, and is
    /// then kept until the scheduled times of the pause are recorded.
    pub paused_until: Option<Timestamp>,
}

/// A job whose `next_due` has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueJob {
    /// The job.
    pub job: JobRow,
    /// The time up to which scheduled times are recorded.
    pub watermark: Timestamp,
}

/// How far a clock may be set back before schedules start again from it.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(1);

const COLUMNS: &str = "id, project, name, kind, schedule, policy, enabled, next_due, watermark,
    nullif(max(coalesce(paused_until, 0), coalesce((SELECT until FROM pause), 0)), 0)";

impl Store {
    /// Brings the jobs of `project` to what its config files say, and remembers their `stamp` and, in
    /// words of the caller's own, the `projection` that a look at the project needs of them. A new or
    /// changed schedule starts now; a job that is gone keeps its history and is never due again.
    pub fn project_jobs(
        &mut self,
        project: &ProjectId,
        stamp: &str,
        projection: &str,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            tx.execute(
                "UPDATE jobs SET enabled = 0, next_due = NULL WHERE project = ?1
                 AND name NOT IN (SELECT value FROM json_each(?2))",
                params![project.as_str(), to_json(&jobs.iter().map(|job| &job.name).collect::<Vec<_>>())],
            )?;
            for job in jobs {
                let (schedule, policy) = (to_json(&job.schedule), to_json(&job.policy));
                let after = match &job.schedule.trigger {
                    Trigger::After(after) => Some(&after.job),
                    _ => None,
                };
                let described = tx
                    .prepare_cached(
                        "UPDATE jobs SET kind = ?3, policy = ?4, slot_group = ?5, after_job = ?6
                         WHERE project = ?1 AND name = ?2",
                    )?
                    .execute(params![
                        project.as_str(),
                        job.name,
                        job.kind,
                        policy,
                        job.policy.group.name,
                        after
                    ])?;
                let next = next_due(job, now)?;
                if described == 0 {
                    tx.prepare_cached(
                        "INSERT INTO jobs (project, name, kind, schedule, policy, slot_group, after_job, enabled,
                         next_due, watermark) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                    )?
                    .execute(params![
                        project.as_str(),
                        job.name,
                        job.kind,
                        schedule,
                        policy,
                        job.policy.group.name,
                        after,
                        job.enabled,
                        next,
                        millis(now)
                    ])?;
                    continue;
                }
                // Only a changed schedule starts now; an unchanged one goes on where it was.
                tx.prepare_cached(
                    "UPDATE jobs SET schedule = ?3, enabled = ?4, next_due = ?5, watermark = ?6
                     WHERE project = ?1 AND name = ?2 AND (schedule <> ?3 OR enabled <> ?4)",
                )?
                .execute(params![
                    project.as_str(),
                    job.name,
                    schedule,
                    job.enabled,
                    next,
                    millis(now)
                ])?;
            }
            drop_unwanted(tx, project, now)?;
            tx.execute(
                "UPDATE projects SET config_stamp = ?2, projection = ?3 WHERE id = ?1",
                params![project.as_str(), stamp, projection],
            )?;
            Ok(())
        })
    }

    /// Returns the id of a job that no file describes, for work that people do manually and that is
    /// published like a run's. Creates its row if needed, disabled, so that only a person ever
    /// starts it.
    pub fn hand_job(
        &mut self,
        project: &ProjectId,
        name: &str,
        kind: &str,
        now: Timestamp,
    ) -> Result<JobId> {
        match self.job(project, name) {
            Ok(known) => return Ok(known.id),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let (schedule, policy) = (to_json(&Schedule::manual()), Policy::default());
        self.write(|tx| {
            tx.prepare_cached(
                "INSERT INTO jobs (project, name, kind, schedule, policy, slot_group, enabled, watermark)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7) ON CONFLICT (project, name) DO NOTHING",
            )?
            .execute(params![
                project.as_str(),
                name,
                kind,
                schedule,
                to_json(&policy),
                policy.group.name,
                millis(now)
            ])?;
            Ok(())
        })?;
        Ok(self.job(project, name)?.id)
    }

    /// Returns the jobs of a project, by name.
    pub fn jobs(&self, project: &ProjectId) -> Result<Vec<JobRow>> {
        self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM jobs WHERE project = ?1 ORDER BY name");
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map([project.as_str()], raw)?;
            rows.map(|row| Ok(due_job(row?)?.job)).collect()
        })
    }

    /// Starts the schedules again from `now` whose watermark lies more than an hour in the future:
    /// the clock was set back since, and they would be silent until it has caught up. Returns their
    /// names; the cost follows their number.
    pub fn reset_jobs_ahead(&mut self, now: Timestamp) -> Result<Vec<String>> {
        let limit = millis(now.saturating_add(AHEAD).unwrap_or(now));
        let ahead: Vec<JobRow> = self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM jobs WHERE watermark > ?1 AND enabled AND next_due IS NOT NULL");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([limit], raw)?;
            rows.map(|row| Ok(due_job(row?)?.job)).collect()
        })?;
        let mut names = Vec::new();
        for job in ahead {
            let next = job.schedule.next_after(now, now).ok().flatten().map(millis);
            self.write(|tx| {
                tx.execute(
                    "UPDATE jobs SET watermark = ?2, next_due = ?3 WHERE id = ?1",
                    params![job.id.0, millis(now), next],
                )?;
                Ok(())
            })?;
            names.push(job.name);
        }
        Ok(names)
    }

    /// Returns one job by name.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`].
    pub fn job(&self, project: &ProjectId, name: &str) -> Result<JobRow> {
        let found = self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM jobs WHERE project = ?1 AND name = ?2");
            db.prepare_cached(&sql)?
                .query_row(params![project.as_str(), name], raw)
                .optional()?
                .map(due_job)
                .transpose()
        })?;
        found
            .map(|due| due.job)
            .ok_or_else(|| StoreError::NotFound { what: "job", name: name.to_owned() })
    }

    /// Returns one job by row.
    pub fn job_by_id(&self, wanted: JobId) -> Result<JobRow> {
        self.view(|db| by_id(db, wanted))
    }

    /// Returns the jobs that a clock has made due and that are not paused. The cost is proportional
    /// to their number.
    pub fn due_jobs(&self, now: Timestamp) -> Result<Vec<DueJob>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM jobs WHERE enabled AND next_due IS NOT NULL AND next_due <= ?1
                   AND coalesce(paused_until, 0) <= ?1 AND NOT EXISTS (SELECT 1 FROM pause WHERE until > ?1)
                 ORDER BY next_due, id"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([millis(now)], raw)?;
            rows.map(|row| due_job(row?)).collect()
        })
    }
}

pub(super) fn by_id(db: &Connection, wanted: JobId) -> Result<JobRow, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
    let row = db.prepare_cached(&sql)?.query_row([wanted.0], raw)?;
    Ok(due_job(row)?.job)
}

/// Removes from the queue the runs that clocks and events queued for jobs that they may no longer
/// start. Runs that a person queued stay.
fn drop_unwanted(tx: &Transaction<'_>, project: &ProjectId, now: Timestamp) -> Result<(), Fault> {
    let unwanted: Vec<String> = tx
        .prepare_cached(
            "SELECT r.id FROM jobs j JOIN runs r INDEXED BY runs_open_by_job ON r.job = j.id
             JOIN occurrences o ON o.id = r.occurrence
             WHERE j.project = ?1 AND NOT j.enabled AND r.state <> 'settled' AND r.state = 'queued'
               AND o.origin IN ('clock', 'event')",
        )?
        .query_map([project.as_str()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for run in unwanted {
        let why = "its job was disabled or removed while it waited".to_owned();
        settle::skip(tx, &id(run)?, why, now)?;
    }
    Ok(())
}

fn next_due(job: &NewJob, now: Timestamp) -> Result<Option<i64>, Fault> {
    if !job.enabled {
        return Ok(None);
    }
    let next =
        job.schedule.next_after(now, now).map_err(|error| Fault::Nonsense(error.to_string()))?;
    Ok(next.map(millis))
}

struct JobColumns {
    id: i64,
    project: String,
    name: String,
    kind: String,
    schedule: String,
    policy: String,
    enabled: bool,
    next_due: Option<i64>,
    watermark: i64,
    paused_until: Option<i64>,
}

fn raw(row: &Row<'_>) -> rusqlite::Result<JobColumns> {
    Ok(JobColumns {
        id: row.get(0)?,
        project: row.get(1)?,
        name: row.get(2)?,
        kind: row.get(3)?,
        schedule: row.get(4)?,
        policy: row.get(5)?,
        enabled: row.get(6)?,
        next_due: row.get(7)?,
        watermark: row.get(8)?,
        paused_until: row.get(9)?,
    })
}

fn due_job(raw: JobColumns) -> Result<DueJob, Fault> {
    Ok(DueJob {
        watermark: timestamp(raw.watermark)?,
        job: JobRow {
            id: JobId(raw.id),
            project: id(raw.project)?,
            name: raw.name,
            kind: raw.kind,
            schedule: from_json(&raw.schedule)?,
            policy: from_json(&raw.policy)?,
            enabled: raw.enabled,
            next_due: timestamp_opt(raw.next_due)?,
            paused_until: timestamp_opt(raw.paused_until)?,
        },
    })
}
