//! Tests the application of a manifest to a disk on which one operation fails, either alone or
//! while another program changes a file.
//!
//! A disk error must never be reported as a conflict or as success, and a change by another program
//! must never be lost.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use super::super::fs::FsFailure;
use super::super::stage::{Draft, NEW_FILE_MODE};
use super::super::{Outcome, RealFs};
use super::*;
use crate::digest::Digest;
use crate::ids::{Fence, RunId};

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    SyncFile,
    SyncDir,
    RenameNoreplace,
    Exchange,
}
use Operation::{Exchange, RenameNoreplace, SyncDir, SyncFile};

/// A real disk on which one operation always fails.
struct Broken<'a> {
    disk: &'a RealFs,
    root: &'a Path,
    operation: Operation,
    why: fn() -> FsFailure,
    /// The change that another program makes immediately before the failure.
    race: fn(&Path),
}

impl Broken<'_> {
    fn unless(
        &self,
        operation: Operation,
        done: impl FnOnce(&RealFs) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        if self.operation == operation {
            (self.race)(self.root);
            return Err(FsError::new("test", "the disk", (self.why)()));
        }
        done(self.disk)
    }
}

impl PublishFs for Broken<'_> {
    fn inspect(&self, path: &RelPath) -> Result<PathState, FsError> {
        self.disk.inspect(path)
    }
    fn write_new(&self, path: &RelPath, bytes: &[u8], mode: u32) -> Result<(), FsError> {
        self.disk.write_new(path, bytes, mode)
    }
    fn sync_file(&self, path: &RelPath) -> Result<(), FsError> {
        self.unless(SyncFile, |disk| disk.sync_file(path))
    }
    fn create_dir(&self, path: &RelPath) -> Result<(), FsError> {
        self.disk.create_dir(path)
    }
    fn sync_dir(&self, dir: Option<&RelPath>) -> Result<(), FsError> {
        // Syncing the targets' folder fails, but syncing its parent does not.
        match dir.map(RelPath::as_str) {
            Some("d") => self.unless(SyncDir, |disk| disk.sync_dir(dir)),
            _ => self.disk.sync_dir(dir),
        }
    }
    fn rename_noreplace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.unless(RenameNoreplace, |disk| disk.rename_noreplace(from, to))
    }
    fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), FsError> {
        self.unless(Exchange, |disk| disk.exchange(one, other))
    }
    fn rename_replace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.disk.rename_replace(from, to)
    }
    fn list(&self, dir: &RelPath) -> Result<Option<Vec<String>>, FsError> {
        self.disk.list(dir)
    }
    fn remove_file(&self, path: &RelPath) -> Result<(), FsError> {
        self.disk.remove_file(path)
    }
    fn remove_dir(&self, path: &RelPath) -> Result<(), FsError> {
        self.disk.remove_dir(path)
    }
}

/// The change to `d/a` recorded in a manifest, and the state in which a run left it.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Creates `new`. Nothing has been moved yet.
    Create,
    /// Replaces `old` with `new`. Nothing has been moved yet.
    Replace,
    /// Replaces `old` with `new`, and the target already has that content.
    Replaced,
    /// Replaces `old` with `new`, but the exchange displaced `theirs`.
    Displaced,
    /// Removes `old`. Nothing has been moved yet.
    Remove,
    /// Removes `old`, but `theirs` was moved away.
    Removed,
}

/// How the attempt ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Conflict(PathState),
    DiskError,
    OtherError,
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn lay_out(root: &Path, entry: Entry) -> Manifest {
    fs::create_dir(root.join("d")).unwrap();
    let disk = RealFs::open(root).unwrap();
    let mut draft = Draft::new(rel("d/.staging/RUN"));
    let (target, old) = (root.join("d/a"), Digest::of(b"old"));
    let before = (!matches!(entry, Entry::Create)).then_some(old);
    if before.is_some() {
        fs::write(&target, "old").unwrap();
    }
    match entry {
        Entry::Remove | Entry::Removed => draft.remove(&disk, rel("d/a"), old).unwrap(),
        _ => drop(draft.put(&disk, rel("d/a"), before, b"new", NEW_FILE_MODE).unwrap()),
    }
    let run: RunId = "00000000000000000000000001".parse().unwrap();
    let manifest = draft.seal(&disk, run, Fence(1), Outcome::Succeeded).unwrap();
    match entry {
        Entry::Replaced => disk.exchange(&manifest.staged_name(0), &rel("d/a")).unwrap(),
        Entry::Displaced => {
            fs::write(&target, "theirs").unwrap();
            disk.exchange(&manifest.staged_name(0), &rel("d/a")).unwrap();
        }
        Entry::Removed => {
            fs::write(&target, "theirs").unwrap();
            disk.rename_noreplace(&rel("d/a"), &manifest.removed_name(0)).unwrap();
        }
        Entry::Create | Entry::Replace | Entry::Remove => {}
    }
    manifest
}

/// Applies the entry while `operation` fails. Returns how the attempt ended and the target's
/// content.
fn apply(
    entry: Entry,
    operation: Operation,
    why: fn() -> FsFailure,
    race: fn(&Path),
) -> (End, Option<String>) {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let manifest = lay_out(folder.path(), entry);
    let disk = RealFs::open(folder.path()).unwrap();
    let fs = &Broken { disk: &disk, root: folder.path(), operation, why, race };
    let end = match (Publisher { fs, manifest: &manifest, recovering: false }).carry_out() {
        Ok(()) => End::Done,
        Err(PublishError::Conflict(conflict)) => End::Conflict(conflict.found),
        Err(PublishError::Fs(error)) if error.act == "test" => End::DiskError,
        Err(_) => End::OtherError,
    };
    (end, fs::read_to_string(folder.path().join("d/a")).ok())
}

fn damaged() -> FsFailure {
    FsFailure::Io(io::Error::other("damaged"))
}

fn nothing(_: &Path) {}

/// Writes `text` to the target, as another program would.
macro_rules! writes {
    ($text:literal) => {
        |root: &Path| fs::write(root.join("d/a"), $text).unwrap()
    };
}

fn deletes(root: &Path) {
    fs::remove_file(root.join("d/a")).unwrap();
}

fn content(text: &str) -> PathState {
    PathState::Content(Digest::of(text.as_bytes()))
}

#[test]
fn disk_errors_are_neither_conflicts_nor_success() {
    for (entry, operation, text) in [
        (Entry::Create, RenameNoreplace, None),
        (Entry::Create, SyncDir, Some("new")),
        (Entry::Replace, Exchange, Some("old")),
        (Entry::Replace, SyncDir, Some("new")),
        (Entry::Replaced, SyncFile, Some("new")),
        (Entry::Displaced, Exchange, Some("new")),
        (Entry::Remove, RenameNoreplace, Some("old")),
        (Entry::Remove, SyncDir, None),
        (Entry::Removed, RenameNoreplace, None),
    ] {
        let (end, found) = apply(entry, operation, damaged, nothing);
        assert_eq!((end, found.as_deref()), (End::DiskError, text), "{entry:?}, {operation:?}");
    }
    // A missing staging folder does not mean that another program has removed the target.
    let lost = apply(Entry::Remove, RenameNoreplace, || FsFailure::Missing, nothing);
    assert_eq!(lost, (End::DiskError, Some("old".to_owned())));
}

#[test]
fn plain_renames_replace_unsupported_ones() {
    let unsupported = || FsFailure::Unsupported;
    for (entry, operation, end, text) in [
        (Entry::Create, RenameNoreplace, End::Done, Some("new")),
        (Entry::Replace, Exchange, End::Done, Some("new")),
        (Entry::Remove, RenameNoreplace, End::Done, None),
        // Without exchanges, no file was displaced: the staged name is a second name for the
        // target, which another program wrote to.
        (Entry::Displaced, Exchange, End::Done, Some("new")),
        (Entry::Removed, RenameNoreplace, End::Conflict(content("theirs")), Some("theirs")),
    ] {
        let (found_end, found) = apply(entry, operation, unsupported, nothing);
        assert_eq!((found_end, found.as_deref()), (end, text), "{entry:?}");
    }
    // Another program writes before the plain rename, so the rename must not happen.
    for (entry, operation) in [
        (Entry::Create, RenameNoreplace),
        (Entry::Replace, Exchange),
        (Entry::Displaced, Exchange),
        (Entry::Removed, RenameNoreplace),
    ] {
        let (end, found) = apply(entry, operation, unsupported, writes!("later"));
        let conflict = matches!(end, End::Conflict(_));
        assert_eq!((conflict, found.as_deref()), (true, Some("later")), "{entry:?}: {end:?}");
    }
    for (entry, operation) in [(Entry::Create, RenameNoreplace), (Entry::Replace, Exchange)] {
        let (end, found) = apply(entry, operation, unsupported, writes!("new"));
        assert_eq!((end, found.as_deref()), (End::Done, Some("new")), "{entry:?}");
    }
}

#[test]
fn races_with_other_programs_lose_nothing() {
    let (taken, missing) = (|| FsFailure::Exists, || FsFailure::Missing);
    let theirs = || End::Conflict(content("later"));
    type Case = (Entry, Operation, fn() -> FsFailure, fn(&Path), End, Option<&'static str>);
    let cases: [Case; 7] = [
        (Entry::Create, RenameNoreplace, taken, writes!("later"), theirs(), Some("later")),
        (Entry::Create, RenameNoreplace, taken, writes!("new"), End::Done, Some("new")),
        (Entry::Replace, Exchange, damaged, writes!("later"), theirs(), Some("later")),
        (Entry::Replace, Exchange, missing, deletes, End::Conflict(PathState::Absent), None),
        (Entry::Replaced, SyncFile, missing, deletes, End::Conflict(PathState::Absent), None),
        (Entry::Remove, RenameNoreplace, missing, deletes, End::Done, None),
        // The file that was moved away remains in staging, because its name is taken again.
        (
            Entry::Removed,
            RenameNoreplace,
            taken,
            writes!("later"),
            End::Conflict(content("theirs")),
            Some("later"),
        ),
    ];
    for (entry, operation, why, race, end, text) in cases {
        let (found_end, found) = apply(entry, operation, why, race);
        assert_eq!((found_end, found.as_deref()), (end, text), "{entry:?}, {operation:?}");
    }
}

#[test]
fn foreign_file_in_staging_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = lay_out(folder.path(), Entry::Remove);
    let aside = folder.path().join(manifest.removed_name(0).as_str());
    let disk = RealFs::open(folder.path()).unwrap();
    let publisher = Publisher { fs: &disk, manifest: &manifest, recovering: true };
    fs::write(&aside, "theirs").unwrap();
    let Err(PublishError::Conflict(conflict)) = publisher.carry_out() else { panic!() };
    assert_eq!(conflict.found, content("theirs"));
    assert_eq!(fs::read_to_string(&aside).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(folder.path().join("d/a")).unwrap(), "old");
    // A crash can leave the file under both names. The next attempt completes the removal.
    fs::write(&aside, "old").unwrap();
    publisher.carry_out().unwrap();
    assert!(!folder.path().join("d/a").exists());
}

#[test]
fn failed_sync_frees_the_staged_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    let disk = RealFs::open(folder.path()).unwrap();
    let why = || FsFailure::Io(io::Error::other("full"));
    let (root, race) = (folder.path(), |_: &Path| {});
    let broken = Broken { disk: &disk, root, operation: SyncFile, why, race };
    let mut draft = Draft::new(rel("d/.staging/RUN"));
    draft.put(&broken, rel("d/a"), None, b"new", NEW_FILE_MODE).unwrap_err();
    draft.put(&disk, rel("d/a"), None, b"new", NEW_FILE_MODE).unwrap();
}
