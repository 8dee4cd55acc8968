//! `runner corpus defrag`.

use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::Corpus;
use runner_jobs::overnight::corpus::defrag::{Defrag, Options, defrag};

use super::CorpusFolder;
use crate::ui::{Failure, Ui, View, safe, show};

/// Find repeated, stale and oscillating nodes; without a choice, all of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus defrag --dedup --apply")]
pub struct DefragArgs {
    /// Set aside nodes that are past their time to live
    #[arg(long)]
    prune: bool,
    /// Handle repeated nodes
    #[arg(long)]
    dedup: bool,
    /// Find what nights add and remove in turns
    #[arg(long)]
    oscillation_sweep: bool,
    /// Make the changes [default: show them]
    #[arg(long)]
    apply: bool,
}

impl DefragArgs {
    pub fn run(&self, folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
        let all = !(self.prune || self.dedup || self.oscillation_sweep);
        let options = Options {
            prune: self.prune || all,
            dedup: self.dedup || all,
            oscillation_sweep: self.oscillation_sweep || all,
            ..Options::default()
        };
        let (date, history) = (folder.date()?, folder.history());
        let step = |corpus: &Corpus| Ok(defrag(corpus, &history, date, options));
        let mut report = if self.apply { folder.change(step)? } else { folder.preview(step)? };
        report.applied = self.apply;
        folder.cli.ui.show(&report);
        Ok(Exit::Done)
    }
}

impl View for Defrag {
    fn print(&self, _ui: Ui) {
        let mut text = String::new();
        for (word, all) in
            [("the same as", &self.removed), ("nearly the same as", &self.superseded)]
        {
            for one in all {
                text.push_str(&format!(
                    "{} is {word} {}\n",
                    safe::line(&one.path),
                    safe::line(&one.of)
                ));
            }
        }
        for (word, all) in [
            ("is past its time to live", &self.stale),
            ("is repeatedly added and removed; left unchanged", &self.oscillating),
            ("cannot be edited without guessing; left unchanged", &self.uneditable),
        ] {
            for path in all {
                text.push_str(&format!("{} {word}\n", safe::line(path)));
            }
        }
        let text = match (text.is_empty(), self.applied) {
            (true, _) => "no changes are needed\n".to_owned(),
            (false, true) => text,
            (false, false) => {
                text + "nothing was changed; run again with --apply to make these changes\n"
            }
        };
        show::out(&text);
    }
}
