//! `runner run`: runs a job now, for a new occurrence. Other commands also use this module's
//! functions for manual runs.

use std::io;
use std::os::fd::AsFd as _;
use std::thread;

use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{NewOccurrence, Recorded, RunRow, Store};
use runner_jobs::overnight::OvernightSpec;
use serde::Serialize;

use super::Cli;
use super::dry_run::{self, DryRunRequest};
use super::overnight::own_output;
use super::runs::RunRecord;
use crate::daemon::client;
use crate::env::Env;
use crate::follow;
use crate::project::LoadedProject;
use crate::spawn::{self, SpawnMode};
use crate::ui::{Failure, Ui, View, show};

/// Run one job now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner run dream")]
pub struct RunArgs {
    /// The job's name in runner.toml
    job: String,
    /// Run the job only once for this key, however often it is requested
    #[arg(long)]
    key: Option<String>,
    /// Print the run's log and its program's output on standard output while it runs
    #[arg(long, conflicts_with = "json")]
    follow: bool,
    /// Show the requests, their backends and maximum cost, and whether the job would start now;
    /// send and write nothing
    #[arg(long, conflicts_with = "follow")]
    pub(super) dry_run: bool,
    #[command(flatten)]
    awake: AwakeFlags,
}

/// The flags that override `keep_awake` for one command. Without a flag, the job's `keep_awake`
/// setting applies.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct AwakeFlags {
    /// Keep the machine awake while the job runs, regardless of keep_awake
    #[arg(long, conflicts_with = "no_keep_awake")]
    pub keep_awake: bool,
    /// Let the machine sleep while the job runs, regardless of keep_awake
    #[arg(long)]
    pub no_keep_awake: bool,
}

impl AwakeFlags {
    /// Converts the flags to settings for one run.
    pub fn settings(self) -> Vec<(String, String)> {
        let said = match (self.keep_awake, self.no_keep_awake) {
            (true, _) => "true",
            (_, true) => "false",
            _ => return Vec::new(),
        };
        vec![("keep_awake".to_owned(), said.to_owned())]
    }
}

impl RunArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let key = self.key.as_deref();
        if self.dry_run {
            let project = LoadedProject::load_for_dry_run(cli.env, cli.here)?;
            project.config.job(&self.job)?;
            let request = DryRunRequest {
                job: &self.job,
                key,
                settings: Vec::new(),
                deferral_is_normal: false,
            };
            return dry_run::run(cli, &project, request);
        }
        let project = LoadedProject::load(cli.env, cli.here)?;
        if let Some(own) = project.config.job(&self.job)?.spec.kind.of::<OvernightSpec>() {
            own_output(&project.root, own)?;
        }
        let how = ManualRun { follow: self.follow, ..ManualRun::new(cli, self.awake.settings()) };
        once(cli.env, &project, &self.job, key, how)
    }
}

/// Options for a manual run.
#[derive(Clone, Debug)]
pub(super) struct ManualRun {
    pub manner: SpawnMode,
    /// Whether to print the run's log during the run.
    pub follow: bool,
    /// Whether the command exits with code 0 if the run is deferred.
    pub deferral_is_normal: bool,
    /// Settings of the job that apply to this run only.
    pub settings: Vec<(String, String)>,
}

impl ManualRun {
    /// Creates options for a run whose log is not printed and whose deferral exits with code 75.
    pub(super) fn new(cli: &Cli<'_>, settings: Vec<(String, String)>) -> Self {
        Self { manner: cli.spawn_mode(), follow: false, deferral_is_normal: false, settings }
    }
}

/// The run from an earlier request with the same key. It is printed only in JSON output.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct KnownRun(RunRecord);

impl View for KnownRun {
    fn print(&self, _ui: Ui) {}
}

/// Runs one job of a project once and prints its outcome.
pub(super) fn once(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    key: Option<&str>,
    how: ManualRun,
) -> Result<Exit, Failure> {
    settled(home, project, job, key, how).map(|(exit, _)| exit)
}

/// Runs one job of a project once and prints its outcome. Returns the exit code, and the outcome if
/// the occurrence has been settled.
pub(super) fn settled(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    key: Option<&str>,
    how: ManualRun,
) -> Result<(Exit, Option<Outcome>), Failure> {
    let ManualRun { manner, deferral_is_normal, follow, settings } = how;
    let now = home.wall()?;
    let mut store = home.store()?;
    project.register(&mut store, now)?;
    let me = ProcessIdentity::me();
    let key = key.map_or_else(|| OccurrenceId::new(now).to_string(), |key| format!("key {key}"));
    let new = NewOccurrence {
        settings,
        ..NewOccurrence::manual(store.job(&project.id, job)?.id, key, now)
    };
    let row = match store.enter(&new, &me, now)? {
        Recorded::New(run) if follow => followed(home, &mut store, &me, &run, manner)?,
        Recorded::New(run) => spawn::run_to_end(home, &mut store, &me, &run, manner)?,
        Recorded::Known(occurrence) => {
            let outcome = store.occurrence(&occurrence)?.outcome;
            let state =
                outcome.as_ref().map_or_else(|| "not settled yet".to_owned(), Outcome::to_string);
            manner.ui.info(&format!("{job} was already requested with this key: {state}"));
            if let Some(row) = store.last_run_of(&occurrence)? {
                manner.ui.show(&KnownRun(RunRecord::of(&row)));
            }
            let exit =
                outcome.as_ref().map_or(Exit::TryLater, |outcome| outcome.exit(deferral_is_normal));
            return Ok((exit, outcome));
        }
    };
    // Jobs that follow this run may be ready now.
    client::wake(home);
    manner.ui.show(&EndedRun::of(&row));
    let exit = row.outcome().map_or(Exit::Internal, |outcome| outcome.exit(deferral_is_normal));
    Ok((exit, row.outcome().cloned()))
}

/// Executes a requested run, and prints the run's log and its program's output until the run
/// finishes. Problems with the log do not affect the run.
fn followed(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    run: &RunId,
    manner: SpawnMode,
) -> Result<RunRow, Failure> {
    // Closing `running` stops the follower.
    let (over, running) = io::pipe()
        .map_err(|error| Failure::environment(format!("cannot create a pipe: {error}")))?;
    let stdout = io::stdout();
    thread::scope(|scope| {
        let stops = [stdout.as_fd(), over.as_fd()];
        let follower = scope.spawn(move || {
            let files = follow::FILES.map(|(name, _)| (name, 0));
            let done = follow::follow(home, run, &files, &stops, &mut |which, text, _| {
                show::out(&follow::shown(which, text));
                Ok(())
            });
            if let Err(failure) = done {
                show::complain(&failure.to_string());
            }
        });
        let manner = SpawnMode { watched: false, ..manner };
        let done = spawn::run_to_end(home, store, me, run, manner);
        if done.as_ref().is_ok_and(|row| row.outcome().is_some()) {
            // The run is settled, so the follower stops once it has read everything.
            let _panicked = follower.join();
        }
        drop(running);
        done
    })
}

#[derive(Debug, Serialize)]
pub(super) struct EndedRun<'a> {
    #[serde(flatten)]
    run: RunRecord,
    #[serde(skip)]
    row: &'a RunRow,
}

impl<'a> EndedRun<'a> {
    pub(super) fn of(row: &'a RunRow) -> Self {
        Self { run: RunRecord::of(row), row }
    }
}

impl View for EndedRun<'_> {
    /// Prints a result on standard output, or a failure on standard error.
    fn print(&self, ui: Ui) {
        let row = self.row;
        let Some(outcome) = row.outcome() else { return };
        let mut line = format!("{}: {}", row.job_name, outcome.as_str());
        let why = outcome.why().unwrap_or(&row.summary.headline);
        if let Some(class) = outcome.class() {
            line.push_str(&format!(" ({class})"));
        }
        if !why.is_empty() {
            line.push_str(&format!(": {why}"));
        }
        if outcome.published()
            || matches!(outcome, Outcome::Skipped { .. } | Outcome::Deferred { .. })
        {
            if !ui.quiet {
                line.push('\n');
                if outcome.published()
                    && outcome.why().is_some()
                    && !row.summary.headline.is_empty()
                {
                    line.push_str(&format!("  {}\n", row.summary.headline));
                }
                for text in &row.summary.lines {
                    line.push_str(&format!("  {text}\n"));
                }
                for path in &row.summary.artifacts {
                    line.push_str(&format!("  -> {path}\n"));
                }
                show::out(&line);
            }
        } else {
            show::complain(&format!("{line}\n  to see more: runner runs show {}", row.id));
            if outcome.class().is_some() {
                show::notice(&format!("  {}", runner_jobs::failmark::hint(outcome)));
            }
        }
    }
}
