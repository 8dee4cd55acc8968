//! Tests of the real disk: the paths that each operation refuses, and the metadata that it reads
//! and sets.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::super::marker::MarkerFs as _;
use super::*;

/// Returns a folder with the file `d/a` and a handle to the folder.
fn disk() -> (TempDir, RealFs) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/a"), "1").unwrap();
    let disk = RealFs::open(folder.path()).unwrap();
    (folder, disk)
}

fn rel(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

/// Creates a FIFO, which blocks a program that opens it for reading.
fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn root_must_be_a_folder() {
    let (folder, _) = disk();
    for name in ["d/a", "none"] {
        RealFs::open(&folder.path().join(name)).unwrap_err();
    }
    let handle = RealFs::open(folder.path()).unwrap();
    let flags = rustix::io::fcntl_getfd(&handle.root).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn only_folders_can_be_held() {
    let (folder, disk) = disk();
    make_fifo(&folder.path().join("fifo"));
    symlink("d", folder.path().join("link")).unwrap();
    assert!(disk.hold(&rel("none")).unwrap().is_none());
    for (name, what) in [
        ("d/a", "a file"),
        ("fifo", "a FIFO"),
        ("link", "a symbolic link"),
        ("link/a", "a symbolic link, or behind one"),
        ("d/a/below", "behind something that is not a folder"),
    ] {
        let error = disk.hold(&rel(name)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot open the folder {name}: it is {what}"));
    }
}

#[test]
fn held_folder_keeps_its_identity() {
    let (folder, disk) = disk();
    fs::create_dir(folder.path().join("e")).unwrap();
    fs::write(folder.path().join("d/.hidden"), "").unwrap();
    let held = disk.hold(&rel("d")).unwrap().unwrap();
    assert_eq!(held.names().unwrap(), [OsString::from(".hidden"), OsString::from("a")]);
    assert!(disk.hold(&rel("e")).unwrap().unwrap().names().unwrap().is_empty());
    fs::rename(folder.path().join("d"), folder.path().join("moved")).unwrap();
    let moved = disk.hold(&rel("moved")).unwrap().unwrap();
    assert!(held.is_same(&moved).unwrap());
    assert!(!held.is_same(&disk.hold(&rel("e")).unwrap().unwrap()).unwrap());
    assert!(!held.is_same(&disk).unwrap());
}

#[test]
fn metadata_is_read_and_set() {
    let (folder, disk) = disk();
    let path = folder.path().join("d/a");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let nanos = 1_234_567_890_000_000_789;
    disk.set_modified(&rel("d/a"), nanos).unwrap();
    let regular = disk.regular(&rel("d/a")).unwrap().unwrap();
    assert_eq!((regular.mode, regular.links, regular.length), (0o640, 1, 1));
    assert_eq!(regular.looks().unwrap(), FileLook { mode: 0o640, modified: nanos });
    let data = fs::metadata(&path).unwrap();
    assert_eq!((data.mtime(), data.mtime_nsec()), (1_234_567_890, 789));
    // Dates before 1970 have a negative number of seconds and a positive number of nanoseconds.
    disk.set_modified(&rel("d/a"), -1).unwrap();
    let data = fs::metadata(&path).unwrap();
    assert_eq!((data.mtime(), data.mtime_nsec()), (-1, 999_999_999));
    assert!(disk.set_modified(&rel("none"), 0).unwrap_err().is_missing());
}

#[test]
fn created_entries_have_their_modes() {
    let (folder, disk) = disk();
    for mode in [0o600, 0o644, 0o755] {
        let name = format!("d/{mode:o}");
        disk.write_new(&rel(&name), b"x", mode).unwrap();
        let found = fs::metadata(folder.path().join(&name)).unwrap().mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
    // A folder gets the mode that the process's umask permits.
    disk.create_dir(&rel("ours")).unwrap();
    fs::create_dir(folder.path().join("theirs")).unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode();
    assert_eq!(mode("ours"), mode("theirs"));
}

#[test]
fn device_is_that_of_the_deepest_folder() {
    let (folder, disk) = disk();
    let expected = fs::metadata(folder.path()).unwrap().dev();
    for name in ["a", "d/a", "d/none/deeper", "none/deeper/still"] {
        assert_eq!(disk.device(&rel(name)).unwrap(), expected, "{name}");
    }
    let error = disk.device(&rel("d/a/below")).unwrap_err();
    assert!(matches!(error.trouble, FsFailure::NotAFile(_)), "{error}");
    let proc = RealFs::open(Path::new("/proc")).unwrap();
    assert_eq!(proc.device(&rel("none")).unwrap(), fs::metadata("/proc").unwrap().dev());
}

#[test]
fn only_special_renames_can_be_unsupported() {
    let (folder, disk) = disk();
    fs::create_dir(folder.path().join("d/below")).unwrap();
    // When asked to move a folder into itself, the kernel returns the same error as for unsupported
    // flags.
    let (outer, inner) = (rel("d"), rel("d/below/d"));
    let plain = disk.rename_replace(&outer, &inner).unwrap_err();
    assert!(matches!(plain.trouble, FsFailure::Io(_)), "{plain}");
    let special = disk.rename_noreplace(&outer, &inner).unwrap_err();
    assert!(special.is_unsupported(), "{special}");
}

#[test]
fn list_and_removal_need_the_right_type() {
    let (folder, disk) = disk();
    let error = disk.list(&rel("d/a")).unwrap_err();
    assert!(matches!(error.trouble, FsFailure::NotAFile(_)), "{error}");
    disk.remove_dir(&rel("d")).unwrap_err();
    disk.remove_dir(&rel("d/a")).unwrap_err();
    disk.remove_file(&rel("d")).unwrap_err();
    assert!(folder.path().join("d/a").exists());
    disk.remove_file(&rel("d/a")).unwrap();
    disk.remove_dir(&rel("d")).unwrap();
    assert!(!folder.path().join("d").exists());
}

#[test]
fn marker_reads_only_regular_files() {
    let (folder, disk) = disk();
    make_fifo(&folder.path().join("fifo"));
    symlink("d/a", folder.path().join("link")).unwrap();
    assert_eq!(disk.read(&rel("d/a"), 1).unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(disk.read(&rel("d/a"), 0).unwrap(), None);
    for name in ["none", "d", "fifo", "link", "d/a/below"] {
        assert_eq!(disk.read(&rel(name), 10).unwrap(), None, "{name}");
    }
}
