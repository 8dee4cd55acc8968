//! Finds the memory store, and the memory of a folder, without using the database or git.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use runner_memory::Scope;
use runner_memory::store::{Location, locate};

use crate::env;
use crate::project;
use crate::ui::Failure;

/// The memory store's folder, inside the home folder.
const MEMORY: &str = ".ctx";

/// The memory of a folder.
#[derive(Clone, Debug)]
pub struct FolderMemory {
    pub scope: Scope,
    /// The folder shared by sessions: the project root, the repository root, or the folder itself.
    pub folder: String,
    /// The project root, if the folder is inside a project.
    pub root: Option<PathBuf>,
}

/// Returns the memory of a folder. The memory of a folder outside runner's projects is named after
/// the root of its repository, or after the folder itself.
pub fn find(folder: &Path) -> FolderMemory {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let above = |name: &str| folder.ancestors().find(|it| it.join(name).exists());
    if let Some(root) = above(project::FILE)
        && let Some(id) = project::id_at(root)
    {
        return FolderMemory {
            scope: Scope::Project(id.to_string()),
            folder: root.display().to_string(),
            root: Some(root.to_owned()),
        };
    }
    let named = above(".git").unwrap_or(&folder).display().to_string();
    FolderMemory { scope: Scope::Project(format!("folder:{named}")), folder: named, root: None }
}

/// Returns the user's memory store: `named`, or the one in `CTX_DB`, or the default one in
/// `~/.ctx`. Creates the store's folder if it does not exist.
pub fn store(named: Option<&Path>) -> Result<Location, Failure> {
    let path = named.map(Path::to_owned).or_else(|| env::setting("CTX_DB").map(PathBuf::from));
    let folder = match &path {
        Some(path) => path.parent().unwrap_or(Path::new("")).to_owned(),
        None => user_home()?.join(MEMORY),
    };
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| Failure::not_made(&folder, error))?;
    }
    Ok(match path {
        Some(path) => Location { path, foreign: None },
        None => locate(&folder),
    })
}

/// Returns whether the memory store exists. Creates nothing.
pub fn exists() -> bool {
    let named = env::setting("CTX_DB").map(PathBuf::from);
    let own = || user_home().map(|home| locate(&home.join(MEMORY)).path);
    named.map_or_else(own, Ok).is_ok_and(|path| path.is_file())
}

/// Returns the user's home folder.
pub fn user_home() -> Result<PathBuf, Failure> {
    let home = env::setting("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| {
        Failure::environment("HOME is not an absolute path, so there is no place for the memory")
    })
}
