//! Keeps the counts of sessions whose findings are removed because of their age.
//!
//! The counts move from the session's record to the artifacts. [`Retired`] records which counts
//! came from which session. If such a session continues and is analyzed again, its counts are
//! removed from the artifacts, so no event is counted twice.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::KEPT;
use super::artifact::{Artifact, Counts};
use super::folder::{Retired, SessionFolder};
use super::{fold, merge};

/// Maximum number of retired sessions that are remembered.
const MOST: usize = 500;

/// Removes findings that are too old. Their counts are kept in the artifacts.
pub(super) fn remove_old(folder: &mut SessionFolder, now: Timestamp) {
    let oldest = now.saturating_sub(KEPT).unwrap_or(Timestamp::UNIX_EPOCH);
    // The counts are those of the individual artifacts, so merges are undone first. The derivation
    // merges the artifacts again.
    folder.artifacts = merge::apart(&folder.artifacts);
    take_back(folder);
    for (session, record) in std::mem::take(&mut folder.records) {
        if record.modified.is_none_or(|at| at >= oldest) {
            folder.records.insert(session, record);
            continue;
        }
        let mut counts = BTreeMap::new();
        each(folder, |artifact| {
            let own = fold::counts(&record, artifact);
            if own != Counts::default() {
                artifact.earlier.add(own);
                counts.insert(artifact.id.clone(), own);
            }
        });
        folder.retired.push(Retired { session, counts });
    }
    // If an artifact no longer exists, its counts are gone as well.
    let mut known = Vec::new();
    each(folder, |artifact| known.push(artifact.id.clone()));
    for retired in &mut folder.retired {
        retired.counts.retain(|id, _| known.contains(id));
    }
    folder.retired.retain(|retired| !retired.counts.is_empty());
    let surplus = folder.retired.len().saturating_sub(MOST);
    folder.retired.drain(..surplus);
}

/// Removes from the artifacts the counts of retired sessions that were analyzed again.
fn take_back(folder: &mut SessionFolder) {
    let all = std::mem::take(&mut folder.retired);
    let (again, retired) =
        all.into_iter().partition(|it: &Retired| folder.records.contains_key(&it.session));
    folder.retired = retired;
    for Retired { counts, .. } in again {
        each(folder, |artifact| {
            if let Some(own) = counts.get(&artifact.id) {
                artifact.earlier.remove(*own);
            }
        });
    }
}

/// Calls `change` for each artifact, and for each one that undoing a decision would restore.
fn each(folder: &mut SessionFolder, change: impl FnMut(&mut Artifact)) {
    let restorable = folder.decisions.history.iter_mut().filter_map(|it| it.artifact.as_mut());
    folder.artifacts.iter_mut().chain(restorable).for_each(change);
}
