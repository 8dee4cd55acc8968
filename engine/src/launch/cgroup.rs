//! A control group for the child's processes. It is killed as a whole, and no process can leave it.
//!
//! The group is created beneath the launcher's own group in the version 2 tree, wherever that tree
//! is mounted (also beside a version 1 tree). It is named `runner-<marker>`, so that recovery can
//! find it by run. If the controllers for memory and processes are delegated to it, the kernel enforces
//! the limits of the run in it; otherwise it only groups processes. If no group can be created,
//! the launcher is only a subreaper for the child's processes, and the applied sandbox reports
//! that.
//!
//! This module must never kill a group whose name it did not assign.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::read_text_proc;
use crate::process::tree;

const PREFIX: &str = "runner-";
/// Maximum search depth for groups. systemd's groups are six levels deep.
const DEEPEST: usize = 12;
/// Time limit for a killed group to become empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// A control group that this launcher created.
#[derive(Debug)]
pub(super) struct ControlGroup {
    own: PathBuf,
    above: PathBuf,
}

impl ControlGroup {
    /// Creates a run's control group. Returns `None` if that is not permitted or the group cannot
    /// be killed as a whole.
    pub fn make(marker: &str) -> Option<Self> {
        let (mount, above) = mine()?;
        let above = mount.join(above.trim_start_matches('/'));
        // The process id makes the name unique, because an earlier launcher with the same marker
        // may have left a group that is empty or contains processes of this run.
        let own = above.join(name(marker)).with_extension(std::process::id().to_string());
        fs::DirBuilder::new().mode(0o700).create(&own).ok()?;
        let group = Self { own, above };
        let usable = group.own.join("cgroup.kill").exists()
            && group.enter().is_ok()
            && group.leave().is_ok();
        if usable {
            return Some(group);
        }
        let _ = group.leave();
        group.remove();
        None
    }

    /// Sets the limits of the group where its controllers are delegated, and returns whether the kernel
    /// enforces the limits on memory and on processes.
    pub fn limit(&self, memory: Option<u64>, processes: u64) -> (bool, bool) {
        let set = |file: &str, value: u64| {
            let path = self.own.join(file);
            path.exists() && fs::write(path, value.to_string()).is_ok()
        };
        let memory = memory.is_some_and(|bytes| {
            // Without a limit on swap, the group would use the machine's swap instead.
            let swap = self.own.join("memory.swap.max");
            let no_swap = !swap.exists() || fs::write(swap, "0").is_ok();
            no_swap && set("memory.max", bytes) && set("memory.oom.group", 1)
        });
        (memory, set("pids.max", processes))
    }

    /// Returns whether the kernel has killed the group because it used too much memory.
    pub fn ran_out_of_memory(&self) -> bool {
        let events = read_text_proc(self.own.join("memory.events")).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.is_some_and(|count| count.trim() != "0")
    }

    /// Returns the processor time that all processes of the group have used, also those that have
    /// ended. The kernel counts it without any delegated controller.
    pub fn cpu_time(&self) -> Option<Duration> {
        let text = read_text_proc(self.own.join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(used.trim().parse().ok()?))
    }

    /// Calls `start` from inside the group, so that every process that it starts is in the group
    /// from the beginning.
    pub fn within<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        self.enter()?;
        let started = start();
        // Inside the group, this process would be killed with the tree. If it cannot leave the
        // group, runner kills the tree.
        let _ = self.leave();
        Ok(started)
    }

    /// Kills all processes in the group.
    pub fn kill(&self) {
        let _ = fs::write(self.own.join("cgroup.kill"), "1");
    }

    /// Removes the group once it is empty.
    pub fn remove(&self) {
        remove(&self.own);
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.own.join("cgroup.procs"), "0")
    }

    fn leave(&self) -> io::Result<()> {
        fs::write(self.above.join("cgroup.procs"), "0")
    }
}

/// Kills and removes all remaining groups of a run, and returns their number.
pub fn clear_marked(marker: &str) -> usize {
    if marker.is_empty() {
        return 0;
    }
    let Some((mount, _)) = mine() else {
        return 0;
    };
    let wanted = name(marker);
    let mut found = Vec::new();
    find(&mount, &wanted, 0, &mut found);
    for group in &found {
        let _ = fs::write(group.join("cgroup.kill"), "1");
        remove(group);
    }
    found.len()
}

fn find(folder: &Path, wanted: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // This matches the run's own group and the groups of its children, whose names contain `:`
        // instead of `/`.
        let rest = name.strip_prefix(wanted);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':'])) {
            found.push(entry.path());
        } else if depth < DEEPEST {
            find(&entry.path(), wanted, depth + 1, found);
        }
    }
}

fn remove(group: &Path) {
    let end = crate::time::boot_time() + PATIENCE;
    // Groups beneath this group exist only if a child was able to write in it.
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    while fs::remove_dir(group).is_err() && group.exists() {
        if crate::time::boot_time() >= end {
            return;
        }
        let members = read_text_proc(group.join("cgroup.procs")).unwrap_or_default();
        tree::wait_for_end(members.lines().filter_map(|pid| pid.parse().ok()), PATIENCE);
    }
}

fn name(marker: &str) -> String {
    let plain = marker.chars().map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
        _ => ':',
    });
    format!("{PREFIX}{}", plain.collect::<String>())
}

/// Returns the mount point of the version 2 tree and the path of this process's group in it.
fn mine() -> Option<(PathBuf, String)> {
    let own = read_text_proc("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = read_text_proc("/proc/self/mountinfo").ok()?;
    let (root, mount) = mounts.lines().find_map(cgroup2)?;
    // A tree that is mounted from a lower group shows only the groups beneath that group.
    let beneath = own.strip_prefix(root.trim_end_matches('/'))?;
    Some((mount, beneath.to_owned()))
}

/// Parses the root and mount point from a line of `mountinfo` if the line describes a version 2
/// tree.
fn cgroup2(line: &str) -> Option<(String, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    (after.split(' ').next()? == "cgroup2").then_some(())?;
    let mut fields = before.split(' ').skip(3);
    Some((fields.next()?.to_owned(), fields.next()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_mount_line_is_parsed() {
        let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2(line), Some(("/".to_owned(), "/sys/fs/cgroup/unified".into())));
        assert_eq!(cgroup2("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"), None);
        assert_eq!(cgroup2("broken"), None);
        assert_eq!(name("01ABC/2"), "runner-01ABC:2");
        assert_eq!(clear_marked(""), 0);
    }
}
