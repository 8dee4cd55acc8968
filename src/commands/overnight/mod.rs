//! `runner overnight`: sets up the overnight job, starts a run manually, and shows its report. Also
//! imports another program's data, shows and restores rescues, and prints schemas.

mod import;
mod report;
mod setup;
mod start;

use std::path::Path;

use runner_engine::outcome::Exit;
use runner_jobs::overnight::lock::RunLock;
use runner_jobs::overnight::warn_budget::WarnBudget;
use runner_jobs::overnight::{OvernightSpec, ownership, schema};

use super::curator::CuratorArgs;
use super::{Cli, corpus};
use crate::config::{Config, did_you_mean};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// Run a night over the corpus inside .agents: collect learnings, tidy, measure, and propose where to start
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner overnight start --goal 'fewer flaky tests'")]
pub struct OvernightArgs {
    #[command(subcommand)]
    command: OvernightCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OvernightCommand {
    Setup(setup::OvernightSetupArgs),
    #[command(visible_alias = "run")]
    Start(start::StartArgs),
    Report(report::NightReportArgs),
    Import(import::ImportArgs),
    Curator(CuratorArgs),
    #[command(subcommand, after_help = "Example: runner overnight warn-budget reset")]
    WarnBudget(WarnBudgetCommand),
    /// Print the JSON schema of an artifact, or the names of all artifacts
    #[command(after_help = "Example: runner overnight schema summary > summary.schema.json")]
    Schema {
        /// The name of the artifact
        name: Option<String>,
    },
}

/// Show or restore the rescues that let a night continue after a regression
#[derive(Debug, clap::Subcommand)]
enum WarnBudgetCommand {
    /// Show the number of rescues left, and the reason for each one spent
    #[command(after_help = "Example: runner overnight warn-budget show --json | jq .remaining")]
    Show,
    /// Restore all rescues
    #[command(after_help = "Example: runner overnight warn-budget reset")]
    Reset,
}

impl View for WarnBudget {
    fn print(&self, _ui: Ui) {
        let mut text = format!("{} of {} rescues left\n", self.remaining, self.initial);
        for one in &self.spent {
            let (id, why) = (safe::line(&one.iteration_id), safe::line(&one.reason));
            text.push_str(&format!("  {id}: {why}\n"));
        }
        show::out(&text);
    }
}

/// Shows or restores the rescues.
fn warn_budget(cli: &Cli<'_>, command: &WarnBudgetCommand) -> Result<Exit, Failure> {
    let root = corpus::find(cli.here)?;
    let budget = match command {
        WarnBudgetCommand::Show => WarnBudget::read(&root),
        WarnBudgetCommand::Reset => {
            let _lock = RunLock::take(&root, "corpus", cli.env.wall()?).map_err(corpus::locked)?;
            WarnBudget::reset(&root).map_err(|error| Failure::cannot_write(error.to_string()))?
        }
    };
    cli.ui.show(&budget);
    Ok(Exit::Done)
}

impl OvernightArgs {
    pub fn is_dry(&self) -> bool {
        match &self.command {
            OvernightCommand::Start(start) => start.dry_run,
            OvernightCommand::Curator(curator) => curator.is_dry(),
            _ => false,
        }
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        dispatch!(&self.command, OvernightCommand: Setup Start Report Import Curator => run(cli);
            OvernightCommand::WarnBudget(command) => warn_budget(cli, command),
            OvernightCommand::Schema { name } => print_schema(name.as_deref()))
    }
}

/// Prints the named schema, or the names of all schemas.
fn print_schema(name: Option<&str>) -> Result<Exit, Failure> {
    let names = schema::SCHEMAS.iter().map(|(name, _)| *name);
    match name.map(|name| (name, schema::text(name))) {
        None => show::out(&names.map(|name| format!("{name}\n")).collect::<String>()),
        Some((_, Some(text))) => show::out(text),
        Some((name, None)) => {
            let known = names.collect::<Vec<_>>().join(", ");
            let what = format!("there is no schema {name:?}; the schemas are {known}");
            return Err(Failure::usage(what));
        }
    }
    Ok(Exit::Done)
}

/// Returns the named overnight job, or the only overnight job.
fn night_job<'h>(
    here: &'h LoadedProject,
    wanted: Option<&str>,
) -> Result<(&'h str, &'h OvernightSpec), Failure> {
    here.config.job_of_kind(wanted, "an overnight", "runner overnight setup --apply")
}

/// Checks that each `--runner` is a configured backend.
fn known(config: &Config, runners: &[String]) -> Result<(), String> {
    match (runners.iter()).find(|name| !config.backends.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = config.backends.keys().map(String::as_str).collect();
            let near = did_you_mean(name, known.iter().copied());
            Err(format!("--runner {name}: there is no such backend ({}){near}", known.join(", ")))
        }
    }
}

/// Checks that a night may use the output folder: it is absent, empty or an earlier night's.
pub(super) fn own_output(root: &Path, spec: &OvernightSpec) -> Result<(), Failure> {
    let usual = OvernightSpec::default().output_dir;
    match ownership::inspect(root, &spec.output_dir) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::configuration(error.to_string())
            .hint(format!("name a folder that only nights use: --output-dir {usual}"))),
    }
}
