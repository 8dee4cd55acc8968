//! One module a command; each returns the exit code.

mod backends;
mod config;
mod daemon;
mod demo;
mod init;
mod night;
mod pause;
mod perform;
mod queue;
mod report;
mod run;
mod runs;
mod schedule;
mod status;
mod tick;

use std::path::Path;

use runner_engine::outcome::Exit;

use crate::cli::Failure;
use crate::cli::args::{Args, Command, ConfigCommand, DreamCommand, RunsCommand};
use crate::config::Reach;
use crate::drive::Manner;
use crate::home::Home;

/// Carries out one command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let reach = reach(&args.command);
    if reach.is_none() && !args.config.is_empty() {
        return Err(Failure::usage(format!(
            "--config {}: this command has no use for it",
            args.config[0]
        ))
        .mend("runner config set KEY VALUE, or runner enqueue JOB --set KEY=VALUE"));
    }
    let home = Home::read()?.with(&args.config, reach.unwrap_or_default())?;
    if reach.is_some() {
        home.overrides.honoured()?;
    }
    let done = dispatch(args, &home);
    home.mark_damage(done.as_ref().err());
    done
}

/// What `--config` may change for a command; `None` where nothing that it does would follow it.
fn reach(command: &Command) -> Option<Reach> {
    match command {
        Command::Config {
            command: ConfigCommand::Set { .. } | ConfigCommand::Schema,
        } => None,
        Command::Config { .. } | Command::Schedule { .. } | Command::Backends { .. } => {
            Some(Reach::Look)
        }
        Command::Night { .. }
        | Command::Run { .. }
        | Command::Dream { .. }
        | Command::Tick { .. }
        | Command::Daemon { .. }
        | Command::Perform { .. } => Some(Reach::Run),
        Command::Init { .. }
        | Command::Demo { .. }
        | Command::Enqueue { .. }
        | Command::Cancel { .. }
        | Command::Retry { .. }
        | Command::Pause { .. }
        | Command::Resume { .. }
        | Command::Runs { .. }
        | Command::Status { .. }
        | Command::Report { .. } => None,
    }
}

fn dispatch(args: &Args, home: &Home) -> Result<Exit, Failure> {
    let here = args.at.clone().unwrap_or_else(|| home.here.clone());
    let here: &Path = &here;
    let manner = Manner {
        watched: true,
        quiet: args.quiet,
        verbose: args.verbose,
        apart: false,
    };
    match &args.command {
        Command::Init { dir } => init::run(home, dir.as_deref().unwrap_or(here), args.quiet),
        Command::Demo { dir } => demo::run(home, &here.join(dir), manner),
        Command::Night { listing } => night::run(home, here, manner, *listing),
        Command::Run {
            job,
            key,
            follow,
            listing,
        } => run::run(home, here, job, key.as_deref(), manner, *follow, *listing),
        Command::Daemon { drain } => daemon::run(home, drain.as_deref(), manner),
        Command::Enqueue {
            job,
            set,
            at,
            priority,
            after,
            key,
            listing,
        } => {
            let wish = queue::Wish {
                job,
                set,
                at: at.as_deref(),
                priority: *priority,
                after: after.as_deref(),
                key: key.as_deref(),
            };
            queue::enqueue(home, here, &wish, args.quiet, *listing)
        }
        Command::Cancel { run, listing } => queue::cancel(home, run, args.quiet, *listing),
        Command::Retry { run, listing } => queue::retry(home, run, args.quiet, *listing),
        Command::Pause {
            job,
            until,
            listing,
            ..
        } => {
            let (job, until) = (job.as_deref(), until.as_deref());
            pause::pause(home, here, job, until, args.quiet, *listing)
        }
        Command::Resume { job, listing, .. } => {
            pause::resume(home, here, job.as_deref(), args.quiet, *listing)
        }
        Command::Tick { listing } => tick::run(home, manner, *listing),
        Command::Perform { run } => perform::run(home, run, args.quiet, args.verbose),
        Command::Runs {
            command: None,
            job,
            all,
            limit,
            listing,
        } => runs::list(home, here, job.as_deref(), *all, *limit, *listing),
        Command::Runs {
            command: Some(RunsCommand::Show { run, listing }),
            ..
        } => runs::show(home, run, *listing),
        Command::Runs {
            command: Some(RunsCommand::Logs { run, follow }),
            ..
        } => runs::logs::logs(home, run, *follow),
        Command::Status { listing } => status::run(home, here, args.at.is_some(), *listing),
        Command::Report { night, listing } => report::run(home, here, night.as_deref(), *listing),
        Command::Config { command } => config::run(home, here, command, args.quiet),
        Command::Schedule { command } => schedule::run(home, here, command),
        Command::Backends { command } => backends::run(home, here, command),
        Command::Dream {
            command: DreamCommand::Run { listing },
        } => run::dream(home, here, manner, *listing),
    }
}
