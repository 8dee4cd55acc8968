//! `runner enqueue`, `runner cancel` and `runner retry`: change the queue.
//!
//! None of these commands starts a run; the daemon or a tick does.

use jiff::tz::TimeZone;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{NewOccurrence, Origin, Recorded, RunRow, Store};
use runner_engine::zones;
use runner_jobs::dream::review;
use runner_jobs::overnight::OvernightSpec;
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use super::overnight::own_output;
use super::runs::{self, RunRecord};
use crate::cancel;
use crate::config;
use crate::daemon::client;
use crate::project::{FILE, LoadedProject};
use crate::ui::{Failure, Ui, View, show, when};

/// Put a job into the queue; the daemon or the next tick starts it when its turn comes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner enqueue dream --set max_ideas=5 --at 23:00")]
pub struct EnqueueArgs {
    /// The job's name in runner.toml
    job: String,
    /// Override a setting of the job for this run only (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Earliest start time: 2026-11-22T02:30:00Z, "2026-11-22 02:30" or 02:30 in the job's
    /// zone, or "2h" from now
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// The priority; waiting runs with a higher priority start first [default: the job's own]
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Start only after this run has succeeded; otherwise, skip the new run
    #[arg(long, value_name = "RUN")]
    after: Option<String>,
    /// Run the job only once for this key, however often it is requested
    #[arg(long)]
    key: Option<String>,
}

/// End a run, or remove a waiting run from the queue; the run is not retried
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner cancel 01KA5V7Q4B")]
pub struct CancelArgs {
    /// The run's id, or an unambiguous prefix of it
    run: String,
}

/// Queue another attempt at a finished run
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner retry 01KA5V7Q4B")]
pub struct RetryArgs {
    /// The run's id, or an unambiguous prefix of it
    run: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct QueuedRun {
    #[serde(flatten)]
    run: RunRecord,
    /// The run's state as text.
    #[serde(skip)]
    state: String,
}

impl View for QueuedRun {
    fn print(&self, ui: Ui) {
        let RunRecord { id, job, .. } = &self.run;
        show::out(&match ui.quiet {
            true => format!("{id}\n"),
            false => format!("{id} {job} {}\n", self.state),
        });
    }
}

#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct CancelledRun {
    #[serde(flatten)]
    run: RunRecord,
    /// A description of the change.
    #[serde(skip)]
    change: String,
}

impl View for CancelledRun {
    fn print(&self, ui: Ui) {
        ui.info(&self.change);
    }
}

impl EnqueueArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let home = cli.env;
        let project = LoadedProject::load(home, cli.here)?;
        project.config.job(&self.job)?;
        let settings = settings(&self.set)?;
        // An invalid setting is refused now instead of when the run starts.
        let changed =
            config::load_with(&home.stack(Some(&project.root.join(FILE))), &self.job, &settings)?;
        if let Some(own) = changed.job(&self.job)?.spec.kind.of::<OvernightSpec>() {
            own_output(&project.root, own)?;
        }
        let now = home.wall()?;
        let zone = &project.config.job(&self.job)?.zone;
        let zone = zones::get(zone).unwrap_or(TimeZone::UTC);
        let ready_at = match &self.at {
            Some(at) => match when::parse_time(at, &zone, now).map_err(Failure::usage)? {
                past if past < now => {
                    return Err(Failure::usage(format!(
                        "{} is in the past",
                        show::format_time(past)
                    ))
                    .hint(format!("runner enqueue {}", self.job)));
                }
                at => at,
            },
            None => now,
        };
        let mut store = home.store()?;
        project.register(&mut store, now)?;
        let after = self.after.as_deref().map(|prefix| runs::find(&store, prefix)).transpose()?;
        let after = after.map(|row| row.occurrence);
        let key = match &self.key {
            None => OccurrenceId::new(now).to_string(),
            Some(key) => format!("key {key}"),
        };
        let new = NewOccurrence {
            origin: Origin::Queue,
            due: ready_at,
            priority: self.priority,
            settings,
            ..NewOccurrence::manual(store.job(&project.id, &self.job)?.id, key, now)
        };
        let run = match store.enqueue(&new, ready_at, after.as_ref(), now)? {
            Recorded::New(run) => run,
            Recorded::Known(occurrence) => {
                cli.ui.info(&format!("{} was already requested with this key", self.job));
                let row = store.last_run_of(&occurrence)?;
                row.ok_or_else(|| Failure::internal("the occurrence has no run".to_owned()))?.id
            }
        };
        show_queued(cli, &store, &run)
    }
}

impl CancelArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut store = cli.env.store()?;
        let row = runs::find(&store, &self.run)?;
        let change = cancel::cancel(cli.env, &mut store, &row.id, "manually")?;
        client::wake(cli.env);
        cli.ui.show(&CancelledRun { run: RunRecord::of(&store.run(&row.id)?), change });
        Ok(Exit::Done)
    }
}

impl RetryArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut store = cli.env.store()?;
        let row = runs::find(&store, &self.run)?;
        if row.kind == review::KIND {
            let what = format!("run {} records a person's decision; it cannot be retried", row.id);
            return Err(Failure::usage(what).hint("runner dream list"));
        }
        if store.occurrence(&row.occurrence)?.outcome.is_none() {
            let open = store.last_run_of(&row.occurrence)?.unwrap_or(row);
            return Err(Failure::data(format!(
                "{} has not ended: run {} is {}",
                open.job_name,
                open.id,
                runs::state_name(&open)
            ))
            .hint(format!("runner runs show {}", open.id)));
        }
        let again = store.retry(&row.id, cli.env.wall()?)?;
        show_queued(cli, &store, &again)
    }
}

fn settings(set: &[String]) -> Result<Vec<(String, String)>, Failure> {
    set.iter()
        .map(|one| match one.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.to_owned()))
            }
            _ => Err(Failure::usage(format!("--set {one}: expected key=value"))),
        })
        .collect()
}

/// Wakes the daemon and shows the state of a queued run.
fn show_queued(cli: &Cli<'_>, store: &Store, run: &RunId) -> Result<Exit, Failure> {
    let row = store.run(run)?;
    if !client::wake(cli.env) && row.outcome().is_none() {
        cli.ui.info(
            "no daemon is running: the next `runner tick` starts the run when its turn comes",
        );
    }
    cli.ui.show(&QueuedRun { run: RunRecord::of(&row), state: describe_state(&row) });
    Ok(Exit::Done)
}

fn describe_state(row: &RunRow) -> String {
    match (row.outcome(), row.ready_at()) {
        (Some(Outcome::Skipped { why, .. }), _) => format!("skipped: {why}"),
        (Some(outcome), _) => outcome.to_string(),
        (None, Some(_)) => format!("queued: {}", runs::waits(row, row.requested)),
        (None, None) => runs::state_name(row).to_owned(),
    }
}
