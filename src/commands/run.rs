//! The `runner run JOB` command, and the parts that `runner dream run` shares with it: runs a job
//! now, for a separate occurrence.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{NewOccurrence, Recorded, RunRow, Store};
use runner_jobs::overnight::OvernightSpec;

use super::overnight::own_output;
use super::runs;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::daemon::client;
use crate::env::Env;
use crate::follow;
use crate::project::LoadedProject;
use crate::spawn::{self, SpawnMode};

/// Runs one job by name.
pub(super) fn run(
    home: &Env,
    here: &Path,
    job: &str,
    key: Option<&str>,
    how: RunArgs,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    if let Some(own) = project.config.job(job)?.spec.kind.of::<OvernightSpec>() {
        own_output(&project.root, own)?;
    }
    once(home, &project, job, key, how)
}

/// Options of a manual run.
#[derive(Clone, Debug)]
pub(super) struct RunArgs {
    /// How the run's process is started.
    pub manner: SpawnMode,
    pub listing: Listing,
    /// Whether the run's log is printed while it runs.
    pub follow: bool,
    /// Whether a deferral counts as a normal end.
    pub deferral_is_normal: bool,
    /// Settings of the job that apply to this run only.
    pub settings: Vec<(String, String)>,
}

/// Runs one job of a project once and prints its outcome.
pub(super) fn once(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    key: Option<&str>,
    how: RunArgs,
) -> Result<Exit, Failure> {
    settled(home, project, job, key, how).map(|(exit, _)| exit)
}

/// Runs one job of a project once, prints its outcome, and also returns the outcome if there is
/// one.
pub(super) fn settled(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    key: Option<&str>,
    how: RunArgs,
) -> Result<(Exit, Option<Outcome>), Failure> {
    let RunArgs { manner, listing, deferral_is_normal, follow, settings } = how;
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
            let stands =
                outcome.as_ref().map_or_else(|| "not settled yet".to_owned(), Outcome::to_string);
            manner.ui.info(&format!("{job} was already requested with this key: {stands}"));
            if listing.json
                && let Some(row) = store.last_run_of(&occurrence)?
            {
                show::json(&runs::RunJson::of(&row));
            }
            let exit =
                outcome.as_ref().map_or(Exit::TryLater, |outcome| outcome.exit(deferral_is_normal));
            return Ok((exit, outcome));
        }
    };
    // Jobs that follow this run wait in the queue.
    client::wake(home);
    print_outcome(&row, manner, listing);
    let exit = row.outcome().map_or(Exit::Internal, |outcome| outcome.exit(deferral_is_normal));
    Ok((exit, row.outcome().cloned()))
}

/// Runs one requested run to its end and prints its log and its program's output meanwhile. If the
/// log cannot be followed, or if its reader exits, the run is not affected.
fn followed(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    run: &RunId,
    manner: SpawnMode,
) -> Result<RunRow, Failure> {
    // Closing `running` stops the follower.
    let (over, running) =
        io::pipe().map_err(|error| Failure::environment(format!("cannot make a pipe: {error}")))?;
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
            // The run is settled, so the follower ends by itself once it has read everything.
            let _panicked = follower.join();
        }
        drop(running);
        done
    })
}

/// Prints the outcome of a run: results on standard output, errors on standard error.
pub fn print_outcome(row: &RunRow, manner: SpawnMode, listing: Listing) {
    if listing.json {
        show::json(&runs::RunJson::of(row));
        return;
    }
    let Some(outcome) = row.outcome() else { return };
    let mut line = format!("{}: {}", row.job_name, outcome.as_str());
    let why = outcome.why().unwrap_or(&row.summary.headline);
    if let Some(class) = outcome.class() {
        line.push_str(&format!(" ({class})"));
    }
    if !why.is_empty() {
        line.push_str(&format!(": {why}"));
    }
    if outcome.published() || matches!(outcome, Outcome::Skipped { .. } | Outcome::Deferred { .. })
    {
        if !manner.ui.is_quiet() {
            line.push('\n');
            if outcome.published() && outcome.why().is_some() && !row.summary.headline.is_empty() {
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
