//! Checks periodically whether a child exceeds its folder's quota, because the kernel has no quotas
//! for folders.
//!
//! A larger folder is checked less often, so that checks never take more than a twentieth of the
//! time. Between two checks, a child can exceed the quota by the amount that it writes in that
//! time, but no single file can exceed the limit on file size. A check must never follow a link or
//! leave the file system.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

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
}

impl DiskQuota {
    pub fn new(quota: FolderQuota, now: Duration) -> Self {
        Self { quota, next: now + EVERY }
    }

    /// Checks the folder if the next check is due, and returns whether it exceeds the quota.
    pub fn is_over(&mut self) -> bool {
        let begun = boot_time();
        if begun < self.next {
            return false;
        }
        let mut left = self.quota.bytes;
        let device = fs::symlink_metadata(&self.quota.folder).map(|data| data.dev());
        let fits = device.map_or(true, |device| take(&self.quota.folder, device, &mut left));
        let now = boot_time();
        self.next = now + EVERY.max(now.saturating_sub(begun) * SHARE);
        !fits
    }
}

/// Subtracts the size of everything beneath `folder` from `left`. Returns false if `left` was too
/// small.
fn take(folder: &Path, device: u64, left: &mut u64) -> bool {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(data) = entry.metadata() else {
            continue;
        };
        if data.dev() != device {
            continue;
        }
        // Only allocated blocks are counted, so the holes of a sparse file are free.
        let Some(rest) = left.checked_sub(data.blocks() * 512) else {
            return false;
        };
        *left = rest;
        if data.is_dir() && !take(&entry.path(), device, left) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_counts_files_but_not_link_targets() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("a/link")).unwrap();
        let over = |bytes| {
            let quota = FolderQuota { folder: folder.path().to_owned(), bytes };
            DiskQuota { quota, next: Duration::ZERO }.is_over()
        };
        assert!(over(50_000) && !over(1_000_000));
    }
}
