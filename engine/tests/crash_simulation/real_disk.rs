//! Runs the scenarios on real disks, including full disks.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use runner_engine::digest::Digest;
use runner_engine::ids::Fence;
use runner_engine::publish::{MemoryLog, PublishError, PublishLog as _, RealFs, Recovery, recover};

use super::scenarios::{ALL, BYSTANDER, Prepared, rel, run};

/// Creates a scenario's initial tree.
fn lay_out(prepared: &Prepared, root: &Path) {
    fs::create_dir_all(root.join("d")).unwrap();
    fs::write(root.join(BYSTANDER.0), BYSTANDER.1).unwrap();
    for target in &prepared.targets {
        if target.before.is_some() {
            let path = root.join(target.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let held = prepared.start.disk.read(target.path).unwrap();
            fs::write(path, &held.bytes).unwrap();
        }
    }
}

fn held(root: &Path, path: &str) -> Option<Digest> {
    fs::read(root.join(path)).ok().map(|bytes| Digest::of(&bytes))
}

/// Returns whether all targets have their content after the publication or, if `after` is false,
/// their content before it.
fn is_all(prepared: &Prepared, root: &Path, after: bool) -> bool {
    held(root, BYSTANDER.0) == Some(Digest::of(BYSTANDER.1.as_bytes()))
        && prepared.targets.iter().all(|target| {
            held(root, target.path) == if after { target.after } else { target.before }
        })
}

#[test]
fn every_scenario_completes_on_a_real_disk() {
    for scenario in ALL {
        let prepared = Prepared::new(scenario);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        lay_out(&prepared, root);
        let disk = RealFs::open(root).unwrap();
        let mut log = MemoryLog::new(Fence(1));
        let write = |path: &str, content: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        let published = prepared.perform(&disk, &mut log, write).unwrap();
        assert!(published.leftover.is_none(), "{}", scenario.name);
        assert!(is_all(&prepared, root, true), "{}", scenario.name);
        assert!(!root.join(scenario.staging).exists(), "{}", scenario.name);
        let again = recover(&disk, &mut log, &run(), Fence(1), &rel(scenario.staging)).unwrap();
        assert_eq!(again, Recovery::Cleaned, "{}", scenario.name);
    }
}

#[test]
fn every_scenario_reports_conflicts_on_real_disk() {
    for scenario in ALL.iter().filter(|scenario| scenario.already.is_empty()) {
        let prepared = Prepared::new(scenario);
        for edited in &prepared.targets {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            lay_out(&prepared, root);
            let disk = RealFs::open(root).unwrap();
            let mut log = MemoryLog::new(Fence(1));
            let manifest = prepared.draft(&disk, Fence(1)).unwrap();
            log.commit_manifest(&run(), Fence(1), &manifest).unwrap();
            let path = root.join(edited.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "theirs").unwrap();
            for _ in 0..2 {
                let result = recover(&disk, &mut log, &run(), Fence(1), &rel(scenario.staging));
                assert!(matches!(result, Err(PublishError::Conflict(_))), "{}", scenario.name);
                assert_eq!(fs::read(&path).unwrap(), b"theirs", "{}", scenario.name);
            }
            match edited.before {
                Some(_) => {
                    let held = prepared.start.disk.read(edited.path).unwrap();
                    fs::write(&path, &held.bytes).unwrap();
                }
                None => fs::remove_file(&path).unwrap(),
            }
            recover(&disk, &mut log, &run(), Fence(1), &rel(scenario.staging)).unwrap();
            assert!(is_all(&prepared, root, true), "{}", scenario.name);
        }
    }
}

/// A small temporary file system, which is unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a small file system. Returns `None` if mounting is not permitted.
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self { folder })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}

/// Fills all but `room` pages of the disk.
fn fill_pages(path: &Path, room: usize) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let length = file.metadata().unwrap().len() / 4096;
    file.set_len(length.saturating_sub(room as u64) * 4096).unwrap();
}

/// Uses up all but `room` inodes.
fn fill_names(folder: &Path, room: usize) {
    let kept: Vec<PathBuf> = (0..)
        .map(|number: u32| folder.join(number.to_string()))
        .take_while(|path| fs::write(path, "").is_ok())
        .collect();
    for path in kept.iter().rev().take(room) {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn full_disk_leaves_old_or_new_tree() {
    let (mut refused, mut published, mut skipped) = (0, 0, 0);
    for scenario in ALL.iter().filter(|scenario| scenario.already.is_empty()) {
        let prepared = Prepared::new(scenario);
        // The run is tried with 0 to 11 free pages, and then with 0 to 11 free inodes.
        for (options, pages) in [("size=4m", true), ("size=4m,nr_inodes=40", false)] {
            for room in 0..12 {
                let Some(small) = SmallDisk::mount(options) else {
                    skipped += 1;
                    continue;
                };
                let root = small.root();
                lay_out(&prepared, &root);
                let ballast = root.join("ballast");
                fs::create_dir(&ballast).unwrap();
                if pages {
                    fill_pages(&ballast.join("pages"), room);
                } else {
                    fill_names(&ballast, room);
                }
                let disk = RealFs::open(&root).unwrap();
                let mut log = MemoryLog::new(Fence(1));
                match prepared.perform(&disk, &mut log, |_, _| {}) {
                    Ok(_) => published += 1,
                    Err(_) => refused += 1,
                }
                let recorded = log.manifest(&run()).unwrap();
                if recorded.is_none() {
                    assert!(is_all(&prepared, &root, false), "{} {room}", scenario.name);
                }
                // After space is freed, the run is recovered.
                fs::remove_dir_all(&ballast).unwrap();
                recover(&disk, &mut log, &run(), Fence(1), &rel(scenario.staging)).unwrap();
                assert!(is_all(&prepared, &root, recorded.is_some()), "{} {room}", scenario.name);
                assert!(!root.join(scenario.staging).exists(), "{} {room}", scenario.name);
            }
        }
    }
    let line = format!(
        "full disks: {refused} refusals, {published} publications, {skipped} skipped (no mount)"
    );
    println!("{line}");
    writeln!(std::io::stderr(), "{line}").unwrap();
    assert!(skipped > 0 || refused > 0 && published > 0, "{line}");
}
