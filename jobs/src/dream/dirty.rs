//! Is someone in the midst of something? (contracts/dream.md, rule 7.)
//!
//! Facts for admission, gathered and not judged: an unfinished merge, changes that git sees below
//! the dream's paths, an idea that was saved a moment ago. Must never write, and never call work in
//! progress what a pass itself leaves behind: state, proposals and decisions are ignored by git.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::git::Git;

use super::spec::{Dirty, DreamSpec};
use super::walk::walk;
use crate::JobError;

/// What lies in git's folder while something is going on there, and what that is.
const IN_PROGRESS: [(&str, &str); 6] = [
    ("index.lock", "git is at work (index.lock)"),
    ("MERGE_HEAD", "a merge is unfinished"),
    ("rebase-merge", "a rebase is unfinished"),
    ("rebase-apply", "a rebase is unfinished"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is unfinished"),
    ("REVERT_HEAD", "a revert is unfinished"),
];

/// Why a pass has to wait, one entry a reason or a file; empty when it need not. Recent changes
/// hold up only a pass that was not started `by_hand`.
///
/// # Errors
/// Git gave no answer.
pub fn dirty(
    root: &Path,
    git: &Git,
    spec: &DreamSpec,
    by_hand: bool,
    now: Timestamp,
) -> Result<Vec<String>, JobError> {
    let mut found = Vec::new();
    let folder = git.ask(&["rev-parse", "--absolute-git-dir"])?;
    let folder = PathBuf::from(
        String::from_utf8_lossy(&folder)
            .trim_end_matches('\n')
            .to_owned(),
    );
    for (name, what) in IN_PROGRESS {
        if folder.join(name).symlink_metadata().is_ok() {
            found.push(what.to_owned());
        }
    }
    let unmerged = git.ask(&["ls-files", "--unmerged", "-z"])?;
    for entry in String::from_utf8_lossy(&unmerged).split('\0') {
        let Some((_, path)) = entry.split_once('\t') else {
            continue;
        };
        note(&mut found, format!("{path} (unmerged)"));
    }
    let untracked = match spec.dirty {
        Dirty::Tracked => "--untracked-files=no",
        Dirty::Strict => "--untracked-files=all",
    };
    let status = git.ask(&[
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--ignore-submodules=all",
        untracked,
        "--",
        &literal(&spec.ideas),
        &literal(&spec.dreams),
    ])?;
    for entry in String::from_utf8_lossy(&status).split('\0') {
        let Some(path) = entry.get(3..).filter(|path| !path.is_empty()) else {
            continue;
        };
        if !found.contains(&format!("{path} (unmerged)")) {
            note(&mut found, path.to_owned());
        }
    }
    if !by_hand {
        found.extend(recent(root, spec, now));
    }
    Ok(found)
}

/// Ideas that were saved within the quiet time. A date in the future is no reason to wait for it.
fn recent(root: &Path, spec: &DreamSpec, now: Timestamp) -> impl Iterator<Item = String> {
    let quiet = i128::from(spec.quiet_minutes) * 60 * 1_000_000_000;
    let now = now.as_nanosecond();
    let walked = walk(root, spec).found.into_iter();
    walked
        .filter(move |found| (now - i128::from(found.stat.mtime)).abs() < quiet)
        .map(|found| format!("{} (just changed)", found.path))
}

fn note(found: &mut Vec<String>, entry: String) {
    if !found.contains(&entry) {
        found.push(entry);
    }
}

/// A path that git takes as it is, whatever signs it holds.
pub(super) fn literal(path: &str) -> String {
    format!(":(literal){path}")
}
