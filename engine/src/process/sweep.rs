//! Owns a direct child and ensures that its whole process tree exits.
//!
//! ```text
//! spawned ──kill_all──> (again) ──reap──> swept and reaped
//!    └───────────── dropped ────────────────^
//! ```
//!
//! The processes of a tree are found in four ways: by the child's process group, by descent from
//! the child, by the marker in their environment, and by adoption. A process that loses its parent
//! is adopted by this subreaper. The child itself remains a zombie until the group is dead, so that
//! its process id cannot identify another group.
//!
//! This module must never reap a child that another part of this process is waiting for. It reaps
//! only registered children and adopted processes outside this process's own group. A process that
//! uses this module must therefore not start process groups in any other way while a child is
//! running.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::sync::{Mutex, MutexGuard};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, set_child_subreaper, waitid,
};

use super::snapshot::{Snapshot, everything, own_tree};
use super::supervisor::ExitStatus;
use super::tree::{self, Killed, Round, Stat};

/// The direct children watched by runs in this process, with their markers. The lock is held during
/// each spawn and each reap, so that every existing child is registered.
static CHILDREN: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());

fn children() -> MutexGuard<'static, BTreeMap<u32, String>> {
    CHILDREN.lock().expect("no thread panics while it holds the list of children")
}

/// The processes that may belong to a child's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeExtent {
    /// Any process on the machine, because the child may have asked a service to start a process
    /// with the child's marker.
    Any,
    /// Only descendants of this process.
    Descendants,
    /// Only the child: the kernel prevents it from starting processes, so the tree ends with it.
    ChildOnly,
}

impl TreeExtent {
    /// Lists the processes that may belong to the tree.
    fn list(self) -> Snapshot {
        match self {
            Self::Any => everything(),
            Self::Descendants | Self::ChildOnly => own_tree(),
        }
    }
}

/// A running child with its process tree. Dropping it kills the whole tree.
#[derive(Debug)]
pub(super) struct Owned {
    child: Child,
    pid: Pid,
    marker: String,
    /// The child's start time. An older process cannot belong to the child's tree.
    since: u64,
    seen: BTreeSet<(u32, u64)>,
    killed: usize,
    finished: bool,
    extent: TreeExtent,
}

impl Owned {
    /// Starts a child with `spawn`, which must put the child into a new process group.
    pub fn start(
        marker: &str,
        extent: TreeExtent,
        spawn: impl FnOnce() -> std::io::Result<Child>,
    ) -> std::io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let mut children = children();
        let child = spawn()?;
        children.insert(child.id(), marker.to_owned());
        drop(children);
        let pid = Pid::from_child(&child);
        // The process exists at least as a zombie, because only this process can reap it.
        let since = tree::start_time(child.id()).unwrap_or(0);
        Ok(Self {
            child,
            pid,
            marker: marker.to_owned(),
            since,
            seen: BTreeSet::new(),
            killed: 0,
            finished: false,
            extent,
        })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns how the child ended, or `None` if it is still running. The child is not reaped.
    pub fn status(&self) -> std::io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.pid), options)?;
        Ok(status.and_then(|status| match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(ExitStatus::Exit(code)),
            (None, Some(signal)) => Some(ExitStatus::Signal(signal)),
            (None, None) => None,
        }))
    }

    /// Sends TERM to the child's process group.
    pub fn terminate(&self) {
        // An empty process group is not an error.
        let _ = kill_process_group(self.pid, Signal::TERM);
    }

    /// Kills all processes of the tree that are visible now, including the child. Does not wait for
    /// them to exit.
    pub fn kill_all(&mut self) {
        self.kill_listed();
    }

    fn kill_listed(&mut self) -> Round {
        let members = members(self.child.id(), &self.marker, self.since);
        let round = tree::kill_round(&mut self.seen, &self.extent.list(), members);
        // The signal reaches the whole group at once, including a process that is just being forked
        // and is not in any list.
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.killed += round.fresh;
        round
    }

    /// Excludes processes that do not descend from this process. The caller must be certain that
    /// the sandbox prevented the child from asking another program to start a process, and that the
    /// launcher has reported the end of the tree.
    pub fn exclude_others(&mut self) {
        if self.extent == TreeExtent::Any {
            self.extent = TreeExtent::Descendants;
        }
    }

    /// Kills and reaps the remaining processes, and returns how many besides the child had to be
    /// killed.
    pub fn kill_rest(mut self) -> Killed {
        self.kill_now()
    }

    fn kill_now(&mut self) -> Killed {
        self.finished = true;
        let pid = self.child.id();
        if self.extent == TreeExtent::ChildOnly && matches!(self.status(), Ok(Some(_))) {
            let mut children = children();
            let _ = self.child.wait();
            children.remove(&pid);
            return Killed { count: 0, survivors: 0 };
        }
        // If a listing of all processes contained none to kill, the sweep lists only this process's
        // descendants.
        let list = match (self.kill_listed().alive, self.extent) {
            (1.., TreeExtent::Any) => everything,
            _ => own_tree,
        };
        let swept = tree::sweep(&mut self.seen, list, members(pid, &self.marker, self.since));
        let child_killed = usize::from(self.seen.contains(&(pid, self.since)));
        let ended = matches!(self.status(), Ok(Some(_)) | Err(_));
        let mut children = children();
        if ended {
            // The child is dead, so this call does not block. It fails only if other code has
            // already reaped the child.
            let _ = self.child.wait();
        }
        children.remove(&pid);
        reap_adopted(&children);
        Killed {
            count: (self.killed + swept.count).saturating_sub(child_killed),
            survivors: swept.survivors,
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.finished {
            self.kill_now();
        }
    }
}

/// Returns a function that selects the processes in the tree of `child`.
fn members<'a>(
    child: u32,
    marker: &'a str,
    since: u64,
) -> impl Fn(&Snapshot) -> BTreeSet<u32> + 'a {
    move |all| {
        let mut others = children().clone();
        others.remove(&child);
        let here = ProcessScope { me: std::process::id(), group: own_group(), others };
        let seeds = all.values().filter(|stat| {
            stat.pid == child
                || stat.group == child
                || match here.whose(tree::marker_of(stat.pid), marker) {
                    ProcessOwnership::Ours => true,
                    ProcessOwnership::Anothers => false,
                    ProcessOwnership::Unknown => here.adopted_since(stat, since),
                }
        });
        tree::with_descendants(all, seeds.map(|stat| stat.pid).collect())
    }
}

/// The data used to distinguish an adopted process from a child that another part of this process
/// is waiting for.
struct ProcessScope {
    me: u32,
    group: u32,
    others: BTreeMap<u32, String>,
}

#[derive(Debug, PartialEq, Eq)]
enum ProcessOwnership {
    Ours,
    Anothers,
    Unknown,
}

impl ProcessScope {
    /// Determines whether a process with the marker `found` belongs to the child with the marker
    /// `ours`. A process belongs to the child with the longest matching marker. A process that
    /// matches two children equally is left to the child that exits last.
    fn whose(&self, found: Option<Vec<u8>>, ours: &str) -> ProcessOwnership {
        let Some(found) = found else {
            return ProcessOwnership::Unknown;
        };
        let others = self.others.values().filter(|other| tree::belongs(&found, other));
        match (tree::belongs(&found, ours), others.map(String::len).max()) {
            (true, None) => ProcessOwnership::Ours,
            (true, Some(closest)) if closest < ours.len() => ProcessOwnership::Ours,
            (_, Some(_)) => ProcessOwnership::Anothers,
            (false, None) => ProcessOwnership::Unknown,
        }
    }

    /// Returns whether a process without a known marker is treated as adopted from this child. A
    /// child may clear its environment or start another runner, in which case nothing indicates
    /// which child the orphan belongs to. While other children run here, the orphan is therefore
    /// left to the child that exits last.
    fn adopted_since(&self, stat: &Stat, since: u64) -> bool {
        self.others.is_empty() && self.is_adopted(stat) && stat.start >= since
    }

    fn is_adopted(&self, stat: &Stat) -> bool {
        stat.parent == self.me && stat.group != self.group && !self.others.contains_key(&stat.pid)
    }
}

fn reap_adopted(children: &BTreeMap<u32, String>) {
    let here =
        ProcessScope { me: std::process::id(), group: own_group(), others: children.clone() };
    for stat in own_tree().values() {
        if stat.is_dead() && here.is_adopted(stat) {
            let pid = i32::try_from(stat.pid).ok().and_then(Pid::from_raw);
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            // Another thread may already have reaped it.
            let _ = pid.map(|pid| waitid(WaitId::Pid(pid), options));
        }
    }
}

/// Returns this process's group, or 0 if the group was created outside this PID namespace. In that
/// case, the kernel also reports 0 for every other process of the group.
fn own_group() -> u32 {
    // `getpgrp` cannot represent a group id that is not visible here.
    tree::stat(std::process::id()).map_or(0, |stat| stat.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orphans_are_adopted() {
        let here = ProcessScope { me: 10, group: 10, others: [(20, "other".to_owned())].into() };
        let stat = |pid, parent, group| {
            let (state, ticks) = (b'S', [0; 2]);
            Stat { pid, state, parent, group, ticks, threads: 1, start: 5 }
        };
        assert!(here.is_adopted(&stat(30, 10, 30)));
        assert!(!here.is_adopted(&stat(20, 10, 20)), "another run's child is not adopted");
        assert!(!here.is_adopted(&stat(31, 10, 10)), "a child in this group is not adopted");
        assert!(!here.is_adopted(&stat(32, 11, 32)), "another process's child is not adopted");
        assert!(!here.adopted_since(&stat(30, 10, 30), 5), "another run is still active");
        let alone = ProcessScope { others: BTreeMap::new(), ..here };
        assert!(alone.adopted_since(&stat(30, 10, 30), 5));
        assert!(!alone.adopted_since(&stat(30, 10, 30), 6), "the process is older than the child");
    }
    #[test]
    fn marker_belongs_to_the_most_specific_child() {
        let others = [(20, "run/2".to_owned()), (21, "run".to_owned())].into();
        let here = ProcessScope { me: 10, group: 10, others };
        let whose = |found: &str, ours| here.whose(Some(found.as_bytes().to_vec()), ours);
        assert_eq!(whose("run/1", "run/1"), ProcessOwnership::Ours);
        assert_eq!(whose("run/1/x", "run/1"), ProcessOwnership::Ours);
        assert_eq!(whose("run/2", "run/1"), ProcessOwnership::Anothers);
        assert_eq!(whose("run", "run/1"), ProcessOwnership::Anothers);
        assert_eq!(
            whose("run", "run"),
            ProcessOwnership::Anothers,
            "two children share the marker"
        );
        assert_eq!(whose("nested", "run/1"), ProcessOwnership::Unknown);
        assert_eq!(here.whose(None, "run/1"), ProcessOwnership::Unknown);
    }
}
