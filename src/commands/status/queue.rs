//! Lists a project's queued runs, each with the reason why it is waiting.

use jiff::Timestamp;
use runner_engine::store::{JobRow, Project, RunRow, Store};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::runs::waits;
use crate::ui::Failure;

/// The number of queued runs, and the next few of them.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub(super) struct QueuedRuns {
    pub(super) count: usize,
    pub(super) next: Vec<WaitingRun>,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct WaitingRun {
    pub(super) run: String,
    pub(super) job: String,
    pub(super) ready_at: Option<Timestamp>,
    pub(super) waits_for: Option<String>,
    pub(super) priority: i32,
    pub(super) why: String,
}

/// Maximum number of waiting runs to show.
const SHOWN: usize = 3;

pub(super) fn queued(
    store: &Store,
    known: &Project,
    jobs: &[JobRow],
    live: &[RunRow],
    now: Timestamp,
) -> Result<QueuedRuns, Failure> {
    let rows = store.queued_of(&known.id)?;
    let why = |row: &RunRow| {
        let ready = row.waits_for().is_none() && row.ready_at().is_none_or(|at| at <= now);
        let job = jobs.iter().find(|job| job.id == row.job);
        match job {
            Some(job) if ready && job.paused_until.is_some_and(|until| until > now) => {
                "ready, but paused".to_owned()
            }
            Some(job) if ready => match live.iter().find(|run| run.job == row.job) {
                Some(run) => format!("ready, waits for run {} of its job", run.id),
                None => format!("ready, waiting its turn in group {}", job.policy.group.name),
            },
            _ => waits(row, now),
        }
    };
    let next = rows.iter().take(SHOWN).map(|row| WaitingRun {
        run: row.id.to_string(),
        job: row.job_name.clone(),
        ready_at: row.ready_at(),
        waits_for: row.waits_for().map(|(run, _)| run.to_string()),
        priority: row.priority,
        why: why(row),
    });
    Ok(QueuedRuns { count: rows.len(), next: next.collect() })
}
