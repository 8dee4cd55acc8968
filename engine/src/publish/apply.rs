//! Applies the manifest's entries one by one. The first attempt and every recovery run the same
//! code.
//!
//! The remaining work for an entry is always derived from the state on disk. `T` is the state of
//! the target and `S` is the state of the staged name. For a removal, `S` is the state of the name
//! to which the target is moved. `b` and `a` are the manifest's `before` and `after`:
//!
//! ```text
//! put      T = a, S none or a or b   already in place: make it durable, continue
//!          T = a, S other            an exchange displaced foreign bytes: exchange back, conflict
//!                                    (without b, nothing was displaced: continue)
//!          T = b, S = a              move it
//!          T = b, S other            staging was damaged: stop
//!          T other                   conflict
//! removal  T none, S none or b       already removed: continue
//!          T none, S other           foreign bytes were moved away: move them back, conflict
//!          T = b, S none or b        move it away (b at both names: half a rename survived)
//!          T = b, S other            conflict
//!          T other                   conflict
//! ```
//!
//! This code must never write into an existing file, never replace content that it has not
//! compared, and never remove a file unless its content remains under another name.

use std::collections::BTreeSet;

use super::fs::{FsError, PathState, PublishFs, make_parents};
use super::injected_faults::{InjectedFault, injected};
use super::manifest::{Manifest, ManifestEntry};
use super::path::RelPath;
use super::stage::discard;
use super::{Conflict, PublishError};

/// Applies a manifest to a disk, starting from any state that an earlier attempt left.
pub(super) struct Publisher<'a, Fs> {
    pub(super) fs: &'a Fs,
    pub(super) manifest: &'a Manifest,
    pub(super) recovering: bool,
}

impl<Fs: PublishFs> Publisher<'_, Fs> {
    /// Publishes or removes the target of every entry, and makes the changes durable.
    pub(super) fn carry_out(&self) -> Result<(), PublishError> {
        self.make_folders()?;
        let mut entries = self.manifest.entries.iter().enumerate().collect::<Vec<_>>();
        if injected(InjectedFault::LastEntrySkipped) {
            entries.pop();
        }
        for (index, entry) in entries {
            match &entry.staged {
                Some(staged) => self.put(entry, staged)?,
                None => self.remove(entry, &self.manifest.removed_name(index))?,
            }
        }
        if injected(InjectedFault::StagingRemovedEarly) {
            discard(self.fs, &self.manifest.staging)?;
        }
        if !injected(InjectedFault::OutcomeBeforeSync) {
            self.sync_targets()?;
        }
        Ok(())
    }

    /// Makes the moves durable by syncing the targets' folders.
    pub(super) fn sync_targets(&self) -> Result<(), FsError> {
        let trusting = self.recovering && injected(InjectedFault::RecoveryTrustsCache);
        if trusting || injected(InjectedFault::TargetDirUnsynced) {
            return Ok(());
        }
        let folders: BTreeSet<_> =
            self.manifest.entries.iter().map(|entry| entry.target.parent()).collect();
        folders.into_iter().try_for_each(|folder| self.sync_folder(folder))
    }

    /// Creates the targets' folders durably. If a folder were lost in a power cut, a file that was
    /// moved into it would be lost too.
    fn make_folders(&self) -> Result<(), FsError> {
        let puts = self.manifest.entries.iter().filter(|entry| entry.after.is_some());
        let mut done = BTreeSet::new();
        for entry in puts {
            if !done.insert(entry.target.parent()) {
                continue;
            }
            if injected(InjectedFault::NewParentUnsynced) {
                entry.target.ancestors().try_for_each(|dir| self.fs.create_dir(&dir))?;
            } else {
                make_parents(self.fs, &entry.target)?;
            }
        }
        Ok(())
    }

    fn put(&self, entry: &ManifestEntry, staged: &RelPath) -> Result<(), PublishError> {
        let target = &entry.target;
        let found = self.fs.inspect(target)?;
        if found.is(entry.after) {
            self.confirm(target)?;
            return self.settle_displaced(entry, staged);
        }
        let overwrite = self.recovering && injected(InjectedFault::RecoveryOverwrites);
        if !found.is(entry.before) && !overwrite && !injected(InjectedFault::NoCheckBefore) {
            return conflict(target, found);
        }
        let waiting = self.fs.inspect(staged)?;
        if !waiting.is(entry.after) && !injected(InjectedFault::TornAccepted) {
            return Err(PublishError::Staged {
                target: target.clone(),
                staged: staged.clone(),
                found: waiting,
            });
        }
        if overwrite {
            return Ok(self.fs.rename_replace(staged, target)?);
        }
        match entry.before {
            None => self.put_new(entry, staged),
            Some(_) => self.put_over(entry, staged),
        }
    }

    fn put_new(&self, entry: &ManifestEntry, staged: &RelPath) -> Result<(), PublishError> {
        let target = &entry.target;
        if injected(InjectedFault::ReplaceForNoreplace) {
            return Ok(self.fs.rename_replace(staged, target)?);
        }
        match self.fs.rename_noreplace(staged, target) {
            Ok(()) => Ok(()),
            Err(error) if error.is_unsupported() => self.replace(entry, staged),
            Err(error) if error.is_taken() => {
                let found = self.fs.inspect(target)?;
                if !found.is(entry.after) {
                    return conflict(target, found);
                }
                self.confirm(target)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn put_over(&self, entry: &ManifestEntry, staged: &RelPath) -> Result<(), PublishError> {
        let target = &entry.target;
        match self.fs.exchange(staged, target) {
            Ok(()) => self.settle_displaced(entry, staged),
            Err(error) if error.is_unsupported() => self.replace(entry, staged),
            Err(error) => {
                let found = self.fs.inspect(target)?;
                if !found.is(entry.before) {
                    return conflict(target, found);
                }
                Err(error.into())
            }
        }
    }

    /// Replaces the target on a file system that lacks exchanges or no-replace renames. The target
    /// is checked once more and then replaced with a plain rename. If another program writes
    /// between the check and the rename, its content is lost. No portable call prevents this.
    fn replace(&self, entry: &ManifestEntry, staged: &RelPath) -> Result<(), PublishError> {
        let found = self.fs.inspect(&entry.target)?;
        if found.is(entry.after) {
            return self.confirm(&entry.target);
        }
        if !found.is(entry.before) && !injected(InjectedFault::NoCheckBefore) {
            return conflict(&entry.target, found);
        }
        Ok(self.fs.rename_replace(staged, &entry.target)?)
    }

    /// Syncs the target, because another program may have written the same content without a sync.
    fn confirm(&self, target: &RelPath) -> Result<(), PublishError> {
        match self.fs.sync_file(target) {
            Err(error) if error.is_missing() => conflict(target, self.fs.inspect(target)?),
            done => Ok(done?),
        }
    }

    /// Checks the content that the exchange displaced. If it is not `before`, another program wrote
    /// between the check and the exchange, and its content is restored.
    fn settle_displaced(
        &self,
        entry: &ManifestEntry,
        staged: &RelPath,
    ) -> Result<(), PublishError> {
        if entry.before.is_none() || injected(InjectedFault::NoCheckDisplaced) {
            return Ok(());
        }
        let displaced = self.fs.inspect(staged)?;
        if displaced == PathState::Absent || displaced.is(entry.before) || displaced.is(entry.after)
        {
            return Ok(());
        }
        match self.fs.exchange(staged, &entry.target) {
            Ok(()) => self.gave_back(&entry.target, displaced),
            // This file system does not support exchanges, so no file was displaced. An interrupted
            // plain rename left one file with two names, and another program has written to it
            // since.
            Err(error) if error.is_unsupported() => match self.fs.inspect(&entry.target)? {
                found if found.is(entry.after) => Ok(()),
                found => conflict(&entry.target, found),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, entry: &ManifestEntry, aside: &RelPath) -> Result<(), PublishError> {
        let target = &entry.target;
        let found = self.fs.inspect(target)?;
        if found == PathState::Absent {
            return self.settle_removed(entry, aside);
        }
        let overwrite = self.recovering && injected(InjectedFault::RecoveryOverwrites);
        if !found.is(entry.before) && !overwrite && !injected(InjectedFault::NoCheckBefore) {
            return conflict(target, found);
        }
        match self.fs.inspect(aside)? {
            PathState::Absent => {}
            twin if twin.is(entry.before) => self.fs.remove_file(aside)?,
            other => return conflict(target, other),
        }
        let moved = match self.fs.rename_noreplace(target, aside) {
            Err(error) if error.is_unsupported() => self.fs.rename_replace(target, aside),
            done => done,
        };
        match moved {
            // Another program has removed the target.
            Err(error) if error.is_missing() && self.fs.inspect(target)? == PathState::Absent => {}
            done => done?,
        }
        self.settle_removed(entry, aside)
    }

    /// Checks the file that was moved away, and moves it back if its content is not `before`.
    fn settle_removed(&self, entry: &ManifestEntry, aside: &RelPath) -> Result<(), PublishError> {
        let taken = self.fs.inspect(aside)?;
        let checked = !injected(InjectedFault::NoCheckRemoved);
        if taken == PathState::Absent || taken.is(entry.before) || !checked {
            return Ok(());
        }
        match self.fs.rename_noreplace(aside, &entry.target) {
            // Another program has recreated the target, so neither file is moved.
            Err(error) if error.is_taken() => {}
            Err(error) if error.is_unsupported() => {
                if self.fs.inspect(&entry.target)? == PathState::Absent {
                    self.fs.rename_replace(aside, &entry.target)?;
                }
            }
            done => done?,
        }
        self.gave_back(&entry.target, taken)
    }

    /// Makes the restored file durable and reports the conflict.
    fn gave_back(&self, target: &RelPath, found: PathState) -> Result<(), PublishError> {
        self.sync_folder(target.parent())?;
        self.fs.sync_dir(Some(&self.manifest.staging))?;
        conflict(target, found)
    }

    /// Syncs a folder. If the folder no longer exists, syncs its nearest existing ancestor instead.
    fn sync_folder(&self, folder: Option<RelPath>) -> Result<(), FsError> {
        let mut folder = folder;
        loop {
            match (self.fs.sync_dir(folder.as_ref()), folder) {
                (Err(error), Some(gone)) if error.is_missing() => folder = gone.parent(),
                (done, _) => return done,
            }
        }
    }
}

fn conflict<T>(target: &RelPath, found: PathState) -> Result<T, PublishError> {
    Err(PublishError::Conflict(Conflict { target: target.clone(), found }))
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
