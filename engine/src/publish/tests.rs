//! Tests of publications on the real disk. Crashes are covered by the crash simulation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::digest::Digest;

const STAGING: &str = "d/.staging/RUN";

struct Disk {
    folder: TempDir,
    fs: RealFs,
    log: MemoryLog,
}

impl Disk {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let fs = RealFs::open(folder.path()).unwrap();
        Self { folder, fs, log: MemoryLog::new(Fence(1)) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.at(name)).ok()
    }

    /// Drafts writes (`Some`) and removals (`None`) against the current content.
    fn draft(&self, changes: &[(&str, Option<&str>)]) -> Manifest {
        let mut draft = Draft::new(rel(STAGING));
        for (name, content) in changes {
            let before = self.text(name).map(|text| Digest::of(text.as_bytes()));
            match content {
                Some(text) => {
                    draft.put(&self.fs, rel(name), before, text.as_bytes(), 0o644).unwrap();
                }
                None => draft.remove(&self.fs, rel(name), before.unwrap()).unwrap(),
            }
        }
        draft.seal(&self.fs, run(), Fence(1), Outcome::Succeeded).unwrap()
    }

    fn recover(&mut self) -> Result<Recovery, PublishError> {
        let fence = self.log.fence;
        recover(&self.fs, &mut self.log, &run(), fence, &rel(STAGING))
    }
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn run() -> RunId {
    "00000000000000000000000001".parse().unwrap()
}

fn found(text: &str) -> PathState {
    PathState::Content(Digest::of(text.as_bytes()))
}

#[test]
fn puts_and_removals_are_published() {
    let mut disk = Disk::new(&[("d/old", "1"), ("d/gone", "g"), ("keep", "k")]);
    let changes =
        [("d/old", Some("2")), ("d/new", Some("n")), ("e/f/deep", Some("x")), ("d/gone", None)];
    let manifest = disk.draft(&changes);
    assert_eq!(disk.text("d/old").as_deref(), Some("1"));
    let published = publish(&disk.fs, &mut disk.log, &manifest).unwrap();
    assert_eq!(published.entries, 4);
    assert!(published.leftover.is_none());
    for (name, content) in changes {
        assert_eq!(disk.text(name).as_deref(), content, "{name}");
    }
    assert_eq!(disk.text("keep").as_deref(), Some("k"));
    assert!(!disk.at(STAGING).exists());
    assert_eq!(disk.recover().unwrap(), Recovery::Cleaned);
    assert!(matches!(
        publish(&disk.fs, &mut disk.log, &manifest),
        Err(PublishError::Staged { .. })
    ));
    assert_eq!(disk.text("d/old").as_deref(), Some("2"));
}

#[test]
fn recovery_without_manifest_discards_staged_files() {
    let mut disk = Disk::new(&[("d/old", "1")]);
    disk.draft(&[("d/old", Some("2")), ("d/new", Some("n"))]);
    assert!(disk.at(STAGING).exists());
    assert_eq!(disk.recover().unwrap(), Recovery::Nothing);
    assert_eq!(disk.recover().unwrap(), Recovery::Nothing);
    assert!(!disk.at(STAGING).exists());
    assert_eq!(disk.text("d/old").as_deref(), Some("1"));
    assert_eq!(disk.text("d/new"), None);
}

#[test]
fn recovery_requires_the_current_fence() {
    let mut disk = Disk::new(&[("d/old", "1"), ("d/gone", "g")]);
    let manifest = disk.draft(&[("d/old", Some("2")), ("d/gone", None), ("d/new", Some("n"))]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    disk.log.fence = Fence(2);
    let stale = recover(&disk.fs, &mut disk.log, &run(), Fence(1), &rel(STAGING));
    assert!(matches!(stale, Err(PublishError::Log(LogError::StaleFence { .. }))));
    assert_eq!(disk.recover().unwrap(), Recovery::RolledForward(Outcome::Succeeded));
    assert_eq!(disk.recover().unwrap(), Recovery::Cleaned);
    assert_eq!(disk.text("d/old").as_deref(), Some("2"));
    assert_eq!(disk.text("d/new").as_deref(), Some("n"));
    assert_eq!(disk.text("d/gone"), None);
    assert!(!disk.at(STAGING).exists());
}

#[test]
fn stale_fence_publishes_nothing() {
    let mut disk = Disk::new(&[("d/old", "1")]);
    let manifest = disk.draft(&[("d/old", Some("2"))]);
    disk.log.fence = Fence(2);
    let error = publish(&disk.fs, &mut disk.log, &manifest).unwrap_err();
    assert!(matches!(error, PublishError::Log(LogError::StaleFence { .. })), "{error}");
    assert_eq!(disk.text("d/old").as_deref(), Some("1"));
    assert!(!disk.at(STAGING).exists());
}

#[test]
fn invalid_manifest_publishes_nothing() {
    let mut disk = Disk::new(&[("d/old", "1")]);
    let mut manifest = disk.draft(&[("d/old", Some("2")), ("d/new", Some("n"))]);
    manifest.entries[1].target = rel("d/old");
    let error = publish(&disk.fs, &mut disk.log, &manifest).unwrap_err();
    assert!(matches!(error, PublishError::Manifest(_)), "{error}");
    assert_eq!(disk.text("d/old").as_deref(), Some("1"));
    assert!(!disk.at(STAGING).exists());
    // The manifest recorded by another process of the same run still needs the folder.
    let mut manifest = disk.draft(&[("d/old", Some("2"))]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    manifest.entries[0].after = manifest.entries[0].before;
    publish(&disk.fs, &mut disk.log, &manifest).unwrap_err();
    assert_eq!(disk.recover().unwrap(), Recovery::RolledForward(Outcome::Succeeded));
    assert_eq!(disk.text("d/old").as_deref(), Some("2"));
}

#[test]
fn conflict_persists_until_target_is_restored() {
    let mut disk = Disk::new(&[("d/a", "1"), ("d/b", "1")]);
    let manifest = disk.draft(&[("d/a", Some("2")), ("d/b", Some("2"))]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    fs::write(disk.at("d/b"), "theirs").unwrap();
    for _ in 0..3 {
        let Err(PublishError::Conflict(conflict)) = disk.recover() else { panic!("no conflict") };
        assert_eq!(conflict, Conflict { target: rel("d/b"), found: found("theirs") });
        assert_eq!(disk.text("d/b").as_deref(), Some("theirs"));
        assert!(disk.at(STAGING).exists());
    }
    fs::write(disk.at("d/b"), "1").unwrap();
    assert_eq!(disk.recover().unwrap(), Recovery::RolledForward(Outcome::Succeeded));
    assert_eq!(disk.text("d/b").as_deref(), Some("2"));
}

#[test]
fn displaced_content_is_restored() {
    let mut disk = Disk::new(&[("d/a", "1"), ("d/gone", "g")]);
    let manifest = disk.draft(&[("d/a", Some("2")), ("d/gone", None)]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    // The dead run checked the target, another program wrote to it, and the run then exchanged the
    // files and died.
    fs::write(disk.at("d/a"), "theirs").unwrap();
    disk.fs.exchange(&manifest.staged_name(0), &rel("d/a")).unwrap();
    assert_eq!(disk.text("d/a").as_deref(), Some("2"));
    let Err(PublishError::Conflict(conflict)) = disk.recover() else { panic!("no conflict") };
    assert_eq!(conflict.found, found("theirs"));
    assert_eq!(disk.text("d/a").as_deref(), Some("theirs"));

    // A removal behaves the same way.
    fs::write(disk.at("d/a"), "1").unwrap();
    fs::write(disk.at("d/gone"), "theirs too").unwrap();
    disk.fs.rename_noreplace(&rel("d/gone"), &manifest.removed_name(1)).unwrap();
    let Err(PublishError::Conflict(conflict)) = disk.recover() else { panic!("no conflict") };
    assert_eq!(conflict, Conflict { target: rel("d/gone"), found: found("theirs too") });
    assert_eq!(disk.text("d/gone").as_deref(), Some("theirs too"));
    fs::write(disk.at("d/gone"), "g").unwrap();
    disk.recover().unwrap();
    assert_eq!(disk.text("d/gone"), None);
}

#[test]
fn replaced_target_type_is_a_conflict() {
    type Make = fn(&Path);
    let replace: [(&str, Make); 3] = [
        ("a folder", |path| fs::create_dir(path).unwrap()),
        ("a symbolic link", |path| symlink("/etc/passwd", path).unwrap()),
        ("a FIFO", |path| {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }),
    ];
    for (what, make) in replace {
        let mut disk = Disk::new(&[("d/a", "1")]);
        let manifest = disk.draft(&[("d/a", Some("2"))]);
        disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
        fs::remove_file(disk.at("d/a")).unwrap();
        make(&disk.at("d/a"));
        let Err(PublishError::Conflict(conflict)) = disk.recover() else { panic!("{what}") };
        assert!(matches!(conflict.found, PathState::NotAFile(_)), "{what}: {conflict}");
        // A change between the check and the exchange is displaced and restored.
        disk.fs.exchange(&manifest.staged_name(0), &rel("d/a")).unwrap();
        assert!(matches!(disk.recover(), Err(PublishError::Conflict(_))), "{what}");
        assert_eq!(disk.fs.inspect(&rel("d/a")).unwrap(), conflict.found, "{what}");
    }
}

#[test]
fn removal_succeeds_when_folder_is_gone() {
    let mut disk = Disk::new(&[("d/a", "1"), ("e/f/gone", "g")]);
    let manifest = disk.draft(&[("e/f/gone", None)]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    fs::remove_dir_all(disk.at("e")).unwrap();
    assert_eq!(disk.recover().unwrap(), Recovery::RolledForward(Outcome::Succeeded));
}

#[test]
fn errors_name_the_target_and_content() {
    let mut disk = Disk::new(&[("d/a", "1")]);
    let manifest = disk.draft(&[("d/a", Some("2"))]);
    fs::remove_file(disk.at("d/a")).unwrap();
    let error = publish(&disk.fs, &mut disk.log, &manifest).unwrap_err().to_string();
    assert!(error.starts_with("nothing was published: d/a was changed"), "{error}");
    assert!(error.contains("found nothing"), "{error}");
    let error = disk.fs.sync_file(&rel("d/a")).unwrap_err().to_string();
    assert_eq!(error, "cannot sync d/a: it does not exist");
}

#[test]
fn damaged_staging_is_never_published() {
    let mut disk = Disk::new(&[("d/a", "1")]);
    let manifest = disk.draft(&[("d/a", Some("2")), ("d/b", Some("2"))]);
    disk.log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
    fs::write(disk.at(manifest.staged_name(1).as_str()), "").unwrap();
    for _ in 0..2 {
        let error = disk.recover().unwrap_err();
        assert!(
            error.to_string().contains("d/.staging/RUN/1, which was staged for d/b, is damaged"),
            "{error}"
        );
        assert_eq!(disk.text("d/b"), None);
    }
}

#[test]
fn real_disk_satisfies_the_fs_contract() {
    let disk = Disk::new(&[("d/a", "1"), ("d/b", "2")]);
    let fs = &disk.fs;
    let is = |done: Result<(), FsError>, wanted: fn(&FsFailure) -> bool| {
        let error = done.unwrap_err();
        assert!(wanted(&error.trouble), "{error}");
    };
    is(fs.write_new(&rel("d/a"), b"x", 0o644), |why| matches!(why, FsFailure::Exists));
    is(fs.rename_noreplace(&rel("d/a"), &rel("d/b")), |why| matches!(why, FsFailure::Exists));
    is(fs.rename_noreplace(&rel("d/none"), &rel("d/c")), |why| matches!(why, FsFailure::Missing));
    is(fs.exchange(&rel("d/a"), &rel("d/none")), |why| matches!(why, FsFailure::Missing));
    is(fs.sync_file(&rel("d/none")), |why| matches!(why, FsFailure::Missing));
    is(fs.sync_dir(Some(&rel("none"))), |why| matches!(why, FsFailure::Missing));
    is(fs.create_dir(&rel("d/a")), |why| matches!(why, FsFailure::NotAFile(_)));
    fs.exchange(&rel("d/a"), &rel("d/b")).unwrap();
    assert_eq!(fs.inspect(&rel("d/a")).unwrap(), found("2"));
    fs.rename_replace(&rel("d/a"), &rel("d/b")).unwrap();
    assert_eq!(fs.inspect(&rel("d/b")).unwrap(), found("2"));
    assert_eq!(fs.inspect(&rel("d/a/below/nothing")).unwrap(), PathState::Absent);
    assert!(matches!(fs.inspect(&rel("d/b/below/a/file")).unwrap(), PathState::NotAFile(_)));
    assert_eq!(fs.list(&rel("none")).unwrap(), None);
    assert_eq!(fs.list(&rel("d")).unwrap(), Some(vec!["b".to_owned()]));
    fs.create_dir(&rel("d")).unwrap();
    fs.sync_dir(None).unwrap();
}
