//! The steps of a publication, written down before any of them is carried out.
//!
//! A manifest is data: relative paths and digests, so that recovery can determine, with nothing
//! else, how far a dead run got. It must never hold content, absolute paths or anything to be
//! trusted without checking the disk.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::path::RelPath;
use crate::digest::Digest;
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;

/// One target and the change to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The path that is written or removed, beneath the root.
    pub target: RelPath,
    /// The path of the new content until it is moved into place; `None` for a removal.
    pub staged: Option<RelPath>,
    /// Digest of the target's content before; `None`: it must not be there.
    pub before: Option<Digest>,
    /// Digest of the target's content afterwards; `None`: it is removed.
    pub after: Option<Digest>,
}

impl ManifestEntry {
    /// Creates an entry that puts new content at `target`, in place of `before` or of nothing.
    pub fn put(target: RelPath, staged: RelPath, before: Option<Digest>, after: Digest) -> Self {
        Self { target, staged: Some(staged), before, after: Some(after) }
    }

    /// Creates an entry that removes `target`, which holds `before`.
    pub fn remove(target: RelPath, before: Digest) -> Self {
        Self { target, staged: None, before: Some(before), after: None }
    }
}

/// The changes that one run publishes, and the outcome that is committed once they are in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run that publishes.
    pub run: RunId,
    /// The fence under which the run was admitted.
    pub fence: Fence,
    /// The folder with the staged files and the displaced files. It belongs to this run alone.
    pub staging: RelPath,
    /// The entries, in the order in which they are applied.
    pub entries: Vec<ManifestEntry>,
    /// The outcome of the run once all entries are in place.
    pub outcome: Outcome,
}

/// A manifest that contradicts itself, which is a bug in the code that built it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the publication's entry for {target} {why}")]
pub struct BadManifest {
    pub target: RelPath,
    /// The defect of the entry.
    pub why: &'static str,
}

impl Manifest {
    /// Checks that the entries can be carried out, and that each can be distinguished in any state.
    ///
    /// # Errors
    /// Returns an error that names the first entry that changes nothing, is neither put nor
    /// removal, stages outside of the staging folder, aims into it, or collides with another entry.
    pub fn check(&self) -> Result<(), BadManifest> {
        // These sets hold the targets so far and the folders above them, so that entries need not
        // be compared with each other.
        let (mut targets, mut above) = (HashSet::new(), HashSet::new());
        for (index, entry) in self.entries.iter().enumerate() {
            let refuse = |why| Err(BadManifest { target: entry.target.clone(), why });
            if entry.before == entry.after {
                return refuse("changes nothing");
            }
            if entry.staged.is_some() != entry.after.is_some() {
                return refuse("is neither a put nor a removal");
            }
            if entry.target.is_within(&self.staging) || self.staging.is_within(&entry.target) {
                return refuse("is in the staging folder");
            }
            if let Some(staged) = &entry.staged
                && *staged != self.staged_name(index)
            {
                return refuse("is not staged under its own number");
            }
            let beneath = entry.target.ancestors().any(|it| targets.contains(&it));
            if beneath || above.contains(&entry.target) || !targets.insert(entry.target.clone()) {
                return refuse("collides with another entry");
            }
            above.extend(entry.target.ancestors());
        }
        Ok(())
    }

    /// Returns the path where entry `index` keeps its new content, and after an exchange the old
    /// one.
    pub fn staged_name(&self, index: usize) -> RelPath {
        staged_name(&self.staging, index)
    }

    /// Returns the path where a removed target waits until the outcome is committed.
    pub fn removed_name(&self, index: usize) -> RelPath {
        self.staging.join(&format!("removed-{index}")).expect("a word and a number are a name")
    }
}

/// Returns `<staging>/<index>`.
pub(super) fn staged_name(staging: &RelPath, index: usize) -> RelPath {
    staging.join(&index.to_string()).expect("a number is a name")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn manifest(entries: Vec<ManifestEntry>) -> Manifest {
        Manifest {
            run: RunId::new(Timestamp::UNIX_EPOCH),
            fence: Fence(1),
            staging: path("d/.staging/r"),
            entries,
            outcome: Outcome::Succeeded,
        }
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn contradictions_are_refused() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let put = |target, index| {
            ManifestEntry::put(path(target), path(&format!("d/.staging/r/{index}")), None, a)
        };
        let good =
            manifest(vec![put("d/x", 0), put("d/y/z", 1), ManifestEntry::remove(path("d/w"), b)]);
        assert_eq!(good.check(), Ok(()));
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), good);

        let bad = [
            vec![put("d/x", 0), put("d/x", 1)],
            vec![put("d/x", 0), put("d/x/y", 1)],
            vec![put("d/x/y", 0), put("d/x", 1)],
            vec![put("d/x", 1)],
            vec![put("d/.staging/r/9", 0)],
            vec![put("d/.staging", 0)],
            vec![ManifestEntry::put(path("d/x"), path("elsewhere"), None, a)],
            vec![ManifestEntry::put(path("d/x"), path("d/.staging/r/0"), Some(a), a)],
            vec![ManifestEntry { target: path("d/x"), staged: None, before: None, after: Some(a) }],
            vec![ManifestEntry { target: path("d/x"), staged: None, before: None, after: None }],
        ];
        for entries in bad {
            let bad = manifest(entries);
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
