//! Exchanges files between runner and a child, through an open handle to their folder.
//!
//! A child may put anything into its run folder: links, pipes, devices, or a folder instead of a
//! file. This module therefore follows no symbolic link, never opens an existing file for writing,
//! and reads only regular files with a single hard link. Callers must read a child's files only
//! after its process tree is dead.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, unlinkat};
use rustix::io::Errno;

/// A handle that refers to the same folder even if the folder is renamed.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// Removes the file `name` if it exists.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a new file that only its owner can read and write.
    pub fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(bytes)
    }

    /// Reads the file `name`, of at most `cap` bytes, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the reason the file cannot be read or is not accepted, phrased to follow its name.
    pub fn read(&self, name: &str, cap: usize) -> Result<Option<Vec<u8>>, String> {
        // Without the non-blocking flag, opening a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err("is a symbolic link".to_owned()),
            Err(error) => return Err(format!("cannot be opened: {error}")),
        };
        let stat = fstat(&file).map_err(|error| format!("cannot be inspected: {error}"))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(format!("is not a regular file but a {kind:?}"));
        }
        if stat.st_nlink != 1 {
            return Err(format!("has {} hard links", stat.st_nlink));
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(cap).unwrap_or(u64::MAX).saturating_add(1);
        File::from(file)
            .take(most)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() > cap {
            return Err(format!("is larger than {cap} bytes"));
        }
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mknodat, symlinkat};
    use std::fs;

    #[test]
    fn only_regular_files_without_links_are_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        assert_eq!(folder.read("a", 9), Ok(None));
        folder.write_new("a", b"[]").unwrap();
        assert_eq!(folder.read("a", 2), Ok(Some(b"[]".to_vec())));
        assert!(folder.read("a", 1).unwrap_err().contains("larger than 1"));
        assert_eq!(folder.write_new("a", b"").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::hard_link(place.path().join("a"), place.path().join("b")).unwrap();
        assert!(folder.read("a", 9).unwrap_err().contains("2 hard links"));
        symlinkat("a", &folder.0, "link").unwrap();
        assert!(folder.read("link", 9).unwrap_err().contains("symbolic link"));
        assert_eq!(folder.write_new("link", b"").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        mknodat(&folder.0, "pipe", FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(folder.read("pipe", 9).unwrap_err().contains("Fifo"));
        fs::create_dir(place.path().join("dir")).unwrap();
        assert!(folder.read("dir", 9).unwrap_err().contains("Directory"));
        for name in ["a", "b", "link", "pipe", "absent"] {
            folder.remove(name).unwrap();
        }
        assert!(folder.remove("dir").is_err());
    }

    #[test]
    fn open_folder_survives_a_replaced_path() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        fs::rename(&path, place.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a"), "planted").unwrap();
        assert_eq!(folder.read("a", 99), Ok(None));
        std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
        assert!(Folder::open(&place.path().join("link")).is_err());
    }
}
