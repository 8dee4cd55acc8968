//! `runner corpus close-loop`: promotes learnings.

use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::Corpus;
use runner_jobs::overnight::corpus::close_loop::{CloseLoop, close_loop};

use super::CorpusFolder;
use crate::config::values::duration;
use crate::ui::{Failure, Ui, View, safe, show};

/// Promote learnings that meet the conditions for promotion
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus close-loop --threshold 24h --dry-run")]
pub struct CloseLoopArgs {
    /// Minimum age of a new learning, counted in whole days
    #[arg(long, value_name = "DURATION", default_value = "0h")]
    threshold: String,
    /// Show what would be promoted
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl CloseLoopArgs {
    pub fn run(&self, folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
        let span = match self.threshold.as_str() {
            "0" | "0h" | "0s" | "0m" | "0d" => jiff::SignedDuration::ZERO,
            other => {
                duration(other).map_err(|why| Failure::usage(format!("--threshold: {why}")))?
            }
        };
        let hours = u64::try_from(span.as_hours()).unwrap_or(0);
        let date = folder.date()?;
        let step = |corpus: &Corpus| {
            let mut facts = folder.facts(corpus, &folder.history())?;
            Ok(close_loop(corpus, facts.known_uses(), date, hours))
        };
        let report = if self.dry_run { folder.preview(step)? } else { folder.change(step)? };
        folder.cli.ui.show(&report);
        Ok(Exit::Done)
    }
}

impl View for CloseLoop {
    fn print(&self, _ui: Ui) {
        let mut text = format!("{} of {} promoted\n", self.promoted.len(), self.considered);
        for one in &self.promoted {
            text.push_str(&format!(
                "  {} -> {}  {} ({})\n",
                one.from.as_str(),
                one.to.as_str(),
                safe::line(&one.path),
                safe::line(&one.proof)
            ));
        }
        for (why, count) in &self.held {
            text.push_str(&format!("  not promoted: {count} because {why}\n"));
        }
        show::out(&text);
    }
}
