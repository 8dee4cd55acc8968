//! Checks whether a child exceeds its folder's quota, periodically and after the child has exited.
//! An unprivileged program cannot have the kernel enforce such a quota.
//!
//! Larger folders are checked less often, so that checks never take more than a twentieth of the
//! time. Between two checks, a child can exceed the quota by as much as it writes in that time, but
//! no single file can exceed the file size limit. Files held open by the child's processes are
//! counted even if they no longer have a name. Files waiting in a socket, which no process holds
//! open, are estimated from the drop in the file system's free space. A check must never follow a
//! link or leave the file system.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Stat, statvfs};

use super::tree::{self, UnnamedFiles};
use crate::files::{TreeVisitor, walk};
use crate::sandbox::FolderQuota;
use crate::time::boot_time;

const EVERY: Duration = Duration::from_secs(2);
const SHARE: u32 = 20;

/// A watched folder with its quota.
#[derive(Debug)]
pub(super) struct DiskQuota {
    quota: FolderQuota,
    /// The time of the next check.
    pub next: Duration,
    /// The file system's free space when the child was started, in bytes.
    free: u64,
    /// Whether files were waiting in the child's sockets at the last check.
    waiting: bool,
}

impl DiskQuota {
    pub fn new(quota: FolderQuota, now: Duration) -> Self {
        let free = free_space(&quota.folder).unwrap_or(0);
        Self { quota, next: now + EVERY, free, waiting: false }
    }

    /// Checks the folder if the next check is due, and returns whether it exceeds the quota.
    pub fn is_over(&mut self) -> bool {
        let begun = boot_time();
        if begun < self.next {
            return false;
        }
        let over = self.exceeds(Child::Runs) || self.is_hidden_over();
        let now = boot_time();
        self.next = now + EVERY.max(now.saturating_sub(begun) * SHARE);
        over
    }

    /// Returns whether the folder exceeds the quota after the child and all its processes have
    /// exited.
    pub fn is_over_at_end(&self) -> bool {
        self.exceeds(Child::Ended)
    }

    /// Returns whether files have been waiting in the child's sockets since the last check and the
    /// file system's free space has decreased by more than the quota.
    fn is_hidden_over(&mut self) -> bool {
        let waits = tree::sockets(&tree::descendants_alive()).values().any(|files| *files > 0);
        let waited = std::mem::replace(&mut self.waiting, waits);
        let lost = || free_space(&self.quota.folder).map(|free| self.free.saturating_sub(free));
        waits && waited && lost().is_some_and(|lost| lost > self.quota.bytes)
    }

    fn exceeds(&self, child: Child) -> bool {
        let mut sum = DiskUsage { left: self.quota.bytes, linked: BTreeSet::new(), child };
        let Ok(data) = fs::symlink_metadata(&self.quota.folder) else {
            return false;
        };
        // A folder that cannot be read is checked again later.
        let exceeded = |done: io::Result<()>| {
            done.is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded)
        };
        exceeded(walk(&self.quota.folder, &mut sum)) || exceeded(sum.take_unnamed(data.dev()))
    }
}

/// Returns the free space of a folder's file system, in bytes.
fn free_space(folder: &Path) -> Option<u64> {
    let system = statvfs(folder).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Whether the child is still running. Folders that it made unreadable are counted only after it
/// exits, because they must be made readable first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    Runs,
    Ended,
}

/// The remaining part of a quota.
struct DiskUsage {
    child: Child,
    left: u64,
    /// The files with multiple hard links that have already been counted.
    linked: BTreeSet<u64>,
}

impl DiskUsage {
    /// Subtracts allocated blocks, so the holes of a sparse file do not count. An empty file is
    /// counted as one block, because it also takes up space in the file system.
    fn take(&mut self, blocks: u64) -> io::Result<()> {
        let left = self.left.checked_sub(blocks.max(1) * 512);
        self.left = left.ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(())
    }

    /// Subtracts the unnamed files on this device that a descendant of this process has open or
    /// mapped.
    fn take_unnamed(&mut self, device: u64) -> io::Result<()> {
        let children = tree::descendants_alive();
        for (_, data) in tree::unnamed_files(&children, UnnamedFiles::OpenAndMapped) {
            if data.dev() == device && self.linked.insert(data.ino()) {
                self.take(data.blocks())?;
            }
        }
        Ok(())
    }
}

impl TreeVisitor for DiskUsage {
    fn file(&mut self, _: BorrowedFd<'_>, _: &OsStr, stat: &Stat) -> io::Result<()> {
        let again = stat.st_nlink > 1 && !self.linked.insert(stat.st_ino);
        match again {
            true => Ok(()),
            false => self.take(u64::try_from(stat.st_blocks).unwrap_or(0)),
        }
    }

    fn may_open(&self) -> bool {
        self.child == Child::Ended
    }

    fn enter(&mut self, stat: &Stat) -> io::Result<()> {
        self.take(u64::try_from(stat.st_blocks).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(folder: &std::path::Path, bytes: u64) -> bool {
        let quota = FolderQuota { folder: folder.to_owned(), bytes };
        DiskQuota { next: Duration::ZERO, ..DiskQuota::new(quota, Duration::ZERO) }.is_over()
    }

    #[test]
    fn quota_counts_files_but_not_link_targets() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("a/link")).unwrap();
        assert!(over(folder.path(), 50_000) && !over(folder.path(), 1_000_000));
        // A second name for the same file takes up no additional space.
        for name in 0..20 {
            fs::hard_link(folder.path().join("a/b"), folder.path().join(name.to_string())).unwrap();
        }
        assert!(!over(folder.path(), 1_000_000));
    }
}
