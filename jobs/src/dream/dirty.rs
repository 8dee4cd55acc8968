//! Is someone in the midst of something? (contracts/dream.md, rule 7.)
//!
//! Facts for admission, gathered and not judged: an unfinished merge, changes that git sees below the
//! dream's paths; and, once the changed ideas are known, those that were saved a moment ago. Must never write, and never call work in
//! progress what a pass itself leaves behind: state, proposals and decisions are ignored by git.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use runner_engine::git::Git;

use super::spec::{Dirty, DreamSpec};
use super::survey::Idea;
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

/// Why a pass has to wait, one entry a reason or a file; empty when it need not.
///
/// # Errors
/// Git gave no answer.
pub fn dirty(git: &Git, spec: &DreamSpec) -> Result<Vec<String>, JobError> {
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
    Ok(found)
}

/// The changed ideas that were saved within the quiet time, and when the last of them has had its
/// quiet; `None` when there is none. A date in the future is no reason to wait for it.
pub(super) fn just_changed(
    ideas: &[Idea],
    selected: &[usize],
    quiet_minutes: u32,
    now: Timestamp,
) -> Option<(Timestamp, Vec<String>)> {
    let quiet = SignedDuration::from_mins(i64::from(quiet_minutes));
    let mut until = now;
    let mut names = Vec::new();
    for idea in selected.iter().map(|place| &ideas[*place]) {
        let saved = Timestamp::from_nanosecond(i128::from(idea.stat.mtime)).unwrap_or(now);
        if now.duration_since(saved).abs() < quiet {
            until = until.max(saved.saturating_add(quiet).unwrap_or(now));
            names.push(format!("{} (just changed)", idea.path));
        }
    }
    (!names.is_empty()).then_some((until, names))
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
