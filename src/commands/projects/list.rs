//! `runner projects list`: lists the registered projects and their states.
//!
//! This module must never change anything.

use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_engine::store::Project;
use schemars::JsonSchema;
use serde::Serialize;

use crate::commands::Cli;
use crate::filesystem;
use crate::project::registration::Registration;
use crate::project::{self, identity};
use crate::ui::{Failure, Ui, View, show};

#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct ProjectList(Vec<ListedProject>);

#[derive(Debug, JsonSchema, Serialize)]
struct ListedProject {
    id: ProjectId,
    path: String,
    standing: &'static str,
    trouble: Option<String>,
    hint: Option<String>,
    /// The type of the project's file system, if other machines may share it.
    shared: Option<String>,
}

pub(super) fn run(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let projects = cli
        .env
        .store_to_read()?
        .map(|store| store.every_project())
        .transpose()?
        .unwrap_or_default();
    cli.ui.show(&ProjectList(projects.into_iter().map(ListedProject::of).collect()));
    Ok(Exit::Done)
}

impl ListedProject {
    fn of(known: Project) -> Self {
        let standing = project::standing_of_row(&known);
        let path = known.displaced_from().unwrap_or_else(|| known.path.clone());
        let (trouble, hint) = match standing.trouble(&path, &known.id) {
            Some((what, hint)) => (Some(what), Some(hint)),
            None if standing == Registration::Replaced => (
                Some(
                    "a different folder is now at the project's path, and it continues as the same \
                     project"
                        .to_owned(),
                ),
                Some("runner tick   (or, if it is another project: runner init --new-id)".to_owned()),
            ),
            None => match (identity::git_folder(&path), project::contradiction(&known)) {
                (Ok(_), None) => (None, None),
                (Ok(_), Some((what, hint))) => (Some(what), Some(hint)),
                (Err(failure), _) => {
                    let (what, hint) = failure.parts();
                    (Some(what), hint)
                }
            },
        };
        Self {
            shared: filesystem::shared(&path),
            path: path.display().to_string(),
            standing: standing.as_str(),
            id: known.id,
            trouble,
            hint,
        }
    }
}

impl View for ProjectList {
    fn print(&self, _ui: Ui) {
        let Self(projects) = self;
        if projects.is_empty() {
            return show::out("no projects yet; `runner init` makes a git repository a project\n");
        }
        let rows = projects.iter().map(|it| show::row([it.standing, it.id.as_str(), &it.path]));
        let mut text = String::new();
        for (line, it) in show::table(&rows.collect::<Vec<_>>()).lines().zip(projects) {
            text.push_str(&format!("{line}\n"));
            if let Some(trouble) = &it.trouble {
                text.push_str(&format!("  {trouble}\n"));
            }
            if let Some(hint) = &it.hint {
                text.push_str(&format!("  fix: {hint}\n"));
            }
            if let Some(kind) = &it.shared {
                text.push_str(&format!(
                    "  warning: the project is on {kind}, which other machines may also write to\n"
                ));
            }
        }
        show::out(&text);
    }
}
