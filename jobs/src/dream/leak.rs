//! The don't-leak guard (contracts/dream.md, rule 3): what a pass writes must never get into the
//! repository's history.
//!
//! A target is let through only when git ignores it, *and* it is not tracked, *and* no part of its
//! path is a link, *and* it is a plain file or nothing yet. `git check-ignore` alone is not enough:
//! it passes a link to a tracked file. Must never be satisfied by a promise that something will be
//! ignored later.

use runner_engine::git::changes::literal;
use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;
use runner_engine::publish::{RealFs, RelPath};

/// Why a target is refused.
#[derive(Debug, thiserror::Error)]
pub enum Leak {
    /// It is, or lies behind, what must not be written through.
    #[error("{path}: {why}")]
    Path {
        /// The target.
        path: String,
        /// The reason.
        why: String,
    },
    /// Git tracks it.
    #[error(
        "{path} is tracked by git, and what is written there could be committed; fix: git rm --cached {path}"
    )]
    Tracked {
        /// The target.
        path: String,
    },
    /// Git does not ignore it.
    #[error(
        "{path} is not ignored by git, and what is written there could be committed; add /{folder}/ to .git/info/exclude or to .gitignore"
    )]
    NotIgnored {
        /// The target.
        path: String,
        /// Its outermost folder.
        folder: String,
    },
    /// Git gave no answer.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Checks whether `path`, relative to the project, may be written without leaking.
///
/// # Errors
/// Returns a [`Leak`] with the reason if it may not.
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
