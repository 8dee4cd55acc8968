//! Creates a control group for the child's processes, so that they can be killed as a whole.
//!
//! The group is created beneath the launcher's own group in the cgroup v2 tree, wherever that tree
//! is mounted, even alongside a cgroup v1 tree. Its name, `runner-<marker>.<pid>`, lets recovery
//! find a run's group. If the memory and process controllers are delegated, the kernel
//! enforces the run's limits on the group. Otherwise, the group only keeps the processes together.
//! If no group can be created, the applied sandbox reports which other mechanism kills the child's
//! processes.
//!
//! A group whose controllers are enabled for its subgroups cannot contain processes. In one of
//! runner's systemd units with `Delegate=`, all of the unit's processes are therefore moved into a
//! subgroup first.
//!
//! ```text
//! runner-daemon.service        Delegate=memory pids
//! ├── launchers                runner, and the launchers
//! └── runner-<marker>.<pid>    the processes of one run
//! ```
//!
//! This module must never kill a group whose name it did not assign, or move processes out of a
//! group that is not delegated to runner.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::clone_into::{self, CloneError};
use crate::files::read_text_proc;
use crate::process::tree;

const PREFIX: &str = "runner-";
/// The subgroup of a delegated unit for the unit's own processes.
const LAUNCHERS: &str = "launchers";
/// The extended attribute that systemd uses to mark a delegated group.
const DELEGATED: &str = "user.delegate";
/// Maximum number of attempts to move all of a unit's processes. A process may start another one
/// during an attempt.
const MOVES: u32 = 20;
/// Maximum search depth for groups.
const DEEPEST: usize = 12;
/// Time limit for a killed group to become empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason why a program was not started in a control group.
#[derive(Debug)]
pub(super) enum StartError {
    /// The group cannot contain processes.
    Group,
    /// The program cannot be started.
    Program(io::Error),
}

/// A control group that this launcher created.
#[derive(Debug)]
pub(super) struct ControlGroup {
    own: PathBuf,
    /// The launcher's group.
    home: PathBuf,
}

impl ControlGroup {
    /// Creates a run's control group. Returns `None` if that is not permitted or the group cannot
    /// be killed as a whole.
    pub fn make(marker: &str) -> Option<Self> {
        let (mount, home) = mine()?;
        let (above, home) = split(mount.join(home.trim_start_matches('/')));
        remove_abandoned(&above);
        // The process id makes the name unique, because an earlier launcher with the same marker
        // may have left behind a group that is empty or contains processes of this run.
        let own = above.join(name(marker)).with_extension(std::process::id().to_string());
        fs::DirBuilder::new().mode(0o700).create(&own).ok()?;
        let group = Self { own, home };
        if group.own.join("cgroup.kill").exists() {
            return Some(group);
        }
        group.remove();
        None
    }

    /// Starts a program in the group, and returns its process id. The caller must wait for the
    /// process.
    ///
    /// # Errors
    /// Returns an error if the group cannot contain processes or the program cannot be started.
    pub fn start(&self, command: &mut Command) -> Result<u32, StartError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, &self.own, flags, Mode::empty())
            .map_err(|error| StartError::Program(error.into()))?;
        match clone_into::start(command, folder.as_fd()) {
            Ok(pid) => Ok(pid.as_raw_nonzero().get().unsigned_abs()),
            Err(CloneError::Program(error)) => Err(StartError::Program(error)),
            Err(CloneError::NotPermitted) => {
                let started = self.within(|| command.spawn()).map_err(|_| StartError::Group)?;
                started.map(|child| child.id()).map_err(StartError::Program)
            }
        }
    }

    /// Sets the group's limits where their controllers are delegated. `memory` is in bytes. Returns
    /// whether the kernel enforces the limit on memory, and whether it enforces the limit on
    /// processes.
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

    /// Returns whether the kernel has refused to start a process because of the group's process
    /// limit.
    pub fn ran_out_of_processes(&self) -> bool {
        let events = read_text_proc(self.own.join("pids.events")).unwrap_or_default();
        let refused = events.lines().find_map(|line| line.strip_prefix("max "));
        refused.is_some_and(|count| count.trim() != "0")
    }

    /// Returns the processor time used by all processes in the group, including those that have
    /// exited. The kernel counts it even without a delegated controller. Returns `None` if it
    /// cannot be read.
    pub fn cpu_time(&self) -> Option<Duration> {
        let text = read_text_proc(self.own.join("cpu.stat")).ok()?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(used.trim().parse().ok()?))
    }

    /// Calls `start` from inside the group, so that every process that it starts is in the group
    /// from the beginning.
    pub fn within<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        self.enter().inspect_err(|_| {
            let _ = self.leave();
        })?;
        let started = start();
        // Inside the group, this process would be killed with the tree. If it cannot leave the
        // group, runner kills the tree.
        let _ = self.leave();
        Ok(started)
    }

    pub fn kill(&self) {
        let _ = fs::write(self.own.join("cgroup.kill"), "1");
    }

    /// Removes the group once it is empty. Gives up if it is not empty after [`PATIENCE`].
    pub fn remove(&self) {
        remove(&self.own);
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.own.join("cgroup.procs"), "0")
    }

    fn leave(&self) -> io::Result<()> {
        fs::write(self.home.join("cgroup.procs"), "0")
    }
}

/// Kills and removes all remaining groups of a run, and returns how many there were.
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

/// Returns the group that contains the runs' groups, and the group of this process. If this
/// process's unit is delegated to runner, moves the unit's processes first.
fn split(home: PathBuf) -> (PathBuf, PathBuf) {
    let is = |path: &Path, name: &str| path.file_name().is_some_and(|it| it == name);
    let above = match home.parent() {
        Some(unit) if is(&home, LAUNCHERS) && is_of_runner(unit) => return (unit.to_owned(), home),
        _ => home,
    };
    let mut value = [0; 8];
    let delegated =
        is_of_runner(&above) && rustix::fs::getxattr(&above, DELEGATED, &mut value[..]).is_ok();
    if delegated && share_controllers(&above) {
        let home = above.join(LAUNCHERS);
        return (above, home);
    }
    (above.clone(), above)
}

/// Returns whether a group has the name of a systemd service that `runner setup` installs.
fn is_of_runner(unit: &Path) -> bool {
    let name = unit.file_name().and_then(std::ffi::OsStr::to_str);
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(".service"))
}

/// Moves a unit's processes into a subgroup, and enables the unit's controllers for the runs'
/// groups. Returns whether both steps succeeded.
fn share_controllers(unit: &Path) -> bool {
    let available = read_text_proc(unit.join("cgroup.controllers")).unwrap_or_default();
    let wanted: Vec<String> = available
        .split_whitespace()
        .filter(|name| ["memory", "pids"].contains(name))
        .map(|name| format!("+{name}"))
        .collect();
    let launchers = unit.join(LAUNCHERS);
    let made = fs::DirBuilder::new().mode(0o700).create(&launchers);
    if wanted.is_empty() || made.is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
        return false;
    }
    (0..MOVES).any(|_| {
        let members = read_text_proc(unit.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            // This fails for a process that has exited, which need not be moved.
            let _ = fs::write(launchers.join("cgroup.procs"), pid);
        }
        // The kernel refuses this while the unit's own group contains a process.
        fs::write(unit.join("cgroup.subtree_control"), wanted.join(" ")).is_ok()
    })
}

/// Removes the empty sibling groups whose launchers no longer exist. A launcher that is killed
/// together with runner leaves its group behind.
fn remove_abandoned(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let launcher = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('.')?.1.parse().ok());
        if launcher.is_some_and(|pid| !tree::is_there(pid)) {
            // The kernel refuses to remove a group that contains a process.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn remove(group: &Path) {
    let end = crate::time::boot_time() + PATIENCE;
    // Groups beneath this group exist only if a child was able to write to this group.
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

/// Returns the mount point of the cgroup v2 tree and the path of this process's group in it.
fn mine() -> Option<(PathBuf, String)> {
    let own = read_text_proc("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = read_text_proc("/proc/self/mountinfo").ok()?;
    let (root, mount) = mounts.lines().find_map(cgroup2)?;
    // A mount whose root is a lower group shows only that group and the groups beneath it.
    let beneath = own.strip_prefix(root.trim_end_matches('/'))?;
    Some((mount, beneath.to_owned()))
}

/// Parses the root and mount point from a line of `mountinfo` if the line describes a cgroup v2
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
    fn only_abandoned_groups_are_removed() {
        let above = tempfile::tempdir().unwrap();
        // The number 5000001 exceeds the largest process id on Linux.
        let kept = [
            "runner-used.5000001/member".to_owned(),
            format!("runner-alive.{}", std::process::id()),
            "runner-notes".to_owned(),
            "other.5000001".to_owned(),
        ];
        for name in kept.iter().map(String::as_str).chain(["runner-left:2.5000001"]) {
            fs::create_dir_all(above.path().join(name)).unwrap();
        }
        remove_abandoned(above.path());
        for name in &kept {
            assert!(above.path().join(name).exists(), "{name}");
        }
        assert!(!above.path().join("runner-left:2.5000001").exists());
    }

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
