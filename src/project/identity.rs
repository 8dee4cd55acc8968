//! Which project a folder is: its own id, else the one that its `runner.toml` was born with.
//!
//! `runner.toml` is committed, so every clone and worktree of a repository carries the same id in it.
//! That id is only a *seed*: the first clone that is registered keeps it. What a clone is known by
//! stands in its own git folder, which git never clones and gives to each worktree separately, and
//! which `git clean -dfx` leaves alone (it would take a file under `.runner/` with it). A folder
//! without that file is known by its seed, as ever.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::causes::whole;
use runner_engine::files::write_atomic;
use runner_engine::ids::ProjectId;

use crate::cli::Failure;

/// The file in a clone's git folder.
pub const FILE: &str = "runner-id";

/// The git folder of this very work tree: `.git`, or the one that a file of that name points to.
pub fn git_dir(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    let data = fs::metadata(&git).ok()?;
    if data.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(&git).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    (!named.is_empty()).then(|| root.join(named))
}

/// The id that this clone has for itself.
///
/// # Errors
/// The file is there and cannot be read or holds no id.
pub fn own(root: &Path) -> Result<Option<ProjectId>, Failure> {
    let Some(path) = git_dir(root).map(|folder| folder.join(FILE)) else {
        return Ok(None);
    };
    let wrong = |why: String| {
        Failure::configuration(format!("{}: {why}", path.display()))
            .mend(format!("runner init --new-id {}", root.display()))
    };
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(id) => Ok(Some(id)),
            Err(error) => Err(wrong(format!("{error}"))),
        },
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Writes the id that this clone has for itself.
pub fn write(root: &Path, id: &ProjectId) -> Result<(), Failure> {
    let folder = git_dir(root).ok_or_else(|| {
        Failure::data(format!(
            "{} has no git folder to keep its id in",
            root.display()
        ))
        .mend("git worktree repair, or git init")
    })?;
    let path = folder.join(FILE);
    write_atomic(&path, format!("{id}\n").as_bytes(), 0o644)
        .map_err(|error| Failure::cannot_write(whole(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_finds_its_own_git_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(git_dir(root), None);
        assert_eq!(own(root).unwrap(), None);
        fs::write(root.join(".git"), "gitdir: ../main/.git/worktrees/w\n").unwrap();
        assert_eq!(
            git_dir(root),
            Some(root.join("../main/.git/worktrees/w")),
            "relative to the work tree"
        );
        assert_eq!(own(root).unwrap(), None, "a folder that is not there");
        fs::write(root.join(".git"), "nonsense").unwrap();
        assert_eq!(git_dir(root), None);
        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let id = ProjectId::new(jiff::Timestamp::UNIX_EPOCH);
        write(root, &id).unwrap();
        assert_eq!(own(root).unwrap(), Some(id));
        fs::write(root.join(".git/runner-id"), "x").unwrap();
        assert!(own(root).unwrap_err().to_string().contains("--new-id"));
    }
}
