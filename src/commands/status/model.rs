//! The status for scripts, as described by `config/schemas/status.schema.json`. Fields may be
//! added; none are renamed or removed within a schema version. Times are UTC.

use std::path::Path;

use jiff::Timestamp;
use runner_engine::store::{Amounts, Budget};
use runner_jobs::curator::events;
use runner_jobs::report::proposals::WaitingProposals;
use runner_text::redact::Redacted;
use schemars::JsonSchema;
use serde::Serialize;

pub(super) use super::queue::QueuedRuns;
use crate::daemon::protocol;
use crate::fleet::figures::FleetFigures;

/// Version of the output's schema.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct Status {
    pub(super) schema_version: u32,
    #[serde(rename = "database")]
    pub(super) store: String,
    /// The pause of all jobs, if there is one.
    pub(super) paused: Option<Pause>,
    pub(super) daemon: Option<DaemonState>,
    pub(super) ticks: TickState,
    /// The sandbox that a run would get on this host; null if none is available.
    pub(super) sandbox: Option<String>,
    /// Number of requested and running runs across all projects, including manual runs.
    pub(super) live_runs: usize,
    /// The fleets that this host has joined, as a tick last read them.
    pub(super) fleets: Vec<FleetFigures>,
    /// The time of the status.
    #[serde(skip)]
    pub(super) now: Timestamp,
    pub(super) projects: Vec<ProjectStatus>,
}

/// The state of a daemon that listens on the socket.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub(super) enum DaemonState {
    Answers(protocol::DaemonStatus),
    Silent { trouble: String },
}

/// The last tick, and whether ticks are missing.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct TickState {
    pub(super) last: Option<Timestamp>,
    /// The problem if a job has a schedule but nothing ticks.
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Default, JsonSchema, Serialize)]
pub(super) struct ProjectStatus {
    /// The project's id; null if the project was never registered and its id cannot be read.
    pub(super) id: Option<String>,
    pub(super) path: String,
    pub(super) standing: &'static str,
    /// Whether ticks start nothing in the project, because its folder is missing or has a problem.
    #[serde(skip)]
    pub(super) is_unusable: bool,
    pub(super) zone: String,
    pub(super) trouble: Option<String>,
    pub(super) last_night: Option<NightStatus>,
    pub(super) next: Option<NextRun>,
    pub(super) failmarks: Vec<JobFailure>,
    pub(super) missed_this_week: Vec<MissedTimes>,
    pub(super) live: Vec<LiveRun>,
    pub(super) locks: Vec<HeldLock>,
    pub(super) queued: QueuedRuns,
    pub(super) paused: Vec<Pause>,
    pub(super) stopped: Vec<StoppedJob>,
    pub(super) starved: Vec<StarvedJob>,
    pub(super) alerts: Vec<OpenAlert>,
    /// The curator's critical events that nobody has acknowledged.
    pub(super) critical_events: Vec<CriticalEvent>,
    /// The proposals from all nights that are awaiting a decision.
    pub(super) proposals: WaitingProposals,
    pub(super) budget: ProjectBudgets,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct OpenAlert {
    pub(super) id: String,
    pub(super) job: String,
    pub(super) kind: &'static str,
    pub(super) since: Timestamp,
    pub(super) count: u32,
    /// Whether the alert is silenced, so that no further messages are sent about it.
    pub(super) silenced: bool,
}

/// A critical event of the curator.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct CriticalEvent {
    pub(super) id: String,
    pub(super) source: String,
    pub(super) since: Timestamp,
    /// The action that should be taken.
    pub(super) what: String,
}

impl CriticalEvent {
    /// Returns the open critical events of the project at `root`. Returns none if the file cannot
    /// be read, because `runner curator events` reports that error.
    pub(super) fn all(root: &Path, worker_dir: &str) -> Vec<Self> {
        let critical =
            events::critical(root, worker_dir).ok().flatten().unwrap_or_default().open.into_iter();
        let shown = |text: &str| Redacted::of(text).into_string();
        critical
            .map(|it| Self {
                what: shown(&it.desired_action),
                source: shown(&it.source),
                since: it.created_at,
                id: it.id,
            })
            .collect()
    }
}

/// A pause that is in effect.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct Pause {
    /// The job; null if all jobs are paused.
    pub(super) job: Option<String>,
    /// The end of the pause; null if it lasts until `runner resume`.
    pub(super) until: Option<Timestamp>,
    #[serde(skip)]
    pub(super) zone: Option<String>,
}

/// A job that its schedule no longer starts.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct StoppedJob {
    pub(super) job: String,
    pub(super) failures_in_a_row: u32,
}

/// A job whose runs never complete, because each scheduled time replaces the previous run.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct StarvedJob {
    pub(super) job: String,
    pub(super) replaced_in_a_row: u32,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct NightStatus {
    pub(super) name: String,
    pub(super) headline: String,
    pub(super) worst: String,
    /// Whether the night is over.
    pub(super) closed: bool,
    pub(super) report: Option<String>,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct NextRun {
    pub(super) job: String,
    pub(super) at: Timestamp,
    pub(super) zone: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct JobFailure {
    pub(super) job: String,
    pub(super) at: Timestamp,
    pub(super) class: String,
    pub(super) message: String,
    pub(super) hint: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct MissedTimes {
    pub(super) job: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
    pub(super) why: String,
    #[serde(skip)]
    pub(super) zone: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct LiveRun {
    pub(super) run: String,
    pub(super) job: String,
    pub(super) state: String,
    pub(super) since: Timestamp,
}

/// A job's deciding lock, held by a live process.
#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct HeldLock {
    pub(super) job: String,
    pub(super) pid: u32,
    pub(super) run: String,
    pub(super) since: Timestamp,
}

#[derive(Debug, Default, JsonSchema, Serialize)]
pub(super) struct ProjectBudgets {
    pub(super) day: BudgetStatus,
    /// The budget of the open night.
    pub(super) night: Option<BudgetStatus>,
}

/// A budget: its cap, any additional amounts granted, its spent and reserved amounts, and the
/// remainder. A unit without a cap has no limit, so it has no remainder.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub(super) struct BudgetStatus {
    pub(super) name: String,
    pub(super) cap: Budget,
    pub(super) granted: Amounts,
    pub(super) used: Amounts,
    pub(super) left: Budget,
}

impl BudgetStatus {
    pub(super) fn of(name: String, cap: Budget, granted: Amounts, used: Amounts) -> Self {
        let mut status = Self { name, cap, granted, used, left: Budget::default() };
        status.left = each(status.limit(), used, u64::saturating_sub);
        status
    }

    /// Returns the limit of each unit: its cap plus the granted amount.
    pub(super) fn limit(&self) -> Budget {
        each(self.cap, self.granted, u64::saturating_add)
    }
}

/// Combines each limit of a budget with the amount of the same unit.
fn each(budget: Budget, amounts: Amounts, combine: fn(u64, u64) -> u64) -> Budget {
    let with = |limit: Option<u64>, amount: u64| limit.map(|limit| combine(limit, amount));
    Budget {
        calls: with(budget.calls, amounts.calls),
        tokens: with(budget.tokens, amounts.tokens),
        micros: with(budget.micros, amounts.micros),
        seconds: with(budget.seconds, amounts.seconds),
        ideas: with(budget.ideas, amounts.ideas),
    }
}
