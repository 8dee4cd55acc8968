//! The commands, one module for each. Every command returns its exit code.

mod alerts;
pub mod args;
mod backends;
mod board;
mod budget;
mod config;
mod corpus;
mod curator;
mod daemon;
mod db;
mod demo;
mod doctor;
mod dream;
mod dream_bench;
mod dry_run;
mod execute;
mod guard;
mod hook;
mod init;
mod jobs;
mod journal;
mod lifecycle;
mod manual;
mod night;
mod overnight;
mod pages;
mod pause;
mod projects;
mod queue;
mod replay;
mod report;
mod run;
mod runs;
mod schedule;
mod setup;
mod status;
mod tick;

#[cfg(test)]
mod docs_tests;

use std::path::Path;

use clap::CommandFactory as _;
use runner_engine::outcome::Exit;
use runner_engine::store::StoreError;

use crate::commands::args::{Args, Command, RunsCommand};
use crate::config::OverrideScope;
use crate::env::{self, Env};
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui};

/// Everything that a command works with besides its own arguments.
#[derive(Clone, Copy)]
pub struct Cli<'a> {
    /// The program's environment: folders, clock, settings that flags override.
    pub env: &'a Env,
    /// The folder in which the command looks for its project.
    pub here: &'a Path,
    /// The only way to print.
    pub ui: Ui,
    /// The number of `-v` flags.
    pub verbose: u8,
}

impl Cli<'_> {
    /// Returns the way in which the command starts runs: watched, in its own process group.
    pub fn spawn_mode(&self) -> SpawnMode {
        SpawnMode { watched: true, ui: self.ui, verbose: self.verbose, apart: false }
    }
}

/// Carries out one command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // These commands read none of the user's files, so they run before anything is loaded.
    match &args.command {
        Command::Completions(shell) => return Ok(shell.run(&mut Args::command())),
        Command::Man(pages) => return pages.run(&Args::command(), args.ui()),
        // Runs the same tick again, in the environment of the file.
        Command::Tick { environment: Some(file), .. } => return Err(env::restart_in(file)),
        _ => {}
    }
    let reach = reach(&args.command);
    if reach.is_none() && !args.config.is_empty() {
        return Err(Failure::usage(format!(
            "--config {}: this command does not use it",
            args.config[0]
        ))
        .hint("runner config set KEY VALUE, or runner enqueue JOB --set KEY=VALUE"));
    }
    let home = Env::read()?.with(&args.config, reach.unwrap_or_default())?;
    if reach.is_some() {
        home.overrides.honoured()?;
    }
    let done = dispatch(args, &home);
    if !is_dry(&args.command) {
        home.mark_damage(done.as_ref().err());
    }
    done
}

/// Reports whether a command is a dry run, which must leave no trace, not even a mark of damage.
fn is_dry(command: &Command) -> bool {
    match command {
        Command::Night { dry_run, .. }
        | Command::Run { dry_run, .. }
        | Command::Dream {
            command: crate::commands::args::dream::DreamCommand::Run { dry_run, .. },
        } => *dry_run,
        Command::Overnight {
            command: crate::commands::args::overnight::OvernightCommand::Start(start),
        } => start.dry_run,
        _ => false,
    }
}

/// Returns the settings that `--config` may change for a command, or `None` if the command uses
/// none.
fn reach(command: &Command) -> Option<OverrideScope> {
    match command {
        Command::Config(args) => args.override_scope(),
        Command::Budget(args) => args.override_scope(),
        Command::Schedule { .. } | Command::Backends(_) => Some(OverrideScope::Look),
        Command::Night { .. }
        | Command::Run { .. }
        | Command::Dream { .. }
        | Command::Lifecycle { .. }
        | Command::Overnight { .. }
        | Command::Curator(_)
        | Command::Tick { .. }
        | Command::Daemon(_)
        | Command::Execute(_) => Some(OverrideScope::Run),
        Command::Init(_)
        | Command::Demo(_)
        | Command::Enqueue { .. }
        | Command::Cancel { .. }
        | Command::Retry { .. }
        | Command::Pause { .. }
        | Command::Resume { .. }
        | Command::Runs { .. }
        | Command::Status { .. }
        | Command::Setup { .. }
        | Command::Doctor(_)
        | Command::Db(_)
        | Command::Report(_)
        | Command::Projects { .. }
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Corpus(_)
        | Command::Guard(_)
        | Command::Journal { .. }
        | Command::Hook(_)
        | Command::Jobs(_)
        | Command::Replay { .. }
        | Command::Alerts(_)
        | Command::Deliver(_)
        | Command::Board(_) => None,
    }
}

fn dispatch(args: &Args, home: &Env) -> Result<Exit, Failure> {
    let here = args.at.clone().unwrap_or_else(|| home.here.clone());
    let here: &Path = &here;
    let ui = args.ui();
    let cli = Cli { env: home, here, ui, verbose: args.verbose };
    let manner = cli.spawn_mode();
    if let Command::Init(_) | Command::Demo(_) = &args.command {
        usable(home)?;
    }
    match &args.command {
        Command::Init(args) => args.run(&cli),
        Command::Demo(args) => args.run(&cli),
        Command::Night { dry_run: true, .. } => dry_run::night(home, here, ui),
        Command::Night { awake, .. } => night::run(home, here, manner, *awake),
        Command::Run { job, key, dry_run: true, .. } => {
            dry_run::run(home, here, job, key.as_deref(), ui)
        }
        Command::Run { job, key, follow, awake, .. } => {
            let how = run::RunArgs {
                manner,
                follow: *follow,
                deferral_is_normal: false,
                settings: awake.settings(),
            };
            run::run(home, here, job, key.as_deref(), how)
        }
        Command::Daemon(args) => args.run(&cli),
        Command::Enqueue { job, set, at, priority, after, key, .. } => {
            let wish = queue::EnqueueRequest {
                job,
                set,
                at: at.as_deref(),
                priority: *priority,
                after: after.as_deref(),
                key: key.as_deref(),
            };
            queue::enqueue(home, here, &wish, ui)
        }
        Command::Cancel { run, .. } => queue::cancel(home, run, ui),
        Command::Retry { run, .. } => queue::retry(home, run, ui),
        Command::Pause { job, until, .. } => {
            let (job, until) = (job.as_deref(), until.as_deref());
            pause::pause(home, here, job, until, ui)
        }
        Command::Resume { job, .. } => pause::resume(home, here, job.as_deref(), ui),
        Command::Completions(_) | Command::Man(_) => unreachable!("done before"),
        Command::Tick { .. } => tick::run(home, manner),
        Command::Execute(args) => args.run(&cli),
        Command::Runs { command: None, job, all, limit, .. } => {
            runs::list(home, here, job.as_deref(), *all, *limit, ui)
        }
        Command::Runs { command: Some(RunsCommand::Show { run, .. }), .. } => {
            runs::show(home, run, ui)
        }
        Command::Runs { command: Some(RunsCommand::Logs { run, follow }), .. } => {
            runs::logs::logs(home, run, *follow)
        }
        Command::Status { watch, schema, .. } => {
            let look = status::StatusRequest {
                asked_for_here: args.at.is_some(),
                watch: *watch,
                schema: *schema,
            };
            status::run(home, here, look, ui)
        }
        Command::Projects { command, .. } => projects::run(home, here, command.as_ref(), ui),
        Command::Report(wanted) => report::run(home, here, wanted, ui),
        Command::Budget(args) => args.run(&cli),
        Command::Jobs(args) => args.run(&cli),
        Command::Alerts(args) => args.run(&cli),
        Command::Deliver(args) => args.run(&cli),
        Command::Guard(args) => args.run(&cli),
        Command::Journal { command, .. } => journal::run(home, here, command.as_ref(), ui),
        Command::Hook(args) => args.run(&cli),
        Command::Config(args) => args.run(&cli),
        Command::Schedule { command } => schedule::run(home, here, command, ui),
        Command::Backends(args) => args.run(&cli),
        Command::Setup(wanted) => setup::run(home, here, wanted, ui),
        Command::Doctor(args) => args.run(&cli),
        Command::Db(args) => args.run(&cli),
        Command::Replay(wanted) => replay::run(home, here, wanted, ui),
        Command::Dream { command } => dream::run(home, here, command, manner),
        Command::Board(args) => args.run(&cli),
        Command::Lifecycle { command } => lifecycle::run(home, here, command, manner),
        Command::Overnight { command } => overnight::run(home, here, command, manner),
        Command::Corpus(args) => args.run(&cli),
        Command::Curator(args) => args.run(&cli),
    }
}

/// Checks that the database can be used, before a command writes anything else. An older format is
/// accepted, because the database is migrated when it is opened for writing.
fn usable(home: &Env) -> Result<(), Failure> {
    match home.store_to_read() {
        Ok(_) | Err(StoreError::Older { .. } | StoreError::HalfRestored { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
