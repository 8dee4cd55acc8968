//! `runner jobs`: lists, shows, adds and runs jobs, and resets a job's failures.

mod add;
pub(super) mod list;
pub(super) mod reset;

use runner_engine::outcome::Exit;

use super::{Cli, run};
use crate::project::LoadedProject;
use crate::ui::Failure;

/// List jobs, or show, add, run or reset one [default: list]
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner jobs --json | jq -r '.[] | select(.failures > 0) | .job'"
)]
pub struct JobsArgs {
    #[command(subcommand)]
    command: Option<JobsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum JobsCommand {
    /// List the jobs with their next scheduled time, last outcome and circuit breaker
    #[command(after_help = "Example: runner jobs list --json | jq -r '.[].job'")]
    List,
    /// Show one job: its kind, its schedule, its last run and its failures
    #[command(after_help = "Example: runner jobs show dream")]
    Show {
        /// The job's name in runner.toml
        job: String,
    },
    Add(add::AddArgs),
    #[command(after_help = "Example: runner jobs run dream")]
    Run(run::RunArgs),
    /// Reset a job's failures, so that its schedule starts it again
    ///
    /// This removes the failure marker, closes the circuit breaker and ends the job's open alerts.
    /// The database records who ran the command.
    #[command(after_help = "Example: runner jobs reset dream")]
    Reset {
        /// The job's name in runner.toml
        #[arg(required_unless_present = "all")]
        job: Option<String>,
        /// All jobs of the project
        #[arg(long, conflicts_with = "job")]
        all: bool,
    },
}

impl JobsArgs {
    pub fn is_dry(&self) -> bool {
        matches!(&self.command, Some(JobsCommand::Run(args)) if args.dry_run)
    }

    /// Returns whether the command runs a job, in which case `--config` applies.
    pub fn runs(&self) -> bool {
        matches!(&self.command, Some(JobsCommand::Run(_)))
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = || LoadedProject::load(cli.env, cli.here);
        match &self.command {
            None | Some(JobsCommand::List) => {
                cli.ui.show(&list::JobList(list::jobs(cli.env, &project()?)?));
            }
            Some(JobsCommand::Show { job }) => {
                let project = project()?;
                project.config.job(job)?;
                let all = list::jobs(cli.env, &project)?;
                let shown = all.into_iter().find(|one| one.job == *job);
                cli.ui.show(&shown.ok_or_else(|| {
                    Failure::internal(format!("{job} is configured but not listed"))
                })?);
            }
            Some(JobsCommand::Add(args)) => return args.run(cli, &project()?),
            Some(JobsCommand::Run(args)) => return args.run(cli),
            Some(JobsCommand::Reset { job, .. }) => {
                cli.ui.show(&reset::reset(cli.env, &project()?, job.as_deref())?);
            }
        }
        Ok(Exit::Done)
    }
}
