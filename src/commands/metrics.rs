//! `runner metrics`: prints metrics for Prometheus.

use std::fs;

use runner_engine::outcome::Exit;

use super::{Cli, status};
use crate::env::Env;
use crate::metrics::{self, Snapshot};
use crate::ui::{Failure, show};

/// Print metrics for Prometheus: runs, durations, queues, budgets, nights and the database
///
/// The metrics cover all projects. `docs/monitoring/` in runner's source has alert rules and a
/// dashboard.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner metrics > /var/lib/prometheus/node-exporter/runner.prom")]
pub struct MetricsArgs {}

impl MetricsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        show::out(&text(cli.env)?);
        Ok(Exit::Done)
    }
}

/// Returns the metrics of all projects in the text format of Prometheus.
pub fn text(home: &Env) -> Result<String, Failure> {
    let now = home.wall()?;
    let (last_tick, ticks) = (home.last_tick(), home.ticks());
    let mut snapshot = Snapshot { now, last_tick, ticks, ..Snapshot::default() };
    status::measure(home, &mut snapshot)?;
    if let Some(store) = home.store_to_read()? {
        snapshot.totals = store.run_totals()?;
        snapshot.durations = store.run_durations()?;
        snapshot.queues = store.queue_depths()?;
        snapshot.oldest_due = store.oldest_due(now)?;
        snapshot.nights = store.last_nights()?;
        let path = home.store_path();
        let size = |path| fs::metadata(path).map_or(0, |data| data.len());
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        snapshot.database = vec![("database", size(path.into_os_string())), ("log", size(log))];
    }
    Ok(metrics::text(snapshot))
}
