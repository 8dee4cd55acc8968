//! Turns a repository into a project. Everything is checked before anything is written. Unless a new
//! id is requested, a second call writes no file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use runner_engine::git::{Git, GitError};
use runner_engine::ids::ProjectId;
use runner_engine::store::Store;
use runner_jobs::dream::DreamSpec;
use runner_text::shell_word;
use rustix::fs::{Access, access};

use crate::config;
use crate::env::{self, Env};
use crate::project::identity;
use crate::project::registration::Registration;
use crate::project::{self, LoadedProject};
use crate::ui::Failure;

/// A project's folders, each with whether it gets a line in `.git/info/exclude`.
const FOLDERS: &[(&str, bool)] =
    &[("ideas", false), ("dreams", true), (".runner", true), (".runner/curator", false)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdChoice {
    /// The id in the project's files or in the database, or a new id if there is none.
    Known,
    /// Always a new id.
    New,
}

/// Whether `runner init` makes git ignore the ideas folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    /// The repository's own rules apply.
    AsTheyAre,
    /// Git ignores the folders.
    Private,
}

/// A planned change, and the line that reports it.
struct InitStep {
    line: String,
    what: InitAction,
}

enum InitAction {
    File(PathBuf, Vec<u8>),
    Folder(PathBuf),
    Own(ProjectId),
}

/// Creates the project and returns it with the lines that report what was written. The settings are
/// accepted if this function wrote all of them.
pub fn make(
    home: &Env,
    dir: &Path,
    id: IdChoice,
    notes: Notes,
) -> Result<(LoadedProject, Vec<String>), Failure> {
    let git = Git::new(dir, &env::child_environment(), &env::marker()?);
    let root = match git.top() {
        Ok(root) => root,
        Err(error @ GitError::NotARepository { .. }) => {
            return Err(Failure::data(error.to_string())
                .hint(format!("git init {}", shell_word(dir.display()))));
        }
        Err(error) => return Err(Failure::environment(whole(&error))),
    };
    let root = fs::canonicalize(&root).map_err(|error| Failure::unreadable(&root, error))?;
    if root.to_str().is_none() {
        let what = format!("{}: the path of a project must be UTF-8", root.display());
        return Err(Failure::data(what));
    }
    // Fail before anything is created if the configuration is invalid.
    let path = root.join(project::FILE);
    let config = config::load(&home.stack(Some(&path)))?;
    let old = config::file(&path)?;
    let (id, own) = {
        let store = home.store_to_identify()?;
        choose(home, store.as_ref(), &root, config.project.as_ref(), id)?
    };
    let mut steps = Vec::new();
    // The id in the project's file is only a seed for the ids of clones, so an existing seed stays
    // unchanged.
    let own_settings = old.is_none() && config.texts.is_empty();
    if config.project.is_none() || old.is_none() {
        steps.push(config_file(&path, old, &id)?);
    }
    if own {
        steps.push(InitStep {
            line: format!("wrote   the clone's id to the git folder ({})", identity::FILE),
            what: InitAction::Own(id.clone()),
        });
    }
    let mut ignored = Vec::new();
    if notes == Notes::Private {
        let specs = config.jobs.values().filter_map(|job| job.spec.kind.of::<DreamSpec>());
        ignored.extend(specs.map(|spec| format!("/{}/", spec.ideas)));
    }
    for (folder, ignore) in FOLDERS {
        let path = root.join(folder);
        match fs::metadata(&path) {
            Ok(data) if data.is_dir() => {}
            Ok(_) => {
                return Err(Failure::data(format!(
                    "{} is not a folder, but a project needs a folder of this name",
                    path.display()
                ))
                .hint(format!("mv {0} {0}.old", shell_word(path.display()))));
            }
            Err(_) => steps.push(InitStep {
                line: format!("created {folder}/"),
                what: InitAction::Folder(path),
            }),
        }
        if *ignore {
            ignored.push(format!("/{folder}/"));
        }
    }
    // The findings about sessions quote transcripts, so git must ignore them.
    ignored.push("/.warden/".to_owned());
    // Neither the record of tool calls nor the daydreams should be committed.
    let private = [&config.lifecycle.steps, &config.lifecycle.daydreams];
    ignored.extend(private.map(|path| format!("/{path}")));
    steps.extend(exclude(&git, &ignored)?);
    for step in &steps {
        writable(&root, &step.what)?;
    }
    let mut store = home.store()?;
    let mut written = Vec::new();
    for step in steps {
        carry_out(&root, step.what)?;
        written.push(step.line);
    }
    let here = LoadedProject::at(home, Some(&store), &root)?;
    // The new id replaces the one recorded for this folder in the database.
    let mut here = LoadedProject { id, own: true, ..here };
    here.register(&mut store, home.wall()?)?;
    if own_settings {
        here.accept(&mut store)?;
        here.register(&mut store, home.wall()?)?;
    }
    Ok((here, written))
}

/// Returns the id of this clone, and whether the id must be written to the clone's git folder.
fn choose(
    home: &Env,
    store: Option<&Store>,
    root: &Path,
    seed: Option<&ProjectId>,
    id: IdChoice,
) -> Result<(ProjectId, bool), Failure> {
    let fresh = || Ok::<_, Failure>(ProjectId::new(home.wall()?));
    if id == IdChoice::New {
        return Ok((fresh()?, true));
    }
    identity::git_folder(root)?;
    let known = match store {
        Some(store) => project::registered(store, root)?,
        None => None,
    };
    if let Some(known) = known {
        let carried = identity::own(root).ok().flatten();
        let repair = carried.as_ref() != Some(&known.id);
        return Ok((known.id, repair));
    }
    let own = identity::own(root)?;
    let Some(id) = own.as_ref().or(seed) else { return Ok((fresh()?, true)) };
    let standing = match store {
        Some(store) => project::standing_of(store, root, id, own.is_some())?.0,
        None => Registration::New,
    };
    match standing {
        Registration::New
        | Registration::Known
        | Registration::Alias { .. }
        | Registration::Replaced => Ok((id.clone(), own.is_none())),
        Registration::Cloned { .. } => Ok((fresh()?, true)),
        Registration::Recloned { was } => Ok((was, true)),
        other => {
            let (what, hint) = other
                .trouble(root, id)
                .expect("every state that prevents registration has a message");
            Err(Failure::configuration(what).hint(hint))
        }
    }
}

fn config_file(
    path: &Path,
    old: Option<(String, toml::Table)>,
    id: &ProjectId,
) -> Result<InitStep, Failure> {
    let table = format!("[project]\nid = \"{id}\"\n");
    let added = || "added   [project] id to runner.toml".to_owned();
    let (line, text) = match old {
        Some((text, parsed)) if parsed.contains_key("project") => {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let header = lines.iter().position(|line| line.trim_start().starts_with("[project]"));
            let Some(header) = header else {
                return Err(Failure::configuration(format!(
                    "{} defines a project without an id",
                    path.display()
                ))
                .hint(format!("add `[project]` and, below it, `id = \"{id}\"`")));
            };
            lines.insert(header + 1, format!("id = \"{id}\""));
            (added(), lines.join("\n") + "\n")
        }
        Some((text, _)) => (added(), format!("{}\n\n{table}", text.trim_end())),
        None => (
            "wrote   runner.toml (edit it as you like, and commit it)".to_owned(),
            // The text contains no commented-out table. A user who uncomments a table that a
            // command has also added would define that table twice.
            format!(
                "# Settings of runner's nights in this project. They override the defaults.\n\
                 # `runner config show --origin` lists every setting with its source. To change a setting:\n\
                 # runner config set jobs.dream.max_ideas 50\n\
                 # To add a job: runner jobs add NAME --kind command program=make\n\n{table}"
            ),
        ),
    };
    Ok(InitStep { line, what: InitAction::File(path.to_owned(), text.into_bytes()) })
}

/// Plans the addition of lines to `.git/info/exclude`, or returns `None` if no line is missing.
fn exclude(git: &Git, lines: &[String]) -> Result<Option<InitStep>, Failure> {
    let path = git
        .path(&["--git-path", "info/exclude"])
        .map_err(|error| Failure::environment(error.to_string()))?;
    let mut text = match read_no_link(&path, DOCUMENT) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Failure::not_written(&path, error)),
    };
    let known =
        |line: &str| text.split(|byte| *byte == b'\n').any(|known| known == line.as_bytes());
    let missing: Vec<&String> = lines.iter().filter(|line| !known(line)).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = missing.iter().map(|line| line.as_str()).collect();
    let line = format!("ignored {} in .git/info/exclude", names.join(" and "));
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    for line in missing {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    Ok(Some(InitStep { line, what: InitAction::File(path, text) }))
}

/// Checks, as far as possible in advance, whether a step can be carried out.
fn writable(root: &Path, what: &InitAction) -> Result<(), Failure> {
    let folder = match what {
        InitAction::File(path, _) | InitAction::Folder(path) => path.parent().map(Path::to_owned),
        InitAction::Own(_) => identity::git_dir(root),
    };
    // A missing folder is created in its nearest existing ancestor.
    let there =
        folder.as_deref().and_then(|folder| folder.ancestors().find(|folder| folder.exists()));
    let there = there.unwrap_or(root);
    access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        Failure::cannot_write(format!("cannot write in {}: {error}", there.display()))
            .hint(format!("ls -ld {}", shell_word(there.display())))
    })
}

fn carry_out(root: &Path, what: InitAction) -> Result<(), Failure> {
    match what {
        InitAction::Own(id) => identity::write(root, &id),
        InitAction::Folder(path) => {
            fs::create_dir(&path).map_err(|error| Failure::not_written(&path, error))
        }
        InitAction::File(path, text) => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(|error| Failure::not_written(&path, error))?;
            }
            // A file that the user has made private stays private.
            let mode = fs::metadata(&path).map_or(0o644, |data| data.mode() & 0o777);
            write_atomic(&path, &text, mode)
                .map_err(|error| Failure::not_written(&path, whole(&error)))
        }
    }
}
