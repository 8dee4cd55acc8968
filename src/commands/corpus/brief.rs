//! `runner corpus brief`: shows what the corpus knows about a goal.

use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::brief::{Brief, brief};

use super::CorpusFolder;
use crate::ui::{Failure, Ui, View, show};

/// Show what the corpus knows about a goal; each line cites the node it comes from
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus brief --goal 'fewer flaky tests'")]
pub struct BriefArgs {
    /// The goal
    #[arg(long)]
    goal: String,
}

impl BriefArgs {
    pub fn run(&self, folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
        let goal = self.goal.as_str();
        let report = brief(&folder.corpus()?, goal, folder.date()?);
        if report.nodes.is_empty() {
            return Err(Failure::data(format!("no node of the corpus matches {goal:?}"))
                .hint("use words that occur in the corpus, or run: runner corpus harvest"));
        }
        folder.cli.ui.show(&report);
        Ok(Exit::Done)
    }
}

impl View for Brief {
    fn print(&self, _ui: Ui) {
        show::out(&show::printable(&self.text));
    }
}
