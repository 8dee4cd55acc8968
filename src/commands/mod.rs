//! The commands, one module for each. Every command returns its exit code.

mod alerts;
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

use std::path::Path;

use runner_engine::outcome::Exit;
use runner_engine::store::StoreError;

use crate::cli::args::{Args, BudgetCommand, Command, ConfigCommand, RunsCommand};
use crate::cli::journal::HookCommand;
use crate::cli::{Failure, Ui};
use crate::config::OverrideScope;
use crate::env::{self, Env};
use crate::spawn::SpawnMode;

/// Carries out one command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // These commands read none of the user's files, so they run before anything is loaded.
    match &args.command {
        Command::Completions { shell } => return Ok(manual::completions(*shell)),
        Command::Man { into } => return manual::write(into, Ui::of(args)),
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

/// Reports whether a command is a dry run, which must write nothing, not even the record of a
/// damaged database.
fn is_dry(command: &Command) -> bool {
    match command {
        Command::Night { dry_run, .. }
        | Command::Run { dry_run, .. }
        | Command::Dream { command: crate::cli::dream::DreamCommand::Run { dry_run, .. } } => {
            *dry_run
        }
        Command::Overnight { command: crate::cli::overnight::OvernightCommand::Start(start) } => {
            start.dry_run
        }
        _ => false,
    }
}

/// Returns the settings that `--config` may change for a command, or `None` if the command uses
/// none.
fn reach(command: &Command) -> Option<OverrideScope> {
    match command {
        Command::Config { command: ConfigCommand::Set { .. } | ConfigCommand::Schema } => None,
        Command::Config { .. } | Command::Schedule { .. } | Command::Backends { .. } => {
            Some(OverrideScope::Look)
        }
        Command::Night { .. }
        | Command::Run { .. }
        | Command::Dream { .. }
        | Command::Lifecycle { .. }
        | Command::Overnight { .. }
        | Command::Curator { .. }
        | Command::Tick { .. }
        | Command::Daemon { .. }
        | Command::Execute { .. } => Some(OverrideScope::Run),
        Command::Init { .. }
        | Command::Demo { .. }
        | Command::Enqueue { .. }
        | Command::Cancel { .. }
        | Command::Retry { .. }
        | Command::Pause { .. }
        | Command::Resume { .. }
        | Command::Runs { .. }
        | Command::Status { .. }
        | Command::Setup { .. }
        | Command::Doctor { .. }
        | Command::Db { .. }
        | Command::Report(_)
        | Command::Projects { .. }
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Corpus { .. }
        | Command::Guard { .. }
        | Command::Journal { .. }
        | Command::Hook { .. }
        | Command::Jobs { .. }
        | Command::Replay { .. }
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
    let ui = Ui::of(args);
    let manner = SpawnMode { watched: true, ui, verbose: args.verbose, apart: false };
    if let Command::Init { .. } | Command::Demo { .. } = &args.command {
        usable(home)?;
    }
    match &args.command {
        Command::Init { dir, new_id } => {
            let id = if *new_id { init::IdChoice::New } else { init::IdChoice::Known };
            init::run(home, dir.as_deref().unwrap_or(here), id, ui)
        }
        Command::Demo { dir, agent } => demo::run(home, &here.join(dir), *agent, manner),
        Command::Night { dry_run: true, listing, .. } => dry_run::night(home, here, *listing),
        Command::Night { listing, awake, .. } => night::run(home, here, manner, *awake, *listing),
        Command::Run { job, key, dry_run: true, listing, .. } => {
            dry_run::run(home, here, job, key.as_deref(), *listing)
        }
        Command::Run { job, key, follow, awake, listing, .. } => {
            let how = run::RunArgs {
                manner,
                listing: *listing,
                follow: *follow,
                deferral_is_normal: false,
                settings: awake.settings(),
            };
            run::run(home, here, job, key.as_deref(), how)
        }
        Command::Daemon { drain } => daemon::run(home, drain.as_deref(), manner),
        Command::Enqueue { job, set, at, priority, after, key, listing } => {
            let wish = queue::EnqueueRequest {
                job,
                set,
                at: at.as_deref(),
                priority: *priority,
                after: after.as_deref(),
                key: key.as_deref(),
            };
            queue::enqueue(home, here, &wish, ui, *listing)
        }
        Command::Cancel { run, listing } => queue::cancel(home, run, ui, *listing),
        Command::Retry { run, listing } => queue::retry(home, run, ui, *listing),
        Command::Pause { job, until, listing, .. } => {
            let (job, until) = (job.as_deref(), until.as_deref());
            pause::pause(home, here, job, until, ui, *listing)
        }
        Command::Resume { job, listing, .. } => {
            pause::resume(home, here, job.as_deref(), ui, *listing)
        }
        Command::Completions { .. } | Command::Man { .. } => unreachable!("done before"),
        Command::Tick { listing, .. } => tick::run(home, manner, *listing),
        Command::Execute { run } => execute::run(home, run, ui, args.verbose),
        Command::Runs { command: None, job, all, limit, listing } => {
            runs::list(home, here, job.as_deref(), *all, *limit, *listing)
        }
        Command::Runs { command: Some(RunsCommand::Show { run, listing }), .. } => {
            runs::show(home, run, *listing)
        }
        Command::Runs { command: Some(RunsCommand::Logs { run, follow }), .. } => {
            runs::logs::logs(home, run, *follow)
        }
        Command::Status { watch, schema, listing } => {
            let look = status::StatusRequest {
                asked_for_here: args.at.is_some(),
                watch: *watch,
                schema: *schema,
            };
            status::run(home, here, look, *listing)
        }
        Command::Projects { command, listing } => {
            projects::run(home, here, command.as_ref(), ui, *listing)
        }
        Command::Report(wanted) => report::run(home, here, wanted, ui),
        Command::Budget { command, listing } => {
            budget::run(home, here, command.as_ref(), ui, *listing)
        }
        Command::Jobs { command, listing } => jobs::run(home, here, command.as_ref(), ui, *listing),
        Command::Alerts { command, listing } => {
            alerts::run(home, here, command.as_ref(), ui, *listing)
        }
        Command::Deliver { beat } => crate::alerts::deliver::run(home, *beat),
        Command::Guard { command } => guard::run(home, here, command),
        Command::Journal { command, listing } => {
            journal::run(home, here, command.as_ref(), *listing, ui)
        }
        Command::Hook { command: HookCommand::PostToolUse { agent } } => {
            hook::post_tool_use(home, here, agent.as_deref())
        }
        Command::Config { command } => config::run(home, here, command, ui),
        Command::Schedule { command } => schedule::run(home, here, command),
        Command::Backends { command } => backends::run(home, here, command),
        Command::Setup(wanted) => setup::run(home, here, wanted, ui),
        Command::Doctor { as_scheduler, there, listing } => {
            doctor::run(home, here, *as_scheduler, *there, *listing)
        }
        Command::Db { command } => db::run(home, command, ui),
        Command::Replay(wanted) => replay::run(home, here, wanted, ui),
        Command::Dream { command } => dream::run(home, here, command, manner),
        Command::Board { command } => board::run(home, here, command, ui),
        Command::Lifecycle { command } => lifecycle::run(home, here, command, manner),
        Command::Overnight { command } => overnight::run(home, here, command, manner),
        Command::Corpus { command } => corpus::run(home, here, command, ui),
        Command::Curator { command } => curator::run(home, here, command, manner),
    }
}

/// Checks that the database can be used before a command writes anything else. An older format is
/// accepted, because the database is migrated when it is opened for writing.
fn usable(home: &Env) -> Result<(), Failure> {
    match home.store_to_read() {
        Ok(_) | Err(StoreError::Older { .. } | StoreError::HalfRestored { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
