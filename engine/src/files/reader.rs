//! The only functions that open files for reading.
//!
//! Anyone who can write to a repository, including an agent, controls its contents. An entry can be
//! a FIFO that blocks forever, a device that produces endless data, a link to either, or a file of
//! any size. All files are therefore opened here, without blocking. Except for the kernel's files
//! and `/dev/null`, only regular files are accepted. A function that returns a file's content has a
//! size limit.
//!
//! - [`open_in`], [`read_in`] and [`read_text_in`] are for files beneath a project's root. The
//!   kernel resolves the path from the root's handle and follows no symbolic link.
//! - [`open_host`], [`read_host`] and [`read_text_host`] are for files owned by the user or the
//!   system, such as settings and the state folder. They follow links.
//! - [`open_with`] and [`open_with_no_link`] are for files that are also written, such as locks.
//! - [`read_proc`] is for the kernel's files, whose length is unknown until they are read.
//!
//! This module requires Linux 5.6 for `openat2`.

#![allow(clippy::disallowed_methods, reason = "clippy directs the other modules to this one")]

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// Size limit in bytes for short files, such as ids, stamps and process records.
pub const SMALL: u64 = 1 << 20;
/// Size limit in bytes for documents that people or models write, and for the records of one run.
pub const DOCUMENT: u64 = 64 << 20;
/// Size limit in bytes for files that grow for years, such as histories and caches.
pub const RECORD: u64 = 1 << 30;

/// Restrictions on path resolution in a project: beneath the root and through no link.
const WALK: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Flags for opening any file: a FIFO must not block, and a terminal must not become the
/// controlling terminal.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Maximum number of retries if a path resolution races with a rename or is interrupted.
const TRIES: usize = 16;

/// The reason why an existing file was not read. It is the inner error of the [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The entry is not a regular file.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    /// A folder in the path is a symbolic link.
    #[error("it is behind a symbolic link, and symbolic links in a project are not followed")]
    BehindLink,
    /// The path leads outside the folder that must contain the file.
    #[error("it is outside its project")]
    Outside,
    /// The file is larger than the caller's limit.
    #[error("it is larger than {}", size(*.limit))]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::NotRegular("a folder") => ErrorKind::IsADirectory,
            Refused::TooLarge { .. } => ErrorKind::FileTooLarge,
            _ => ErrorKind::InvalidInput,
        };
        Self::new(kind, refused)
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// Opens the regular file at `path` beneath the folder `root`. `path` is relative to `root` or
/// begins with `root`. Links in `root` itself are followed, because the caller chose that path.
///
/// # Errors
/// Returns the operating system's error, or an error that contains a [`Refused`].
pub fn open_in(root: &Path, path: impl AsRef<Path>) -> io::Result<File> {
    let folder = openat(
        CWD,
        dot_if_empty(root),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let below = path.as_ref();
    let below = below.strip_prefix(root).unwrap_or(below);
    match regular_at(&folder, below, WALK) {
        Ok((file, _)) => Ok(file),
        Err(NotOpened::NotRegular(what)) => Err(Refused::NotRegular(what).into()),
        Err(NotOpened::Errno(Errno::LOOP)) => Err(Refused::BehindLink.into()),
        Err(NotOpened::Errno(Errno::XDEV)) => Err(Refused::Outside.into()),
        Err(NotOpened::Errno(errno)) => Err(errno.into()),
    }
}

/// Reads a file of at most `limit` bytes beneath `root` (see [`open_in`]).
///
/// # Errors
/// Returns the errors of [`open_in`], and [`Refused::TooLarge`].
pub fn read_in(root: &Path, path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open_in(root, path)?, limit)
}

/// Reads a text file of at most `limit` bytes beneath `root` (see [`open_in`]).
///
/// # Errors
/// Returns the errors of [`read_in`], and [`ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_text_in(root: &Path, path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    text(read_in(root, path, limit)?)
}

/// Opens the regular file at `path` in a folder whose path has already been checked. A link at
/// `path` is refused. Links in the folders above it are followed.
///
/// # Errors
/// Returns the errors of [`open_in`].
pub fn open_no_link(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Refused::NotRegular("a folder").into());
    };
    open_in(folder, name)
}

/// Reads a file of at most `limit` bytes (see [`open_no_link`]).
///
/// # Errors
/// Returns the errors of [`read_in`].
pub fn read_no_link(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open_no_link(path)?, limit)
}

/// Opens the file named by a setting, either relative to `root` or as an absolute path. A path
/// beneath `root` is opened with [`open_in`], any other path with [`open_host`].
///
/// # Errors
/// Returns the errors of [`open_in`] or [`open_host`].
pub fn open_named(root: &Path, named: impl AsRef<Path>) -> io::Result<File> {
    let path = root.join(named);
    match path.starts_with(root) {
        true => open_in(root, path),
        false => open_host(path),
    }
}

/// Reads a text file of at most `limit` bytes named by a setting (see [`open_named`]).
///
/// # Errors
/// Returns the errors of [`read_text_in`].
pub fn read_text_named(root: &Path, named: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    text(read_all(open_named(root, named)?, limit)?)
}

/// Opens the regular file at `path` and follows links.
///
/// # Errors
/// Returns the operating system's error, or an error that contains a [`Refused`].
pub fn open_host(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // `O_PATH` checks the type without opening the file, because opening a device may have side
    // effects.
    let peek = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    only_regular(&peek)?;
    let file = openat(CWD, path, READ, Mode::empty())?;
    only_regular(&file)?;
    Ok(file.into())
}

/// Reads a file of at most `limit` bytes (see [`open_host`]).
///
/// # Errors
/// Returns the errors of [`open_host`], and [`Refused::TooLarge`].
pub fn read_host(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open_host(path)?, limit)
}

/// Reads a text file of at most `limit` bytes (see [`open_host`]).
///
/// # Errors
/// Returns the errors of [`read_host`], and [`ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_text_host(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    text(read_host(path, limit)?)
}

/// Reads a file in `/proc`, in `/sys` or in a control group tree.
///
/// # Errors
/// Returns the operating system's error, or [`Refused::TooLarge`] for more than 64 MiB.
pub fn read_proc(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::from(openat(CWD, path.as_ref(), READ, Mode::empty())?);
    read_bounded(&mut file, DOCUMENT)?.ok_or_else(|| Refused::TooLarge { limit: DOCUMENT }.into())
}

/// Reads a text file in `/proc`, in `/sys` or in a control group tree.
///
/// # Errors
/// Returns the errors of [`read_proc`], and [`ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_text_proc(path: impl AsRef<Path>) -> io::Result<String> {
    text(read_proc(path)?)
}

/// Opens `/dev/null` for reading.
///
/// # Errors
/// Returns the operating system's error.
pub fn open_null() -> io::Result<OwnedFd> {
    Ok(openat(CWD, "/dev/null", READ, Mode::empty())?)
}

/// Opens a regular file that is also written. Links are followed. Any `custom_flags` in `options`
/// are replaced.
///
/// # Errors
/// Returns the operating system's error, or an error that contains a [`Refused`].
pub fn open_with(options: &mut OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    open_either(options, path, path.metadata(), OFlags::empty())
}

/// Opens a file like [`open_with`], but refuses a symbolic link at `path`. Links in the folders
/// above it are followed. If the path is in a project, call [`super::beneath`] first.
///
/// # Errors
/// Returns the errors of [`open_with`].
pub fn open_with_no_link(options: &mut OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    open_either(options, path, path.symlink_metadata(), OFlags::NOFOLLOW)
}

fn open_either(
    options: &mut OpenOptions,
    path: &Path,
    found: io::Result<std::fs::Metadata>,
    follow: OFlags,
) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt as _;
    // Opening a device may have side effects, and the error for a FIFO does not show the reason.
    if let Some(what) = found.ok().and_then(|data| irregular(data.mode())) {
        return Err(Refused::NotRegular(what).into());
    }
    let flags = follow | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    only_regular(&file)?;
    Ok(file)
}

/// Creates a new file for writing. Its permission bits are `mode` without the bits in the process's
/// umask.
///
/// # Errors
/// Returns the operating system's error, such as [`ErrorKind::AlreadyExists`] if any entry exists
/// at `path`, even a link.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true).mode(mode).open(path)
}

/// Copies the content and the permissions of a regular file (see [`open_host`]), and replaces an
/// existing file at `to`.
///
/// # Errors
/// Returns the errors of [`open_host`] and [`open_with`], and an error if the content or the
/// permissions cannot be copied.
pub fn copy_host(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = open_host(from)?;
    let mut options = OpenOptions::new();
    // Other users must not be able to read the copy before it has the permissions of its source.
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut target = open_with(&mut options, to)?;
    target.set_permissions(Permissions::from_mode(0o600))?;
    io::copy(&mut source, &mut target)?;
    target.set_permissions(source.metadata()?.permissions())
}

/// Syncs the folder `path`. New and renamed entries then survive a power cut.
///
/// # Errors
/// Returns the operating system's error.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = openat(CWD, dot_if_empty(path), READ | OFlags::DIRECTORY, Mode::empty())?;
    Ok(rustix::fs::fsync(folder)?)
}

/// Maximum number of bytes to allocate before reading a file.
const FIRST: u64 = 1 << 20;

/// Reads at most `limit` bytes. Returns `None` if the file is longer.
pub(crate) fn read_bounded(file: &mut File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    // With one byte more than the file's length, the read can detect the end of the file without
    // growing the buffer.
    let length = file.metadata()?.len().min(limit).min(FIRST);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// The reason why [`regular_at`] could not open a file.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The operating system's error. `LOOP` means that a folder in the path is a link. `XDEV` means
    /// that the path leads outside the root or, with `NO_XDEV`, through a mount point.
    Errno(Errno),
    /// The type of an entry that is not a regular file.
    NotRegular(&'static str),
}

impl From<Errno> for NotOpened {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Opens a regular file for reading. The path is resolved from the handle of `folder`.
pub(crate) fn regular_at(
    folder: impl AsFd,
    path: &Path,
    walk: ResolveFlags,
) -> Result<(File, Stat), NotOpened> {
    let check = |handle: &OwnedFd| -> Result<Stat, NotOpened> {
        let stat = fstat(handle)?;
        match irregular(stat.st_mode) {
            None => Ok(stat),
            Some(what) => Err(NotOpened::NotRegular(what)),
        }
    };
    // `O_PATH` checks the type without opening the file, because opening a device may have side
    // effects.
    let none = Mode::empty();
    let peek = OFlags::PATH | OFlags::NOFOLLOW;
    check(&walk_to(&folder, path, peek, none, walk)?)?;
    let handle = walk_to(&folder, path, READ | OFlags::NOFOLLOW, none, walk)?;
    let stat = check(&handle)?;
    Ok((handle.into(), stat))
}

/// Calls `openat2`, and retries if the call races with a rename or is interrupted.
pub(crate) fn walk_to(
    folder: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    walk: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match openat2(&folder, path, flags | OFlags::CLOEXEC, mode, walk) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

/// Returns the name of the file type in `mode`, or `None` for a regular file.
pub(crate) fn irregular(mode: u32) -> Option<&'static str> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => None,
        FileType::Symlink => Some("a symbolic link"),
        FileType::Directory => Some("a folder"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    }
}

fn only_regular(handle: impl AsFd) -> io::Result<()> {
    match irregular(fstat(handle)?.st_mode) {
        None => Ok(()),
        Some(what) => Err(Refused::NotRegular(what).into()),
    }
}

fn read_all(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || Refused::TooLarge { limit }.into();
    if file.metadata()?.len() > limit {
        return Err(too_large());
    }
    read_bounded(&mut file, limit)?.ok_or_else(too_large)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

fn dot_if_empty(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
