//! Lists running processes: all visible ones, or only this process and its descendants.
//!
//! Listing all processes opens a file for each process on the machine. The descendants are found
//! through the kernel's list of each thread's children, which costs nothing for other processes.
//! When a process exits, its children move to another list, so the lists are read until two
//! successive results agree. A living descendant is missing from both results only if several of
//! its ancestors exit at the wrong times.
//!
//! This module must never signal or reap a process.

use std::collections::BTreeMap;
use std::fs;

use crate::files::{read_proc, read_text_proc};

/// The listed processes, keyed by id.
pub(super) type Snapshot = BTreeMap<u32, Stat>;

/// Maximum number of times to read the lists of children. If the tree changes during every read,
/// all processes are listed instead.
const WALKS: usize = 8;

/// The fields of `/proc/PID/stat` that this crate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub pid: u32,
    pub state: u8,
    pub parent: u32,
    pub group: u32,
    /// The CPU time used by the process and by the children that it has reaped, in clock ticks.
    pub ticks: [u64; 2],
    /// The number of threads. A thread that has exited is included until it is reaped.
    pub threads: u64,
    pub start: u64,
}

impl Stat {
    /// Returns whether the process has ended. The state is that of the first thread, which may exit
    /// before the others.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

/// Reads the current state of process `pid`. Returns `None` if the process does not exist.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse(&read_proc(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns all visible processes. Processes that start or exit during the call may be missing.
pub(super) fn everything() -> Snapshot {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(stat).map(|stat| (stat.pid, stat)).collect()
}

/// Returns this process and all its descendants, including those that have exited but not been
/// reaped. Returns all visible processes if the kernel does not list children, or if the tree
/// changes during every read.
pub(super) fn own_tree() -> Snapshot {
    let mut last = None;
    for _ in 0..WALKS {
        let Some(tree) = walk(std::process::id()) else { break };
        if last.as_ref().is_some_and(|last| is_same(last, &tree)) {
            return tree;
        }
        last = Some(tree);
    }
    everything()
}

/// Returns whether no process started, exited or changed its parent between two snapshots.
fn is_same(before: &Snapshot, after: &Snapshot) -> bool {
    let key = |stat: &Stat| (stat.pid, stat.start, stat.parent, stat.is_dead());
    before.values().map(key).eq(after.values().map(key))
}

/// Reads the process `root` and its descendants once. Returns `None` if `root` does not exist or
/// its children cannot be listed.
fn walk(root: u32) -> Option<Snapshot> {
    let mut found = Snapshot::from([(root, stat(root)?)]);
    let mut next = children(root)?;
    while let Some(pid) = next.pop() {
        // The process may have exited and been reaped since its parent's list was read.
        if !found.contains_key(&pid)
            && let Some(stat) = stat(pid)
        {
            found.insert(pid, stat);
            next.extend(children(pid).unwrap_or_default());
        }
    }
    Some(found)
}

/// Returns the children of all threads of a process, or `None` if none of its threads can be read.
fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = None;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if let Ok(list) = read_text_proc(thread.path().join("children")) {
            let pids = list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
            found.get_or_insert_with(Vec::new).extend(pids);
        }
    }
    found
}

/// Parses a line of `stat`. The program's name is in parentheses and may contain any character,
/// including `)` and newlines, so fields are counted from the last `)`.
pub(super) fn parse(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(line.get(..open)?).ok()?.trim().parse().ok()?;
    let mut fields = std::str::from_utf8(line.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // In proc_pid_stat(5), field 5 is the group, fields 14 to 17 are the processor times, field 20
    // counts the threads, and field 22 is the start time.
    let mut number = |skipped: usize| fields.nth(skipped)?.parse::<u64>().ok();
    let own = number(8)? + number(0)?;
    let reaped = number(0)? + number(0)?;
    let (threads, start) = (number(2)?, number(1)?);
    Some(Stat { pid, state, parent, group, ticks: [own, reaped], threads, start })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn waiting(program: &str, args: &[&str]) -> Child {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn own_tree_contains_exactly_the_descendants() {
        let stranger = waiting("/bin/sh", &["-c", "read line"]);
        // Without this redirection, a background command would have /dev/null as its standard
        // input.
        let mut child = waiting("/bin/sh", &["-c", "exec 3<&0; cat <&3 & echo $!; wait"]);
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        let below = walk(child.id()).unwrap();
        assert_eq!(below.keys().copied().collect::<Vec<_>>(), {
            let mut both = vec![child.id(), grandchild];
            both.sort_unstable();
            both
        });
        let tree = own_tree();
        for pid in [std::process::id(), stranger.id(), child.id(), grandchild] {
            assert_eq!(tree.get(&pid).map(|stat| stat.start), stat(pid).map(|stat| stat.start));
        }
        assert!(!tree.contains_key(&1), "process 1 is not a descendant");
        for mut child in [stranger, child] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// Checks that a thread's child is found even after the thread has exited.
    #[test]
    fn children_of_other_threads_are_found() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(waiting("/bin/sh", &["-c", "read line"])).unwrap();
            let _ = wait.recv();
        });
        let mut child = receive.recv().unwrap();
        assert!(own_tree().contains_key(&child.id()));
        drop(end);
        thread.join().unwrap();
        assert!(own_tree().contains_key(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!own_tree().contains_key(&child.id()));
    }
}
