//! Samples the memory and the number of tasks of a process tree, where no control group limits them.
//!
//! A sample costs time in proportion to the number of processes, so samples never take more than a
//! twentieth of the time. Between two samples a tree can exceed its limits; the report states the
//! largest value that was seen. Memory is counted once for all processes that share it, as far as the
//! kernel reports that. Memory that no process maps is counted only if it belongs to an open anonymous file.
//!
//! This module must never signal a process.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::fs::statfs;

use crate::files::read_text_proc;
use crate::process::tree;
use crate::sandbox::{Overuse, ResourceLimits};
use crate::time::boot_time;

/// Time between two samples.
const EVERY: Duration = Duration::from_millis(250);
/// A sample takes at most one part in this many of the time.
const SHARE: u32 = 20;
/// The type that `statfs` reports for files in memory.
const TMPFS: i64 = 0x0102_1994;

/// Watches the descendants of this process.
#[derive(Debug)]
pub(super) struct TreeMonitor {
    memory: Option<u64>,
    tasks: Option<u64>,
    next: Duration,
}

/// The resources that a tree uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    memory: u64,
    tasks: u64,
}

impl TreeMonitor {
    /// Creates a monitor for the limits that the kernel does not enforce.
    pub fn new(caps: &ResourceLimits) -> Self {
        Self {
            memory: caps.memory.or_else(default_memory),
            tasks: Some(caps.processes),
            next: boot_time(),
        }
    }

    /// Returns the limit on memory in bytes.
    pub fn memory(&self) -> Option<u64> {
        self.memory
    }

    /// Leaves the limits on memory and on tasks to the kernel, if it enforces them.
    pub fn leave(&mut self, (memory, tasks): (bool, bool)) {
        self.memory = self.memory.filter(|_| !memory);
        self.tasks = self.tasks.filter(|_| !tasks);
    }

    /// Returns how long to wait for the next sample, or `None` if there is nothing to sample.
    pub fn wait(&self) -> Option<Duration> {
        let watches = self.memory.is_some() || self.tasks.is_some();
        watches.then(|| self.next.saturating_sub(boot_time()))
    }

    /// Takes a sample if it is due, and returns the limit that the tree exceeds.
    pub fn sample(&mut self) -> Option<Overuse> {
        let begun = boot_time();
        if begun < self.next {
            return None;
        }
        let found = self.compare(&tree::descendants_alive());
        let now = boot_time();
        self.next = now + EVERY.max(now.saturating_sub(begun) * SHARE);
        found
    }

    fn compare(&self, pids: &[u32]) -> Option<Overuse> {
        let seen = usage(pids);
        if let Some(limit) = self.tasks.filter(|limit| seen.tasks > *limit) {
            return Some(Overuse::Processes { limit, seen: seen.tasks });
        }
        let limit = self.memory.filter(|limit| seen.memory > *limit)?;
        // The first sum counts shared memory once for each process.
        let proportional = proportional(pids);
        let seen = seen.memory.min(proportional);
        (seen > limit).then_some(Overuse::Memory { limit, seen })
    }
}

/// Returns three quarters of the machine's memory in bytes.
fn default_memory() -> Option<u64> {
    let text = read_text_proc("/proc/meminfo").ok()?;
    field(&text, "MemTotal:").map(|total| total / 4 * 3)
}

/// Returns the value of a line such as `RssAnon:  1234 kB` in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the sum over all processes, in which shared memory is counted several times.
fn usage(pids: &[u32]) -> Usage {
    let mut sum = Usage::default();
    let mut shared = 0;
    for pid in pids {
        let Ok(text) = read_text_proc(format!("/proc/{pid}/status")) else { continue };
        let of = |name| field(&text, name).unwrap_or(0);
        sum.memory += of("RssAnon:") + of("VmSwap:");
        shared += of("RssShmem:");
        let threads = text.lines().find_map(|line| line.strip_prefix("Threads:"));
        sum.tasks += threads.and_then(|it| it.trim().parse().ok()).unwrap_or(1);
    }
    // A mapped file in memory may be open as well.
    sum.memory += shared.max(open_in_memory(pids));
    sum
}

/// Returns the memory of all processes, in which each process has its share of shared memory. A
/// process that hides it counts with everything that it maps.
fn proportional(pids: &[u32]) -> u64 {
    let (mut own, mut shared) = (0, 0);
    for pid in pids {
        if let Ok(text) = read_text_proc(format!("/proc/{pid}/smaps_rollup"))
            && let Some(anonymous) = field(&text, "Pss_Anon:")
        {
            own += anonymous + field(&text, "SwapPss:").unwrap_or(0);
            shared += field(&text, "Pss_Shmem:").unwrap_or(0);
        } else if let Ok(text) = read_text_proc(format!("/proc/{pid}/status")) {
            let of = |name| field(&text, name).unwrap_or(0);
            own += of("RssAnon:") + of("VmSwap:");
            shared += of("RssShmem:");
        }
    }
    own + shared.max(open_in_memory(pids))
}

/// Returns the size of the unnamed files in memory that these processes have open.
fn open_in_memory(pids: &[u32]) -> u64 {
    let mut seen = BTreeSet::new();
    let mut sum = 0;
    for pid in pids {
        for file in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(data) = fs::metadata(file.path()) else { continue };
            let unnamed = data.is_file() && data.nlink() == 0;
            if unnamed
                && seen.insert((data.dev(), data.ino()))
                && statfs(file.path()).is_ok_and(|system| system.f_type == TMPFS)
            {
                sum += data.blocks() * 512;
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn memory_of_anonymous_files_is_counted() {
        let pids = [std::process::id()];
        let before = usage(&pids).memory;
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = fs::File::from(file);
        file.write_all(&vec![1; 64 << 20]).unwrap();
        let after = usage(&pids).memory;
        assert!(after >= before + (60 << 20), "{before} {after}");
        let monitor = TreeMonitor { memory: Some(60 << 20), tasks: None, next: Duration::ZERO };
        assert!(
            matches!(monitor.compare(&pids), Some(Overuse::Memory { seen, .. }) if seen > 60 << 20)
        );
    }

    #[test]
    fn fields_of_proc_are_parsed() {
        assert_eq!(field("A:\t 1 kB\nRssAnon:\t  12 kB\n", "RssAnon:"), Some(12 * 1024));
        assert_eq!(field("RssAnon: 12\n", "RssAnon:"), None);
        assert!(default_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
