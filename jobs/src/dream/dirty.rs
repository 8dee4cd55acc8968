//! Finds signs that someone is working on the project, so that a pass does not interfere.
//!
//! The signs are an unfinished git operation, changes that git reports below the dream's paths and,
//! once the changed ideas are known, any ideas saved very recently. The module must never write.
//! Unless the setting `dirty` is `strict`, it must never treat runner's own edits as work in
//! progress: git ignores the state, the proposals and the decisions, and the edits made by accepted
//! proposals are recognized by their content.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::admission::AT_WORK;
use runner_engine::git::Git;
use runner_engine::git::changes::{Change, Untracked};
use runner_engine::outcome::Class;

use super::LONGEST;
use super::inventory::{Idea, Reader};
use super::review::own_edits;
use super::spec::{Dirty, DreamSpec};
use crate::{Context, JobError};

/// Entries in the `.git` folder that exist while an operation is in progress, each with a
/// description.
const IN_PROGRESS: [(&str, &str); 6] = [
    ("index.lock", "a git operation is running (index.lock)"),
    ("MERGE_HEAD", "a merge is unfinished"),
    ("rebase-merge", "a rebase is unfinished"),
    ("rebase-apply", "a rebase is unfinished"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is unfinished"),
    ("REVERT_HEAD", "a revert is unfinished"),
];

/// Returns the reasons why a pass has to wait, one entry for each reason or file. The list is empty
/// if the pass need not wait.
///
/// # Errors
/// Returns an error if git fails or the project's folder cannot be opened.
pub fn dirty(git: &Git, spec: &DreamSpec) -> Result<Vec<String>, JobError> {
    let mut found = Vec::new();
    let folder = git.path(&["--git-dir"])?;
    for (name, what) in IN_PROGRESS {
        if folder.join(name).symlink_metadata().is_ok() {
            found.push(what.to_owned());
        }
    }
    // An unmerged path, wherever it is, means that a merge is unfinished.
    let (unmerged, mut changed): (BTreeMap<_, _>, BTreeMap<_, _>) =
        git.changes(&[], Untracked::No)?.into_iter().partition(|(_, it)| *it == Change::Unmerged);
    found.extend(unmerged.into_keys().map(|path| format!("{path} (unmerged)")));
    let folders = [spec.ideas.as_str(), spec.dreams.as_str()];
    match spec.dirty {
        Dirty::Tracked => {
            let below = |path: &String| folders.iter().any(|it| Path::new(path).starts_with(it));
            changed.retain(|path, _| below(path));
            if !changed.is_empty() {
                without_own(git.root(), spec, &mut changed)?;
            }
        }
        Dirty::Strict => {
            changed = git.changes(&folders, Untracked::Files)?;
            changed.retain(|_, change| *change != Change::Unmerged);
        }
    }
    found.extend(changed.into_keys());
    Ok(found)
}

/// Removes the files that still have the content that the latest decision or undo gave them.
fn without_own(
    root: &Path,
    spec: &DreamSpec,
    changed: &mut BTreeMap<String, Change>,
) -> Result<(), JobError> {
    let own = own_edits(root, spec);
    let reader = Reader::open(root, LONGEST)
        .map_err(|error| JobError::failed(Class::Environment, error.to_string()))?;
    changed.retain(|path, _| match own.get(path) {
        None => true,
        Some(None) => root.join(path).symlink_metadata().is_ok(),
        Some(Some(left)) => reader.digest(path).ok().as_ref() != Some(left),
    });
    Ok(())
}

/// Finds the selected ideas that were saved less than `quiet_minutes` ago. Returns the time when
/// the last of these quiet times ends, and the ideas' names. Returns `None` if there are no such
/// ideas. A modification time far in the future is ignored.
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

/// Defers a pass that was not started manually while a selected idea is being written.
///
/// # Errors
/// Returns [`JobError::Wait`] if a selected idea was saved within [`DreamSpec::quiet_minutes`].
pub(super) fn wait_for_writer(
    ctx: &Context<'_>,
    spec: &DreamSpec,
    ideas: &[Idea],
    selected: &[usize],
) -> Result<(), JobError> {
    if !ctx.admitted.manual()
        && let Some((until, names)) =
            just_changed(ideas, selected, spec.quiet_minutes, ctx.clock.now())
    {
        let why = format!("{AT_WORK}: {}", named(&names));
        return Err(JobError::Wait { until, why });
    }
    Ok(())
}

/// Lists the first few names and the number of remaining ones.
fn named(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
