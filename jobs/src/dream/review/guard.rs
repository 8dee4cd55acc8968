//! The rules for the paths that an act may write: the don't-leak and canonical rules
//! (contracts/dream.md, rule 3), applied to a whole plan with two git queries.
//!
//! The rules are stricter than those of a pass in one respect and looser in another. A file that
//! git tracks is never touched. An idea need not be ignored, because it belongs to the person and
//! is wherever they put it. However, text that git ignores must not be written to a path that git
//! does not ignore, because it could then be committed.

use std::collections::BTreeSet;

use runner_engine::git::changes::literal;
use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;
use runner_engine::publish::{RealFs, RelPath};

use super::super::spec::DreamSpec;

/// The reason why a plan is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Guard(String),
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Checks that all of `paths` may be written. `from` are the ideas whose text goes into them.
///
/// # Errors
/// Returns [`Refused`] with the first path that may not be written, the reason and the fix.
pub(super) fn check(
    git: &Git,
    spec: &DreamSpec,
    paths: &[&str],
    from: &[&str],
) -> Result<(), Refused> {
    let refuse = |why: String| Err(Refused::Guard(why));
    for path in paths {
        if let Some(canonical) = spec.canonical_over(path) {
            return refuse(format!(
                "{path} would be written, but {canonical} is canonical (`canonical` in runner.toml)"
            ));
        }
    }
    // This check comes before git is asked, because git follows links or fails on them.
    let disk = RealFs::open(git.root()).map_err(|error| Refused::Guard(error.to_string()))?;
    for path in paths.iter().chain(from) {
        let rel = RelPath::new(path).map_err(|bad| Refused::Guard(bad.to_string()))?;
        if let Err(error) = disk.regular(&rel) {
            return refuse(format!("{path} would be written: {error}"));
        }
    }
    let all: BTreeSet<&str> = paths.iter().chain(from).copied().collect();
    let literals: Vec<String> = all.iter().map(|path| literal(path)).collect();
    let mut ask = vec!["-z", "--"];
    ask.extend(literals.iter().map(String::as_str));
    let tracked = git.ask(Read::LsFiles, &ask)?;
    if let Some(path) = names(&tracked).first() {
        return refuse(format!(
            "{path} is tracked by git: runner cannot undo changes to it, and they could be committed; \
             `git rm --cached {path}` makes git stop tracking it"
        ));
    }
    let listed: String = all.iter().map(|path| format!("{path}\0")).collect();
    let answer =
        git.ask_if_any(Read::CheckIgnore, &["-z", "--stdin"], Stdin::Bytes(listed.into_bytes()))?;
    let ignored: BTreeSet<String> = names(&answer.unwrap_or_default()).into_iter().collect();
    let private = from.iter().any(|path| ignored.contains(*path));
    let own = format!("{}/", spec.dreams);
    for path in paths.iter().filter(|path| !ignored.contains(**path)) {
        let folder = path.split('/').next().unwrap_or(path);
        if path.starts_with(&own) {
            return refuse(format!(
                "{path} is not ignored by git, and what is written there could be committed; \
                 add /{folder}/ to .git/info/exclude or to .gitignore"
            ));
        }
        if private {
            return refuse(format!(
                "{} is ignored by git and {path} is not: its text could be committed there; \
                 add /{folder}/ to .git/info/exclude, or move it manually",
                from.join(" and ")
            ));
        }
    }
    Ok(())
}

fn names(answer: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(answer)
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
