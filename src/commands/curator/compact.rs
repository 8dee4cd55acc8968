//! `runner curator compact`: folds log entries into the audit log, and removes old data.

use std::io;

use runner_engine::outcome::Exit;
use runner_jobs::curator::compact::{CompactionPlan, apply, plan};

use super::{disk, worker};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Fold pending log entries into the audit log, and remove anything older than curator.keep
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
    pub(super) fn is_dry(&self) -> bool {
        self.how.dry_run
    }

    pub fn run(&self, cli: &Cli<'_>, project: &LoadedProject) -> Result<Exit, Failure> {
        let worker = worker(project)?;
        let broken = |error: io::Error| disk(&worker, &error);
        let (keep, now) = (project.config.curator.keep, cli.env.wall()?);
        let plan = if self.how.apply {
            worker.make().map_err(broken)?;
            let _held = worker.lock().map_err(broken)?;
            let plan = plan(&worker, keep, now).map_err(broken)?;
            apply(&worker, &plan, &mut || Ok(())).map_err(broken)?;
            plan
        } else {
            // A dry run creates neither folders nor the lock file.
            plan(&worker, keep, now).map_err(broken)?
        };
        cli.ui.show(&plan);
        Ok(Exit::Done)
    }
}
