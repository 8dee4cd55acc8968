//! `runner dream review`: opens the `runner top` application at the proposals.

use runner_engine::outcome::Exit;

use super::DreamJobArg;
use super::context::ReviewContext;
use crate::commands::Cli;
use crate::commands::top::{self, Source};
use crate::tui::proposals::{ProposalFilter, Review};
use crate::tui::terminal;
use crate::tui::{App, Tab};
use crate::ui::{Failure, show};

/// Review the undecided proposals one at a time on a terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream review --confidence high")]
pub(super) struct ReviewArgs {
    #[command(flatten)]
    filter: ProposalFilter,
    #[command(flatten)]
    which: DreamJobArg,
}

impl ReviewArgs {
    /// Runs the review until the user quits.
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let instead = "runner dream list --json, then runner dream accept|reject|amend|skip ID";
        top::require_terminal("a review", instead)?;
        let proposals = ReviewContext::open(cli, &self.which)?.proposals()?;
        if proposals.undecided().count() == 0 {
            show::out("no undecided proposals; to find more: runner dream run\n");
            return Ok(Exit::Done);
        }
        let mut app = App::new(Tab::Proposals);
        app.proposals = Ok(Review::new(proposals.items, self.filter.clone()));
        let mut source = Source::with(*cli, self.filter.clone(), self.which.clone());
        let (app, exit) = top::open(&mut source, app)?;
        // The summary is printed only on a terminal.
        if let (true, Ok(review)) = (terminal::is_available(), &app.proposals) {
            let (open, decided) = review.counts();
            show::out(&format!("{decided} decided, {open} left\n"));
        }
        Ok(exit)
    }
}
