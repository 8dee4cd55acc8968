//! Identifies a folder that is not recorded in the database: by its own id, or else by the id in
//! its `runner.toml`.
//!
//! The id of a registered folder is in the database, which no child can write. The ids that this
//! module reads are only hints, for a folder that was moved, cloned or restored, or whose database
//! was lost.
//!
//! `runner.toml` is committed, so every clone and worktree of a repository carries the same id in
//! it. That id is only a *seed*: the first clone that is registered keeps it. Each clone's own hint
//! is in its git folder. Git never clones that folder, and gives each worktree a separate one. `git
//! clean -dfx` leaves it alone, but would remove a file under `.runner/`. A folder without its own
//! hint is identified by its seed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{SMALL, read_text_in, write_atomic};
use runner_engine::ids::ProjectId;
use runner_text::shell_word;

use crate::ui::Failure;

/// Name of the file with the id in a clone's git folder.
pub const FILE: &str = "runner-id";

/// Returns the git folder of this particular work tree, if there is one: `.git`, or the folder that
/// a file of that name points to.
pub fn git_dir(root: &Path) -> Option<PathBuf> {
    locate(root).map(|(folder, _)| folder)
}

/// Returns the git folder, if there is one, and whether a file points to it.
fn locate(root: &Path) -> Option<(PathBuf, bool)> {
    let git = root.join(".git");
    let data = fs::metadata(&git).ok()?;
    if data.is_dir() {
        return Some((git, false));
    }
    let text = read_text_in(root, &git, SMALL).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    (!named.is_empty()).then(|| (root.join(named), true))
}

/// Returns the git folder of this particular work tree, or `None` for a folder inside a repository
/// that has no git folder of its own.
///
/// # Errors
/// Returns an error if there is no git repository, or if a worktree's repository was moved.
pub fn git_folder(root: &Path) -> Result<Option<PathBuf>, Failure> {
    let here = root.display();
    let Some((folder, is_linked)) = locate(root) else {
        // A folder inside a repository is identified by its seed.
        return match is_in_repository(root) {
            true => Ok(None),
            false => Err(Failure::environment(format!(
                "{here} is no longer in a git repository: .git is missing"
            ))
            .hint(format!(
                "restore {here}/.git, or create a new repository: git init {}",
                shell_word(&here)
            ))),
        };
    };
    if is_linked && !folder.is_dir() {
        return Err(Failure::environment(format!(
            "{here} is a git worktree, and its repository is no longer at {}",
            repository(&folder).display()
        ))
        .hint(format!(
            "git -C WHERE-THE-REPOSITORY-IS-NOW worktree repair {}",
            shell_word(&here)
        )));
    }
    Ok(Some(folder))
}

fn is_in_repository(folder: &Path) -> bool {
    folder.ancestors().any(|it| it.join(".git").exists())
}

/// Returns the commands that make `folder` a project. A project must be in a git repository.
pub fn init_command(folder: &Path) -> String {
    let is_current = fs::canonicalize(".").ok() == fs::canonicalize(folder).ok();
    let there = shell_word(folder.display());
    let (init, run) = match is_current {
        true => ("git init".to_owned(), "runner init".to_owned()),
        false => (format!("git init {there}"), format!("runner -C {there} init")),
    };
    match is_in_repository(folder) {
        true => run,
        false => format!("{init} && {run}"),
    }
}

/// Returns the id that only this clone has, or `None` if the clone has only its seed.
///
/// # Errors
/// Returns an error if the file exists but cannot be read or contains no id, if there is no git
/// repository, or if a worktree's repository was moved. The folder then cannot be identified, and
/// its seed must not be used as its id.
pub fn own(root: &Path) -> Result<Option<ProjectId>, Failure> {
    git_folder(root)?.map_or(Ok(None), |folder| own_in(root, &folder))
}

/// Returns the id in the git folder of the clone at `root`, or `None` if the folder contains none.
///
/// # Errors
/// Returns an error if the file exists but cannot be read or contains no id.
pub fn own_in(root: &Path, folder: &Path) -> Result<Option<ProjectId>, Failure> {
    let path = folder.join(FILE);
    let wrong = |why: String| {
        Failure::configuration(format!("{}: {why}", path.display()))
            .hint(format!("runner init --new-id {}", shell_word(root.display())))
    };
    match read_text_in(folder, FILE, SMALL) {
        Ok(text) => match text.trim().parse() {
            Ok(id) => Ok(Some(id)),
            Err(error) => Err(wrong(format!("{error}"))),
        },
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Returns the root of the repository whose git folder contains `worktree`, a
/// `.git/worktrees/NAME` folder. Returns any other folder unchanged.
fn repository(worktree: &Path) -> &Path {
    let named = worktree.parent().filter(|it| it.ends_with(".git/worktrees"));
    named.and_then(|it| it.parent()?.parent()).unwrap_or(worktree)
}

/// Writes this clone's own id.
pub fn write(root: &Path, id: &ProjectId) -> Result<(), Failure> {
    let folder = git_dir(root).ok_or_else(|| {
        Failure::data(format!(
            "{} has no git folder, in which runner would store the project's id",
            root.display()
        ))
        .hint("git worktree repair, or git init")
    })?;
    let path = folder.join(FILE);
    write_atomic(&path, format!("{id}\n").as_bytes(), 0o644)
        .map_err(|error| Failure::cannot_write(whole(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktree_finds_its_git_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(git_dir(root), None);
        let why = |root: &Path| own(root).unwrap_err().to_string();
        assert!(why(root).contains("no longer in a git repository"));
        fs::write(root.join(".git"), "gitdir: ../main/.git/worktrees/w\n").unwrap();
        assert_eq!(
            git_dir(root),
            Some(root.join("../main/.git/worktrees/w")),
            "the path must be relative to the worktree"
        );
        let said = why(root);
        assert!(said.contains("no longer at "), "{said}");
        assert!(said.contains("worktree repair"), "{said}");
        fs::write(root.join(".git"), "nonsense").unwrap();
        assert_eq!(git_dir(root), None);
        assert_eq!(own(root).unwrap(), None);
        fs::remove_file(root.join(".git")).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let id = ProjectId::new(jiff::Timestamp::UNIX_EPOCH);
        write(root, &id).unwrap();
        assert_eq!(own(root).unwrap(), Some(id));
        fs::write(root.join(".git/runner-id"), "x").unwrap();
        assert!(own(root).unwrap_err().to_string().contains("--new-id"));
    }
}
