//! Finds out to which project the memory of a folder belongs, without the database and without git.

use std::fs;
use std::path::{Path, PathBuf};

use runner_memory::Scope;

use crate::project;

/// The memory of a folder.
#[derive(Clone, Debug)]
pub struct FolderMemory {
    pub scope: Scope,
    /// The folder that sessions share: the root of the project, or of the repository, or the folder.
    pub folder: String,
    /// The root of the project, if the folder is in one.
    pub root: Option<PathBuf>,
}

/// Returns the memory of a folder. A folder outside of runner's projects is named by its repository's root.
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
