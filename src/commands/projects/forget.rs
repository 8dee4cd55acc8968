//! `runner projects forget`: shows which records of a project would be removed, or removes them.

use std::path::PathBuf;

use runner_engine::files::remove_tree;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use serde::Serialize;

use super::named;
use crate::commands::Cli;
use crate::daemon::client;
use crate::ui::{Failure, Ui, View, show};

/// Remove a project and its history from the database; without --yes, only show what would be
/// removed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner projects forget /home/me/finished --yes")]
pub(super) struct ForgetArgs {
    /// The project's path, or its id
    project: PathBuf,
    /// Remove the project
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct ForgottenProject {
    id: ProjectId,
    path: String,
    jobs: u64,
    nights: u64,
    occurrences: u64,
    runs: usize,
    /// The run folders to remove.
    remove: Vec<String>,
    done: bool,
    /// The state folder, which contains the run folders.
    #[serde(skip)]
    state: String,
}

impl View for ForgottenProject {
    fn print(&self, ui: Ui) {
        let text = format!(
            "{} {} ({})\n  from the database: {}, {}, {}, {}, and their usage\n  from {}: {}\n  the project's files are left unchanged\n",
            if self.done { "forgotten:" } else { "would forget" },
            self.path,
            self.id,
            show::count(self.jobs, "job"),
            show::count(self.nights, "night"),
            show::count(self.occurrences, "occurrence"),
            show::count(self.runs as u64, "run"),
            self.state,
            show::count(self.remove.len() as u64, "run folder"),
        );
        match self.done {
            true => ui.info(text.trim_end()),
            false => show::out(&format!(
                "{text}nothing was changed; to forget the project: runner projects forget {} --yes\n",
                self.id
            )),
        }
    }
}

impl ForgetArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let (home, name) = (cli.env, &self.project);
        let nothing = || Failure::data(format!("there is no project {}", name.display()));
        let Some(reader) = home.store_to_read()? else {
            return Err(nothing().hint("runner projects"));
        };
        let known = named(home, &reader, name)?;
        let plan = reader.forgetting(&known.id)?;
        drop(reader);
        if let Some(run) = plan.live.first().or(plan.awaited_by.first()) {
            let why = match plan.live.is_empty() {
                true => "a queued run of another project waits for one of its runs",
                false => "some of its runs have not ended",
            };
            return Err(Failure::later(format!(
                "{} was not forgotten: {why}",
                known.path.display()
            ))
            .hint(format!("runner cancel {run}")));
        }
        let folders: Vec<PathBuf> = plan
            .runs
            .iter()
            .map(|run| home.run_folder(run.as_str()))
            .filter(|path| path.exists())
            .collect();
        if self.yes {
            home.store()?.forget(&plan)?;
            for path in &folders {
                if let Err(error) = remove_tree(path) {
                    show::complain(&format!("cannot remove {}: {error}", path.display()));
                }
            }
            client::wake(home);
        }

        cli.ui.show(&ForgottenProject {
            id: known.id,
            path: known.path.display().to_string(),
            jobs: plan.jobs,
            nights: plan.nights,
            occurrences: plan.occurrences,
            runs: plan.runs.len(),
            remove: folders.iter().map(|path| path.display().to_string()).collect(),
            done: self.yes,
            state: home.state.display().to_string(),
        });
        Ok(Exit::Done)
    }
}
