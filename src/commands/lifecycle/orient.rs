//! `runner lifecycle orient`: shows the orientation of a waking run.

use clap::ValueEnum;
use runner_engine::error_chain::whole;
use runner_engine::outcome::Exit;
use runner_engine::scope::Scope;
use runner_jobs::lifecycle::orient::{Orientation, orient};
use runner_jobs::lifecycle::spec::StateKind;
use serde::Serialize;

use crate::commands::Cli;
use crate::commands::board::{self, BoardArg};
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// Show the text that a waking run reads first, in 60 lines at most
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner lifecycle orient --kind audit")]
pub(super) struct OrientArgs {
    /// Purpose of the run
    #[arg(long, value_enum, default_value = "wake")]
    kind: WakingKind,
    #[command(flatten)]
    which: BoardArg,
}

/// The purpose of a waking run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WakingKind {
    /// A run that works
    Wake,
    /// A run that audits claims
    Audit,
    /// A run that plans
    Plan,
}

impl From<WakingKind> for StateKind {
    fn from(it: WakingKind) -> Self {
        match it {
            WakingKind::Wake => Self::Wake,
            WakingKind::Audit => Self::Audit,
            WakingKind::Plan => Self::Plan,
        }
    }
}

/// The orientation of a run of one kind.
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
        let orientation = orient(&scope, &board::path(here, &self.which), &self.which.agent);
        cli.ui.show(&OrientationView { orientation, kind: self.kind.into() });
        Ok(Exit::Done)
    }
}
