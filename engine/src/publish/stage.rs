//! Makes a run's files durable in a staging folder before any record refers to them.
//!
//! ```text
//! new ──put / remove, any number──> drafting ──seal──> a manifest of durable files
//! ```
//!
//! The staging folder is under the targets' root, so every later step is a rename. This module must
//! never change a target or rename a file that another program may have open. It writes new copies
//! instead.

use super::fs::{FsError, PublishFs, make_parents};
use super::injected_faults::{InjectedFault, injected};
use super::manifest::{Manifest, ManifestEntry, staged_name};
use super::path::RelPath;
use crate::digest::Digest;
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;

/// The permission bits of newly published files.
pub const NEW_FILE_MODE: u32 = 0o644;

/// A manifest under construction.
#[derive(Debug)]
pub struct Draft {
    staging: RelPath,
    entries: Vec<ManifestEntry>,
    opened: bool,
}

impl Draft {
    /// Creates an empty draft. Only this run may use the folder `staging`, which the first entry
    /// creates.
    pub fn new(staging: RelPath) -> Self {
        Self { staging, entries: Vec::new(), opened: false }
    }

    /// Stages `bytes` as the new content of `target`, whose current content has the digest
    /// `before`. Returns the digest of `bytes`. If the content does not change, no entry is added
    /// to the draft.
    ///
    /// # Errors
    /// Returns an error if the staging folder or the file cannot be created or synced. The draft is
    /// then unchanged.
    pub fn put(
        &mut self,
        fs: &impl PublishFs,
        target: RelPath,
        before: Option<Digest>,
        bytes: &[u8],
        mode: u32,
    ) -> Result<Digest, FsError> {
        let after = Digest::of(bytes);
        if before == Some(after) {
            return Ok(after);
        }
        self.open(fs)?;
        let staged = staged_name(&self.staging, self.entries.len());
        fs.write_new(&staged, bytes, mode)?;
        let later = injected(InjectedFault::ManifestBeforeStaging);
        if !later
            && !injected(InjectedFault::StagedFileUnsynced)
            && let Err(error) = fs.sync_file(&staged)
        {
            // Otherwise, the next file could not get this name. If the removal fails too, the
            // whole staging folder is discarded later.
            let _ = fs.remove_file(&staged);
            return Err(error);
        }
        self.entries.push(ManifestEntry::put(target, staged, before, after));
        Ok(after)
    }

    /// Adds the removal of `target`, whose content has the digest `before`.
    ///
    /// # Errors
    /// Returns an error if the staging folder cannot be created.
    pub fn remove(
        &mut self,
        fs: &impl PublishFs,
        target: RelPath,
        before: Digest,
    ) -> Result<(), FsError> {
        self.open(fs)?;
        self.entries.push(ManifestEntry::remove(target, before));
        Ok(())
    }

    /// Returns the entries added so far.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// Syncs the staging folder and converts the draft into a manifest.
    ///
    /// # Errors
    /// Returns an error if the staging folder cannot be synced.
    pub fn seal(
        self,
        fs: &impl PublishFs,
        run: RunId,
        fence: Fence,
        outcome: Outcome,
    ) -> Result<Manifest, FsError> {
        let later = injected(InjectedFault::ManifestBeforeStaging);
        if self.opened && !later && !injected(InjectedFault::StagingDirUnsynced) {
            fs.sync_dir(Some(&self.staging))?;
        }
        let Self { staging, entries, .. } = self;
        Ok(Manifest { run, fence, staging, entries, outcome })
    }

    fn open(&mut self, fs: &impl PublishFs) -> Result<(), FsError> {
        if self.opened {
            return Ok(());
        }
        if injected(InjectedFault::StagingParentUnsynced) {
            for dir in self.staging.ancestors() {
                fs.create_dir(&dir)?;
            }
            fs.create_dir(&self.staging)?;
        } else {
            make_parents(fs, &self.staging)?;
            fs.create_dir(&self.staging)?;
            fs.sync_dir(self.staging.parent().as_ref())?;
        }
        self.opened = true;
        Ok(())
    }
}

/// Removes a staging folder and its files durably. The parent folder is synced even if the staging
/// folder no longer exists, because an earlier removal may not be durable yet. The removal is not
/// recursive, because a publication creates no folders in staging.
///
/// # Errors
/// Returns an error if a disk operation fails, or if the folder contains an entry that a
/// publication never creates.
pub fn discard(fs: &impl PublishFs, staging: &RelPath) -> Result<(), FsError> {
    if let Some(names) = fs.list(staging)? {
        for name in names {
            let path = staging.join(&name).map_err(|error| {
                let path = format!("{staging}/{}", name.escape_debug());
                FsError::new("remove", path, std::io::Error::other(error))
            })?;
            fs.remove_file(&path)?;
        }
        fs.remove_dir(staging)?;
    }
    match fs.sync_dir(staging.parent().as_ref()) {
        Err(error) if error.is_missing() => Ok(()),
        done => done,
    }
}
