//! Compares an index of a child's private git directory with the project's index at the start.
//!
//! The child's index never reaches the project. However, an agent that changes the index entry of a
//! path that it must never write has tried to change that path, so the run must fail. This module
//! must never read an index with the child's configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kept_above;
use crate::digest::Digest;
use crate::files::open_no_link;
use crate::git::{Git, GitError, Read};

/// The mode and the object name of each index entry at or beneath the paths that a child must not
/// change, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntries(BTreeMap<String, (u32, String)>);

impl KeptEntries {
    /// Reads the entries at or beneath the paths in `keep` from the output of `ls-files --stage -z`
    /// in the work tree `top`.
    pub(super) fn of(listing: &[u8], top: &Path, keep: &[PathBuf]) -> Self {
        let kept = |path: &Path| kept_above(keep, &top.join(path)).is_some();
        let entries = entries(listing).into_iter().filter(|(path, _)| kept(path));
        Self(entries.map(|(path, entry)| (path.to_string_lossy().into_owned(), entry)).collect())
    }
}

/// An index of a private git directory, and the commit that is checked out with it.
pub(super) struct ChildIndex<'a> {
    pub file: &'a Path,
    pub head: Option<&'a str>,
}

impl ChildIndex<'_> {
    /// Describes the first entry at or beneath the paths in `keep` that the child changed. An entry
    /// is not a change if it equals the entry in the index at the start, if the checked-out commit
    /// has the same object at its path, or if it records the current contents of the file in the
    /// work tree. Changes in commits are checked separately.
    ///
    /// `reader` reads the child's objects, and `project` runs git in the project's work tree.
    ///
    /// # Errors
    /// Returns a [`GitError`] if git cannot be started. An index that git cannot read is reported
    /// as a change.
    pub fn changed(
        &self,
        (reader, project): (&Git, &Git),
        start: &KeptEntries,
        keep: &[PathBuf],
    ) -> Result<Option<String>, GitError> {
        let mut reader = reader.clone();
        reader.env.insert("GIT_INDEX_FILE".to_owned(), self.file.display().to_string());
        let listing = match reader.ask(Read::LsFiles, &["--stage", "--full-name", "-z"]) {
            Err(GitError::Failed { .. }) => {
                return Ok(Some("its index cannot be read".to_owned()));
            }
            listing => listing?,
        };
        let top = project.root();
        let now = KeptEntries::of(&listing, top, keep);
        let paths: BTreeSet<&String> = start.0.keys().chain(now.0.keys()).collect();
        for path in paths {
            let (old, new) = (start.0.get(path), now.0.get(path));
            if old == new || self.is_known(&reader, project, path, new)? {
                continue;
            }
            let kept = kept_above(keep, &top.join(path)).unwrap_or(Path::new(path));
            let kept = kept.strip_prefix(top).unwrap_or(kept).display();
            let what = if new.is_some() { "contains a change to" } else { "no longer contains" };
            return Ok(Some(format!(
                "its index {what} {path}: {kept} is a path that this job must never write"
            )));
        }
        Ok(None)
    }

    /// Returns whether the checked-out commit has the object of this entry at this path, or the
    /// work tree has a file with the same contents. If `entry` is `None`, returns whether the
    /// commit does not contain the path.
    fn is_known(
        &self,
        reader: &Git,
        project: &Git,
        path: &str,
        entry: Option<&(u32, String)>,
    ) -> Result<bool, GitError> {
        if let Some((0o100_644 | 0o100_755, object)) = entry
            && project.blob_of(Path::new(path), object.len()).is_some_and(|it| it == *object)
        {
            return Ok(true);
        }
        let committed = match self.head {
            Some(head) => reader.value(&format!("{head}:{path}"))?,
            None => None,
        };
        Ok(committed.as_ref() == entry.map(|(_, object)| object))
    }
}

/// Returns the digest of the index in a private directory, as hexadecimal digits. Returns `None` if
/// the index cannot be read, or if part of it may be in another file.
pub(super) fn whole_index(folder: &Path) -> Option<String> {
    let is_shared = |entry: fs::DirEntry| entry.file_name().as_bytes().starts_with(b"sharedindex.");
    if fs::read_dir(folder).ok()?.flatten().any(is_shared) {
        return None;
    }
    let mut file = open_no_link(folder.join("index")).ok()?;
    Digest::of_reader(&mut file).ok().map(|(digest, _)| digest.to_string())
}

/// Parses the output of `ls-files --stage -z`. A path with a conflict gets the mode 0, which no
/// entry of a commit has.
pub(super) fn entries(listing: &[u8]) -> HashMap<PathBuf, (u32, String)> {
    let mut all = HashMap::new();
    for entry in listing.split(|byte| *byte == 0) {
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
        let path = PathBuf::from(OsStr::from_bytes(&entry[tab + 1..]));
        let facts = String::from_utf8_lossy(&entry[..tab]);
        let mut facts = facts.split(' ');
        let mode = facts.next().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let object = facts.next().unwrap_or_default().to_owned();
        let conflict = facts.next() != Some("0");
        let mode = mode.filter(|_| !conflict).unwrap_or_default();
        all.insert(path, (mode, object));
    }
    all
}
