//! `runner curator compact`.

use std::io;

use runner_engine::outcome::Exit;
use runner_jobs::curator::compact::{CompactionPlan, apply, plan};

use super::{disk, worker};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Fold pending log entries into the audit log, and remove what is older than curator.keep
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner curator compact --dry-run")]
pub struct CompactArgs {
    #[command(flatten)]
    how: ShowOrApply,
}

/// Selects whether a plan is shown or carried out.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ShowOrApply {
    /// Show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Make the changes
    #[arg(long)]
    apply: bool,
}

impl View for CompactionPlan {
    fn print(&self, _ui: Ui) {
        show::out(&self.text());
    }
}

impl CompactArgs {
    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let worker = worker(project)?;
        let broken = |error: io::Error| disk(&worker, &error);
        worker.make().map_err(broken)?;
        let _held = worker.lock().map_err(broken)?;
        let keep = project.config.curator.keep;
        let plan = plan(&worker, keep, cli.env.wall()?).map_err(broken)?;
        if self.how.apply {
            apply(&worker, &plan, &mut || Ok(())).map_err(broken)?;
        }
        cli.ui.show(&plan);
        Ok(Exit::Done)
    }
}
