//! `runner curator event`: raises an event that needs attention.

use runner_engine::outcome::Exit;
use runner_jobs::curator::events::{self, Event, NewEvent, Severity};

use super::events::failure;
use super::worker;
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, contract_words};

/// Raise an event that needs attention
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner curator event --source ci --severity warn --desired-action 'look at the flaky test' --escalation-target claude --budget 2"
)]
pub struct EventArgs {
    /// The source that raises the event
    #[arg(long)]
    source: String,
    /// The severity of the event
    #[arg(long, value_parser = contract_words::<Severity>(["info", "warn", "high", "critical"]))]
    severity: Severity,
    /// The action that should be taken
    #[arg(long, value_name = "WORDS")]
    desired_action: String,
    /// The name of the backend or person that should take the action
    #[arg(long, value_name = "WHO")]
    escalation_target: String,
    /// Maximum number of model calls that the event may ever cause
    #[arg(long, value_name = "N")]
    budget: u32,
    /// A note on the event
    #[arg(long)]
    note: Option<String>,
}

impl View for Event {
    fn print(&self, ui: Ui) {
        ui.info(&format!("{} needs review", self.id));
    }
}

impl EventArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let worker = worker(project)?;
        let new = NewEvent {
            source: self.source.clone(),
            severity: self.severity,
            desired_action: self.desired_action.clone(),
            escalation_target: self.escalation_target.clone(),
            budget: self.budget,
            note: self.note.clone(),
        };
        let event = events::raise(&worker, new, None, cli.env.wall()?);
        cli.ui.show(&event.map_err(|error| failure(project, error))?);
        Ok(Exit::Done)
    }
}
