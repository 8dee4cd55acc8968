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

use runner_engine::outcome::Exit;
use runner_engine::store::StoreError;

use crate::commands::args::journal::HookCommand;
use crate::commands::args::{Args, BudgetCommand, Command, ConfigCommand};
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
    /// Whether the command line names that folder, which must then be in a project.
    pub folder_is_named: bool,
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
        Command::Completions { shell } => return Ok(manual::completions(*shell)),
        Command::Man { into } => return manual::write(into, args.ui()),
        // Runs the same tick again, in the environment of the file.
        Command::Tick(tick::TickArgs { environment: Some(file), .. }) => {
            return Err(env::restart_in(file));
        }
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
        Command::Night(args) => args.dry_run,
        Command::Run(args) => args.dry_run,
        Command::Dream(args) => args.is_dry(),
        Command::Overnight(args) => args.is_dry(),
        _ => false,
    }
}

/// Returns the settings that `--config` may change for a command, or `None` if the command uses
/// none.
fn reach(command: &Command) -> Option<OverrideScope> {
    match command {
        Command::Config { command: ConfigCommand::Set { .. } | ConfigCommand::Schema } => None,
        Command::Config { .. } | Command::Schedule(_) | Command::Backends { .. } => {
            Some(OverrideScope::Look)
        }
        Command::Night(_)
        | Command::Run(_)
        | Command::Dream(_)
        | Command::Lifecycle(_)
        | Command::Overnight(_)
        | Command::Curator { .. }
        | Command::Tick(_)
        | Command::Daemon { .. }
        | Command::Execute { .. } => Some(OverrideScope::Run),
        Command::Init { .. }
        | Command::Demo { .. }
        | Command::Enqueue(_)
        | Command::Cancel(_)
        | Command::Retry(_)
        | Command::Pause(_)
        | Command::Resume(_)
        | Command::Runs(_)
        | Command::Status(_)
        | Command::Setup(_)
        | Command::Doctor { .. }
        | Command::Db { .. }
        | Command::Report(_)
        | Command::Projects(_)
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Corpus { .. }
        | Command::Guard { .. }
        | Command::Journal(_)
        | Command::Hook { .. }
        | Command::Jobs(_)
        | Command::Replay(_)
        | Command::Alerts { .. }
        | Command::Deliver { .. }
        | Command::Board { .. }
        | Command::Budget {
            command: Some(BudgetCommand::Grant { .. } | BudgetCommand::History { .. }),
            ..
        } => None,
        Command::Budget { .. } => Some(OverrideScope::Look),
    }
}

fn dispatch(args: &Args, home: &Env) -> Result<Exit, Failure> {
    let here = args.at.clone().unwrap_or_else(|| home.here.clone());
    let here: &Path = &here;
    let ui = args.ui();
    let folder_is_named = args.at.is_some();
    let cli = Cli { env: home, here, folder_is_named, ui, verbose: args.verbose };
    let manner = cli.spawn_mode();
    if let Command::Init { .. } | Command::Demo { .. } = &args.command {
        usable(home)?;
    }
    match &args.command {
        Command::Init { dir, new_id } => {
            let id = if *new_id { init::IdChoice::New } else { init::IdChoice::Known };
            init::run(home, dir.as_deref().unwrap_or(here), id, ui)
        }
        Command::Demo { dir, agent } => demo::run(home, &here.join(dir), *agent, manner),
        Command::Night(args) => args.run(&cli),
        Command::Run(args) => args.run(&cli),
        Command::Daemon { drain } => daemon::run(home, drain.as_deref(), manner),
        Command::Enqueue(args) => args.run(&cli),
        Command::Cancel(args) => args.run(&cli),
        Command::Retry(args) => args.run(&cli),
        Command::Pause(args) => args.run(&cli),
        Command::Resume(args) => args.run(&cli),
        Command::Completions { .. } | Command::Man { .. } => unreachable!("done before"),
        Command::Tick(args) => args.run(&cli),
        Command::Execute { run } => execute::run(home, run, ui, args.verbose),
        Command::Runs(args) => args.run(&cli),
        Command::Status(args) => args.run(&cli),
        Command::Projects(args) => args.run(&cli),
        Command::Report(args) => args.run(&cli),
        Command::Budget { command, .. } => budget::run(home, here, command.as_ref(), ui),
        Command::Jobs(args) => args.run(&cli),
        Command::Alerts { command, .. } => alerts::run(home, here, command.as_ref(), ui),
        Command::Deliver { beat } => crate::alerts::deliver::run(home, *beat),
        Command::Guard { command } => guard::run(home, here, command, ui),
        Command::Journal(args) => args.run(&cli),
        Command::Hook { command: HookCommand::PostToolUse { agent } } => {
            hook::post_tool_use(home, here, agent.as_deref())
        }
        Command::Config { command } => config::run(home, here, command, ui),
        Command::Schedule(args) => args.run(&cli),
        Command::Backends { command } => backends::run(home, here, command, ui),
        Command::Setup(args) => args.run(&cli),
        Command::Doctor { as_scheduler, there, .. } => {
            doctor::run(home, here, *as_scheduler, *there, ui)
        }
        Command::Db { command } => db::run(home, command, ui),
        Command::Replay(args) => args.run(&cli),
        Command::Dream(args) => args.run(&cli),
        Command::Board { command } => board::run(home, here, command, ui),
        Command::Lifecycle(args) => args.run(&cli),
        Command::Overnight(args) => args.run(&cli),
        Command::Corpus { command } => corpus::run(home, here, command, ui),
        Command::Curator { command } => curator::run(home, here, command, manner),
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
