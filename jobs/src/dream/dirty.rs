//! Is someone in the midst of something? (contracts/dream.md, rule 7.)
//!
//! Facts for admission, gathered and not judged: an unfinished merge, changes that git sees below the
//! dream's paths; and, once the changed ideas are known, those that were saved a moment ago. Must never write, and never call work in
//! progress what a pass itself leaves behind: state, proposals and decisions are ignored by git.

use jiff::{SignedDuration, Timestamp};
use runner_engine::git::Git;
use runner_engine::git::changes::{Change, Untracked};

use super::inventory::Idea;
use super::spec::{Dirty, DreamSpec};
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
    let folder = git.path(&["--git-dir"])?;
    for (name, what) in IN_PROGRESS {
        if folder.join(name).symlink_metadata().is_ok() {
            found.push(what.to_owned());
        }
    }
    let untracked = match spec.dirty {
        Dirty::Tracked => Untracked::No,
        Dirty::Strict => Untracked::Files,
    };
    // A conflict anywhere is a merge that somebody is in the midst of.
    for (path, change) in git.changes(&[], Untracked::No)? {
        if change == Change::Unmerged {
            found.push(format!("{path} (unmerged)"));
        }
    }
    for (path, change) in git.changes(&[&spec.ideas, &spec.dreams], untracked)? {
        if change != Change::Unmerged {
            found.push(path);
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
