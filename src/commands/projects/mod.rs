//! `runner projects`: lists projects, registers the new path of a moved project, and forgets a
//! project.

mod forget;
pub(super) mod list;
mod relocate;

use std::fs;
use std::path::Path;

use runner_engine::outcome::Exit;
use runner_engine::store::{Project, Store};

use super::Cli;
use crate::env::Env;
use crate::ui::Failure;

/// List all projects, record that one has moved, or forget one
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: runner projects --json | jq -r '.[] | select(.standing != \"known\") | .path'"
)]
pub struct ProjectsArgs {
    /// The subcommand [default: list]
    #[command(subcommand)]
    command: Option<ProjectsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ProjectsCommand {
    /// List the projects with their state, id and path
    #[command(after_help = "Example: runner projects list")]
    List,
    Move(relocate::MoveArgs),
    Forget(forget::ForgetArgs),
}

impl ProjectsArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            None | Some(ProjectsCommand::List) => list::run(cli),
            Some(ProjectsCommand::Move(args)) => args.run(cli),
            Some(ProjectsCommand::Forget(args)) => args.run(cli),
        }
    }
}

/// Returns the project with this id, id prefix of at least six characters, or path. The path need
/// not exist, because the project may have moved. A relative path is relative to the current
/// folder.
fn named(home: &Env, store: &Store, name: &Path) -> Result<Project, Failure> {
    find(store, name).or_else(|failure| find(store, &home.here.join(name)).map_err(|_| failure))
}

fn find(store: &Store, name: &Path) -> Result<Project, Failure> {
    let all = store.every_project()?;
    let text = name.to_string_lossy();
    let canonical = fs::canonicalize(name).ok();
    let mut matches: Vec<&Project> = all
        .iter()
        .filter(|it| {
            it.id.as_str() == text.to_ascii_uppercase()
                || it.path == name
                || canonical.as_ref() == Some(&it.path)
        })
        .collect();
    if matches.is_empty() && text.len() >= 6 {
        let begins = |it: &&Project| it.id.as_str().starts_with(&text.to_ascii_uppercase());
        matches = all.iter().filter(begins).collect();
    }
    match matches.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Failure::data(format!("there is no project {}", name.display()))
            .hint("runner projects")),
        several => Err(Failure::data(format!("{} project ids begin with {text}", several.len()))
            .hint("runner projects")),
    }
}
