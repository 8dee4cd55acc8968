//! `runner dream`: runs the pass manually, and reviews its proposals.

mod bench;
mod context;
mod decide;
mod details;
mod filter;
mod list;
mod pass;
mod review;

use runner_engine::outcome::Exit;
use runner_jobs::dream::DreamSpec;

use super::Cli;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// Run the dream pass over changed ideas, and review its proposals
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream run --dry-run")]
pub struct DreamArgs {
    #[command(subcommand)]
    command: DreamCommand,
}

/// Runs the dream pass and reviews its proposals.
#[derive(Debug, clap::Subcommand)]
enum DreamCommand {
    Run(pass::PassArgs),
    Bench(bench::BenchArgs),
    List(list::ListArgs),
    Show(details::ShowArgs),
    Accept(decide::AcceptArgs),
    Reject(decide::RejectArgs),
    Amend(decide::AmendArgs),
    Skip(decide::SkipArgs),
    Undo(decide::UndoArgs),
    Review(review::ReviewArgs),
}

impl DreamArgs {
    /// Reports whether the command is a dry run.
    pub fn is_dry(&self) -> bool {
        matches!(&self.command, DreamCommand::Run(pass) if pass.dry_run)
    }

    /// Carries out one of the `dream` commands.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        dispatch!(&self.command, DreamCommand: Run Bench List Show Accept Reject Amend Skip Undo Review => run(cli))
    }
}

/// Selects a dream job of the project.
#[derive(Clone, Debug, Default, clap::Args)]
struct DreamJobArg {
    /// The dream job, if the project has several
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

/// Returns the dream job that the arguments name.
fn dream_job<'h>(
    here: &'h LoadedProject,
    which: &DreamJobArg,
) -> Result<(&'h str, &'h DreamSpec), Failure> {
    let dreams: Vec<(&str, &DreamSpec)> = here
        .config
        .jobs
        .iter()
        .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<DreamSpec>()?)))
        .collect();
    if let Some(wanted) = &which.job {
        here.config.job(wanted)?;
        return dreams
            .into_iter()
            .find(|(name, _)| name == wanted)
            .ok_or_else(|| Failure::usage(format!("{wanted} is not a dream job")));
    }
    match dreams.as_slice() {
        [only] => Ok(*only),
        [] => {
            Err(Failure::configuration("this project has no job of kind dream").hint("runner init"))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            let what = format!("this project has {} dream jobs: {}", names.len(), names.join(", "));
            Err(Failure::usage(what).hint(format!("add --job {}", names[0])))
        }
    }
}
