//! The steps of a publication, recorded before the first one is applied.
//!
//! The entries contain only relative paths and digests, from which recovery determines how far a
//! dead run got. A manifest must never contain file content, absolute paths, or anything that is
//! trusted without a check of the disk.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::path::RelPath;
use crate::digest::Digest;
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;

/// One target and the change to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The path that changes, relative to the root.
    pub target: RelPath,
    /// The path of the new content before it is moved into place. `None` for a removal.
    pub staged: Option<RelPath>,
    /// Digest of the target's content before the publication. `None` means that the target must not
    /// exist.
    pub before: Option<Digest>,
    /// Digest of the target's content after the publication. `None` means that the target is
    /// removed.
    pub after: Option<Digest>,
}

impl ManifestEntry {
    /// Creates an entry that publishes new content at `target`. `before` is `None` if the target
    /// must not exist.
    pub fn put(target: RelPath, staged: RelPath, before: Option<Digest>, after: Digest) -> Self {
        Self { target, staged: Some(staged), before, after: Some(after) }
    }

    /// Creates an entry that removes `target`, whose content has the digest `before`.
    pub fn remove(target: RelPath, before: Digest) -> Self {
        Self { target, staged: None, before: Some(before), after: None }
    }
}

/// A run's changes, and the outcome that is committed after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The run that makes the publication.
    pub run: RunId,
    /// The fence under which the run was admitted.
    pub fence: Fence,
    /// The folder for staged and displaced files, which only this run uses.
    pub staging: RelPath,
    /// The entries, in the order in which they are applied.
    pub entries: Vec<ManifestEntry>,
    /// The outcome to commit once all entries are in place.
    pub outcome: Outcome,
}

/// The error for a manifest that contradicts itself, which indicates a bug in the code that created
/// it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the publication's entry for {target} {why}")]
pub struct BadManifest {
    pub target: RelPath,
    pub why: &'static str,
}

impl Manifest {
    /// Checks that the entries can be applied, and that the disk always shows each entry's state
    /// unambiguously.
    ///
    /// # Errors
    /// Returns an error that names the first invalid entry. An entry is invalid if it changes
    /// nothing, if it is neither a put nor a removal, or if it collides with another entry. It is
    /// also invalid if its staged path is not [`Manifest::staged_name`], or if its target and the
    /// staging folder overlap.
    pub fn check(&self) -> Result<(), BadManifest> {
        // The targets seen so far and the folders above them. These sets make it unnecessary to
        // compare entries pairwise.
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
                return refuse("overlaps the staging folder");
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

    /// Returns the path of entry `index`'s new content. After an exchange, the old content is at
    /// this path.
    pub fn staged_name(&self, index: usize) -> RelPath {
        staged_name(&self.staging, index)
    }

    /// Returns the path at which a removed target is kept until the outcome is committed.
    pub fn removed_name(&self, index: usize) -> RelPath {
        self.staging.join(&format!("removed-{index}")).expect("a prefix and number form a name")
    }
}

pub(super) fn staged_name(staging: &RelPath, index: usize) -> RelPath {
    staging.join(&index.to_string()).expect("a number is a valid name")
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
    fn invalid_manifests_are_refused() {
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
