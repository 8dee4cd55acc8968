//! Defines the commands and dispatches the command line to them.

/// Expands to a `match` that calls the same method on the arguments of each listed subcommand. Arms
/// for the other subcommands follow the list.
macro_rules! dispatch {
    ($command:expr, $of:ident: $($name:ident)+ => $run:ident $with:tt $(; $($other:tt)+)?) => {
        match $command { $($of::$name(args) => args.$run $with,)+ $($($other)+)? }
    };
}

mod alerts;
mod answers;
pub mod args;
mod backends;
mod board;
mod budget;
mod config;
mod corpus;
mod curator;
mod daemon;
mod db;
mod default_job;
mod demo;
mod doctor;
mod dream;
mod dry_run;
mod execute;
#[cfg(feature = "fleet")]
mod fleet;
mod guard;
mod hook;
mod init;
mod jobs;
mod journal;
mod lifecycle;
mod manual;
pub mod memory;
mod metrics;
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
mod serve;
mod sessions;
mod setup;
mod status;
mod tick;
mod top;
mod trust;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod docs_tests;

use std::ffi::OsString;
use std::path::Path;

use runner_engine::failpoint;
use runner_engine::outcome::Exit;
use runner_engine::store::StoreError;

use crate::commands::args::{Args, Command};
use crate::config::OverrideScope;
use crate::env::{self, Env};
use crate::hooks;
use crate::spawn::SpawnMode;
use crate::ui::{self, CalledCommand, Failure, Ui};
use crate::web;

/// A command's inputs other than its arguments.
#[derive(Clone, Copy)]
pub struct Cli<'a> {
    /// The program's environment: folders, clock and overrides.
    pub env: &'a Env,
    /// The command uses the nearest project at or above this folder.
    pub here: &'a Path,
    /// Whether the user named that folder with `-C`. It must then be in a project.
    pub folder_is_named: bool,
    /// The output options.
    pub ui: Ui,
    /// The number of `-v` flags.
    pub verbose: u8,
}

impl Cli<'_> {
    /// Returns options for starting runs with visible progress in the command's process group.
    pub fn spawn_mode(&self) -> SpawnMode {
        SpawnMode { watched: true, awaited: true, ui: self.ui, verbose: self.verbose, apart: false }
    }
}

/// Runs a command and returns its exit code.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // These commands run before anything is loaded. Completions and manual pages need neither
    // settings nor the database.
    match &args.command {
        Command::Completions(shell) => return Ok(shell.run(&mut args::program())),
        Command::Man(pages) => return pages.run(&args::program(), args.ui()),
        // Runs the same command again, in the environment that the file describes.
        Command::Tick(tick::TickArgs { environment: Some(file), .. })
        | Command::Daemon(daemon::DaemonArgs { environment: Some(file), .. }) => {
            return Err(env::restart_in(file));
        }
        _ => {}
    }
    let reach = reach(&args.command);
    if reach.is_none() && !args.flags.config.is_empty() {
        return Err(Failure::usage(format!(
            "--config {}: this command accepts no --config",
            args.flags.config[0]
        ))
        .hint("runner config set KEY VALUE, or runner enqueue JOB --set KEY=VALUE"));
    }
    failpoint::arm_steps(env::setting);
    let home = Env::read()?;
    let here = args.flags.at.clone().unwrap_or_else(|| home.here.clone());
    let home = home.for_folder(&here).with(&args.flags.config, reach.unwrap_or_default())?;
    if reach.is_some() {
        home.overrides.honoured()?;
    }
    let done = dispatch(args, &home);
    if !is_dry(&args.command) {
        home.mark_damage(done.as_ref().err());
    }
    done
}

/// The functions that the web server uses to run commands and to describe their output.
const COMMANDS: web::Commands = (call, answers::answer);

/// Runs a command inside this process and captures its output. `words` are the command's arguments
/// without the program name, and `folder` is a folder in the command's project.
///
/// The command must not wait for anything, and must not start a run.
pub fn call(home: &Env, folder: Option<&Path>, words: &[String]) -> CalledCommand {
    let mut line: Vec<OsString> = vec!["runner".into()];
    if let Some(folder) = folder {
        line.extend(["--dir".into(), folder.into()]);
    }
    line.extend(words.iter().map(OsString::from));
    let (result, captured) = ui::capture(|| {
        let args = args::read(line.into_iter()).map_err(|error| {
            let text = error.render().to_string();
            let text = text.trim().trim_start_matches("error: ");
            Failure::usage(text.split("\n\n").next().unwrap_or(text))
        })?;
        // The memory commands create a missing store, but a view must not change anything.
        if matches!(args.command, Command::Memory(_)) && !hooks::scope::exists() {
            return Err(Failure::data("there is no memory yet").hint("runner memory install"));
        }
        // No project contains the state folder, so without `folder`, a command covers all projects.
        let home = Env { here: home.state.clone(), ..home.clone() };
        let home = home.with(&[], reach(&args.command).unwrap_or_default())?;
        let done = dispatch(&args, &home);
        home.mark_damage(done.as_ref().err());
        done
    });
    CalledCommand { result, captured }
}

/// Returns whether a command is a dry run, which must not even record that the database is damaged.
fn is_dry(command: &Command) -> bool {
    match command {
        Command::Night(args) => args.dry_run,
        Command::Run(args) => args.dry_run,
        Command::Jobs(args) => args.is_dry(),
        Command::Dream(args) => args.is_dry(),
        Command::Overnight(args) => args.is_dry(),
        Command::Db(args) => args.is_dry(),
        Command::Corpus(args) => args.is_dry(),
        Command::Curator(args) => args.is_dry(),
        _ => false,
    }
}

/// Returns the settings that `--config` may change for a command, or `None` if the command accepts
/// no overrides.
fn reach(command: &Command) -> Option<OverrideScope> {
    match command {
        Command::Config(args) => args.override_scope(),
        Command::Budget(args) => args.override_scope(),
        Command::Jobs(args) => args.runs().then_some(OverrideScope::Run),
        Command::Schedule(_) | Command::Backends(_) => Some(OverrideScope::Look),
        Command::Night(_)
        | Command::Run(_)
        | Command::Dream(_)
        | Command::Lifecycle(_)
        | Command::Overnight(_)
        | Command::Curator(_)
        | Command::Sessions(_)
        | Command::Tick(_)
        | Command::Daemon(_)
        | Command::Execute(_) => Some(OverrideScope::Run),
        _ => None,
    }
}

fn dispatch(args: &Args, home: &Env) -> Result<Exit, Failure> {
    let cli = Cli {
        env: home,
        here: args.flags.at.as_deref().unwrap_or(&home.here),
        folder_is_named: args.flags.at.is_some(),
        ui: args.ui(),
        verbose: args.flags.verbose,
    };
    if let Command::Init(_) = &args.command {
        usable(home)?;
    }
    dispatch!(&args.command, Command: Init Demo Night Run Daemon Enqueue Cancel Retry Pause Resume Tick Execute Runs Logs
    Status Projects Report Budget Jobs Alerts Deliver Guard Journal Hook Config
    Schedule Serve Trust Backends Setup Doctor Db Replay Dream Board Lifecycle Overnight Corpus
    Curator Memory Sessions Top Metrics
    => run(&cli);
    Command::Completions(_) | Command::Man(_) => unreachable!("`run` handles these commands"),
    #[cfg(feature = "fleet")]
    Command::Fleet(args) => args.run(&cli),
    #[cfg(not(feature = "fleet"))]
    Command::Fleet(_) => {
        let (what, hint) = crate::fleet::ABSENT;
        Err(Failure::unavailable(what).hint(hint))
    })
}

/// The arguments of a command that this build does not include.
#[cfg(not(feature = "fleet"))]
#[derive(Debug, clap::Args)]
pub struct AbsentArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _all: Vec<String>,
}

/// Checks that the database can be used before a command writes anything else. An older format and
/// an interrupted restore are accepted, because opening the database for writing migrates the
/// format and finishes the restore.
fn usable(home: &Env) -> Result<(), Failure> {
    match home.store_to_read() {
        Ok(_) | Err(StoreError::Older { .. } | StoreError::HalfRestored { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
