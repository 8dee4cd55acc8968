//! `runner corpus harvest`: imports new learnings.

use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::Corpus;
use runner_jobs::overnight::corpus::harvest::{Harvest, harvest};
use runner_jobs::overnight::facts::Facts;
use runner_jobs::overnight::lock::RunLock;
use runner_text::counted;

use super::{CorpusFolder, locked};
use crate::env;
use crate::ui::{Failure, Ui, View, safe, show};

/// Import new learnings from commits, closed work and session notes; refused while an overnight run
/// is active
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus harvest --dry-run")]
pub struct HarvestArgs {
    /// Show what would be imported
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl HarvestArgs {
    pub fn run(&self, folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
        let date = folder.date()?;
        let git = Git::new(&folder.root, &env::child_environment(), &env::marker()?);
        let history = folder.history();
        // The lock is checked first, so that a refused command does not read the project's facts.
        if !self.dry_run {
            RunLock::inspect(&folder.root).map_err(locked)?;
        }
        let facts = Facts::read(&folder.root, &git);
        let step = |corpus: &Corpus| Ok(harvest(corpus, &facts.sources, &history, date));
        let report = if self.dry_run { folder.preview(step)? } else { folder.change(step)? };
        folder.cli.ui.show(&report);
        Ok(Exit::Done)
    }
}

impl View for Harvest {
    fn print(&self, _ui: Ui) {
        let mut text = format!(
            "{} new from {}, {} and {}; {} already known, {} without a cause or an action\n",
            self.added.len(),
            counted(self.commits, "commit"),
            counted(self.closed_items, "closed item"),
            counted(self.notes, "note"),
            self.known,
            self.junk
        );
        for one in &self.added {
            text.push_str(&format!("  {}  ({})\n", safe::line(&one.path), safe::line(&one.source)));
        }
        for why in &self.left_out {
            text.push_str(&format!("  skipped: {}\n", safe::line(why)));
        }
        show::out(&text);
    }
}
