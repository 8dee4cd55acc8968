//! `runner dream run`: runs one pass manually, or shows what a pass would do.

use std::fs;
use std::io;

use runner_engine::outcome::Exit;
use runner_jobs::dream::ALL;
use runner_jobs::dream::quarantine::Quarantine;

use super::{DreamJobArg, dream_job};
use crate::commands::Cli;
use crate::commands::dry_run::{self, DryRunRequest};
use crate::commands::run::{self as by_hand, ManualRun};
use crate::project::LoadedProject;
use crate::ui::Failure;

/// The ideas that a pass examines.
#[derive(Debug, clap::Args)]
pub(super) struct IdeaSelection {
    /// Maximum number of ideas to examine [default: the job's max_ideas]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
    /// Examine all ideas, changed or not, up to `max_ideas` of them
    #[arg(long)]
    all: bool,
    /// Examine this idea, even if it has not changed or was set aside
    #[arg(long, value_name = "PATH", conflicts_with = "all")]
    idea: Option<String>,
}

impl IdeaSelection {
    /// Returns the selection as job settings for one run.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let max = self.max.map(|max| ("max_ideas".to_owned(), max.to_string()));
        let select = self.idea.clone().or(self.all.then(|| ALL.to_owned()));
        let select = select.map(|select| ("select".to_owned(), select));
        max.into_iter().chain(select).collect()
    }
}

/// Run one pass now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner dream run --max 5 --json")]
pub(super) struct PassArgs {
    #[command(flatten)]
    selection: IdeaSelection,
    /// Examine again the ideas that were set aside after three invalid answers
    #[arg(long)]
    retry_parked: bool,
    /// Show the requests, their backends and maximum cost, and whether the job would start now;
    /// send and write nothing
    #[arg(long, conflicts_with = "retry_parked")]
    pub(super) dry_run: bool,
    #[command(flatten)]
    which: DreamJobArg,
}

impl PassArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let settings = self.selection.settings();
        if self.dry_run {
            let project = LoadedProject::load_for_dry_run(cli.env, cli.here)?;
            let (job, _) = dream_job(&project, &self.which)?;
            let request = DryRunRequest { job, key: None, settings, deferral_is_normal: true };
            return dry_run::run(cli, &project, request);
        }
        let project = LoadedProject::load(cli.env, cli.here)?;
        let (job, _) = dream_job(&project, &self.which)?;
        if self.retry_parked {
            let cache = cli.env.cache_folder(&project.id);
            let path = Quarantine::path(&cache);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let what = format!("cannot remove {}: {error}", path.display());
                    return Err(Failure::cannot_write(what));
                }
                _ => {}
            }
        }
        let how = ManualRun { deferral_is_normal: true, ..ManualRun::new(cli, settings) };
        by_hand::once(cli.env, &project, job, None, how)
    }
}
