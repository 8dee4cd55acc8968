//! `runner lifecycle orient`: prints the text that a waking run reads first.

use runner_engine::error_chain::whole;
use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_engine::scope::Scope;
use runner_jobs::lifecycle::manifest::newest_in;
use runner_jobs::lifecycle::orient::{Orientation, orient, since, uncommitted};
use runner_jobs::lifecycle::spec::StateKind;
use serde::Serialize;

use crate::commands::Cli;
use crate::commands::board::change::provenance;
use crate::commands::board::{self, BoardArg};
use crate::env;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, contract_words, safe, show};

/// Show the text that a waking run reads first, in at most 60 lines
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle orient --kind audit")]
pub(super) struct OrientArgs {
    /// Purpose of the run
    #[arg(long, value_parser = contract_words::<StateKind>(["wake", "audit", "plan"]), default_value = "wake")]
    kind: StateKind,
    #[command(flatten)]
    which: BoardArg,
}

/// The orientation for one kind of run.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct OrientationView {
    orientation: Orientation,
    #[serde(skip)]
    kind: StateKind,
}

impl View for OrientationView {
    fn print(&self, _ui: Ui) {
        for line in self.orientation.lines(self.kind, None) {
            show::out(&format!("{}\n", safe::line(&line)));
        }
    }
}

impl OrientArgs {
    pub(super) fn run(&self, cli: &Cli<'_>, here: &LoadedProject) -> Result<Exit, Failure> {
        let scope = Scope::open(&here.root, &[], ".runner/staging/look")
            .map_err(|error| Failure::environment(whole(&error)))?;
        let newest = match newest_in(&scope, &self.which.agent) {
            Ok(Some(newest)) => {
                let provenance = provenance(cli, here, &newest)?;
                Ok(Some((newest, provenance)))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let board = board::path(here, &self.which);
        let mut orientation = orient(&scope, (&board, &self.which.agent), &newest);
        let git = Git::new(&here.root, &env::child_environment(), &env::marker()?);
        let listed =
            newest.as_ref().ok().and_then(Option::as_ref).map(|(newest, _)| &newest.listed);
        orientation.since = since(&git, &scope, &board, listed)
            .map_err(|error| Failure::environment(safe::line(&error.whole())))?;
        let left = uncommitted(&git, &board)
            .map_err(|error| Failure::environment(safe::line(&error.whole())))?;
        orientation.since.splice(0..0, left);
        cli.ui.show(&OrientationView { orientation, kind: self.kind });
        Ok(Exit::Done)
    }
}
