//! `runner corpus defrag`: removes copies of nodes, and proposes nodes for retirement.

use runner_engine::error_chain::whole;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::commit;
use runner_jobs::overnight::corpus::Corpus;
use runner_jobs::overnight::corpus::defrag::{Defrag, Options, defrag, merged, suggestions};

use super::{CorpusFolder, proposals};
use crate::ui::{Failure, Ui, View, safe, show};

/// Remove byte-identical copies, and propose repeated, stale, failed and oscillating nodes for
/// retirement; all of these by default
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus defrag --dedup --apply")]
pub struct DefragArgs {
    /// Propose nodes that are past their time to live or have misled their users
    #[arg(long)]
    prune: bool,
    /// Remove byte-identical copies, and propose near-identical ones
    #[arg(long)]
    dedup: bool,
    /// Propose files that nights alternately add and remove
    #[arg(long)]
    oscillation_sweep: bool,
    /// Remove the copies and store the proposals [default: show them]
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
        let date = folder.date()?;
        let step = |corpus: &Corpus| {
            let mut history = folder.history();
            let (mut report, changes) = defrag(corpus, &history, options);
            report.applied = self.apply;
            history.merged.extend(merged(&report));
            let mut facts = folder.facts(corpus, &history)?;
            let mut after = corpus.clone();
            after.apply(&changes);
            report.suggested = suggestions(&after, facts.known_uses(), &history, date, options);
            history.note("by-hand", changes.keys().map(|path| (path.as_str(), false)));
            let history = (!changes.is_empty()).then_some(history);
            let proposed = match self.apply {
                true => Some(proposals::updated(folder, &after, &report.suggested, options)?),
                false => None,
            };
            Ok(((report, proposed, history), changes))
        };
        // The files that describe the changes are written after the changes are committed.
        let describe = |(_, proposed, history): &(Defrag, Option<_>, Option<_>)| {
            if let Some(history) = history {
                commit::write_history(&folder.root, history)
                    .map_err(|error| Failure::cannot_write(whole(&error)))?;
            }
            proposed.as_ref().map_or(Ok(()), |proposed| proposals::write(folder, proposed))
        };
        let (report, ..) = match self.apply {
            true => folder.change_then(step, describe)?,
            false => folder.preview(step)?,
        };
        folder.cli.ui.show(&report);
        Ok(Exit::Done)
    }
}

impl View for Defrag {
    fn print(&self, _ui: Ui) {
        let mut text = String::new();
        for one in &self.removed {
            text.push_str(&format!(
                "{} is the same as {}\n",
                safe::line(&one.path),
                safe::line(&one.of)
            ));
        }
        for one in &self.suggested {
            text.push_str(&format!(
                "proposed for retirement: {}: {}\n",
                safe::line(&one.path),
                safe::line(&one.why)
            ));
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
