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
use rusqlite::{Connection, Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::columns::{Count, Json, Query as _, json, json_opt, time, time_opt, to_json};
use super::{Fault, JobId, NightId, Origin, Result, Store};
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

/// The state of a run, with the facts that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run waits for its start time, its turn or another run.
    Queued {
        /// The earliest start time.
        ready_at: Timestamp,
        /// The last run of the occurrence that must succeed first, and the name of its job.
        waits_for: Option<(RunId, String)>,
    },
    /// A process starts the run now; it is not admitted yet.
    Requested {
        /// The process that is to spawn it.
        starter: ProcessIdentity,
        /// The process that was spawned.
        spawned: Option<Spawned>,
    },
    /// The run was admitted and is not settled yet.
    Running {
        /// Its admission.
        execution: Execution,
        /// The time by which it must be over, in boot-time milliseconds of its owner's boot.
        deadline: u64,
        /// Its staging folder, relative to the project.
        staging: String,
        /// The reason why it was asked to end.
        cancel: Option<String>,
    },
    /// The run is over.
    Settled {
        /// How it ended.
        outcome: Outcome,
        /// When it was settled.
        finished: Timestamp,
        /// Its admission, if it was admitted.
        execution: Option<Execution>,
        /// Its staging folder, until it is swept.
        staging: Option<String>,
        /// The reason why it was asked to end while it ran.
        cancel: Option<String>,
    },
}

/// The process of a run that is not admitted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawned {
    /// The process.
    pub owner: ProcessIdentity,
    /// The time by which the run must be admitted, in boot-time milliseconds of the owner's boot.
    pub deadline: u64,
}

/// The admission of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Its fence.
    pub fence: Fence,
    /// When it was admitted.
    pub started: Timestamp,
    /// The process that runs or ran it.
    pub owner: ProcessIdentity,
}

impl RunState {
    /// Returns the name used in the database and in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Requested { .. } => "requested",
            Self::Running { .. } => "running",
            Self::Settled { .. } => "settled",
        }
    }
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
    /// Settings of its job that hold for its occurrence only, by key, as they were given.
    pub settings: Vec<(String, String)>,
    /// Higher goes first.
    pub priority: i32,
    /// When its occurrence was due.
    pub due: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// When it was queued or requested.
    pub requested: Timestamp,
    /// Model calls made.
    pub model_calls: u32,
    /// The results of the run in a form for people; empty until it publishes or settles.
    pub summary: RunSummary,
    /// Its state.
    pub state: RunState,
}

impl RunRow {
    /// Returns whether a person asked for the run and waits for it.
    pub fn manual(&self) -> bool {
        self.origin == Origin::Manual
    }

    /// Returns how the run ended; `None` while it is not settled.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            RunState::Settled { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// Returns the earliest start time of a queued run.
    pub fn ready_at(&self) -> Option<Timestamp> {
        match self.state {
            RunState::Queued { ready_at, .. } => Some(ready_at),
            _ => None,
        }
    }

    /// Returns the run that must succeed before this queued one starts, and the name of its job.
    pub fn waits_for(&self) -> Option<&(RunId, String)> {
        match &self.state {
            RunState::Queued { waits_for, .. } => waits_for.as_ref(),
            _ => None,
        }
    }

    /// Returns the admission of the run, if it was admitted.
    pub fn execution(&self) -> Option<&Execution> {
        match &self.state {
            RunState::Running { execution, .. } => Some(execution),
            RunState::Settled { execution, .. } => execution.as_ref(),
            RunState::Queued { .. } | RunState::Requested { .. } => None,
        }
    }

    /// Returns when the run was admitted.
    pub fn started(&self) -> Option<Timestamp> {
        self.execution().map(|execution| execution.started)
    }

    /// Returns when the run was settled.
    pub fn finished(&self) -> Option<Timestamp> {
        match self.state {
            RunState::Settled { finished, .. } => Some(finished),
            _ => None,
        }
    }

    /// Returns the process that runs or ran it, once it is spawned.
    pub fn owner(&self) -> Option<&ProcessIdentity> {
        match &self.state {
            RunState::Requested { spawned, .. } => spawned.as_ref().map(|spawned| &spawned.owner),
            _ => self.execution().map(|execution| &execution.owner),
        }
    }

    /// Returns the reason why the run was asked to end while it ran.
    pub fn cancel(&self) -> Option<&str> {
        match &self.state {
            RunState::Running { cancel, .. } | RunState::Settled { cancel, .. } => {
                cancel.as_deref()
            }
            RunState::Queued { .. } | RunState::Requested { .. } => None,
        }
    }
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

/// The columns that [`run`] maps.
const COLUMNS: &str = "r.id, r.occurrence, r.job, j.name, j.kind, j.project, o.night, o.origin,
    o.settings, o.priority, o.due, r.attempt, r.requested, r.model_calls, r.summary, r.state,
    r.ready_at, (SELECT json_array(w.id, wj.name) FROM runs w JOIN jobs wj ON wj.id = w.job
     WHERE w.occurrence = r.waits_for ORDER BY w.attempt DESC LIMIT 1), r.starter, r.owner, r.deadline, r.fence, r.started, r.staging, r.cancel,
    r.outcome, r.finished";

fn run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        id: row.get(0)?,
        occurrence: row.get(1)?,
        job: row.get(2)?,
        job_name: row.get(3)?,
        kind: row.get(4)?,
        project: row.get(5)?,
        night: row.get(6)?,
        origin: row.get(7)?,
        settings: json_opt(row, 8)?.unwrap_or_default(),
        priority: row.get(9)?,
        due: time(row, 10)?,
        attempt: row.get(11)?,
        requested: time(row, 12)?,
        model_calls: row.get(13)?,
        summary: json_opt(row, 14)?.unwrap_or_default(),
        state: state(row)?,
    })
}

fn state(row: &Row<'_>) -> rusqlite::Result<RunState> {
    let deadline = || row.get(20).map(|Count(millis)| millis);
    let execution = || -> rusqlite::Result<Execution> {
        Ok(Execution { fence: row.get(21)?, started: time(row, 22)?, owner: json(row, 19)? })
    };
    Ok(match row.get_ref(15)?.as_str()? {
        "queued" => RunState::Queued { ready_at: time(row, 16)?, waits_for: json_opt(row, 17)? },
        "requested" => {
            let spawned = match json_opt(row, 19)? {
                Some(owner) => Some(Spawned { owner, deadline: deadline()? }),
                None => None,
            };
            RunState::Requested { starter: json(row, 18)?, spawned }
        }
        "running" => RunState::Running {
            execution: execution()?,
            deadline: deadline()?,
            staging: row.get(23)?,
            cancel: row.get(24)?,
        },
        _ => RunState::Settled {
            outcome: json(row, 25)?,
            finished: time(row, 26)?,
            execution: time_opt(row, 22)?.map(|_| execution()).transpose()?,
            staging: row.get(23)?,
            cancel: row.get(24)?,
        },
    })
}

/// The joins of [`COLUMNS`]; `index` names the index that finds the runs, or is empty.
fn select(index: &str, wheres: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM runs r {index} JOIN occurrences o ON o.id = r.occurrence
         JOIN jobs j ON j.id = r.job WHERE {wheres}"
    )
}

impl Store {
    /// Returns one run.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`](super::StoreError::NotFound).
    pub fn run(&self, wanted: &RunId) -> Result<RunRow> {
        self.view(|db| {
            let found = db.first(&select("", "r.id = ?1"), [wanted], run)?;
            found.ok_or_else(|| Fault::not_found("run", wanted))
        })
    }

    /// Returns runs, the last recorded first: ids begin with a time, and clocks are set back.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>> {
        let mut wheres: Vec<&str> = vec!["1"];
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
        values.push(if filter.limit == 0 { -1 } else { i64::from(filter.limit) }.into());
        let sql = select("", &wheres.join(" AND ")) + " ORDER BY r.rowid DESC LIMIT ?";
        self.view(|db| db.all(&sql, params_from_iter(values), run))
    }

    /// Returns the last attempt at an occurrence.
    pub fn last_run_of(&self, occurrence: &OccurrenceId) -> Result<Option<RunRow>> {
        let sql = select("", "r.occurrence = ?1 ORDER BY r.attempt DESC LIMIT 1");
        self.view(|db| db.first(&sql, [occurrence], run))
    }

    /// Returns the runs that a process starts or runs, or did before it died. The cost is
    /// proportional to their number.
    pub fn live(&self) -> Result<Vec<RunRow>> {
        let wheres = "r.state IN ('requested', 'running') ORDER BY r.rowid";
        self.view(|db| db.all(&select("INDEXED BY runs_live", wheres), [], run))
    }

    /// Returns the waiting runs of a project: first those that wait for their start time or their
    /// turn, in the order in which they become ready, then those that wait for other runs.
    pub fn queued_of(&self, project: &ProjectId) -> Result<Vec<RunRow>> {
        let sql = select(
            "",
            "r.state = 'queued' AND r.state <> 'settled'
               AND r.job IN (SELECT id FROM jobs WHERE project = ?1)
             ORDER BY r.waits_for IS NOT NULL, r.ready_at, o.priority DESC, r.id",
        );
        self.view(|db| db.all(&sql, [project], run))
    }

    /// Returns the settled runs whose staging folder still has to be removed. The cost is
    /// proportional to their number.
    pub fn unswept(&self) -> Result<Vec<RunRow>> {
        let wheres = "r.state = 'settled' AND r.staging IS NOT NULL ORDER BY r.rowid";
        self.view(|db| db.all(&select("INDEXED BY runs_unswept", wheres), [], run))
    }

    /// Records that a settled run's staging folder was removed.
    pub fn swept(&mut self, run: &RunId) -> Result<()> {
        let sql = "UPDATE runs SET staging = NULL WHERE id = ?1 AND state = 'settled'";
        self.write(|tx| tx.change(sql, [run]).map(drop))
    }

    /// Makes `starter` the process that answers for a requested run.
    pub fn adopt(&mut self, run: &RunId, starter: &ProcessIdentity) -> Result<bool> {
        let sql = "UPDATE runs SET starter = ?2, owner = NULL, deadline = NULL
                   WHERE id = ?1 AND state = 'requested'";
        self.write(|tx| Ok(tx.change(sql, params![run, to_json(starter)])? == 1))
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
        let sql = "UPDATE runs SET owner = ?2, deadline = ?3 WHERE id = ?1 AND state = 'requested'";
        self.write(|tx| Ok(tx.change(sql, params![run, to_json(owner), deadline])? == 1))
    }

    /// Counts the lost runs of one occurrence so far.
    pub fn lost_runs_of(&self, occurrence: &OccurrenceId) -> Result<u32> {
        let sql =
            "SELECT count(*) FROM runs WHERE occurrence = ?1 AND outcome ->> 'outcome' = 'lost'";
        self.view(|db| db.value(sql, [occurrence]))
    }

    /// Returns when the last run of a job for an occurrence other than `but` was admitted.
    pub fn last_began(&self, job: JobId, but: &OccurrenceId) -> Result<Option<Timestamp>> {
        let sql = "SELECT started FROM runs WHERE job = ?1 AND occurrence <> ?2
                   AND started IS NOT NULL ORDER BY rowid DESC LIMIT 1";
        self.view(|db| db.first(sql, params![job, but], |row| time(row, 0)))
    }

    /// Returns whether an attempt at an occurrence was ever admitted.
    pub fn began(&self, occurrence: &OccurrenceId) -> Result<bool> {
        let sql = "SELECT 1 FROM runs WHERE occurrence = ?1 AND started IS NOT NULL";
        self.view(|db| db.exists(sql, [occurrence]))
    }

    /// Counts the job's last runs, in a row, that ended as deferred with a reason that begins with
    /// `why`. Skipped runs do not count and do not end the row. Only the last fifty runs are read.
    pub fn deferrals_in_a_row(&self, job: JobId, why: &str) -> Result<u32> {
        let sql = "SELECT outcome FROM runs WHERE job = ?1 AND state = 'settled'
                   ORDER BY rowid DESC LIMIT 50";
        let outcomes: Vec<Json<Outcome>> = self.view(|db| db.values(sql, [job]))?;
        let mut count = 0;
        for Json(outcome) in outcomes {
            match outcome {
                Outcome::Deferred { why: reported, .. } if reported.starts_with(why) => count += 1,
                Outcome::Skipped { .. } => {}
                _ => break,
            }
        }
        Ok(count)
    }
}

/// A requested run, as far as its admission needs it.
pub(super) struct RequestedRun {
    pub occurrence: OccurrenceId,
    pub job: JobId,
    pub seed: u64,
}

/// Returns the run if its state is still requested.
pub(super) fn requested(db: &Connection, run: &RunId) -> Result<Option<RequestedRun>, Fault> {
    let sql = "SELECT occurrence, job, seed FROM runs WHERE id = ?1 AND state = 'requested'";
    db.first(sql, [run], |row| {
        let seed = row.get::<_, i64>(2)?.cast_unsigned();
        Ok(RequestedRun { occurrence: row.get(0)?, job: row.get(1)?, seed })
    })
}
