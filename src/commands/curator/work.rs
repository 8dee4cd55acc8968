//! `runner curator work`: processes the queue with runs of the curator job.
//!
//! ```text
//! is a file waiting, and with --watch, does the hourly cap allow a start?
//!    │ yes ──> one run ── it published ───> repeat
//!    │                 └── otherwise ─────> end; with --watch: wait
//!    └ no ───> end; with --watch: wait for a file, half a minute, or a signal that ends the watch
//! ```

use std::time::Duration;

use runner_engine::outcome::{Exit, Outcome};
use runner_engine::time::boot_time;
use runner_jobs::curator::CuratorSpec;
use rustix::fs::inotify::WatchFlags;

use super::{disk, model, setup, worker};
use crate::commands::Cli;
use crate::commands::run::{self as by_hand, ManualRun};
use crate::project::LoadedProject;
use crate::ui::Failure;
use crate::wait::{Waiter, WakeReason};

/// The interval at which `--watch` checks the queue when no notification arrives.
const PACE: Duration = Duration::from_secs(30);

pub fn no_job() -> Failure {
    Failure::configuration("no job of kind curator is configured")
        .hint("runner curator setup --apply")
}

/// Returns the job to run: the named job, which must be of kind curator, or the default curator
/// job.
fn chosen<'a>(project: &'a LoadedProject, name: Option<&'a str>) -> Result<&'a str, Failure> {
    let Some(name) = name else { return model::job_of(project).ok_or_else(no_job) };
    let kind = &project.config.job(name)?.spec.kind;
    if kind.of::<CuratorSpec>().is_some() {
        return Ok(name);
    }
    Err(Failure::usage(format!("--job {name}: the job is of kind {}, not curator", kind.name()))
        .hint("runner curator status"))
}

/// Process the queue with runs of the curator job, until the queue is empty or the hourly cap is
/// reached
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner curator work --once")]
pub struct WorkArgs {
    /// Make only one run
    #[arg(long, conflicts_with = "watch")]
    once: bool,
    /// Keep working: check the queue when a file arrives, and every half minute
    #[arg(long)]
    watch: bool,
    /// The curator job to run, if there are several [default: curator, or the first]
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

impl WorkArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let added = match model::job_of(project) {
            None if self.job.is_none() => Some(setup::add_manual(cli, project)?),
            _ => None,
        };
        let project = added.as_ref().unwrap_or(project);
        let job = chosen(project, self.job.as_deref())?;
        let cap = project.config.curator.spec.hourly_cap;
        let worker = worker(project)?;
        worker.make().map_err(|error| disk(&worker, &error))?;
        let run = || {
            let how = ManualRun { deferral_is_normal: true, ..ManualRun::new(cli, Vec::new()) };
            by_hand::settled(cli.env, project, job, None, how)
        };
        if self.once {
            return run().map(|(exit, _)| exit);
        }
        let waiter = if self.watch { Some(Waiter::interruptible()?) } else { None };
        if let Some(waiter) = &waiter {
            // If the folder cannot be watched, new files are noticed at the next interval.
            waiter.watch(&worker.path("queue"), WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO);
        }
        loop {
            let (mut last, mut idle) = (Exit::Done, false);
            while worker.waits(cli.env.wall()?) {
                // Without this check, a watch that has reached its hourly cap would fill the
                // database with runs that do nothing.
                let full = self.watch
                    && worker.started_within_hour(cli.env.wall()?).is_ok_and(|it| it >= cap);
                if full || waiter.as_ref().is_some_and(Waiter::is_interrupted) {
                    break;
                }
                let (exit, outcome) = run()?;
                last = exit;
                if !outcome.as_ref().is_some_and(Outcome::published) {
                    idle = true;
                    break;
                }
            }
            let Some(waiter) = &waiter else { return Ok(last) };
            // A run that published nothing may have returned a job to the queue, which must not
            // start the next run.
            let until = boot_time() + PACE;
            loop {
                match waiter.wait(&[], until.saturating_sub(boot_time()))? {
                    WakeReason::Interrupted => return Ok(Exit::Done),
                    WakeReason::Change if idle && boot_time() < until => {}
                    _ => break,
                }
            }
        }
    }
}
