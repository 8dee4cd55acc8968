//! Runs: each attempt at an occurrence, from the intent to start it to its outcome.
//!
//! ```text
//! requested ──admit──> running ──settle──> settled(outcome)
//!     └───────── settle (declined, never started) ──────┘
//! ```

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::{
    Fault, JobId, Ledger, LedgerError, NightId, Result, accounts, from_json, id, millis, moment,
    moment_opt, to_json,
};
use crate::digest::Digest;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::Outcome;
use crate::owner::Owner;

/// What a run left for people to read.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// One line.
    pub headline: String,
    /// More lines.
    pub lines: Vec<String>,
    /// Figures by name, for scripts.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// What was placed, relative to the project.
    pub artifacts: Vec<String>,
    /// Who answered.
    pub backend: String,
    /// How its children were confined.
    pub containment: String,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Intended, not admitted yet.
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
    /// A person asked for it.
    pub by_hand: bool,
    /// When its occurrence was due.
    pub due: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// Where it stands.
    pub state: RunState,
    /// Its fence, once admitted.
    pub fence: Option<Fence>,
    /// When it was intended.
    pub requested: Timestamp,
    /// When it was admitted.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub finished: Option<Timestamp>,
    /// The process that was to spawn it.
    pub starter: Owner,
    /// The process that ran it.
    pub owner: Option<Owner>,
    /// Boot-time milliseconds by which it must be over, in its owner's boot.
    pub deadline: Option<u64>,
    /// Where it stages, relative to the project.
    pub staging: Option<String>,
    /// Model calls made.
    pub model_calls: u32,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// What it left for people.
    pub summary: Summary,
}

/// A run that is not settled: what recovery looks at.
pub type Unsettled = RunRow;

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this project only.
    pub project: Option<ProjectId>,
    /// Of this job only.
    pub job: Option<JobId>,
    /// Of this night only.
    pub night: Option<NightId>,
    /// Whose id begins like this.
    pub prefix: Option<String>,
    /// At most so many, newest first; 0 means all.
    pub limit: u32,
}

const COLUMNS: &str =
    "r.id, r.occurrence, r.job, j.name, j.kind, j.project, o.night, o.by_hand, o.due, r.attempt,
    r.state, r.fence, r.requested, r.started, r.finished, r.starter, r.owner, r.deadline, r.staging,
    r.model_calls, r.outcome, r.summary";
const TABLES: &str = "runs r JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = r.job";

impl Ledger {
    /// One run.
    ///
    /// # Errors
    /// [`LedgerError::NotFound`].
    pub fn run(&self, wanted: &RunId) -> Result<RunRow> {
        let found = self.view(|db| {
            let sql = format!("SELECT {COLUMNS} FROM {TABLES} WHERE r.id = ?1");
            db.query_row(&sql, [wanted.as_str()], raw)
                .optional()?
                .map(run_row)
                .transpose()
        })?;
        found.ok_or_else(|| LedgerError::NotFound {
            what: "run",
            name: wanted.to_string(),
        })
    }

    /// Runs, newest first.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<RunRow>> {
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
            // The plus keeps the order of ids, newest first, so that a limit ends the search.
            wheres.push("+r.job IN (SELECT id FROM jobs WHERE project = ?)");
            values.push(project.to_string().into());
        }
        if let Some(prefix) = &filter.prefix {
            wheres.push("r.id BETWEEN ? AND ?");
            values.push(prefix.clone().into());
            values.push(format!("{prefix}~").into());
        }
        wheres.push("1");
        let limit = if filter.limit == 0 {
            -1
        } else {
            i64::from(filter.limit)
        };
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE {} ORDER BY r.id DESC LIMIT {limit}",
                wheres.join(" AND ")
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(params_from_iter(values), raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// The last attempt at an occurrence.
    pub fn last_run_of(&self, occurrence: &OccurrenceId) -> Result<Option<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM {TABLES} WHERE r.occurrence = ?1 ORDER BY r.attempt DESC LIMIT 1"
            );
            db.query_row(&sql, [occurrence.as_str()], raw)
                .optional()?
                .map(run_row)
                .transpose()
        })
    }

    /// Runs that nobody has settled; the cost follows their number.
    pub fn unsettled(&self) -> Result<Vec<Unsettled>> {
        self.listed("INDEXED BY runs_unsettled", "r.state <> 'settled'")
    }

    /// Settled runs whose staging folder nobody has removed yet; the cost follows their number.
    pub fn unswept(&self) -> Result<Vec<RunRow>> {
        self.listed(
            "INDEXED BY runs_unswept",
            "r.state = 'settled' AND r.staging IS NOT NULL",
        )
    }

    fn listed(&self, index: &str, wheres: &str) -> Result<Vec<RunRow>> {
        self.view(|db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs r {index} JOIN occurrences o ON o.id = r.occurrence
                 JOIN jobs j ON j.id = r.job WHERE {wheres} ORDER BY r.id"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([], raw)?;
            rows.map(|row| run_row(row?)).collect()
        })
    }

    /// Notes that a settled run's staging folder is gone.
    pub fn swept(&mut self, run: &RunId) -> Result<()> {
        self.write(|tx| {
            tx.execute(
                "UPDATE runs SET staging = NULL WHERE id = ?1 AND state = 'settled'",
                [run.as_str()],
            )?;
            Ok(())
        })
    }

    /// Settles a run and, unless it was deferred, its occurrence.
    ///
    /// # Errors
    /// [`LedgerError::StaleFence`] when another run of the job was admitted since; the run must then
    /// not touch anything any more. [`LedgerError::NotFound`] when it is settled already.
    pub fn settle(
        &mut self,
        run: &RunId,
        fence: Option<Fence>,
        outcome: &Outcome,
        summary: &Summary,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            check_fence(tx, run, fence)?;
            settle_row(tx, run, outcome, summary, now)
        })
    }

    /// Gives a run that was never admitted its outcome. Does nothing, and says so, when it was
    /// admitted or settled meanwhile: then its outcome is another process's to give.
    pub fn decline(&mut self, run: &RunId, outcome: &Outcome, now: Timestamp) -> Result<bool> {
        self.write(|tx| {
            if waiting(tx, run)?.is_none() {
                return Ok(false);
            }
            settle_row(tx, run, outcome, &Summary::default(), now)?;
            Ok(true)
        })
    }

    /// Settles a run whose placement met a target that was neither what it expected nor what it
    /// makes. What was staged is kept for a person, and no longer swept.
    pub fn settle_conflict(
        &mut self,
        run: &RunId,
        fence: Fence,
        outcome: &Outcome,
        summary: &Summary,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            check_fence(tx, run, Some(fence))?;
            tx.execute(
                "UPDATE placements SET conflict = ?2 WHERE run = ?1",
                params![run.as_str(), outcome.why().unwrap_or_default()],
            )?;
            tx.execute(
                "UPDATE runs SET staging = NULL WHERE id = ?1",
                [run.as_str()],
            )?;
            settle_row(tx, run, outcome, summary, now)
        })
    }

    /// Settles a run whose process is gone, and requests another attempt at its occurrence where
    /// `retry` allows one.
    pub fn settle_dead(
        &mut self,
        run: &RunId,
        outcome: &Outcome,
        summary: &Summary,
        retry: Option<&Owner>,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            settle_row(tx, run, outcome, summary, now)?;
            let Some(starter) = retry else { return Ok(None) };
            let occurrence: String =
                tx.query_row("SELECT occurrence FROM runs WHERE id = ?1", [run.as_str()], |row| row.get(0))?;
            tx.execute(
                "UPDATE occurrences SET outcome = NULL, settled = NULL, again_at = NULL WHERE id = ?1",
                [&occurrence],
            )?;
            request(tx, &id(occurrence)?, starter, now).map(Some)
        })
    }

    /// Makes `starter` the process that answers for a requested run.
    pub fn adopt(&mut self, run: &RunId, starter: &Owner) -> Result<bool> {
        self.write(|tx| {
            Ok(tx.execute(
                "UPDATE runs SET starter = ?2 WHERE id = ?1 AND state = 'requested'",
                params![run.as_str(), to_json(starter)],
            )? == 1)
        })
    }

    /// Lost runs of one occurrence so far.
    pub fn lost_runs_of(&self, occurrence: &OccurrenceId) -> Result<u32> {
        self.view(|db| {
            Ok(db.query_row(
                "SELECT count(*) FROM runs WHERE occurrence = ?1 AND outcome ->> 'outcome' = 'lost'",
                [occurrence.as_str()],
                |row| row.get(0),
            )?)
        })
    }

    /// Failed, timed-out and lost runs of a job since the last one that placed something.
    pub fn failures_in_a_row(&self, job: JobId) -> Result<u32> {
        self.view(|db| {
            let mut statement = db.prepare_cached(
                "SELECT outcome FROM runs WHERE job = ?1 AND state = 'settled' ORDER BY id DESC LIMIT 50",
            )?;
            let mut rows = statement.query([job.0])?;
            let mut failures = 0;
            while let Some(row) = rows.next()? {
                match from_json(&row.get::<_, String>(0)?)? {
                    Outcome::Succeeded | Outcome::Degraded { .. } => break,
                    Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. } => failures += 1,
                    _ => {}
                }
            }
            Ok(failures)
        })
    }
}

pub(super) struct Waiting {
    pub occurrence: OccurrenceId,
    pub job: JobId,
    pub seed: u64,
}

/// The run, if it is requested and nothing more.
pub(super) fn waiting(db: &Connection, run: &RunId) -> Result<Option<Waiting>, Fault> {
    let found: Option<(String, i64, i64)> = db
        .query_row(
            "SELECT occurrence, job, seed FROM runs WHERE id = ?1 AND state = 'requested'",
            [run.as_str()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    found
        .map(|(occurrence, job, seed)| {
            Ok(Waiting {
                occurrence: id(occurrence)?,
                job: JobId(job),
                seed: seed.cast_unsigned(),
            })
        })
        .transpose()
}

/// Adds a requested run to an occurrence.
pub(super) fn request(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    starter: &Owner,
    now: Timestamp,
) -> Result<RunId, Fault> {
    let run = RunId::new(now);
    let digest = Digest::of(run.as_str().as_bytes()).short();
    let seed = u64::from_str_radix(&digest, 16).expect("a short digest is 16 hex digits");
    tx.execute(
        "INSERT INTO runs (id, occurrence, job, attempt, state, requested, starter, seed)
         SELECT ?1, id, job, 1 + (SELECT count(*) FROM runs WHERE occurrence = ?2), 'requested', ?3, ?4, ?5
         FROM occurrences WHERE id = ?2",
        params![run.as_str(), occurrence.as_str(), millis(now), to_json(starter), seed.cast_signed()],
    )?;
    Ok(run)
}

/// The one place where a run and its occurrence get their outcome.
pub(super) fn settle_row(
    tx: &Transaction<'_>,
    run: &RunId,
    outcome: &Outcome,
    summary: &Summary,
    now: Timestamp,
) -> Result<(), Fault> {
    let settled: Option<(String, Option<i64>)> = tx
        .query_row(
            "UPDATE runs SET state = 'settled', outcome = ?2, summary = ?3, finished = ?4
             WHERE id = ?1 AND state <> 'settled' RETURNING occurrence, started",
            params![
                run.as_str(),
                to_json(outcome),
                to_json(summary),
                millis(now)
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let Some((occurrence, started)) = settled else {
        return Err(Fault::Known(LedgerError::NotFound {
            what: "unsettled run",
            name: run.to_string(),
        }));
    };
    if let Some(started) = started {
        let seconds = (millis(now) - started)
            .max(0)
            .cast_unsigned()
            .div_ceil(1000);
        accounts::settle(tx, run, seconds)?;
    }
    let comes_back = match outcome {
        Outcome::Deferred { until, .. } => {
            // A person who asked for one run, once, has been told; nobody else is waiting for it.
            let told: bool = tx.query_row(
                "SELECT by_hand AND night IS NULL AND key NOT GLOB 'key *' FROM occurrences WHERE id = ?1",
                [&occurrence],
                |row| row.get(0),
            )?;
            (!told).then_some(*until)
        }
        _ => None,
    };
    match comes_back {
        Some(until) => tx.execute(
            "UPDATE occurrences SET again_at = ?2 WHERE id = ?1",
            params![occurrence, millis(until)],
        )?,
        None => tx.execute(
            "UPDATE occurrences SET outcome = ?2, settled = ?3, again_at = NULL WHERE id = ?1",
            params![occurrence, to_json(outcome), millis(now)],
        )?,
    };
    Ok(())
}

/// Refuses a run that another one has overtaken.
pub(super) fn check_fence(db: &Connection, run: &RunId, fence: Option<Fence>) -> Result<(), Fault> {
    let Some(fence) = fence else { return Ok(()) };
    let current: Option<i64> = db
        .query_row(
            "SELECT j.fence FROM runs r JOIN jobs j ON j.id = r.job
             WHERE r.id = ?1 AND r.state = 'running' AND r.fence = ?2",
            params![run.as_str(), fence.0],
            |row| row.get(0),
        )
        .optional()?;
    if current == Some(fence.0) {
        Ok(())
    } else {
        Err(Fault::Known(LedgerError::StaleFence {
            run: run.to_string(),
            fence: fence.0,
        }))
    }
}

struct Raw {
    id: String,
    occurrence: String,
    job: i64,
    job_name: String,
    kind: String,
    project: String,
    night: Option<i64>,
    by_hand: bool,
    due: i64,
    attempt: u32,
    state: String,
    fence: Option<i64>,
    requested: i64,
    started: Option<i64>,
    finished: Option<i64>,
    starter: String,
    owner: Option<String>,
    deadline: Option<i64>,
    staging: Option<String>,
    model_calls: u32,
    outcome: Option<String>,
    summary: Option<String>,
}

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        occurrence: row.get(1)?,
        job: row.get(2)?,
        job_name: row.get(3)?,
        kind: row.get(4)?,
        project: row.get(5)?,
        night: row.get(6)?,
        by_hand: row.get(7)?,
        due: row.get(8)?,
        attempt: row.get(9)?,
        state: row.get(10)?,
        fence: row.get(11)?,
        requested: row.get(12)?,
        started: row.get(13)?,
        finished: row.get(14)?,
        starter: row.get(15)?,
        owner: row.get(16)?,
        deadline: row.get(17)?,
        staging: row.get(18)?,
        model_calls: row.get(19)?,
        outcome: row.get(20)?,
        summary: row.get(21)?,
    })
}

fn run_row(raw: Raw) -> Result<RunRow, Fault> {
    Ok(RunRow {
        id: id(raw.id)?,
        occurrence: id(raw.occurrence)?,
        job: JobId(raw.job),
        job_name: raw.job_name,
        kind: raw.kind,
        project: id(raw.project)?,
        night: raw.night.map(NightId),
        by_hand: raw.by_hand,
        due: moment(raw.due)?,
        attempt: raw.attempt,
        state: match raw.state.as_str() {
            "requested" => RunState::Requested,
            "running" => RunState::Running,
            "settled" => RunState::Settled,
            other => return Err(Fault::Nonsense(format!("a run in state {other:?}"))),
        },
        fence: raw.fence.map(Fence),
        requested: moment(raw.requested)?,
        started: moment_opt(raw.started)?,
        finished: moment_opt(raw.finished)?,
        starter: from_json(&raw.starter)?,
        owner: raw.owner.as_deref().map(from_json).transpose()?,
        deadline: raw.deadline.map(|at| at.max(0).cast_unsigned()),
        staging: raw.staging,
        model_calls: raw.model_calls,
        outcome: raw.outcome.as_deref().map(from_json).transpose()?,
        summary: raw
            .summary
            .as_deref()
            .map(from_json)
            .transpose()?
            .unwrap_or_default(),
    })
}
