//! `runner status`: shows the current state, from the database and a few file lookups.
//!
//! Most of the data is read with one SQL statement for each kind of data, whatever the number of
//! projects, and with a few `stat` calls for each project. A project's configuration is parsed only
//! if its files have changed. The command changes nothing.

mod files;
mod gather;
pub(super) mod model;
mod overview;
mod project_scan;
mod project_status;
mod queue;
mod text;
mod watch;

use model::{DaemonState, ProjectStatus};
use runner_engine::outcome::Exit;

use super::Cli;
use crate::env::Env;
use crate::metrics::{BudgetSample, ProjectSample, Snapshot};
use crate::ui::show::Tone;
use crate::ui::{Failure, show};

const SCHEMA: &str = include_str!("../../../config/schemas/status.schema.json");

/// Show the current state: the last night, the next due run, failures, and which jobs are running,
/// waiting or paused
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner status --watch")]
pub struct StatusArgs {
    /// Keep watching: redraw on a terminal; otherwise, print again after a change
    #[arg(long)]
    watch: bool,
    /// Print the JSON schema of the --json output
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    schema: bool,
}

impl StatusArgs {
    /// Prints the status of the current project, or of all projects outside one.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if self.schema {
            show::out(SCHEMA);
        } else if self.watch {
            return watch::watch(cli);
        } else {
            cli.ui.show(&gather::gather(cli)?);
        }
        Ok(Exit::Done)
    }
}

/// Returns the lines that the command prints for the current project, or for all projects outside
/// one, with the tone of each.
pub(super) fn lines(cli: &Cli<'_>) -> Result<Vec<(Tone, String)>, Failure> {
    Ok(text::lines(&gather::gather(cli)?))
}

/// Adds the status of all projects to the metrics data.
pub(super) fn measure(home: &Env, snapshot: &mut Snapshot) -> Result<(), Failure> {
    let status = gather::gather_at(home, None)?;
    snapshot.daemons = usize::from(matches!(status.daemon, Some(DaemonState::Answers(_))));
    snapshot.live_runs = status.live_runs;
    snapshot.fleets = status.fleets;
    snapshot.projects = status.projects.iter().map(sample).collect();
    Ok(())
}

fn sample(project: &ProjectStatus) -> ProjectSample {
    let budgets = [("day", Some(&project.budget.day)), ("night", project.budget.night.as_ref())];
    let budgets = budgets.into_iter().filter_map(|(level, budget)| {
        budget.map(|budget| BudgetSample { level, used: budget.used, left: budget.left })
    });
    ProjectSample {
        id: project.id.clone().unwrap_or_default(),
        path: project.path.clone(),
        next_due: project.next.as_ref().map(|next| next.at),
        budgets: budgets.collect(),
        alerts: project.alerts.iter().filter(|alert| !alert.silenced).count(),
        proposals: project.proposals.count,
        stopped: project.stopped.len(),
        failing: project.failmarks.len(),
    }
}
