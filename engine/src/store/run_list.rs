//! Lists runs, most recently recorded first. A query must never read all runs to find a few.
//!
//! ```text
//! a project with few runs ──all of its runs───────────────┐
//! a text ──run_texts──────────────────────────────────────┤
//! an outcome, failures ──runs_by_outcome, runs_failures───┼─> in order ─> conditions ─> limit
//! otherwise ──all runs since a time───────────────────────┘
//! ```

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::columns::{Query as _, millis};
use super::runs::{COLUMNS, run};
use super::{Fault, JobId, NightId, Result, RunRow, Store};
use crate::ids::{ProjectId, RunId};

/// Maximum number of runs in a project that is searched run by run.
const FEW: u32 = if cfg!(test) { 40 } else { 10_000 };
/// Number of rows to read from the time index to find the first run since a given time. A run is
/// omitted only if the clock was set back after it was recorded and at least this many runs that
/// were recorded after it have earlier times.
const DISORDER: u32 = 10_000;
/// Length, in characters, of the sequences in the text index. A shorter search string is compared
/// with all runs.
pub const SHORTEST_TEXT: usize = 3;
/// Maximum number of sequences of a search string to look up in the text index. The runs found are
/// always compared with the whole string.
const SEQUENCES: usize = 16;

/// Selects runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only the runs of this project.
    pub project: Option<ProjectId>,
    /// Only the runs of this job.
    pub job: Option<JobId>,
    /// Only the runs of this night.
    pub night: Option<NightId>,
    /// Only the runs whose id begins with this string.
    pub prefix: Option<String>,
    /// Maximum number of runs. 0 means no limit.
    pub limit: u32,
    /// Only the runs that failed, timed out or were lost.
    pub failed: bool,
    /// Only the runs that have an outcome.
    pub settled: bool,
    /// Only the runs that were recorded at this time or later.
    pub since: Option<Timestamp>,
    /// Only the runs whose outcome or state has this name.
    pub outcome: Option<String>,
    /// Only the settled runs whose job name, headline or reason contains this string, ignoring
    /// ASCII case.
    pub text: Option<String>,
    /// Only the runs that were recorded before this one.
    pub before: Option<RunId>,
    /// Excludes the runs of jobs of this kind, unless `job` is set.
    pub but_kind: Option<&'static str>,
}

/// A run query under construction.
struct RunQuery {
    /// The table to read and the index by which to read it.
    from: &'static str,
    /// The column with the run number, which determines the order in which the table is read.
    number: &'static str,
    wheres: Vec<&'static str>,
    values: Vec<Value>,
}

impl RunQuery {
    fn and(&mut self, condition: &'static str, value: impl Into<Value>) {
        self.wheres.push(condition);
        self.values.push(value.into());
    }
}

impl Store {
    /// Returns runs, most recently recorded first. They are not ordered by id, because a run that
    /// is recorded after the clock has been set back has a lower id than earlier runs.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>> {
        self.view(|db| {
            let mut query = start(db, filter)?;
            conditions(filter, &mut query);
            let limit = if filter.limit == 0 { -1 } else { i64::from(filter.limit) };
            query.values.push(limit.into());
            let (from, number, wheres) = (query.from, query.number, query.wheres.join(" AND "));
            let sql = format!(
                "SELECT {COLUMNS} FROM {from} JOIN occurrences o ON o.id = r.occurrence
                 JOIN jobs j ON j.id = r.job WHERE {wheres} ORDER BY {number} DESC LIMIT ?"
            );
            db.all(&sql, params_from_iter(query.values), run)
        })
    }
}

/// Chooses the table and the index for a query, and adds the conditions on the job, the project and
/// the text index.
fn start(db: &Connection, filter: &RunFilter) -> Result<RunQuery, Fault> {
    let all = RunQuery { from: "runs r", number: "r.rowid", wheres: vec!["1"], values: Vec::new() };
    let mut query = all;
    if let Some(job) = filter.job {
        query.from = "runs r INDEXED BY runs_by_job";
        query.and("r.job = ?", job.0);
    }
    if let Some(project) = &filter.project {
        if filter.job.is_none() && has_few_runs(db, project)? {
            query.from = "runs r NOT INDEXED";
            query.and(
                "r.rowid IN (SELECT rowid FROM runs INDEXED BY runs_by_job
                 WHERE job IN (SELECT id FROM jobs WHERE project = ?))",
                project.to_string(),
            );
            return Ok(query);
        }
        // The plus sign prevents the use of an index on `job`, so that the query follows the
        // recording order and stops at the limit.
        query.and("+r.job IN (SELECT id FROM jobs WHERE project = ?)", project.to_string());
    }
    let sequences = filter.text.as_deref().map(sequences).unwrap_or_default();
    if filter.job.is_some() || filter.night.is_some() || filter.prefix.is_some() {
        // Jobs, nights and id prefixes have their own indexes.
    } else if !sequences.is_empty() {
        query.from = "run_texts t CROSS JOIN runs r ON r.rowid = t.rowid";
        query.number = "t.rowid";
        query.and("t.run_texts MATCH ?", sequences);
    } else if filter.failed {
        query.from = "runs r INDEXED BY runs_failures";
    } else if filter.outcome.is_some() {
        query.from = "runs r INDEXED BY runs_by_outcome";
    }
    Ok(query)
}

fn conditions(filter: &RunFilter, query: &mut RunQuery) {
    if let Some(night) = filter.night {
        query.and(
            "r.rowid IN (SELECT rowid FROM runs WHERE occurrence IN
             (SELECT id FROM occurrences WHERE night = ?))",
            night.0,
        );
    }
    if let (Some(kind), None) = (filter.but_kind, filter.job) {
        query.and("+r.job NOT IN (SELECT id FROM jobs WHERE kind = ?)", kind.to_owned());
    }
    if filter.failed {
        query.wheres.push(
            "r.state = 'settled' AND r.outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost')",
        );
    }
    if filter.settled {
        query.wheres.push("r.state = 'settled'");
    }
    if let Some(outcome) = &filter.outcome {
        query.and("coalesce(r.outcome ->> 'outcome', r.state) = ?", outcome.clone());
    }
    if let Some(text) = &filter.text {
        query.and(
            "r.state = 'settled' AND instr(lower(j.name || char(10)
             || coalesce(r.summary ->> 'headline', '') || char(10)
             || coalesce(r.outcome ->> 'why', '')), lower(?)) > 0",
            text.clone(),
        );
    }
    if let Some(before) = &filter.before {
        query.and("r.rowid < (SELECT rowid FROM runs WHERE id = ?)", before.to_string());
    }
    if let Some(since) = filter.since {
        query.and("r.requested >= ?", millis(since));
        query.wheres.push(
            "r.rowid >= (SELECT min(number) FROM (SELECT rowid AS number FROM runs
             INDEXED BY runs_by_time WHERE requested >= ? ORDER BY requested LIMIT ?))",
        );
        query.values.extend([millis(since).into(), i64::from(DISORDER).into()]);
    }
    if let Some(prefix) = &filter.prefix {
        query.and("r.rowid IN (SELECT rowid FROM runs WHERE id BETWEEN ? AND ?)", prefix.clone());
        query.values.push(format!("{prefix}~").into());
    }
}

/// Returns whether a project has few enough runs to examine all of them.
fn has_few_runs(db: &Connection, project: &ProjectId) -> Result<bool, Fault> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_job
               WHERE job IN (SELECT id FROM jobs WHERE project = ?1) LIMIT ?2)";
    let count: u32 = db.value(sql, rusqlite::params![project, FEW + 1])?;
    Ok(count <= FEW)
}

/// Returns a full-text query for the character sequences in a string. The query is empty if the
/// string is shorter than a sequence.
fn sequences(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let all: BTreeSet<String> =
        letters.windows(SHORTEST_TEXT).take(SEQUENCES).map(|it| it.iter().collect()).collect();
    let quoted = all.into_iter().map(|it| format!("\"{}\"", it.replace('"', "\"\"")));
    quoted.collect::<Vec<_>>().join(" AND ")
}
