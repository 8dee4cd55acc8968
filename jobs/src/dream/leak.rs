//! Guards against leaks: the files that a pass writes must never be committed to the repository.
//!
//! A target is accepted only if git ignores it, *and* git does not track it, *and* no part of its
//! path is a link, *and* it is a plain file or does not exist yet. `git check-ignore` alone is not
//! enough, because it accepts a link to a tracked file. The guard must never accept a target on the
//! assumption that it will be ignored later.

use runner_engine::git::changes::literal;
use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;
use runner_engine::publish::{RealFs, RelPath};

/// Why a target is refused.
#[derive(Debug, thiserror::Error)]
pub enum Leak {
    /// The target is unsafe to write, for example because part of its path is a link.
    #[error("{path}: {why}")]
    Path {
        path: String,
        /// Why the target is unsafe.
        why: String,
    },
    #[error(
        "{path} is tracked by git, and what is written there could be committed; fix: git rm --cached {path}"
    )]
    Tracked { path: String },
    #[error(
        "{path} is not ignored by git, and what is written there could be committed; add /{folder}/ to .git/info/exclude or to .gitignore"
    )]
    NotIgnored {
        path: String,
        /// The outermost folder of the target.
        folder: String,
    },
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Checks whether `path`, relative to the project, may be written without leaking.
///
/// # Errors
/// Returns a [`Leak`] with the reason if the path may not be written, or if git fails.
pub fn check(git: &Git, path: &str) -> Result<(), Leak> {
    let refuse = |why: String| Leak::Path { path: path.to_owned(), why };
    let target = RelPath::new(path).map_err(|bad| refuse(bad.to_string()))?;
    let disk = RealFs::open(git.root()).map_err(|error| refuse(error.to_string()))?;
    disk.regular(&target).map_err(|error| refuse(error.to_string()))?;
    if !git.ask(Read::LsFiles, &["-z", "--", &literal(path)])?.is_empty() {
        return Err(Leak::Tracked { path: path.to_owned() });
    }
    let ignored = git.ask_if_any(Read::CheckIgnore, &["-q", "--", path], Stdin::Null)?;
    if ignored.is_none() {
        let folder = path.split('/').next().unwrap_or(path).to_owned();
        return Err(Leak::NotIgnored { path: path.to_owned(), folder });
    }
    Ok(())
}
