//! `runner init`: turns a repository into a project, lets the user choose its most important
//! settings, and prints a summary with the next commands.

mod choices;
mod detect;
mod make;
mod summary;

use std::path::PathBuf;

use runner_engine::error_chain::whole;
use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::review::Privacy;

pub use make::{IdChoice, Notes, make};

use self::summary::InitSummary;
use super::{Cli, trust};
use crate::env;
use crate::filesystem;
use crate::project::LoadedProject;
use crate::ui::{Failure, show};

/// Make the folder a project: detect models, choose settings, create runner.toml and the folders
///
/// On a terminal, the command asks for the backend, the time, the budget, the timer and a sample
/// note. Otherwise, or with --yes, it uses the defaults, which use no model and cost nothing. It
/// never calls a model, and adds the folders that git must ignore to .git/info/exclude.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cd my-repository && runner init")]
pub struct InitArgs {
    /// The folder, inside a git repository [default: the current folder]
    dir: Option<PathBuf>,
    /// Give the project a new id, for a copy that has another project's id
    #[arg(long)]
    new_id: bool,
    /// Do not ask: use the defaults, and accept the settings already in the repository
    #[arg(long)]
    yes: bool,
    /// Keep the notes private: make git ignore ideas/, through .git/info/exclude
    #[arg(long)]
    private_notes: bool,
}

impl InitArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let id = if self.new_id { IdChoice::New } else { IdChoice::Known };
        let notes = if self.private_notes { Notes::Private } else { Notes::AsTheyAre };
        let dir = self.dir.as_deref().unwrap_or(cli.here);
        let (mut project, written) = make(cli.env, dir, id, notes)?;
        for line in &written {
            cli.ui.info(&format!("  {line}"));
        }
        if let Some(kind) = filesystem::shared(&project.root) {
            show::complain(&format!(
                "warning: {} is on {kind}: changes by other machines are not noticed, and a rename may not be atomic",
                project.root.display()
            ));
        }
        let found = detect::models(cli.env);
        let asks = !self.yes && cli.ui.may_ask() && !written.is_empty() && project.trust.holds();
        if asks {
            choices::ask(&Cli { here: &project.root.clone(), ..*cli }, &mut project, &found)?;
        }
        if cli.ui.json && self.yes && !project.trust.holds() {
            trust::accept(cli, &mut project)?;
        }
        let privacy = privacy(&project)?;
        cli.ui.show(&InitSummary::of(cli.env, &project, written, found, privacy)?);
        if !project.trust.holds() && !cli.ui.json {
            cli.ui
                .info("the settings come from the repository; no job runs before you accept them:");
            trust::review(cli, &mut project, self.yes)?;
        }
        Ok(Exit::Done)
    }
}

/// Determines whether each dream job's notes are private.
fn privacy(project: &LoadedProject) -> Result<Vec<Privacy>, Failure> {
    let git = Git::new(&project.root, &env::child_environment(), &env::marker()?);
    let specs = project.config.jobs.values().filter_map(|job| job.spec.kind.of::<DreamSpec>());
    let of = |spec| Privacy::of(&git, spec).map_err(|error| Failure::environment(whole(&error)));
    specs.map(of).collect()
}
