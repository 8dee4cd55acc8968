//! The `runner projects` commands: list the registered projects and their states, register the new
//! path of a moved project, and forget a project.
//!
//! Listing changes nothing. `forget` shows a plan and carries out exactly that plan.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::ids::ProjectId;
use runner_engine::outcome::Exit;
use runner_engine::store::{Project, Store};
use serde::Serialize;

use crate::cli::args::{Listing, ProjectsCommand};
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::daemon::client;
use crate::env::Env;
use crate::filesystem;
use crate::project::registration::{PathOccupant, Registration, inspect_path};
use crate::project::{self, identity};

/// Carries out a `projects` command.
pub fn run(
    home: &Env,
    here: &Path,
    command: Option<&ProjectsCommand>,
    ui: Ui,
    listing: Listing,
) -> Result<Exit, Failure> {
    match command {
        None => list(home, listing),
        Some(ProjectsCommand::List { listing }) => list(home, *listing),
        Some(ProjectsCommand::Move { old, new, listing }) => {
            relocate(home, old, &here.join(new), ui, *listing)
        }
        Some(ProjectsCommand::Forget { project, yes, listing }) => {
            forget(home, project, *yes, ui, *listing)
        }
    }
}

#[derive(Debug, Serialize)]
struct ProjectJson {
    id: ProjectId,
    path: String,
    standing: &'static str,
    trouble: Option<String>,
    hint: Option<String>,
    /// The type of the shared file system that contains the project, if any.
    shared: Option<String>,
}

fn list(home: &Env, listing: Listing) -> Result<Exit, Failure> {
    let mut found = Vec::new();
    if let Some(store) = home.store_to_read()? {
        for known in store.every_project()? {
            let standing = project::standing_of_row(&known);
            let path = known.displaced_from().unwrap_or_else(|| known.path.clone());
            let (trouble, hint) = match standing.trouble(&path, &known.id) {
                Some((what, hint)) => (Some(what), Some(hint)),
                None if standing == Registration::Replaced => (
                    Some(
                        "a different folder is at its path now; it continues as the same project"
                            .to_owned(),
                    ),
                    Some(
                        "runner tick   (or, if it is another one: runner init --new-id)".to_owned(),
                    ),
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
            found.push(ProjectJson {
                shared: filesystem::shared(&path),
                path: path.display().to_string(),
                standing: standing.as_str(),
                id: known.id,
                trouble,
                hint,
            });
        }
    }
    if listing.json {
        show::json(&found);
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        show::out("no project yet; `runner init` makes the current folder one\n");
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|it| vec![it.standing.to_owned(), it.id.to_string(), it.path.clone()])
        .collect();
    for (line, it) in show::table(&rows).lines().zip(&found) {
        text.push_str(&format!("{line}\n"));
        if let Some(trouble) = &it.trouble {
            text.push_str(&format!("  {trouble}\n"));
        }
        if let Some(hint) = &it.hint {
            text.push_str(&format!("  fix: {hint}\n"));
        }
        if let Some(kind) = &it.shared {
            text.push_str(&format!(
                "  warning: it is on {kind}, which other machines write to as well\n"
            ));
        }
    }
    show::out(&text);
    Ok(Exit::Done)
}

/// Returns the project with the given id, or with the given present or former path.
fn named(store: &Store, name: &Path) -> Result<Project, Failure> {
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
        several => Err(Failure::data(format!("{} projects begin with {text}", several.len()))
            .hint("runner projects")),
    }
}

#[derive(Debug, Serialize)]
struct MovedJson<'a> {
    id: &'a ProjectId,
    from: String,
    to: String,
}

fn relocate(home: &Env, old: &Path, new: &Path, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let mut store = home.store()?;
    // The old path no longer exists, so only the path under which the project was registered can
    // match. A relative path is resolved against the current folder.
    let known = named(&store, old)
        .or_else(|failure| named(&store, &absolute(home, old)).map_err(|_| failure))?;
    let root = fs::canonicalize(new)
        .map_err(|error| Failure::data(format!("{}: {error}", new.display())))?;
    if !root.join(project::FILE).is_file() {
        return Err(Failure::data(format!(
            "{} is not a project: it has no {}",
            root.display(),
            project::FILE
        ))
        .hint(format!("runner projects move {} ITS-NEW-PLACE", old.display())));
    }
    let node = project::node(&root)?;
    let same_folder = node.is(&known.node);
    let carried = project::id_at(&root);
    let other = store.project_at(&root)?.filter(|it| it.id != known.id);
    if let (Some(other), false) = (&other, same_folder) {
        return Err(Failure::data(format!(
            "{} is already a separate project ({}), with its own history",
            root.display(),
            other.id
        ))
        .hint(format!(
            "runner projects   (to delete the history of that one: runner projects forget {})",
            other.id
        )));
    }
    if carried.as_ref() != Some(&known.id) && !same_folder {
        let carries =
            carried.map_or_else(|| "carries no id".to_owned(), |id| format!("carries the id {id}"));
        return Err(Failure::data(format!(
            "{} is not the same project as {}: it {carries}",
            root.display(),
            known.path.display()
        ))
        .hint(format!("runner init {}", root.display())));
    }
    if known.path == root {
        if listing.json {
            show::json(&MovedJson {
                id: &known.id,
                from: known.path.display().to_string(),
                to: root.display().to_string(),
            });
        }
        ui.beside(listing).info(&format!("{} is there already", root.display()));
        return Ok(Exit::Done);
    }
    let bound = known.displaced_from().is_none().then_some(&known.node);
    let still = inspect_path(&known.path, &known.id, bound, project::carried);
    let has_it = identity::own(&root).ok().flatten().as_ref() == Some(&known.id);
    if let (PathOccupant::Project { same_id: true, own, .. }, false) = (&still, same_folder)
        // A clone at the old path that contains only the seed is not the project.
        && (*own || !has_it)
    {
        return Err(Failure::data(format!(
            "{} is still there: {} is a copy or another clone of it",
            known.path.display(),
            root.display()
        ))
        .hint(format!("runner init --new-id {}", root.display())));
    }
    store.relocate(&known.id, &root, node)?;
    if identity::own(&root).ok().flatten().as_ref() != Some(&known.id) {
        identity::write(&root, &known.id)?;
    }
    client::wake(home);
    if listing.json {
        show::json(&MovedJson {
            id: &known.id,
            from: known.path.display().to_string(),
            to: root.display().to_string(),
        });
    } else {
        ui.info(&format!("{} is at {} now", known.path.display(), root.display()));
    }
    Ok(Exit::Done)
}

fn absolute(home: &Env, path: &Path) -> PathBuf {
    home.here.join(path)
}

/// The records that `forget` removes, for scripts.
#[derive(Debug, Serialize)]
struct ForgetJson<'a> {
    id: &'a ProjectId,
    path: String,
    jobs: u64,
    nights: u64,
    occurrences: u64,
    runs: usize,
    /// The folders of runs, with their logs.
    remove: Vec<String>,
    done: bool,
}

fn forget(home: &Env, name: &Path, yes: bool, ui: Ui, listing: Listing) -> Result<Exit, Failure> {
    let nothing = || Failure::data(format!("there is no project {}", name.display()));
    let Some(reader) = home.store_to_read()? else {
        return Err(nothing().hint("runner projects"));
    };
    let known = named(&reader, name)
        .or_else(|failure| named(&reader, &absolute(home, name)).map_err(|_| failure))?;
    let plan = reader.forgetting(&known.id)?;
    drop(reader);
    if let Some(run) = plan.live.first().or(plan.awaited_by.first()) {
        let why = match plan.live.is_empty() {
            true => "another project's queue waits for one of its runs",
            false => "it has runs that are not over",
        };
        return Err(Failure::later(format!("{} is not forgotten: {why}", known.path.display()))
            .hint(format!("runner cancel {run}")));
    }
    let folders: Vec<PathBuf> = plan
        .runs
        .iter()
        .map(|run| home.run_folder(run.as_str()))
        .filter(|path| path.exists())
        .collect();
    if yes {
        home.store()?.forget(&plan)?;
        for path in &folders {
            if let Err(error) = fs::remove_dir_all(path) {
                show::complain(&format!("{} is left: {error}", path.display()));
            }
        }
        client::wake(home);
    }
    if listing.json {
        show::json(&ForgetJson {
            id: &known.id,
            path: known.path.display().to_string(),
            jobs: plan.jobs,
            nights: plan.nights,
            occurrences: plan.occurrences,
            runs: plan.runs.len(),
            remove: folders.iter().map(|path| path.display().to_string()).collect(),
            done: yes,
        });
        return Ok(Exit::Done);
    }
    let text = format!(
        "{} {} ({})\n  from the database: {}, {}, {}, {}, and what they spent\n  from {}: {} of runs\n  the project's own files stay as they are\n",
        if yes { "forgotten:" } else { "would forget" },
        known.path.display(),
        known.id,
        show::count(plan.jobs, "job"),
        show::count(plan.nights, "night"),
        show::count(plan.occurrences, "occurrence"),
        show::count(plan.runs.len() as u64, "run"),
        home.state.display(),
        show::count(folders.len() as u64, "folder"),
    );
    match yes {
        true => ui.info(text.trim_end()),
        false => show::out(&format!(
            "{text}nothing was done; to do it: runner projects forget {} --yes\n",
            known.id
        )),
    }
    Ok(Exit::Done)
}
