//! Finds the host's sockets that a child could reach through the file system.
//!
//! A read-only mount does not prevent connections to a socket in it. The mount view therefore
//! covers each socket that exists when the child starts. The kernel lists the paths to which
//! sockets are bound. It lists a relative path only as it was given, so the path is resolved from
//! the working folder of the process that owns the socket. This module must never connect to a
//! socket.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::files::read_proc;

/// Returns the real paths of the sockets bound by programs in this network namespace.
pub fn bound() -> BTreeSet<PathBuf> {
    let table = read_proc("/proc/net/unix").unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut relative = Vec::new();
    for (inode, path) in table.split(|byte| *byte == b'\n').filter_map(entry) {
        let path = Path::new(OsStr::from_bytes(path));
        match path.is_absolute() {
            true => found.extend(real(path)),
            false => relative.push((inode.to_owned(), path.to_owned())),
        }
    }
    if !relative.is_empty() {
        found.extend(of_owners(&relative));
    }
    found
}

/// Parses the inode and the path of one line. Unbound and abstract sockets have no path.
fn entry(line: &[u8]) -> Option<(&str, &[u8])> {
    let mut rest = line;
    let mut inode: &[u8] = &[];
    for _ in 0..7 {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let field = &rest[start..];
        let end = field.iter().position(|byte| *byte == b' ')?;
        (inode, rest) = field.split_at(end);
    }
    let path = rest.strip_prefix(b" ")?;
    let is_path = !path.is_empty() && !path.starts_with(b"@");
    let inode = std::str::from_utf8(inode).ok()?;
    (is_path && inode.bytes().all(|byte| byte.is_ascii_digit())).then_some((inode, path))
}

/// Returns the real paths of the sockets in `relative`. Each path is resolved from the working
/// folder of every process that holds the socket.
fn of_owners(relative: &[(String, PathBuf)]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let (process, number) = (process.path(), process.file_name());
        if !number.as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        for file in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(file.path()) else { continue };
            let link = link.to_string_lossy();
            let inode = link.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']'));
            for (_, path) in relative.iter().filter(|(it, _)| Some(it.as_str()) == inode) {
                let folder = fs::read_link(process.join("cwd"));
                found.extend(folder.ok().and_then(|folder| real(&folder.join(path))));
            }
        }
    }
    found
}

fn real(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    fs::symlink_metadata(&real).is_ok_and(|data| data.file_type().is_socket()).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn bound_sockets_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(folder.path()).unwrap().join("a socket with spaces");
        let listener = UnixListener::bind(&at).unwrap();
        assert!(bound().contains(&at));
        drop(listener);
        fs::remove_file(&at).unwrap();
        assert!(!bound().contains(&at));
    }

    #[test]
    fn table_lines_are_parsed() {
        let line = b"0000000000000000: 00000002 00000000 00010000 0001 01  4321 /run/a b";
        assert_eq!(entry(line), Some(("4321", &b"/run/a b"[..])));
        let line = b"0000000000000000: 00000002 00000000 00010000 0001 01  4321 @abstract";
        assert_eq!(entry(line), None);
        assert_eq!(entry(b"0000000000000000: 00000003 00000000 00000000 0001 03  4321"), None);
        let heading = b"Num       RefCount Protocol Flags    Type St Inode Path";
        assert_eq!(entry(heading), None);
    }
}
