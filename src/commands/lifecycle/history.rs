//! `runner lifecycle history`: lists the steps of a cycle with their outcomes.

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{RunFilter, RunRow};
use serde::Serialize;

use super::{AgentArg, named};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// List the steps, newest first, including skipped ones with the reason
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle history --limit 10")]
pub(super) struct HistoryArgs {
    /// Maximum number of steps; 0 means all
    #[arg(long, default_value_t = 20)]
    limit: u32,
    #[command(flatten)]
    agent: AgentArg,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct StepHistory(Vec<PastStep>);

#[derive(Debug, Serialize)]
struct PastStep {
    run: RunId,
    at: Timestamp,
    outcome: Option<Outcome>,
    headline: String,
    facts: serde_json::Map<String, serde_json::Value>,
}

impl From<RunRow> for PastStep {
    fn from(row: RunRow) -> Self {
        Self {
            at: row.requested,
            outcome: row.outcome().cloned(),
            run: row.id,
            headline: row.summary.headline,
            facts: row.summary.facts,
        }
    }
}

impl View for StepHistory {
    fn print(&self, _ui: Ui) {
        if self.0.is_empty() {
            return show::out("no step has run yet; `runner lifecycle tick` runs the first step\n");
        }
        let rows = self.0.iter().map(|step| {
            let outcome = step.outcome.as_ref();
            let word = outcome.map_or("open", Outcome::as_str);
            let said = match step.headline.as_str() {
                "" => outcome.and_then(Outcome::why).unwrap_or_default(),
                headline => headline,
            };
            show::row([&show::format_time(step.at), word, &safe::line(said)])
        });
        show::out(&show::table(&rows.collect::<Vec<_>>()));
    }
}

impl HistoryArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let (job, _) = named(here, &self.agent.agent)?;
        let mut rows = Vec::new();
        if let Some(store) = cli.env.store_to_read()? {
            let known = store.jobs(&here.id)?.into_iter().find(|row| row.name == job);
            if let Some(row) = known {
                let filter = RunFilter {
                    project: Some(here.id.clone()),
                    job: Some(row.id),
                    limit: self.limit,
                    ..RunFilter::default()
                };
                rows = store.runs(&filter)?;
            }
        }
        cli.ui.show(&StepHistory(rows.into_iter().map(PastStep::from).collect()));
        Ok(Exit::Done)
    }
}
