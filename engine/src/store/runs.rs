//! Reads runs, which are attempts at occurrences. The module `settle` ends runs, and `queue` starts
//! waiting runs.
//!
//! ```text
//! queued{ready_at} ──start_ready──> requested{starter, spawned} ──admit──> running{execution}
//!     │                                 │                                    │
//!     └── expired, cancelled ───────────┴── declined ────────────────────────┴──> settled{outcome}
//! ```
//!
//! An occurrence is open if and only if one of its runs is unsettled.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use super::columns::{Count, Json, Query as _, json, json_opt, millis, time, time_opt, to_json};
use super::{Fault, JobId, NightId, Origin, Result, Store};
use crate::awake::SleepInhibition;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::Outcome;
use crate::process_id::ProcessIdentity;
use crate::sandbox::SandboxLevel;

/// The results of a run, for users and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSummary {
    /// A one-line summary.
    pub headline: String,
    /// Additional lines of the report.
    pub lines: Vec<String>,
    /// Named values for scripts.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// The published files, relative to the project.
    pub artifacts: Vec<String>,
    /// The name of the backend that answered the run's requests.
    pub backend: String,
    /// A description of the sandbox used for the run's child processes.
    pub containment: String,
    /// The weakest sandbox level of the run's child processes, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// The restrictions missing from the sandbox of the run's program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The parts of replies that a check rejected, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Number of failed tool calls, including those refused by the sandbox.
    pub failed_tools: u64,
    /// The result of the request to keep the machine awake, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awake: Option<SleepInhibition>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum RunState {
    /// The run is waiting for its start time, its turn or another run.
    Queued {
        /// The earliest start time.
        ready_at: Timestamp,
        /// The last run of the occurrence that must succeed first, and the name of that run's job.
        /// `None` if the run waits for no occurrence.
        waits_for: Option<(RunId, String)>,
    },
    /// A process is starting the run, which has not been admitted yet.
    Requested {
        /// The process that spawns the run.
        starter: ProcessIdentity,
        /// The process that was spawned for the run, if any.
        spawned: Option<Spawned>,
    },
    /// The run is admitted and not settled.
    Running {
        execution: Execution,
        /// The time by which the run must end, in milliseconds since the boot during which its
        /// owner started.
        deadline: u64,
        /// The run's staging folder, relative to the project.
        staging: String,
        /// The reason for cancelling the run, if its cancellation was requested.
        cancel: Option<String>,
    },
    Settled {
        outcome: Outcome,
        finished: Timestamp,
        /// The details of the run's admission, if it was admitted.
        execution: Option<Execution>,
        /// The run's staging folder, if it has not been swept yet.
        staging: Option<String>,
        /// The reason for cancelling the run, if its cancellation was requested while it ran.
        cancel: Option<String>,
    },
}

/// The process of a run that has not been admitted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawned {
    pub owner: ProcessIdentity,
    /// The time by which the run must be admitted, in milliseconds since the boot during which the
    /// owner started.
    pub deadline: u64,
}

/// The details of a run's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub fence: Fence,
    pub started: Timestamp,
    /// The process that executes or executed the run.
    pub owner: ProcessIdentity,
}

impl RunState {
    /// Returns the state's name in the database and in `--json` output.
    pub fn name(&self) -> &'static str {
        self.into_str()
    }
}

/// A run, with data from its job and occurrence.
#[derive(Clone, Debug)]
pub struct RunRow {
    pub id: RunId,
    pub occurrence: OccurrenceId,
    pub job: JobId,
    pub job_name: String,
    pub kind: String,
    pub project: ProjectId,
    /// The night of the run's occurrence, if it has one.
    pub night: Option<NightId>,
    pub origin: Origin,
    /// The settings that override the job's settings for the run's occurrence.
    pub settings: Vec<(String, String)>,
    /// Runs with a higher priority start first.
    pub priority: i32,
    /// The time at which the run's occurrence was due.
    pub due: Timestamp,
    /// The attempt number, starting at 1.
    pub attempt: u32,
    /// The time at which the run was queued or requested.
    pub requested: Timestamp,
    /// Number of model requests for which the run reserved budget.
    pub model_calls: u32,
    /// The results of the run. They are empty until the run publishes or is settled.
    pub summary: RunSummary,
    pub state: RunState,
}

impl RunRow {
    /// Returns whether the origin of the run's occurrence is [`Origin::Manual`].
    pub fn manual(&self) -> bool {
        self.origin == Origin::Manual
    }

    /// Returns the run's outcome, if it is settled.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            RunState::Settled { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// Returns the run's earliest start time, if it is queued.
    pub fn ready_at(&self) -> Option<Timestamp> {
        match self.state {
            RunState::Queued { ready_at, .. } => Some(ready_at),
            _ => None,
        }
    }

    /// Returns the run that must succeed before this queued run starts, and the name of that run's
    /// job. Returns `None` if this run waits for no other run.
    pub fn waits_for(&self) -> Option<&(RunId, String)> {
        match &self.state {
            RunState::Queued { waits_for, .. } => waits_for.as_ref(),
            _ => None,
        }
    }

    /// Returns the details of the run's admission, if it was admitted.
    pub fn execution(&self) -> Option<&Execution> {
        match &self.state {
            RunState::Running { execution, .. } => Some(execution),
            RunState::Settled { execution, .. } => execution.as_ref(),
            RunState::Queued { .. } | RunState::Requested { .. } => None,
        }
    }

    /// Returns the time of the run's admission, if it was admitted.
    pub fn started(&self) -> Option<Timestamp> {
        self.execution().map(|execution| execution.started)
    }

    /// Returns the time at which the run was settled, if it is settled.
    pub fn finished(&self) -> Option<Timestamp> {
        match self.state {
            RunState::Settled { finished, .. } => Some(finished),
            _ => None,
        }
    }

    /// Returns the process that was spawned for the run or that executes or executed it, if there
    /// is one.
    pub fn owner(&self) -> Option<&ProcessIdentity> {
        match &self.state {
            RunState::Requested { spawned, .. } => spawned.as_ref().map(|spawned| &spawned.owner),
            _ => self.execution().map(|execution| &execution.owner),
        }
    }

    /// Returns the reason for cancelling the run, if its cancellation was requested while it ran.
    pub fn cancel(&self) -> Option<&str> {
        match &self.state {
            RunState::Running { cancel, .. } | RunState::Settled { cancel, .. } => {
                cancel.as_deref()
            }
            RunState::Queued { .. } | RunState::Requested { .. } => None,
        }
    }
}

/// The columns for [`run`].
pub(super) const COLUMNS: &str = "r.id, r.occurrence, r.job, j.name, j.kind, j.project, o.night, o.origin,
    o.settings, o.priority, o.due, r.attempt, r.requested, r.model_calls, r.summary, r.state,
    r.ready_at, (SELECT json_array(w.id, wj.name) FROM runs w JOIN jobs wj ON wj.id = w.job
     WHERE w.occurrence = r.waits_for ORDER BY w.attempt DESC LIMIT 1), r.starter, r.owner, r.deadline, r.fence, r.started, r.staging, r.cancel,
    r.outcome, r.finished";

pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
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

/// The query for whether any attempt at an occurrence was admitted.
pub(super) const BEGAN: &str = "SELECT 1 FROM runs WHERE occurrence = ?1 AND started IS NOT NULL";

/// Returns a query that selects [`COLUMNS`]. `index` is empty or an `INDEXED BY` clause.
fn select(index: &str, wheres: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM runs r {index} JOIN occurrences o ON o.id = r.occurrence
         JOIN jobs j ON j.id = r.job WHERE {wheres}"
    )
}

impl Store {
    /// Returns the run with the id `wanted`.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`](super::StoreError::NotFound) if there is no such run.
    pub fn run(&self, wanted: &RunId) -> Result<RunRow> {
        self.view(|db| {
            let found = db.first(&select("", "r.id = ?1"), [wanted], run)?;
            found.ok_or_else(|| Fault::not_found("run", wanted))
        })
    }

    /// Returns the last attempt at an occurrence, if there is one.
    pub fn last_run_of(&self, occurrence: &OccurrenceId) -> Result<Option<RunRow>> {
        let sql = select("", "r.occurrence = ?1 ORDER BY r.attempt DESC LIMIT 1");
        self.view(|db| db.first(&sql, [occurrence], run))
    }

    /// Returns the next attempt at the occurrence of a run, if there is one.
    pub fn next_run_of(&self, earlier: &RunRow) -> Result<Option<RunRow>> {
        let sql = select("", "r.occurrence = ?1 AND r.attempt > ?2 ORDER BY r.attempt LIMIT 1");
        let of = params![earlier.occurrence, earlier.attempt];
        self.view(|db| db.first(&sql, of, run))
    }

    /// Returns the requested and running runs, including runs whose process has died. The cost
    /// grows with the number of these runs.
    pub fn live(&self) -> Result<Vec<RunRow>> {
        let wheres = "r.state IN ('requested', 'running') ORDER BY r.rowid";
        self.view(|db| db.all(&select("INDEXED BY runs_live", wheres), [], run))
    }

    /// Returns a project's queued runs. Runs waiting for a time or a slot come first, in the order
    /// in which they become ready. Runs waiting for other runs follow.
    pub fn queued_of(&self, project: &ProjectId) -> Result<Vec<RunRow>> {
        let sql = select(
            "",
            "r.state = 'queued' AND r.state <> 'settled'
               AND r.job IN (SELECT id FROM jobs WHERE project = ?1)
             ORDER BY r.waits_for IS NOT NULL, r.ready_at, o.priority DESC, r.id",
        );
        self.view(|db| db.all(&sql, [project], run))
    }

    /// Returns the settled runs whose staging folder has not been removed. The cost grows with the
    /// number of these runs.
    pub fn unswept(&self) -> Result<Vec<RunRow>> {
        let wheres = "r.state = 'settled' AND r.staging IS NOT NULL ORDER BY r.rowid";
        self.view(|db| db.all(&select("INDEXED BY runs_unswept", wheres), [], run))
    }

    /// Records that a settled run's staging folder has been removed.
    pub fn swept(&mut self, run: &RunId) -> Result<()> {
        let sql = "UPDATE runs SET staging = NULL WHERE id = ?1 AND state = 'settled'";
        self.write(|tx| tx.change(sql, [run]).map(drop))
    }

    /// Makes `starter` responsible for a requested run, and removes the record of the process that
    /// was spawned for it. Returns `false` if the run is no longer requested.
    pub fn adopt(&mut self, run: &RunId, starter: &ProcessIdentity) -> Result<bool> {
        let sql = "UPDATE runs SET starter = ?2, owner = NULL, deadline = NULL
                   WHERE id = ?1 AND state = 'requested'";
        self.write(|tx| Ok(tx.change(sql, params![run, to_json(starter)])? == 1))
    }

    /// Returns a requested run to the queue. Changes nothing if the run is no longer requested.
    pub fn requeue(&mut self, run: &RunId, now: Timestamp) -> Result<()> {
        let sql = "UPDATE runs SET state = 'queued', ready_at = ?2, starter = NULL, owner = NULL,
                     deadline = NULL WHERE id = ?1 AND state = 'requested'";
        self.write(|tx| tx.change(sql, params![run, millis(now)]).map(drop))
    }

    /// Records the process spawned for a requested run and the time by which the run must be
    /// admitted, measured since boot. Returns `false` and changes nothing if the run is no longer
    /// requested.
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

    /// Counts an occurrence's lost runs.
    pub fn lost_runs_of(&self, occurrence: &OccurrenceId) -> Result<u32> {
        let sql =
            "SELECT count(*) FROM runs WHERE occurrence = ?1 AND outcome ->> 'outcome' = 'lost'";
        self.view(|db| db.value(sql, [occurrence]))
    }

    /// Returns the time at which the job's last admitted run started, ignoring the runs of the
    /// occurrence `but`. Returns `None` if no other run was admitted.
    pub fn last_began(&self, job: JobId, but: &OccurrenceId) -> Result<Option<Timestamp>> {
        let sql = "SELECT started FROM runs WHERE job = ?1 AND occurrence <> ?2
                   AND started IS NOT NULL ORDER BY rowid DESC LIMIT 1";
        self.view(|db| db.first(sql, params![job, but], |row| time(row, 0)))
    }

    /// Returns whether any attempt at an occurrence was admitted.
    pub fn began(&self, occurrence: &OccurrenceId) -> Result<bool> {
        self.view(|db| db.exists(BEGAN, [occurrence]))
    }

    /// Counts the job's most recent consecutive runs that were deferred with a reason that begins
    /// with `why`. Skipped runs are ignored. Only the last fifty settled runs are read.
    pub fn deferrals_in_a_row(&self, job: JobId, why: &str) -> Result<u32> {
        let sql = "SELECT outcome FROM runs WHERE job = ?1 AND state = 'settled'
                   ORDER BY rowid DESC LIMIT 50";
        let outcomes: Vec<Json<Outcome>> = self.view(|db| db.values(sql, [job]))?;
        Ok(in_a_row(
            outcomes,
            |outcome| matches!(outcome, Outcome::Deferred { why: reported, .. } if reported.starts_with(why)),
        ))
    }
}

/// Counts the leading outcomes for which `counts` returns `true`. Skipped outcomes are ignored.
pub(super) fn in_a_row(outcomes: Vec<Json<Outcome>>, counts: impl Fn(&Outcome) -> bool) -> u32 {
    let tried = outcomes.into_iter().map(|Json(outcome)| outcome);
    let tried = tried.filter(|outcome| !matches!(outcome, Outcome::Skipped { .. }));
    tried.take_while(counts).fold(0, |count, _| count + 1)
}

/// The data needed to admit a requested run.
pub(super) struct RequestedRun {
    pub occurrence: OccurrenceId,
    pub job: JobId,
    pub seed: u64,
}

/// Returns the data needed to admit the run, or `None` if the run is not in the requested state.
pub(super) fn requested(db: &Connection, run: &RunId) -> Result<Option<RequestedRun>, Fault> {
    let sql = "SELECT occurrence, job, seed FROM runs WHERE id = ?1 AND state = 'requested'";
    db.first(sql, [run], |row| {
        let seed = row.get::<_, i64>(2)?.cast_unsigned();
        Ok(RequestedRun { occurrence: row.get(0)?, job: row.get(1)?, seed })
    })
}
