//! `runner dream`: runs a dream pass manually, reviews the proposals, and measures the rule-based
//! answers.

mod bench;
mod context;
pub(super) mod decide;
pub(super) mod details;
mod external;
pub(super) mod list;
mod pass;
mod review;

pub(super) use context::{ReviewContext, Tools, failure};

use runner_engine::outcome::Exit;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::review::DecisionInput;

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

#[derive(Debug, clap::Subcommand)]
enum DreamCommand {
    Run(pass::PassArgs),
    Delta(external::DeltaArgs),
    Submit(external::SubmitArgs),
    Bench(bench::BenchArgs),
    List(list::ListArgs),
    Show(details::ShowArgs),
    Accept(decide::AcceptArgs),
    /// Record that a proposal is wrong, and change nothing else
    #[command(after_help = "Example: runner dream reject 3f2a --note 'still wanted'")]
    Reject(decide::DecisionArgs),
    Amend(decide::AmendArgs),
    /// Leave an idea as it is and do not ask again until the idea changes
    #[command(after_help = "Example: runner dream skip 3f2a")]
    Skip(decide::DecisionArgs),
    Undo(decide::UndoArgs),
    Review(review::ReviewArgs),
}

impl DreamArgs {
    /// Returns whether the command is a dry run.
    pub fn is_dry(&self) -> bool {
        matches!(&self.command, DreamCommand::Run(pass) if pass.dry_run)
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        dispatch!(&self.command, DreamCommand: Run Delta Submit Bench List Show Accept Amend Undo Review => run(cli);
            DreamCommand::Reject(args) => args.run(cli, DecisionInput::Reject),
            DreamCommand::Skip(args) => args.run(cli, DecisionInput::Skip))
    }
}

/// Selects a dream job of the project.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct DreamJobArg {
    /// The dream job, if the project has several
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

/// Returns the dream job named by the arguments, or else the project's only dream job.
fn dream_job<'h>(
    here: &'h LoadedProject,
    which: &DreamJobArg,
) -> Result<(&'h str, &'h DreamSpec), Failure> {
    here.config.job_of_kind(which.job.as_deref(), "a dream", "runner init")
}
