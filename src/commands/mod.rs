//! One module a command; each returns the exit code.

mod daemon;
mod demo;
mod init;
mod night;
mod perform;
mod report;
mod run;
mod runs;
mod status;
mod tick;

use std::path::Path;

use runner_engine::outcome::Exit;

use crate::cli::Failure;
use crate::cli::args::{Args, Command, DreamCommand, RunsCommand};
use crate::drive::Manner;
use crate::home::Home;

/// Carries out one command.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let home = Home::read()?;
    let done = dispatch(args, &home);
    home.mark_damage(done.as_ref().err());
    done
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
        } => runs::logs(home, run, *follow),
        Command::Status { listing } => status::run(home, here, args.at.is_some(), *listing),
        Command::Report { night, listing } => report::run(home, here, night.as_deref(), *listing),
        Command::Dream {
            command: DreamCommand::Run { listing },
        } => run::dream(home, here, manner, *listing),
    }
}
