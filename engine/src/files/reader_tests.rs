use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, mknodat};

use super::*;

/// Creates a folder with every type of entry that an attacker can create. Also returns paths that
/// must be refused, each with the expected error.
fn planted() -> (tempfile::TempDir, Vec<(&'static str, &'static str)>) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(UnixListener::bind(at("socket")).unwrap());
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/file"), "inside").unwrap();
    fs::write(at("file"), "plain").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    symlink("fifo", at("to-fifo")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    symlink("folder", at("way")).unwrap();
    let named = vec![
        ("fifo", "it is a FIFO, not a regular file"),
        ("socket", "it is a socket, not a regular file"),
        ("folder", "it is a folder, not a regular file"),
        ("link", "it is a symbolic link, not a regular file"),
        ("zero", "it is a symbolic link, not a regular file"),
        ("to-fifo", "it is a symbolic link, not a regular file"),
        ("dangling", "it is a symbolic link, not a regular file"),
        (
            "way/file",
            "it is behind a symbolic link, and symbolic links in a project are not followed",
        ),
        ("../x", "it is outside its project"),
        ("/etc/passwd", "it is outside its project"),
    ];
    (folder, named)
}

fn refused(error: &io::Error) -> Refused {
    *error.get_ref().unwrap().downcast_ref().unwrap()
}

#[test]
fn only_regular_project_files_are_read() {
    let (folder, planted) = planted();
    for (name, why) in planted {
        let error = read_in(folder.path(), name, SMALL).unwrap_err();
        assert_eq!(error.to_string(), why, "{name}");
        refused(&error);
    }
    let whole = folder.path().join("folder/file");
    for path in [Path::new("folder/file"), &whole] {
        assert_eq!(read_in(folder.path(), path, SMALL).unwrap(), b"inside");
    }
    let missing = read_in(folder.path(), "absent/file", SMALL).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let behind = read_in(folder.path(), "file/file", SMALL).unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::NotADirectory);
    let none = read_in(&folder.path().join("absent"), "file", SMALL).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
}

#[test]
fn devices_are_refused() {
    for read in [
        read_in(Path::new("/dev"), "zero", SMALL),
        read_host("/dev/zero", SMALL),
        read_host("/dev/tty", SMALL),
    ] {
        let why = Refused::NotRegular("a device");
        assert_eq!(refused(&read.unwrap_err()), why);
    }
    assert!(read_bounded(&mut open_null().unwrap().into(), 0).unwrap().is_some());
}

#[test]
fn host_links_reach_only_regular_files() {
    let (folder, _) = planted();
    let at = |name: &str| folder.path().join(name);
    assert_eq!(read_text_host(at("link"), SMALL).unwrap(), "plain");
    assert_eq!(read_text_host(at("way/file"), SMALL).unwrap(), "inside");
    for (name, what) in [
        ("fifo", "a FIFO"),
        ("to-fifo", "a FIFO"),
        ("zero", "a device"),
        ("socket", "a socket"),
        ("folder", "a folder"),
    ] {
        let error = read_host(at(name), SMALL).unwrap_err();
        assert_eq!(refused(&error), Refused::NotRegular(what), "{name}");
    }
}

#[test]
fn oversized_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    File::create(&path).unwrap().set_len(1 << 42).unwrap();
    for read in [read_in(folder.path(), "huge", SMALL), read_host(&path, SMALL)] {
        let error = read.unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 1 MiB");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }
    fs::write(&path, "12345").unwrap();
    assert_eq!(read_in(folder.path(), "huge", 5).unwrap(), b"12345");
    let error = read_in(folder.path(), "huge", 4).unwrap_err();
    assert_eq!(error.to_string(), "it is larger than 4 bytes");
    // Files in `/proc` report length 0, so only the read itself can enforce the limit.
    assert!(!read_proc("/proc/self/stat").unwrap().is_empty());
    assert!(read_host("/proc/self/stat", 3).is_err());
}

#[test]
fn non_utf8_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes");
    fs::write(&path, b"\xff").unwrap();
    for read in [read_text_in(folder.path(), "bytes", SMALL), read_text_host(&path, SMALL)] {
        assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn open_with_accepts_only_regular_files() {
    let (folder, _) = planted();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let append = |name: &str| open_with(File::options().append(true).create(true), at(name));
    let no_link =
        |name: &str| open_with_no_link(File::options().append(true).create(true), at(name));
    for name in ["fifo", "to-fifo", "zero", "socket", "folder"] {
        refused(&append(name).unwrap_err());
        refused(&no_link(name).unwrap_err());
    }
    assert!(append("link").is_ok());
    let link = Refused::NotRegular("a symbolic link");
    assert_eq!(refused(&no_link("link").unwrap_err()), link);
    assert!(no_link("new").is_ok() && append("newer").is_ok());
    sync_folder(folder.path()).unwrap();
    assert!(sync_folder(&at("file")).is_err());
}
