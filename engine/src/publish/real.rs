//! The real disk, accessed through a handle to a root folder.
//!
//! The kernel resolves every path from the root's handle with `openat2`, always beneath the root
//! and never through a symbolic link, magic link or mount point. Each operation then uses a name
//! relative to its folder's handle. This module must never open a target for writing, follow a
//! link, or change anything but regular files and folders. It requires Linux 5.6.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps,
    UTIME_OMIT, fchmod, fstat, futimens, mkdirat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::fs::{FsError, FsFailure, PathState, PublishFs};
use super::path::RelPath;
use crate::digest::Digest;
use crate::failpoint::reach;
use crate::files::{NotOpened, irregular, read_bounded, regular_at, walk_to};
use crate::scope::FileLook;

/// Restrictions on the kernel's path resolution.
const WALK: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Flags for opening a folder for reading.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Flags for creating a file for writing. The call fails if the name already exists.
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW);

/// A handle to a root folder, with file operations beneath it.
#[derive(Debug)]
pub struct RealFs {
    root: OwnedFd,
}

/// A regular file opened for reading, with its metadata at the time of opening.
#[derive(Debug)]
pub struct Regular {
    pub file: File,
    /// The file's permission bits.
    pub mode: u32,
    /// The number of hard links to the file.
    pub links: u64,
    /// The file's length in bytes.
    pub length: u64,
}

impl Regular {
    /// Returns the file's current metadata.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn looks(&self) -> io::Result<FileLook> {
        use std::os::unix::fs::MetadataExt as _;
        let data = self.file.metadata()?;
        let modified = data.mtime().saturating_mul(1_000_000_000);
        Ok(FileLook { mode: self.mode, modified: modified.saturating_add(data.mtime_nsec()) })
    }
}

impl RealFs {
    /// Opens the folder `root`.
    ///
    /// # Errors
    /// Returns an error if `root` does not exist, is not a folder, or cannot be read.
    pub fn open(root: &Path) -> Result<Self, FsError> {
        let flags = FOLDER.union(OFlags::CLOEXEC);
        match rustix::fs::openat(CWD, root, flags, Mode::empty()) {
            Ok(root) => Ok(Self { root }),
            Err(errno) => Err(FsError::new("open the root", root.display(), errno)),
        }
    }

    /// Opens the folder at `path`. Returns `None` if nothing exists there.
    ///
    /// # Errors
    /// Returns [`FsFailure::NotAFile`] if the path is not a folder or goes through a link, a file
    /// or a mount point, and another [`FsFailure`] if the folder cannot be opened.
    pub fn hold(&self, path: &RelPath) -> Result<Option<Self>, FsError> {
        const ACT: &str = "open the folder";
        let walk = |flags: OFlags| {
            self.openat2(path.as_str(), flags.union(OFlags::NOFOLLOW), Mode::empty())
        };
        let handle = match walk(OFlags::PATH) {
            Ok(handle) => handle,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(fail(ACT, path)(errno)),
        };
        let stat = fstat(&handle).map_err(fail(ACT, path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let what = irregular(stat.st_mode).unwrap_or("a file");
            return Err(FsError::new(ACT, path, FsFailure::NotAFile(what)));
        }
        let root = walk(FOLDER).map_err(fail(ACT, path))?;
        Ok(Some(Self { root }))
    }

    /// Returns the sorted names in this folder.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for item in Dir::read_from(&self.root)? {
            let item = item?;
            let name = OsStr::from_bytes(item.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns whether both handles refer to the same folder, even if it was renamed.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let (own, other) = (fstat(&self.root)?, fstat(&other.root)?);
        Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Opens a regular file. Returns `None` if nothing exists at `path`.
    ///
    /// # Errors
    /// Returns [`FsFailure::NotAFile`] if the path is not a regular file or goes through a link, a
    /// file or a mount point, and another [`FsFailure`] if the file cannot be opened.
    pub fn regular(&self, path: &RelPath) -> Result<Option<Regular>, FsError> {
        const ACT: &str = "read";
        let (file, stat) = match regular_at(&self.root, Path::new(path.as_str()), WALK) {
            Ok(opened) => opened,
            Err(NotOpened::Errno(Errno::NOENT)) => return Ok(None),
            Err(NotOpened::Errno(errno)) => return Err(fail(ACT, path)(errno)),
            Err(NotOpened::NotRegular(what)) => {
                return Err(FsError::new(ACT, path, FsFailure::NotAFile(what)));
            }
        };
        Ok(Some(Regular {
            file,
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink,
            length: u64::try_from(stat.st_size).unwrap_or(0),
        }))
    }

    /// Sets a file's modification time durably. `nanos` is the time in nanoseconds since the Unix
    /// epoch.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, is not a regular file, or belongs to another
    /// user.
    pub fn set_modified(&self, path: &RelPath, nanos: i64) -> Result<(), FsError> {
        const ACT: &str = "set the date of";
        let Some(regular) = self.regular(path)? else {
            return Err(fail(ACT, path)(Errno::NOENT));
        };
        let kept = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        };
        let times = Timestamps { last_access: kept, last_modification: modified };
        futimens(&regular.file, &times)
            .and_then(|()| rustix::fs::fsync(&regular.file))
            .map_err(fail(ACT, path))
    }

    /// Returns the device of the deepest existing folder above `path`. Files cannot be renamed
    /// across devices.
    ///
    /// # Errors
    /// Returns an error if the path cannot be resolved.
    pub fn device(&self, path: &RelPath) -> Result<u64, FsError> {
        let mut folder = path.parent();
        loop {
            match (self.folder("examine", folder.as_ref(), OFlags::PATH), folder) {
                (Ok(handle), _) => {
                    let stat = fstat(&handle);
                    return stat.map(|stat| stat.st_dev).map_err(fail("examine", path));
                }
                (Err(error), Some(gone)) if error.is_missing() => folder = gone.parent(),
                (Err(error), _) => return Err(error),
            }
        }
    }

    fn openat2(&self, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        walk_to(&self.root, Path::new(path), flags, mode, WALK)
    }

    /// Opens the folder `dir`, or the root.
    fn folder(
        &self,
        act: &'static str,
        dir: Option<&RelPath>,
        flags: OFlags,
    ) -> Result<OwnedFd, FsError> {
        let path = dir.map_or(".", RelPath::as_str);
        self.openat2(path, flags.union(OFlags::DIRECTORY), Mode::empty())
            .map_err(|errno| FsError::new(act, path, errno))
    }

    /// Opens the parent folder of `path`.
    fn parent(&self, act: &'static str, path: &RelPath) -> Result<OwnedFd, FsError> {
        self.folder(act, path.parent().as_ref(), OFlags::PATH)
    }

    fn rename(
        &self,
        act: &'static str,
        from: &RelPath,
        to: &RelPath,
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        reach();
        let (source, target) = (self.parent(act, from)?, self.parent(act, to)?);
        let done = if flags.is_empty() {
            renameat(&source, from.name(), &target, to.name())
        } else {
            renameat_with(&source, from.name(), &target, to.name(), flags)
        };
        done.map_err(|errno| {
            let trouble = match errno {
                Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP if !flags.is_empty() => {
                    FsFailure::Unsupported
                }
                errno => errno.into(),
            };
            FsError::new(act, format!("{from} to {to}"), trouble)
        })
    }
}

impl PublishFs for RealFs {
    fn inspect(&self, path: &RelPath) -> Result<PathState, FsError> {
        match self.regular(path) {
            Ok(None) => Ok(PathState::Absent),
            Ok(Some(mut regular)) => {
                let (digest, _) = Digest::of_reader(&mut regular.file)
                    .map_err(|error| FsError::new("read", path, error))?;
                Ok(PathState::Content(digest))
            }
            Err(FsError { trouble: FsFailure::NotAFile(what), .. }) => {
                Ok(PathState::NotAFile(what))
            }
            Err(error) => Err(error),
        }
    }

    fn write_new(&self, path: &RelPath, bytes: &[u8], mode: u32) -> Result<(), FsError> {
        reach();
        const ACT: &str = "write";
        let private = Mode::RUSR.union(Mode::WUSR);
        let handle = self.openat2(path.as_str(), NEW_FILE, private).map_err(fail(ACT, path))?;
        let mut file = File::from(handle);
        let written = file.write_all(bytes).map_err(FsFailure::from).and_then(|()| {
            fchmod(&file, Mode::from_raw_mode(mode & 0o7777)).map_err(FsFailure::from)
        });
        written.map_err(|trouble| {
            // If this removal also fails, the whole staging folder is discarded later.
            let _ = self.remove_file(path);
            FsError::new(ACT, path, trouble)
        })
    }

    fn sync_file(&self, path: &RelPath) -> Result<(), FsError> {
        const ACT: &str = "sync";
        let Some(regular) = self.regular(path)? else {
            return Err(fail(ACT, path)(Errno::NOENT));
        };
        rustix::fs::fsync(&regular.file).map_err(fail(ACT, path))
    }

    fn create_dir(&self, path: &RelPath) -> Result<(), FsError> {
        reach();
        const ACT: &str = "make the folder";
        let parent = self.parent(ACT, path)?;
        let all = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
        match mkdirat(&parent, path.name(), all) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => self.folder(ACT, Some(path), OFlags::PATH).map(drop),
            Err(errno) => Err(fail(ACT, path)(errno)),
        }
    }

    fn sync_dir(&self, dir: Option<&RelPath>) -> Result<(), FsError> {
        reach();
        const ACT: &str = "sync the folder";
        let handle = self.folder(ACT, dir, OFlags::RDONLY)?;
        let path = dir.map_or(".", RelPath::as_str);
        rustix::fs::fsync(&handle).map_err(|errno| FsError::new(ACT, path, errno))
    }

    fn rename_noreplace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.rename("rename", from, to, RenameFlags::NOREPLACE)
    }

    fn exchange(&self, one: &RelPath, other: &RelPath) -> Result<(), FsError> {
        self.rename("exchange", one, other, RenameFlags::EXCHANGE)
    }

    fn rename_replace(&self, from: &RelPath, to: &RelPath) -> Result<(), FsError> {
        self.rename("rename", from, to, RenameFlags::empty())
    }

    fn list(&self, dir: &RelPath) -> Result<Option<Vec<String>>, FsError> {
        const ACT: &str = "list";
        let handle = match self.folder(ACT, Some(dir), OFlags::RDONLY) {
            Ok(handle) => handle,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for item in Dir::new(handle).map_err(fail(ACT, dir))? {
            let item = item.map_err(fail(ACT, dir))?;
            match item.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) => names.push(name.to_owned()),
                Err(_) => return Err(fail(ACT, dir)(Errno::ILSEQ)),
            }
        }
        Ok(Some(names))
    }

    fn remove_file(&self, path: &RelPath) -> Result<(), FsError> {
        reach();
        const ACT: &str = "remove";
        let parent = self.parent(ACT, path)?;
        unlinkat(&parent, path.name(), AtFlags::empty()).map_err(fail(ACT, path))
    }

    fn remove_dir(&self, path: &RelPath) -> Result<(), FsError> {
        reach();
        const ACT: &str = "remove the folder";
        let parent = self.parent(ACT, path)?;
        unlinkat(&parent, path.name(), AtFlags::REMOVEDIR).map_err(fail(ACT, path))
    }
}

impl super::marker::MarkerFs for RealFs {
    fn read(&self, path: &RelPath, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        let regular = match self.regular(path) {
            Err(FsError { trouble: FsFailure::NotAFile(_), .. }) => return Ok(None),
            found => found?,
        };
        let Some(mut regular) = regular else {
            return Ok(None);
        };
        read_bounded(&mut regular.file, limit).map_err(|error| FsError::new("read", path, error))
    }
}

fn fail<'a>(act: &'static str, path: &'a RelPath) -> impl FnOnce(Errno) -> FsError + 'a {
    move |errno| FsError::new(act, path, errno)
}

impl From<Errno> for FsFailure {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::EXIST => Self::Exists,
            Errno::LOOP => Self::NotAFile("a symbolic link, or behind one"),
            Errno::NOTDIR => Self::NotAFile("behind something that is not a folder"),
            Errno::XDEV => Self::NotAFile("on another file system, or outside the root"),
            errno => Self::Io(errno.into()),
        }
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
