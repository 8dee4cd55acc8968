//! `runner logs` and `runner runs logs`: print a run's log and its program's output, or follow them
//! as they grow.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::thread;

use runner_engine::files::{RECORD, read_host};
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_engine::store::{RunFilter, RunRow};
use runner_jobs::output;
use serde::Serialize;

use super::open;
use crate::commands::Cli;
use crate::daemon::client::{Client, Stream};
use crate::env::Env;
use crate::follow::{self, FollowEnd};
use crate::project::LoadedProject;
use crate::ui::{Failure, log, show};
use crate::wait;

/// Print the log of a run and its program's output
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner logs dream --follow")]
pub struct LogsArgs {
    /// A run's id or an unambiguous prefix of it, or a job's name (for its last run that started)
    #[arg(value_name = "RUN|JOB")]
    run: String,
    /// Print the log and the program's output, and continue until the run finishes
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
}

/// The log of a run and its program's output, by file.
#[derive(Serialize)]
struct RunLogs {
    run: RunId,
    folder: String,
    files: BTreeMap<&'static str, String>,
}

impl LogsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let (home, follow) = (cli.env, self.follow);
        let row = self.find(cli)?;
        if cli.ui.json {
            show::json(&RunLogs::of(home, &row.id));
            return Ok(Exit::Done);
        }
        let log = home.run_folder(row.id.as_str()).join(log::FILE);
        let mut found = log.exists();
        let outcome = if follow {
            match follow_log(home, &row.id)? {
                Some(outcome) => Some(outcome),
                None => return Ok(Exit::Done),
            }
        } else {
            if let Ok(bytes) = read_host(&log, RECORD) {
                show::out(&String::from_utf8_lossy(&bytes));
            }
            None
        };
        found |= log.exists();
        // With `--follow`, these lines have already been printed.
        for name in output::FILES.iter().filter(|_| !follow) {
            let Ok(bytes) = read_host(log.with_file_name(name), RECORD) else { continue };
            if !bytes.is_empty() {
                show::out(&format!("--- {name}\n"));
            }
            show::out(&String::from_utf8_lossy(&bytes));
            found = true;
        }
        if !found {
            let why = match row.started() {
                Some(_) => "no longer exists",
                None => "does not exist because the run never started",
            };
            show::complain(&format!("the log of run {} {why}", row.id));
        }
        if let Some(outcome) = outcome {
            show::out(&format!("{outcome}\n"));
        }
        Ok(Exit::Done)
    }

    /// Returns the run whose id begins with the argument, or otherwise the last started run of the
    /// job with that name.
    fn find(&self, cli: &Cli<'_>) -> Result<RunRow, Failure> {
        let by_id = open(cli.env, &self.run).map(|(_, row)| row);
        let (Err(unknown), Ok(project), Some(store)) = (
            by_id.as_ref().map(|_| ()).map_err(Clone::clone),
            LoadedProject::load(cli.env, cli.here),
            cli.env.store_to_read()?,
        ) else {
            return by_id;
        };
        let never = || {
            Failure::data(format!("{} has not run yet", self.run))
                .hint(format!("runner jobs run {}", self.run))
        };
        let Some(job) = store.jobs(&project.id)?.into_iter().find(|job| job.name == self.run)
        else {
            return Err(project.config.job(&self.run).map_or(unknown, |_| never()));
        };
        let mut filter = RunFilter { job: Some(job.id), limit: 20, ..RunFilter::default() };
        let mut newest = None;
        loop {
            let rows = store.runs(&filter)?;
            let Some(oldest) = rows.last() else {
                return Err(newest.map_or_else(never, |id| {
                    Failure::data(format!("no run of {} has started yet", self.run))
                        .hint(format!("runner runs show {id}"))
                }));
            };
            filter.before = Some(oldest.id.clone());
            newest = newest.or_else(|| rows.first().map(|row| row.id.clone()));
            if let Some(started) = rows.into_iter().find(|row| row.started().is_some()) {
                return Ok(started);
            }
        }
    }
}

impl RunLogs {
    fn of(home: &Env, run: &RunId) -> Self {
        let folder = home.run_folder(run.as_str());
        let files = [log::FILE].into_iter().chain(output::FILES).filter_map(|name| {
            let bytes = read_host(folder.join(name), RECORD).ok()?;
            Some((name, String::from_utf8_lossy(&bytes).into_owned()))
        });
        Self { run: run.clone(), files: files.collect(), folder: folder.display().to_string() }
    }
}

/// Prints the log of a run and its program's output until the run is over. The log comes from the
/// daemon if one is running. Returns the outcome, or `None` if the reader has closed standard
/// output.
fn follow_log(home: &Env, run: &RunId) -> Result<Option<String>, Failure> {
    let stdout = std::io::stdout();
    let [log, output @ ..] = follow::FILES.map(|(name, _)| (name, 0));
    let Some(daemon) = Client::connect(home) else {
        let files = [log, output[0], output[1]];
        let followed = follow::follow(home, run, &files, &[stdout.as_fd()], &mut print(0))?;
        return Ok(ended(followed));
    };
    // Closing `running` stops the follower.
    let (over, running) = io::pipe()
        .map_err(|error| Failure::environment(format!("cannot create a pipe: {error}")))?;
    thread::scope(|scope| {
        let stops = [stdout.as_fd(), over.as_fd()];
        let said = scope.spawn(move || follow::follow(home, run, &output, &stops, &mut print(1)));
        let done = through(home, daemon, run, stdout.as_fd());
        // If the run is settled, the follower stops on its own.
        let settled = matches!(done, Ok(Some(_)));
        if !settled {
            drop(running);
        }
        match said.join() {
            Ok(Err(failure)) if settled => Err(failure),
            _ => done,
        }
    })
}

/// Returns a sink for [`follow::follow`] whose file index 0 refers to `follow::FILES[first]`.
fn print(first: usize) -> impl FnMut(usize, &str, u64) -> io::Result<()> {
    move |which, text, _| {
        show::out(&follow::shown(first + which, text));
        Ok(())
    }
}

/// Prints the log from the daemon. If the daemon exits before the run is over, continues from the
/// file.
fn through(
    home: &Env,
    daemon: Client,
    run: &RunId,
    stdout: BorrowedFd<'_>,
) -> Result<Option<String>, Failure> {
    let mut print_on = |text: &str| {
        show::out(text);
        !wait::is_closed(stdout)
    };
    match daemon.follow(run, 0, &mut print_on)? {
        Stream::Over(outcome) => Ok(Some(outcome)),
        Stream::Lost(at) => {
            let files = [(log::FILE, at)];
            let followed = follow::follow(home, run, &files, &[stdout], &mut print(0))?;
            Ok(ended(followed))
        }
    }
}

fn ended(followed: FollowEnd) -> Option<String> {
    match followed {
        FollowEnd::Settled(row) => Some(follow::outcome(&row)),
        FollowEnd::Abandoned => None,
    }
}
