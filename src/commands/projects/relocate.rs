//! `runner projects move`: records that a project has moved.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_engine::store::{Project, Store};
use runner_text::shell_word;
use serde::Serialize;

use super::named;
use crate::commands::Cli;
use crate::daemon::client;
use crate::project::registration::{PathOccupant, inspect_path};
use crate::project::{self, identity};
use crate::ui::{Failure, Ui, View};

/// Record that a project has moved; its history moves with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner projects move /home/me/old-place /home/me/new-place")]
pub(super) struct MoveArgs {
    /// The project's old path, or its id
    old: PathBuf,
    /// The project's new path
    new: PathBuf,
}

/// A project whose new path was recorded, or was already known.
#[derive(Debug, Serialize)]
struct MovedProject {
    id: ProjectId,
    from: String,
    to: String,
}

impl View for MovedProject {
    fn print(&self, ui: Ui) {
        let Self { from, to, .. } = self;
        match from == to {
            true => ui.info(&format!("{to} is already the project's path")),
            false => ui.info(&format!("{from} is now at {to}")),
        }
    }
}

impl MoveArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut store = cli.env.store()?;
        let known = named(cli.env, &store, &self.old)?;
        let new = cli.here.join(&self.new);
        let root = fs::canonicalize(&new)
            .map_err(|error| Failure::data(format!("{}: {error}", new.display())))?;
        self.check(&store, &known, &root)?;
        if known.path != root {
            check_old_path(&known, &root)?;
            store.relocate(&known.id, &root, project::node(&root)?)?;
            if identity::own(&root).ok().flatten().as_ref() != Some(&known.id) {
                identity::write(&root, &known.id)?;
            }
            client::wake(cli.env);
        }
        cli.ui.show(&MovedProject {
            from: known.path.display().to_string(),
            to: root.display().to_string(),
            id: known.id,
        });
        Ok(Exit::Done)
    }

    /// Checks that the folder `root` is the project.
    fn check(&self, store: &Store, known: &Project, root: &Path) -> Result<(), Failure> {
        if !root.join(project::FILE).is_file() {
            return Err(Failure::data(format!(
                "{} is not a project: it has no {}",
                root.display(),
                project::FILE
            ))
            .hint(format!("runner projects move {} NEW-PATH", shell_word(self.old.display()))));
        }
        let node = project::node(root)?;
        let same_folder = node.is(&known.node);
        let carried = project::id_at(root);
        let other = store.project_at(root)?.filter(|it| it.id != known.id);
        if let (Some(other), false) = (&other, same_folder) {
            return Err(Failure::data(format!(
                "{} is already a separate project ({}), with its own history",
                root.display(),
                other.id
            ))
            .hint(format!(
                "runner projects   (to delete the history of that project: runner projects forget {})",
                other.id
            )));
        }
        if carried.as_ref() != Some(&known.id) && !same_folder {
            let carries = carried
                .map_or_else(|| "carries no id".to_owned(), |id| format!("carries the id {id}"));
            return Err(Failure::data(format!(
                "{} is not the same project as {}: the folder {carries}",
                root.display(),
                known.path.display()
            ))
            .hint(format!("runner init {}", shell_word(root.display()))));
        }
        Ok(())
    }
}

/// Checks that the project is no longer at its old path.
fn check_old_path(known: &Project, root: &Path) -> Result<(), Failure> {
    let same_folder = project::node(root)?.is(&known.node);
    let bound = known.displaced_from().is_none().then_some(&known.node);
    let still = inspect_path(&known.path, &known.id, bound, project::carried);
    let has_it = identity::own(root).ok().flatten().as_ref() == Some(&known.id);
    if let (PathOccupant::Project { same_id: true, own, .. }, false) = (&still, same_folder)
        // A clone at the old path that has the id only in `runner.toml` is not the project.
        && (*own || !has_it)
    {
        return Err(Failure::data(format!(
            "{} still exists: {} is a copy or another clone of it",
            known.path.display(),
            root.display()
        ))
        .hint(format!("runner init --new-id {}", shell_word(root.display()))));
    }
    Ok(())
}
