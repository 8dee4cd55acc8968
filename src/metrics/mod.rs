//! Metrics in the Prometheus text format, as a function of a [`Snapshot`].
//!
//! The number of metrics grows with the number of jobs, never with the number of runs. This module
//! must never read the database, a file or a clock. A metric must never be renamed from one release
//! to the next.

mod encode;

use std::collections::BTreeMap;

use jiff::Timestamp;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use runner_engine::ids::ProjectId;
use runner_engine::store::{Amounts, Budget, LastNight, QueueDepth, RunDurations, RunTotal};

use crate::fleet::figures::FleetFigures;

/// The data for all metrics.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The time at which the data was read.
    pub now: Timestamp,
    pub totals: Vec<RunTotal>,
    pub durations: Vec<RunDurations>,
    /// The queues of the projects that have queued runs.
    pub queues: Vec<QueueDepth>,
    /// The earliest past scheduled time that has not been recorded.
    pub oldest_due: Option<Timestamp>,
    pub nights: BTreeMap<ProjectId, LastNight>,
    pub last_tick: Option<Timestamp>,
    /// The number of ticks since the state folder was created, if it is recorded.
    pub ticks: Option<u64>,
    /// Number of responding daemons: 0 or 1.
    pub daemons: usize,
    /// Number of requested and running runs across all projects.
    pub live_runs: usize,
    /// The sizes of the database's files in bytes, by file.
    pub database: Vec<(&'static str, u64)>,
    pub projects: Vec<ProjectSample>,
    pub fleets: Vec<FleetFigures>,
}

#[derive(Clone, Debug, Default)]
pub struct ProjectSample {
    pub id: String,
    pub path: String,
    /// The next scheduled time of any job.
    pub next_due: Option<Timestamp>,
    /// The budgets for the day and the open night.
    pub budgets: Vec<BudgetSample>,
    /// Number of open alerts that are not silenced.
    pub alerts: usize,
    /// Number of proposals awaiting a decision.
    pub proposals: usize,
    /// Number of jobs stopped by the circuit breaker.
    pub stopped: usize,
    /// Number of jobs with a failure marker.
    pub failing: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct BudgetSample {
    /// The level: `day` or `night`.
    pub level: &'static str,
    /// The amounts spent and reserved.
    pub used: Amounts,
    /// The amounts left, for units that have a limit.
    pub left: Budget,
}

/// Returns the metrics as text.
pub fn text(snapshot: Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("writing to a string cannot fail");
    out
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
