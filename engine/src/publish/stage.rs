//! Staging: the bytes of a run, durable in a folder of their own before anything knows of them.
//!
//! ```text
//! new ──put / remove, any number──> drafting ──seal──> a manifest, all of it durable
//! ```
//!
//! Staging lies under the root of the targets, so that every later step is a rename. It must
//! never touch a target, and never rename a file that another program may hold open: it writes
//! its own copies.

use super::fs::{FsError, PublishFs, make_parents};
use super::injected_faults::{Faults, InjectedFault, NoFault};
use super::manifest::{Manifest, ManifestEntry, staged_name};
use super::path::RelPath;
use crate::digest::Digest;
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;

/// The permission bits of a file that is new.
pub const NEW_FILE_MODE: u32 = 0o644;

/// A manifest in the making.
#[derive(Debug)]
pub struct Draft<F = NoFault> {
    staging: RelPath,
    entries: Vec<ManifestEntry>,
    opened: bool,
    faults: F,
}

impl Draft {
    /// Creates an empty draft whose files will be in `staging`, a folder of this run alone. The
    /// disk is not touched before the first entry.
    pub fn new(staging: RelPath) -> Self {
        Self::with(NoFault, staging)
    }
}

impl<F: Faults> Draft<F> {
    #[doc(hidden)]
    pub fn with(faults: F, staging: RelPath) -> Self {
        Self { staging, entries: Vec::new(), opened: false, faults }
    }

    /// Writes `bytes` to staging, for `target`, which holds `before`. Content that is there
    /// already needs no entry and gets none. The digest of the bytes comes back.
    ///
    /// # Errors
    /// The staging folder or the file could not be made or synced; the draft is as it was.
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
        let later = self.faults.has(InjectedFault::ManifestBeforeStaging);
        if !later && !self.faults.has(InjectedFault::StagedFileUnsynced) {
            fs.sync_file(&staged)?;
        }
        self.entries.push(ManifestEntry::put(target, staged, before, after));
        Ok(after)
    }

    /// Notes that `target`, which holds `before`, is to go.
    ///
    /// # Errors
    /// The staging folder, which will take it in, could not be made.
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

    /// Returns the entries so far.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// Makes the names in staging durable and closes the draft.
    ///
    /// # Errors
    /// The staging folder could not be synced.
    pub fn seal(
        self,
        fs: &impl PublishFs,
        run: RunId,
        fence: Fence,
        outcome: Outcome,
    ) -> Result<Manifest, FsError> {
        let later = self.faults.has(InjectedFault::ManifestBeforeStaging);
        if self.opened && !later && !self.faults.has(InjectedFault::StagingDirUnsynced) {
            fs.sync_dir(Some(&self.staging))?;
        }
        let Self { staging, entries, .. } = self;
        Ok(Manifest { run, fence, staging, entries, outcome })
    }

    fn open(&mut self, fs: &impl PublishFs) -> Result<(), FsError> {
        if self.opened {
            return Ok(());
        }
        if self.faults.has(InjectedFault::StagingParentUnsynced) {
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

/// Removes a publication's folder of which nothing was recorded.
///
/// # Errors
/// The disk refused, or the folder holds what no publication puts there.
pub fn discard(fs: &impl PublishFs, staging: &RelPath) -> Result<(), FsError> {
    clean(fs, staging)
}

/// Removes a staging folder with the files in it, durably; one that is gone already may be so
/// only in the cache. Never recursive: staging holds no folders, and whatever put one there
/// should be asked.
pub(super) fn clean(fs: &impl PublishFs, staging: &RelPath) -> Result<(), FsError> {
    if let Some(names) = fs.list(staging)? {
        for name in names {
            let path = staging.join(&name).map_err(|error| FsError {
                act: "remove",
                path: format!("{staging}/{}", name.escape_debug()),
                trouble: std::io::Error::other(error).into(),
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
