//! Walks and removes folder trees of any depth that another process may change concurrently.
//!
//! Every step opens one name relative to an open folder, so no path can become too long, and only a
//! few folders are open at a time. The walk returns through `..`, whose device and inode must match
//! the folder from which the walk descended. If another process has moved a folder, the walk
//! descends again from the root. It must never follow a link, or leave the file system of the root.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// Handles the entries that a walk finds.
pub trait TreeVisitor {
    /// Handles an entry that is not a folder.
    fn file(&mut self, folder: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> io::Result<()>;

    /// Handles a folder beneath the root, before its contents.
    fn enter(&mut self, _stat: &Stat) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether the walk may make folders accessible to their owner, so that it can read and
    /// change them. The processes that use the folders must have exited.
    fn may_open(&self) -> bool {
        false
    }

    /// Handles a folder beneath the root, after its contents.
    fn leave(&mut self, _folder: BorrowedFd<'_>, _name: &OsStr) -> io::Result<()> {
        Ok(())
    }
}

struct Level {
    id: (u64, u64),
    name: OsString,
    /// The folders that the walk has not entered yet.
    folders: Vec<OsString>,
}

/// Walks everything beneath the folder `root`. Folders on another file system are skipped.
///
/// # Errors
/// Returns the visitor's errors, and an error if the root cannot be opened. A folder that cannot be
/// read, or that vanishes during the walk, is treated as empty.
pub fn walk(root: &Path, visitor: &mut dyn TreeVisitor) -> io::Result<()> {
    let top = openat(CWD, root, FOLDER, Mode::empty())?;
    let data = fstat(&top)?;
    let device = data.st_dev;
    let mut levels = vec![Level {
        id: (data.st_dev, data.st_ino),
        name: OsString::new(),
        folders: list(&top, device, visitor)?,
    }];
    let mut at = top.as_fd().try_clone_to_owned()?;
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.folders.pop() {
            if visitor.may_open() {
                make_accessible(&at, &name);
            }
            let Ok(folder) = openat(&at, &name, FOLDER, Mode::empty()) else {
                // The folder's contents are not accessible, but an empty folder can be removed.
                visitor.leave(at.as_fd(), &name)?;
                continue;
            };
            let data = fstat(&folder)?;
            if data.st_dev != device {
                continue;
            }
            visitor.enter(&data)?;
            let folders = list(&folder, device, visitor)?;
            levels.push(Level { id: (data.st_dev, data.st_ino), name, folders });
            at = folder;
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let Some(above) = levels.last() else { break };
        at = match up(&at, above.id) {
            Some(folder) => folder,
            None => down(&top, &mut levels)?,
        };
        // If the walk could not return to this folder's parent, a removal deletes at most an empty
        // folder with the same name.
        visitor.leave(at.as_fd(), &done.name)?;
    }
    Ok(())
}

/// Gives the owner of a folder all permissions. Errors are ignored.
fn make_accessible(at: &OwnedFd, name: &OsStr) {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = openat(at, name, path, Mode::empty()) else { return };
    let Ok(mode) = fstat(&folder).map(|data| Mode::from_raw_mode(data.st_mode)) else { return };
    if !mode.contains(Mode::RWXU) {
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let _not_the_owner = chmod(path, mode | Mode::RWXU);
    }
}

/// Handles the files of a folder, and returns the names of its folders.
fn list(folder: &OwnedFd, device: u64, visitor: &mut dyn TreeVisitor) -> io::Result<Vec<OsString>> {
    let mut folders = Vec::new();
    let Ok(entries) = Dir::read_from(folder) else { return Ok(folders) };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            visitor.file(folder.as_fd(), name, &stat)?;
        } else if stat.st_dev == device {
            folders.push(name.to_owned());
        }
    }
    Ok(folders)
}

/// Opens the folder above `folder` if it is the expected one.
fn up(folder: &OwnedFd, id: (u64, u64)) -> Option<OwnedFd> {
    let above = openat(folder, "..", FOLDER, Mode::empty()).ok()?;
    let data = fstat(&above).ok()?;
    ((data.st_dev, data.st_ino) == id).then_some(above)
}

/// Opens the deepest of `levels`, starting from the root. Levels that no longer exist are dropped.
fn down(top: &OwnedFd, levels: &mut Vec<Level>) -> io::Result<OwnedFd> {
    let mut at = top.try_clone()?;
    for depth in 1..levels.len() {
        let next = openat(&at, &levels[depth].name, FOLDER, Mode::empty()).ok();
        let same = |folder: &OwnedFd| {
            fstat(folder).is_ok_and(|data| (data.st_dev, data.st_ino) == levels[depth].id)
        };
        let Some(next) = next.filter(same) else {
            levels.truncate(depth);
            break;
        };
        at = next;
    }
    Ok(at)
}

/// Removes a folder of any depth and everything beneath it. If possible, a folder that its owner
/// cannot read, change or enter is made accessible first. If `path` is not a folder, it is removed
/// as a file.
///
/// # Errors
/// Returns the first error after everything else has been removed, and [`io::ErrorKind::NotFound`]
/// if nothing exists at `path`.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    let mut removal = TreeRemoval::default();
    if let (Some(above), Some(name)) = (path.parent(), path.file_name())
        && let Ok(above) = openat(CWD, above, FOLDER, Mode::empty())
    {
        make_accessible(&above, name);
    }
    walk(path, &mut removal)?;
    // The first error for an entry beneath the root explains more than the root's own error.
    fs::remove_dir(path).map_err(|error| removal.failed.unwrap_or(error))
}

/// Removes the entries that a walk finds, and keeps the first error.
#[derive(Debug, Default)]
struct TreeRemoval {
    failed: Option<io::Error>,
}

impl TreeRemoval {
    fn note(&mut self, done: rustix::io::Result<()>) {
        if let Err(error) = done
            && error != Errno::NOENT
        {
            self.failed.get_or_insert(error.into());
        }
    }
}

impl TreeVisitor for TreeRemoval {
    fn file(&mut self, folder: BorrowedFd<'_>, name: &OsStr, _stat: &Stat) -> io::Result<()> {
        self.note(unlinkat(folder, name, AtFlags::empty()));
        Ok(())
    }

    fn may_open(&self) -> bool {
        true
    }

    fn leave(&mut self, folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        self.note(unlinkat(folder, name, AtFlags::REMOVEDIR));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mkdirat, renameat};

    /// Creates `depth` nested folders, with a file in the innermost one.
    fn deep(root: &Path, depth: usize) {
        let mut at = openat(CWD, root, FOLDER, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&at, "f", flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(&file, &[1; 5000]).unwrap();
    }

    #[derive(Default)]
    struct Count {
        files: usize,
        folders: usize,
        move_at: Option<(usize, std::path::PathBuf)>,
    }

    impl TreeVisitor for Count {
        fn file(&mut self, _: BorrowedFd<'_>, _: &OsStr, _: &Stat) -> io::Result<()> {
            self.files += 1;
            Ok(())
        }

        fn enter(&mut self, _: &Stat) -> io::Result<()> {
            self.folders += 1;
            if let Some((at, root)) = &self.move_at
                && self.folders == *at
            {
                renameat(CWD, root.join("a/b/c"), CWD, root.join("z"))?;
            }
            Ok(())
        }
    }

    #[test]
    fn twenty_thousand_folders_are_counted_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("staging");
        fs::create_dir(&root).unwrap();
        deep(&root, 20_000);
        std::os::unix::fs::symlink(folder.path(), root.join("link")).unwrap();
        let mut count = Count::default();
        walk(&root, &mut count).unwrap();
        assert_eq!((count.files, count.folders), (2, 20_000));
        remove_tree(&root).unwrap();
        assert!(!root.exists() && folder.path().exists());
        assert_eq!(remove_tree(&root).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn inaccessible_folders_are_removed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/f"), "").unwrap();
        // The caches of some programs consist of read-only folders.
        for (path, mode) in [("a/b", 0o555), ("a", 0o000), ("", 0o500)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(root.join(path), mode).unwrap();
        }
        remove_tree(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn moved_folders_do_not_lead_outside() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for path in ["a/b/c/d/e", "a/b/x", "a/y"] {
            fs::create_dir_all(root.join(path)).unwrap();
            fs::write(root.join(path).join("f"), "").unwrap();
        }
        fs::write(folder.path().join("outside"), "").unwrap();
        for at in 1..=7 {
            let mut count = Count { move_at: Some((at, root.clone())), ..Count::default() };
            walk(&root, &mut count).unwrap();
            assert!(count.files <= 6 && count.files >= 2, "{at}: {}", count.files);
            renameat(CWD, root.join("z"), CWD, root.join("a/b/c")).unwrap();
        }
        remove_tree(&root).unwrap();
        assert!(folder.path().join("outside").exists());
    }
}
