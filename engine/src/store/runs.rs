//! Runs: each attempt at an occurrence, as rows to be read. How they end is `settle`, how they wait
//! is `queue`.
//!
//! ```text
//! queued{ready_at} ──start_ready──> requested{starter, owner, deadline} ──admit──> running{owner, fence, deadline}
//!     │                                 │                            │
//!     └── expired, cancelled ───────────┴── declined ────────────────┴──settle──> settled(outcome)
//! ```
//!
//! An occurrence is open exactly as long as one of its runs is not settled.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::{
    Fault, JobId, NightId, Origin, Result, Store, StoreError, from_json, id, timestamp,
    timestamp_opt, to_json,
};
use crate::awake::SleepInhibition;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::Outcome;
use crate::process_id::ProcessIdentity;

/// The results of a run in a form for people.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// One line.
    pub headline: String,
    /// More lines.
    pub lines: Vec<String>,
    /// Figures by name, for scripts.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// The published files, relative to the project.
    pub artifacts: Vec<String>,
    /// The backend that answered.
    pub backend: String,
    /// How its children were confined.
    pub containment: String,
    /// The result of keeping the machine awake, where that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awake: Option<SleepInhibition>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The run waits for its start time, its turn or another run.
    Queued,
    /// Somebody starts it now; not admitted yet.
    Requested,
    /// Admitted, not settled yet.
    Running,
    /// Over.
    Settled,
}

/// A run with its names.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// Its occurrence.
    pub occurrence: OccurrenceId,
    /// Its job.
    pub job: JobId,
    /// The job's name.
    pub job_name: String,
    /// The job's kind.
    pub kind: String,
    /// Its project.
    pub project: ProjectId,
    /// The night of its occurrence.
    pub night: Option<NightId>,
    /// The origin that made the run's occurrence due.
    pub origin: Origin,
    /// A person asked for it and waits for it.
    pub manual: bool,
    /// Settings of its job that hold for its occurrence only, by key, as they were given.
    pub settings: Vec<(String, String)>,
    /// Higher goes first.
    pub priority: i32,
    /// When its occurrence was due.
    pub due: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// Where it stands.
    pub state: RunState,
    /// Its fence, once admitted.
    pub fence: Option<Fence>,
    /// The earliest start time of a queued run.
    pub ready_at: Option<Timestamp>,
    /// Queued: not before this occurrence has succeeded.
    pub waits_for: Option<OccurrenceId>,
    /// The last run of that occurrence, and its job's name.
    pub waits_for_run: Option<(RunId, String)>,
    /// When it was queued or requested.
    pub requested: Timestamp,
    /// When it was admitted.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub finished: Option<Timestamp>,
    /// The process that was to spawn it; nobody while it is queued.
    pub starter: Option<ProcessIdentity>,
    /// The process that runs or ran it; noted when it is spawned.
    pub owner: Option<ProcessIdentity>,
    /// Boot-time milliseconds in its owner's boot: requested, by which it must be admitted; running, by
    /// which it must be over.
    pub deadline: Option<u64>,
    /// It was asked to end, and why.
    pub cancel: Option<String>,
    /// Where it stages, relative to the project.
    pub staging: Option<String>,
    /// Model calls made.
    pub model_calls: u32,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The results of the run in a form for people.
    pub summary: RunSummary,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Selects the runs of this project.
    pub project: Option<ProjectId>,
    /// Selects the runs of this job.
    pub job: Option<JobId>,
    /// Selects the runs of this night.
    pub night: Option<NightId>,
    /// Selects the runs whose id begins with this text.
    pub prefix: Option<String>,
    /// At most so many, newest first; 0 means all.
    pub limit: u32,
    /// Not of jobs of this kind, unless `job` names one.
    pub but_kind: Option<&'static str>,
}

const COLUMNS: &str =
    "r.id, r.occurrence, r.job, j.name, j.kind, j.project, o.night, o.origin, o.settings,
    o.priority, o.due, r.attempt, r.state, r.fence, r.ready_at, r.waits_for, r.requested, r.started,
    r.finished, r.starter, r.owner, r.deadline, r.cancel, r.staging, r.model_calls, r.outcome, r.summary,
    (SELECT w.id || ' ' || wj.name FROM runs w JOIN jobs wj ON wj.id = w.job
     WHERE w.occurrence = r.waits_for ORDER BY w.attempt DESC LIMIT 1)";
const TABLES: &str = "runs r JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = r.job";

impl Store {
    /// Returns one run.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`].
    pub fn run(&self, wanted: &RunId) -> Result<RunRow> {
        let found = self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE r.id = ?1");
            db.prepare_cached(&sql)?
                .query_row([wanted.as_str()], raw)
                .optional()?
                .map(run_row)
                .transpose()
        })?;
        found.ok_or_else(|| StoreError::NotFound { what: "run", name: wanted.to_string() })
    }

    /// Runs, the last recorded first: ids begin with a time, and clocks are set back.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>> {
        let mut wheres: Vec<&str> = Vec::new();
        let mut values: Vec<Value> = Vec::new();
        if let Some(night) = filter.night {
            wheres.push("r.occurrence IN (SELECT id FROM occurrences WHERE night = ?)");
            values.push(night.0.into());
        }
        if let Some(job) = filter.job {
            wheres.push("r.job = ?");
            values.push(job.0.into());
        }
        if let Some(project) = &filter.project {
            // The plus keeps the order of recording, so that a limit ends the search.
            wheres.push("+r.job IN (SELECT id FROM jobs WHERE project = ?)");
            values.push(project.to_string().into());
        }
        if let (Some(kind), None) = (filter.but_kind, filter.job) {
            wheres.push("+r.job NOT IN (SELECT id FROM jobs WHERE kind = ?)");
            values.push(kind.to_owned().into());
        }
        if let Some(prefix) = &filter.prefix {
            wheres.push("r.id BETWEEN ? AND ?");
            values.push(prefix.clone().into());
            values.push(format!("{prefix}~").into());
        }
        wheres.push("1");
        let limit = if filter.limit == 0 { -1 } else { i64::from(filter.limit) };
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE {} ORDER BY r.rowid DESC LIMIT {limit}",
                wheres.join(" AND ")
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params_from_iter(values), raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// Returns the last attempt at an occurrence.
    pub fn last_run_of(&self, occurrence: &OccurrenceId) -> Result<Option<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE r.occurrence = ?1 ORDER BY r.attempt DESC LIMIT 1"
            );
            db.prepare_cached(&sql)?.query_row( [occurrence.as_str()], raw)
                .optional()?
                .map(run_row)
                .transpose()
        })
    }

    /// Runs that somebody starts or runs, or did and died; the cost follows their number.
    pub fn live(&self) -> Result<Vec<RunRow>> {
        self.listed("INDEXED BY runs_live", "r.state IN ('requested', 'running')")
    }

    /// Runs of a job that wait, are about to begin or run, oldest first.
    pub fn open_runs_of(&self, job: JobId) -> Result<Vec<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs r INDEXED BY runs_open_by_job JOIN occurrences o ON o.id = r.occurrence
                 JOIN jobs j ON j.id = r.job WHERE r.job = ?1 AND r.state <> 'settled' ORDER BY r.rowid"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([job.0], raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// Returns the waiting runs of a project: first those that wait for their start time or their
    /// turn, in the order in which they become ready, then those that wait for other runs.
    pub fn queued_of(&self, project: &ProjectId) -> Result<Vec<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE r.state = 'queued' AND r.state <> 'settled'
                   AND r.job IN (SELECT id FROM jobs WHERE project = ?1)
                 ORDER BY r.waits_for IS NOT NULL, r.ready_at, o.priority DESC, r.id"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([project.as_str()], raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// Returns the settled runs whose staging folder still has to be removed. The cost is
    /// proportional to their number.
    pub fn unswept(&self) -> Result<Vec<RunRow>> {
        self.listed("INDEXED BY runs_unswept", "r.state = 'settled' AND r.staging IS NOT NULL")
    }

    fn listed(&self, index: &str, wheres: &str) -> Result<Vec<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs r {index} JOIN occurrences o ON o.id = r.occurrence
                 JOIN jobs j ON j.id = r.job WHERE {wheres} ORDER BY r.rowid"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([], raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// Notes that a settled run's staging folder is gone.
    pub fn swept(&mut self, run: &RunId) -> Result<()> {
        self.write(|tx| {
            tx.prepare_cached(
                "UPDATE runs SET staging = NULL WHERE id = ?1 AND state = 'settled'",
            )?
            .execute([run.as_str()])?;
            Ok(())
        })
    }

    /// Makes `starter` the process that answers for a requested run.
    pub fn adopt(&mut self, run: &RunId, starter: &ProcessIdentity) -> Result<bool> {
        self.write(|tx| {
            Ok(tx
                .prepare_cached(
                    "UPDATE runs SET starter = ?2, owner = NULL, deadline = NULL
                     WHERE id = ?1 AND state = 'requested'",
                )?
                .execute(params![run.as_str(), to_json(starter)])?
                == 1)
        })
    }

    /// Records the process of a requested run, and the boot time by which the run must have been
    /// admitted. Returns false and changes nothing if the run was admitted or settled meanwhile.
    pub fn spawned(
        &mut self,
        run: &RunId,
        owner: &ProcessIdentity,
        deadline: Duration,
    ) -> Result<bool> {
        let deadline = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
        self.write(|tx| {
            Ok(tx
                .prepare_cached(
                    "UPDATE runs SET owner = ?2, deadline = ?3 WHERE id = ?1 AND state = 'requested'",
                )?
                .execute(params![run.as_str(), to_json(owner), deadline])?
                == 1)
        })
    }

    /// Counts the lost runs of one occurrence so far.
    pub fn lost_runs_of(&self, occurrence: &OccurrenceId) -> Result<u32> {
        self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT count(*) FROM runs
                    WHERE occurrence = ?1 AND outcome ->> 'outcome' = 'lost'",
                )?
                .query_row([occurrence.as_str()], |row| row.get(0))?)
        })
    }

    /// Returns when the last run of a job for an occurrence other than `but` was admitted.
    pub fn last_began(&self, job: JobId, but: &OccurrenceId) -> Result<Option<Timestamp>> {
        self.view(|db| {
            db.prepare_cached(
                "SELECT started FROM runs WHERE job = ?1 AND occurrence <> ?2 AND started IS NOT NULL
                 ORDER BY rowid DESC LIMIT 1",
            )?
            .query_row(params![job.0, but.as_str()], |row| row.get(0))
            .optional()?
            .map(timestamp)
            .transpose()
        })
    }

    /// Returns whether an attempt at an occurrence was ever admitted.
    pub fn began(&self, occurrence: &OccurrenceId) -> Result<bool> {
        self.view(|db| {
            Ok(db
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM runs
                    WHERE occurrence = ?1 AND started IS NOT NULL)",
                )?
                .query_row([occurrence.as_str()], |row| row.get(0))?)
        })
    }
}

impl Store {
    /// Counts the job's last runs, in a row, that ended as deferred with a reason that begins with
    /// `why`. Skipped runs do not count and do not end the row. Only the last fifty runs are read.
    pub fn deferrals_in_a_row(&self, job: JobId, why: &str) -> Result<u32> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT outcome FROM runs WHERE job = ?1 AND state = 'settled' ORDER BY rowid DESC LIMIT 50",
            )?;
            let mut rows = statement.query([job.0])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                match from_json::<Outcome>(&row.get::<_, String>(0)?)? {
                    Outcome::Deferred { why: reported, .. } if reported.starts_with(why) => count += 1,
                    Outcome::Skipped { .. } => {}
                    _ => break,
                }
            }
            Ok(count)
        })
    }
}

pub(super) struct QueuedRow {
    pub occurrence: OccurrenceId,
    pub job: JobId,
    pub seed: u64,
}

/// Returns the run if its state is still requested.
pub(super) fn waiting(db: &Connection, run: &RunId) -> Result<Option<QueuedRow>, Fault> {
    let found: Option<(String, i64, i64)> = db
        .prepare_cached(
            "SELECT occurrence, job, seed FROM runs WHERE id = ?1 AND state = 'requested'",
        )?
        .query_row([run.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    found
        .map(|(occurrence, job, seed)| {
            Ok(QueuedRow {
                occurrence: id(occurrence)?,
                job: JobId(job),
                seed: seed.cast_unsigned(),
            })
        })
        .transpose()
}

struct RunColumns {
    id: String,
    occurrence: String,
    job: i64,
    job_name: String,
    kind: String,
    project: String,
    night: Option<i64>,
    origin: String,
    settings: Option<String>,
    priority: i32,
    due: i64,
    attempt: u32,
    state: String,
    fence: Option<i64>,
    ready_at: Option<i64>,
    waits_for: Option<String>,
    requested: i64,
    started: Option<i64>,
    finished: Option<i64>,
    starter: Option<String>,
    owner: Option<String>,
    deadline: Option<i64>,
    cancel: Option<String>,
    staging: Option<String>,
    model_calls: u32,
    outcome: Option<String>,
    summary: Option<String>,
    waits_for_run: Option<String>,
}

fn raw(row: &Row<'_>) -> rusqlite::Result<RunColumns> {
    Ok(RunColumns {
        id: row.get(0)?,
        occurrence: row.get(1)?,
        job: row.get(2)?,
        job_name: row.get(3)?,
        kind: row.get(4)?,
        project: row.get(5)?,
        night: row.get(6)?,
        origin: row.get(7)?,
        settings: row.get(8)?,
        priority: row.get(9)?,
        due: row.get(10)?,
        attempt: row.get(11)?,
        state: row.get(12)?,
        fence: row.get(13)?,
        ready_at: row.get(14)?,
        waits_for: row.get(15)?,
        requested: row.get(16)?,
        started: row.get(17)?,
        finished: row.get(18)?,
        starter: row.get(19)?,
        owner: row.get(20)?,
        deadline: row.get(21)?,
        cancel: row.get(22)?,
        staging: row.get(23)?,
        model_calls: row.get(24)?,
        outcome: row.get(25)?,
        summary: row.get(26)?,
        waits_for_run: row.get(27)?,
    })
}

fn run_row(raw: RunColumns) -> Result<RunRow, Fault> {
    let origin = Origin::read(&raw.origin)?;
    Ok(RunRow {
        id: id(raw.id)?,
        occurrence: id(raw.occurrence)?,
        job: JobId(raw.job),
        job_name: raw.job_name,
        kind: raw.kind,
        project: id(raw.project)?,
        night: raw.night.map(NightId),
        origin,
        manual: origin == Origin::Manual,
        settings: match raw.settings.as_deref() {
            Some(settings) => from_json(settings)?,
            None => Vec::new(),
        },
        priority: raw.priority,
        due: timestamp(raw.due)?,
        attempt: raw.attempt,
        state: match raw.state.as_str() {
            "queued" => RunState::Queued,
            "requested" => RunState::Requested,
            "running" => RunState::Running,
            "settled" => RunState::Settled,
            other => return Err(Fault::Nonsense(format!("a run in state {other:?}"))),
        },
        fence: raw.fence.map(Fence),
        ready_at: timestamp_opt(raw.ready_at)?,
        waits_for: raw.waits_for.map(id).transpose()?,
        waits_for_run: match raw.waits_for_run.as_deref().and_then(|it| it.split_once(' ')) {
            Some((run, job)) => Some((id(run.to_owned())?, job.to_owned())),
            None => None,
        },
        requested: timestamp(raw.requested)?,
        started: timestamp_opt(raw.started)?,
        finished: timestamp_opt(raw.finished)?,
        starter: raw.starter.as_deref().map(from_json).transpose()?,
        owner: raw.owner.as_deref().map(from_json).transpose()?,
        deadline: raw.deadline.map(|at| at.max(0).cast_unsigned()),
        cancel: raw.cancel,
        staging: raw.staging,
        model_calls: raw.model_calls,
        outcome: raw.outcome.as_deref().map(from_json).transpose()?,
        summary: raw.summary.as_deref().map(from_json).transpose()?.unwrap_or_default(),
    })
}
