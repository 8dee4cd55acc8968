//! Removes the files that the children of a settled run left in the run's folder.
//!
//! The folder is kept with the log. The children's small files are kept too, because they may
//! explain a failure. This module must never remove any of runner's files, or any file of
//! an unsettled run.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use runner_engine::files::{TreeVisitor, remove_tree, walk};
use runner_jobs::context::{CHILD_FOLDER, OUT_FOLDER};
use rustix::fs::Stat;

use super::resolved_run::TEMP_FOLDER;

/// Maximum total size of the children's files to keep, in bytes per folder.
const KEPT: u64 = 1_000_000;

/// Removes the children's temporary files, and their other files if those are large.
pub(super) fn remove(run_dir: &Path) {
    for name in [TEMP_FOLDER, CHILD_FOLDER, OUT_FOLDER] {
        let folder = run_dir.join(name);
        if name != TEMP_FOLDER && !is_large(&folder) {
            continue;
        }
        match remove_tree(&folder) {
            Ok(()) => tracing::debug!(folder = %folder.display(), "removed the children's files"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The whole folder is later removed with the log.
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "cannot remove files"),
        }
    }
}

fn is_large(folder: &Path) -> bool {
    let mut left = SpaceLeft(KEPT);
    walk(folder, &mut left).is_err_and(|error| error.kind() == io::ErrorKind::QuotaExceeded)
}

/// The number of bytes that a folder may still contain before it is large.
struct SpaceLeft(u64);

impl SpaceLeft {
    fn take(&mut self, stat: &Stat) -> io::Result<()> {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0).max(1);
        self.0 = self.0.checked_sub(blocks * 512).ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(())
    }
}

impl TreeVisitor for SpaceLeft {
    fn file(&mut self, _: BorrowedFd<'_>, _: &OsStr, stat: &Stat) -> io::Result<()> {
        self.take(stat)
    }

    fn may_open(&self) -> bool {
        true
    }

    fn enter(&mut self, stat: &Stat) -> io::Result<()> {
        self.take(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn children_leave_only_small_files() {
        let folder = tempfile::tempdir().unwrap();
        for (name, size) in [("tmp", 10), ("child", 10), ("out", 2_000_000), ("log", 2_000_000)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), vec![1; size]).unwrap();
        }
        remove(folder.path());
        let left = ["tmp", "child", "out", "log"].map(|name| folder.path().join(name).exists());
        assert_eq!(left, [false, true, false, true]);
    }
}
