//! Reads running processes from `/proc`, and kills process trees.
//!
//! A process is identified by its number *and* its start time, because numbers are reused. A signal
//! goes through a pidfd that was opened before the start time was checked, so it can only reach the
//! intended process. This module must never signal by number alone, never signal this process or
//! its ancestors, and never treat a zombie as alive. A process whose first thread has exited
//! appears as a zombie while its other threads run, but it is still alive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::snapshot::{Snapshot, everything, own_tree};
pub(crate) use super::snapshot::{Stat, stat};
use super::spec::MARKER_VARIABLE;
use super::wait;
use crate::files::{open_host, read_proc, read_text_proc};
use crate::time::boot_time;

/// Time limit for a sweep. Processes that remain after it are reported as survivors.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of bytes to read from a process's environment. Linux limits the arguments and the
/// environment of a new program together to three quarters of this number.
const LARGEST_ENVIRONMENT: u64 = 8 * 1024 * 1024;

/// Maximum wait for a process that is executing `execve`, whose owner cannot be determined until
/// the call completes.
const EXEC_LIMIT: Duration = Duration::from_millis(100);

/// The result of killing a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// The number of processes that were killed.
    pub count: usize,
    /// The number of processes that could not be killed.
    pub survivors: usize,
}

/// Returns when process `pid` started, in clock ticks since boot. Returns `None` if the process
/// does not exist.
pub fn start_time(pid: u32) -> Option<u64> {
    stat(pid).map(|stat| stat.start)
}

/// Returns whether the process with id `pid` that started at `start_time` is still alive. A zombie
/// is not alive.
pub fn is_alive(pid: u32, start_time: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.start == start_time && !stat.is_dead())
}

/// Returns the id of the host's current boot. Process ids and start times from another boot are
/// meaningless.
pub fn boot_id() -> Option<String> {
    let text = read_text_proc("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Kills every process that carries `RUNNER_RUN=<marker>` or `RUNNER_RUN=<marker>/…`, together with
/// its descendants. This process and its ancestors are spared. Recovery calls this function after
/// the owner of a run has died.
///
/// An empty marker matches no process.
pub fn kill_marked(marker: &str) -> Killed {
    if marker.is_empty() {
        return Killed::default();
    }
    sweep(&mut BTreeSet::new(), everything, |all| {
        let seeds = all.values().filter(|stat| carries(stat.pid, marker)).map(|stat| stat.pid);
        with_descendants(all, seeds.collect())
    })
}

/// Returns whether process `pid` exists and is not dead.
pub(crate) fn is_there(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !stat.is_dead())
}

/// Returns all living descendants of this process.
pub(crate) fn descendants_alive() -> Vec<u32> {
    let all = own_tree();
    let alive = descendants(&all).into_iter();
    alive.filter(|pid| all.get(pid).is_some_and(|stat| !stat.is_dead())).collect()
}

/// Returns all descendants of this process, including those that have exited but not been reaped.
pub(crate) fn all_descendants() -> Vec<Stat> {
    let all = own_tree();
    descendants(&all).iter().filter_map(|pid| all.get(pid).copied()).collect()
}

/// The unnamed files to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnnamedFiles {
    /// Files that a process holds open.
    Open,
    /// Also files that a process only maps.
    OpenAndMapped,
}

/// Returns the unnamed files that these processes use, as paths under `/proc`, with their metadata.
/// Every thread shares the open files of its process, because the sandbox refuses to create a
/// thread that does not share them.
pub(crate) fn unnamed_files(
    pids: &[u32],
    files: UnnamedFiles,
) -> impl Iterator<Item = (PathBuf, fs::Metadata)> {
    let files = pids.iter().flat_map(move |pid| {
        let mut open = descriptors(*pid);
        if files == UnnamedFiles::OpenAndMapped {
            open.extend(entries(PathBuf::from(format!("/proc/{pid}/map_files"))));
        }
        open
    });
    files.filter_map(|file| {
        let data = fs::metadata(file.path()).ok()?;
        (data.is_file() && data.nlink() == 0).then(|| (file.path(), data))
    })
}

/// Returns the sockets that these processes hold open, by inode. The value is the number of files
/// waiting in the socket to be received, or 0 if the kernel does not report it (before Linux 5.6).
pub(crate) fn sockets(pids: &[u32]) -> BTreeMap<u64, u64> {
    let open = pids.iter().flat_map(|pid| descriptors(*pid));
    let sockets = open.filter_map(|file| {
        let path = file.path();
        let target = fs::read_link(&path).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        let data = path.parent()?.with_file_name("fdinfo").join(file.file_name());
        let waiting = read_text_proc(data).ok().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse().ok())
        });
        Some((inode, waiting.unwrap_or(0)))
    });
    sockets.collect()
}

/// Returns the links to the files that a process holds open.
fn descriptors(pid: u32) -> Vec<fs::DirEntry> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let open: Vec<_> = entries(process.join("fd")).collect();
    if !open.is_empty() {
        return open;
    }
    // The first thread of the process may have exited before the others.
    entries(process.join("task")).flat_map(|thread| entries(thread.path().join("fd"))).collect()
}

fn entries(folder: PathBuf) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Kills all descendants of this process until none is alive. This process must be a subreaper.
pub(crate) fn kill_descendants() -> Killed {
    sweep(&mut BTreeSet::new(), own_tree, descendants)
}

/// Returns how many living processes other than this process are visible. In the first process of
/// a PID namespace, these are the namespace's other processes.
pub(crate) fn others_alive() -> usize {
    let me = std::process::id();
    let all = everything();
    all.values().filter(|stat| stat.pid != me && !stat.is_dead()).count()
}

/// Waits at most `limit` for these processes to exit.
pub(crate) fn wait_for_end(pids: impl Iterator<Item = i32>, limit: Duration) {
    let handles: Vec<OwnedFd> = pids
        .filter_map(Pid::from_raw)
        .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .collect();
    wait_for_all(&handles, limit);
}

fn descendants(all: &Snapshot) -> BTreeSet<u32> {
    let me = std::process::id();
    let children = all.values().filter(|stat| stat.parent == me);
    with_descendants(all, children.map(|stat| stat.pid).collect())
}

/// Returns whether process `pid` was started for `marker`. Returns false if its environment cannot
/// be read.
pub(super) fn carries(pid: u32, marker: &str) -> bool {
    marker_of(pid).is_some_and(|found| belongs(&found, marker))
}

/// Returns whether `found` is `marker`, or `marker` followed by `/` and a name.
pub(super) fn belongs(found: &[u8], marker: &str) -> bool {
    match found.strip_prefix(marker.as_bytes()) {
        Some(rest) => !marker.is_empty() && (rest.is_empty() || rest.starts_with(b"/")),
        None => false,
    }
}

/// Returns the value of `RUNNER_RUN` that process `pid` was started with. Returns `None` if the
/// process has no such variable or its environment cannot be read.
pub(super) fn marker_of(pid: u32) -> Option<Vec<u8>> {
    let mut environ = environ(pid)?;
    let end = boot_time() + EXEC_LIMIT;
    while environ.is_empty() && has_program(pid) && boot_time() < end {
        // The check precedes the read: if the environment exists at the time of the check, the read
        // returns all of it.
        let is_there = environment_ends(pid) != Some(0);
        environ = self::environ(pid)?;
        if is_there {
            break;
        }
        std::thread::yield_now();
    }
    let mut entries = environ.split(|byte| *byte == 0);
    let value = entries
        .find_map(|entry| entry.strip_prefix(MARKER_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    Some(value.to_owned())
}

fn environ(pid: u32) -> Option<Vec<u8>> {
    let file = open_host(format!("/proc/{pid}/environ")).ok()?;
    let mut environ = Vec::new();
    file.take(LARGEST_ENVIRONMENT).read_to_end(&mut environ).ok()?;
    Some(environ)
}

/// Returns whether process `pid` has a program. Kernel threads and zombies have none.
fn has_program(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Returns the end address of the environment of process `pid`. It is 0 while an `execve` has set
/// the program but not yet the environment. During that time, the environment reads as empty, even
/// though the parent may already have been notified of the start.
fn environment_ends(pid: u32) -> Option<u64> {
    environment_end(&read_proc(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the end address of the environment, which is field 51 of proc_pid_stat(5).
fn environment_end(line: &[u8]) -> Option<u64> {
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(48)?.parse().ok()
}

/// Returns `seeds` and all their descendants. This process and its ancestors are never included,
/// not even as seeds.
pub(super) fn with_descendants(all: &Snapshot, seeds: BTreeSet<u32>) -> BTreeSet<u32> {
    let spared = ourselves_and_ancestors(all);
    let mut members: BTreeSet<u32> = seeds.difference(&spared).copied().collect();
    loop {
        let more: Vec<u32> = all
            .values()
            .filter(|stat| members.contains(&stat.parent) && !members.contains(&stat.pid))
            .filter(|stat| !spared.contains(&stat.pid))
            .map(|stat| stat.pid)
            .collect();
        if more.is_empty() {
            return members;
        }
        members.extend(more);
    }
}

/// Kills the processes that `members` selects from `list` until none of them is alive. Only
/// processes that are not in `seen` yet are counted.
pub(super) fn sweep(
    seen: &mut BTreeSet<(u32, u64)>,
    list: fn() -> Snapshot,
    members: impl Fn(&Snapshot) -> BTreeSet<u32>,
) -> Killed {
    let end = boot_time() + SWEEP_LIMIT;
    let mut count = 0;
    loop {
        let round = kill_round(seen, &list(), &members);
        count += round.fresh;
        if round.alive == 0 {
            return Killed { count, survivors: 0 };
        }
        wait_for_all(&round.dying, end.saturating_sub(boot_time()));
        if boot_time() >= end {
            return Killed { count, survivors: round.alive };
        }
    }
}

/// The result of one pass over the processes.
pub(super) struct Round {
    /// The number of selected processes that were alive when the pass began.
    pub alive: usize,
    /// The number of selected processes that were signalled for the first time.
    pub fresh: usize,
    /// Handles for waiting until the signalled processes have exited.
    pub dying: Vec<OwnedFd>,
}

/// Sends KILL once to the processes that `members` selects from `all`, without waiting.
pub(super) fn kill_round(
    seen: &mut BTreeSet<(u32, u64)>,
    all: &Snapshot,
    members: impl Fn(&Snapshot) -> BTreeSet<u32>,
) -> Round {
    let mut round = Round { alive: 0, fresh: 0, dying: Vec::new() };
    for pid in members(all) {
        let Some(stat) = all.get(&pid).filter(|stat| !stat.is_dead()) else {
            continue;
        };
        round.alive += 1;
        if let Some(handle) = kill(stat) {
            round.fresh += usize::from(seen.insert((stat.pid, stat.start)));
            round.dying.push(handle);
        }
    }
    round
}

fn kill(stat: &Stat) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(stat.pid).ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The start time is checked after the handle has been opened, because the process id may have
    // been reused since the listing.
    if start_time(stat.pid) != Some(stat.start) {
        return None;
    }
    pidfd_send_signal(&handle, Signal::KILL).ok()?;
    Some(handle)
}

fn wait_for_all(handles: &[OwnedFd], limit: Duration) {
    let end = boot_time() + limit;
    for handle in handles {
        let left = end.saturating_sub(boot_time());
        wait::poll_within(&mut [PollFd::new(handle, PollFlags::IN)], Some(left));
    }
}

fn ourselves_and_ancestors(all: &Snapshot) -> BTreeSet<u32> {
    let mut spared = BTreeSet::new();
    let mut pid = std::process::id();
    // The loop stops at a parent that is missing from the snapshot or at a process id that occurs
    // twice.
    while pid != 0 && spared.insert(pid) {
        pid = all.get(&pid).map_or(0, |stat| stat.parent);
    }
    spared
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::parse;
    use super::*;

    fn line(comm: &str) -> String {
        let rest = "S 7 8 9 34816 10 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 8192 99";
        format!("42 ({comm}) {rest}")
    }

    #[test]
    fn stat_parses_any_process_name() {
        let ticks = [11, 15];
        let (state, start) = (b'S', 123_456);
        let expected = Stat { pid: 42, state, parent: 7, group: 8, ticks, threads: 1, start };
        for comm in ["sh", "a) R 1 1 1 (b", ")))", "", "x\n1 (y"] {
            assert_eq!(parse(line(comm).as_bytes()), Some(expected), "{comm:?}");
        }
        let whole = line("sh");
        for end in 0..whole.find("123456").unwrap() {
            assert_eq!(parse(&whole.as_bytes()[..end]), None, "cut at {end}");
        }
        assert_eq!(parse(b"42 (\xff\xfe) S"), None);
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_alive() {
        let zombie = line("sh").replacen(") S ", ") Z ", 1);
        assert!(parse(zombie.as_bytes()).unwrap().is_dead());
        let others_run = zombie.replacen(" 20 0 1 0 ", " 20 0 2 0 ", 1);
        assert!(!parse(others_run.as_bytes()).unwrap().is_dead());
    }

    #[test]
    fn current_process_is_alive() {
        let me = std::process::id();
        let start = start_time(me).unwrap();
        assert!(is_alive(me, start));
        assert!(!is_alive(me, start + 1));
        assert_eq!(start_time(u32::MAX), None);
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(ourselves_and_ancestors(&everything()).contains(&me));
    }

    #[test]
    fn environment_end_reports_missing_environment() {
        let me = fs::read("/proc/self/stat").unwrap();
        assert!(environment_end(&me).unwrap() > 0);
        let me = std::process::id();
        assert!(has_program(me) && environment_ends(me) > Some(0));
        assert_eq!(environment_end(line("a) b").as_bytes()), None, "the line is truncated");
        let zeros = format!("{}{}", line("a) b"), " 0".repeat(40));
        assert_eq!(environment_end(zeros.as_bytes()), Some(0));
    }

    /// Waits until the process runs its own program. The parent may be notified of the start while
    /// the new process is still running the parent's program.
    fn wait_for_program(pid: u32) {
        let ours = fs::read_link("/proc/self/exe").unwrap();
        while fs::read_link(format!("/proc/{pid}/exe")).unwrap() == ours {
            std::thread::yield_now();
        }
    }

    /// Reads the marker of each process as soon as its program runs.
    #[test]
    fn new_process_exposes_its_marker() {
        for number in 0..300 {
            let marker = format!("test-new-process-{}-{number}", std::process::id());
            let mut child = std::process::Command::new("/bin/sh");
            child.args(["-c", "read line"]).env(MARKER_VARIABLE, &marker);
            let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
            wait_for_program(child.id());
            let found = marker_of(child.id());
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(found.as_deref(), Some(marker.as_bytes()));
        }
    }

    #[test]
    fn descendants_are_found_despite_order_and_loops() {
        // These numbers exceed the largest process id on Linux, so none of them can be this
        // process.
        const A: u32 = 5_000_000;
        let entry = |pid, parent| {
            let (state, ticks) = (b'S', [0; 2]);
            (pid, Stat { pid, state, parent, group: 1, ticks, threads: 1, start: 0 })
        };
        let all: Snapshot =
            [entry(A + 9, A + 5), entry(A + 5, A + 7), entry(A + 7, 1), entry(A + 8, A + 8)].into();
        assert_eq!(with_descendants(&all, [A + 7].into()), [A + 5, A + 7, A + 9].into());
        assert_eq!(with_descendants(&all, [A + 8].into()), [A + 8].into());
        assert_eq!(with_descendants(&all, [std::process::id()].into()), BTreeSet::new());
        assert_eq!(with_descendants(&all, BTreeSet::new()), BTreeSet::new());
    }

    #[test]
    fn an_empty_marker_matches_no_process() {
        assert!(belongs(b"run", "run") && belongs(b"run/1", "run") && belongs(b"run/1/2", "run"));
        assert!(!belongs(b"run2", "run") && !belongs(b"run", "run/1") && !belongs(b"/1", ""));
        assert_eq!(kill_marked(""), Killed::default());
        assert_eq!(kill_marked("nobody-has-this-marker"), Killed::default());
    }
}
