//! Samples the memory, tasks and processor time of a process tree.
//!
//! Memory and tasks are sampled where no control group limits them. Where a control group limits
//! the tasks, the monitor checks whether the kernel has refused to start one. The run then ends in
//! the same way as when a sample exceeds a limit. The cost of a sample is proportional to the
//! number of processes. Sampling is therefore limited to a tenth of the time, except when a sample
//! must be confirmed. Between two samples, a tree can exceed its limits unnoticed. The report
//! contains the value of the sample that ended the run. Memory that several processes share is
//! counted once if the kernel reports each process's share. Unnamed in-memory files that a process
//! has open or mapped are counted as well, and memory in sockets is estimated.
//!
//! The control group counts processor time exactly, even without delegated controllers. Without a
//! group, the time that a process used between its last sample and its exit is not counted if its
//! parent ignores the exit.
//!
//! This module must never signal a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::fs::statfs;
use rustix::param::clock_ticks_per_second;

use super::cgroup::ControlGroup;
use crate::files::read_text_proc;
use crate::process::tree::{self, Stat, UnnamedFiles};
use crate::sandbox::{Overuse, ResourceLimits};
use crate::time::boot_time;

/// Usual time between two samples.
const EVERY: Duration = Duration::from_millis(250);
/// Delay before the sample that confirms that the memory limit is exceeded.
const CONFIRM: Duration = Duration::from_millis(20);
/// One in this many samples also counts in-memory files that processes map but do not hold open. So
/// does every sample that confirms an exceeded memory limit.
const MAPPED: u32 = 8;
/// Sampling takes at most `1 / SHARE` of the time, except when a sample must be confirmed.
const SHARE: u32 = 10;
/// The number of sockets whose buffers are not counted. Few programs have more.
const FREE_SOCKETS: u64 = 64;
/// Time after which files waiting in a socket are counted. A receiver usually takes them at once.
const WAITING: Duration = Duration::from_secs(1);
/// The maximum total size of a socket's two buffers that Linux allows by default, in bytes. A
/// larger setting on the host is ignored, because few programs use it.
const SOCKET_BUFFERS: u64 = 2 * 212_992;
/// The type that `statfs` reports for in-memory files.
const TMPFS: i64 = 0x0102_1994;

/// Watches the descendants of this process.
#[derive(Debug)]
pub(super) struct TreeMonitor {
    memory: Option<u64>,
    tasks: Option<u64>,
    cpu_time: Option<Duration>,
    /// The task limit, if the kernel enforces it.
    refused: Option<u64>,
    counted: CountedTime,
    in_sockets: InSockets,
    /// Whether the last sample exceeded the memory limit.
    suspect: bool,
    /// The number of samples.
    turn: u32,
    next: Duration,
}

/// The processor time of a tree without a control group, in clock ticks.
#[derive(Debug, Default)]
struct CountedTime {
    /// The processor time of each process that still exists, by process id and start time.
    now: BTreeMap<(u32, u64), u64>,
    /// The sum of the last observed times of processes that no longer exist.
    gone: u64,
    /// The largest observed sum of the processes' own times and the times of the children that they
    /// have reaped.
    reaped: u64,
}

/// An estimate of the memory that a tree uses in sockets, which the kernel does not report.
#[derive(Debug)]
struct InSockets {
    /// The machine's shared memory when the monitor was created, in bytes.
    before: u64,
    /// The time at which files began to wait in the tree's sockets.
    waiting: Option<Duration>,
}

impl InSockets {
    fn new() -> Self {
        Self { before: meminfo("Shmem:"), waiting: None }
    }

    /// Returns an estimate of the memory in these sockets. For each socket beyond the first
    /// [`FREE_SOCKETS`], the estimate includes full buffers. If files have been waiting in the
    /// sockets for at least [`WAITING`], the estimate includes the growth of the machine's shared
    /// memory that no process in the tree accounts for. `shared` returns the machine's shared
    /// memory without the part that the tree's processes account for.
    fn memory(
        &mut self,
        sockets: &BTreeMap<u64, u64>,
        now: Duration,
        shared: impl FnOnce() -> u64,
    ) -> u64 {
        let count = u64::try_from(sockets.len()).unwrap_or(u64::MAX);
        let buffers = count.saturating_sub(FREE_SOCKETS).saturating_mul(SOCKET_BUFFERS);
        if sockets.values().all(|files| *files == 0) {
            self.waiting = None;
            return buffers;
        }
        let since = *self.waiting.get_or_insert(now);
        match now.saturating_sub(since) >= WAITING {
            true => buffers.saturating_add(shared().saturating_sub(self.before)),
            false => buffers,
        }
    }
}

impl TreeMonitor {
    /// Creates a monitor for the limits on memory, tasks and processor time in `caps`. Without a
    /// memory limit in `caps`, the limit is three quarters of the machine's memory.
    pub fn new(caps: &ResourceLimits) -> Self {
        Self {
            memory: caps.memory.or_else(default_memory),
            tasks: Some(caps.processes),
            cpu_time: caps.cpu_time,
            refused: None,
            counted: CountedTime::default(),
            in_sockets: InSockets::new(),
            suspect: false,
            turn: 0,
            next: boot_time(),
        }
    }

    /// Returns the memory limit in bytes, or `None` if the monitor does not enforce one.
    pub fn memory(&self) -> Option<u64> {
        self.memory
    }

    /// Leaves the memory limit to the kernel if `memory` is true, and the task limit if `tasks` is
    /// true.
    pub fn leave(&mut self, (memory, tasks): (bool, bool)) {
        self.memory = self.memory.filter(|_| !memory);
        if tasks {
            self.refused = self.tasks.take();
        }
    }

    /// Returns how long to wait for the next sample, or `None` if there is nothing to sample.
    pub fn wait(&self) -> Option<Duration> {
        let counts = self.memory.is_some() || self.cpu_time.is_some();
        (counts || self.tasks.or(self.refused).is_some())
            .then(|| self.next.saturating_sub(boot_time()))
    }

    /// Takes a sample if it is due, and returns the limit that the tree exceeds, if any.
    pub fn sample(&mut self, group: Option<&ControlGroup>) -> Option<Overuse> {
        let begun = boot_time();
        if begun < self.next {
            return None;
        }
        let found = self.refused_task(group).or_else(|| {
            let counts = self.memory.is_some() || self.tasks.is_some() || self.cpu_time.is_some();
            let tree = if counts { tree::all_descendants() } else { Vec::new() };
            self.compare(&tree).or_else(|| self.sample_time(group, &tree))
        });
        let now = boot_time();
        self.turn = self.turn.wrapping_add(1);
        self.next = now
            + match self.suspect {
                true => CONFIRM,
                false => EVERY.max(now.saturating_sub(begun) * SHARE),
            };
        found
    }

    /// Returns the task limit if the kernel has refused to start a task beyond it.
    pub fn refused_task(&self, group: Option<&ControlGroup>) -> Option<Overuse> {
        let limit = self.refused?;
        group?.ran_out_of_processes().then_some(Overuse::Processes { limit, seen: limit })
    }

    /// Returns the processor time limit if the tree exceeds it.
    pub fn sample_time(&mut self, group: Option<&ControlGroup>, tree: &[Stat]) -> Option<Overuse> {
        let limit = self.cpu_time?;
        let exact = group.and_then(ControlGroup::cpu_time);
        let seen = exact.unwrap_or_else(|| {
            let launcher = tree::stat(std::process::id()).map_or(0, |own| own.ticks[1]);
            self.counted.count(tree, launcher)
        });
        (seen > limit).then_some(Overuse::CpuTime { limit, seen })
    }

    fn compare(&mut self, tree: &[Stat]) -> Option<Overuse> {
        let tasks = tree.iter().map(|process| process.threads.max(1)).sum();
        if let Some(limit) = self.tasks.filter(|limit| tasks > *limit) {
            return Some(Overuse::Processes { limit, seen: tasks });
        }
        let limit = self.memory?;
        let alive = tree.iter().filter(|process| !process.is_dead());
        let pids: Vec<u32> = alive.map(|process| process.pid).collect();
        let files = match self.suspect || self.turn.is_multiple_of(MAPPED) {
            true => UnnamedFiles::OpenAndMapped,
            false => UnnamedFiles::Open,
        };
        let hidden = self.in_sockets.memory(&tree::sockets(&pids), boot_time(), || {
            meminfo("Shmem:").saturating_sub(in_memory_files(&pids, files))
        });
        // This sum counts shared memory once for each process.
        let most = memory(&pids, files) + hidden;
        let seen = if most > limit { most.min(proportional(&pids, files) + hidden) } else { most };
        let confirmed = std::mem::replace(&mut self.suspect, seen > limit);
        // A single sample can be too high: until a new process executes its program, it shares its
        // parent's memory, which is counted for both.
        (confirmed && seen > limit).then_some(Overuse::Memory { limit, seen })
    }
}

impl CountedTime {
    /// Adds a sample, and returns the least time that the tree can have used.
    ///
    /// `launcher` is the time, in clock ticks, of the children that the launcher has reaped because
    /// their parents had exited.
    fn count(&mut self, tree: &[Stat], launcher: u64) -> Duration {
        let now = tree.iter().map(|process| ((process.pid, process.start), process.ticks[0]));
        let before = std::mem::replace(&mut self.now, now.collect());
        self.gone +=
            before.iter().filter(|it| !self.now.contains_key(it.0)).map(|it| it.1).sum::<u64>();
        let own: u64 = self.now.values().sum();
        let reaped =
            launcher + tree.iter().map(|process| process.ticks.iter().sum::<u64>()).sum::<u64>();
        self.reaped = self.reaped.max(reaped);
        let ticks = (self.gone + own).max(self.reaped);
        Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1))
    }
}

/// Returns three quarters of the machine's memory in bytes, or `None` if its size is unknown.
fn default_memory() -> Option<u64> {
    Some(meminfo("MemTotal:") / 4 * 3).filter(|bytes| *bytes > 0)
}

/// Returns the value `name` from `/proc/meminfo` in bytes, or 0 if it is unknown.
fn meminfo(name: &str) -> u64 {
    read_text_proc("/proc/meminfo").ok().and_then(|text| field(&text, name)).unwrap_or(0)
}

/// Returns the value of a line such as `RssAnon:  1234 kB` in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct MappedMemory {
    anonymous: u64,
    shared: u64,
}

/// Returns the memory that a process maps. A process whose first thread has exited reports its
/// memory only through its other threads.
fn mapped(pid: u32) -> MappedMemory {
    let read = |path: String| {
        let text = read_text_proc(path).ok()?;
        let anonymous = field(&text, "RssAnon:")? + field(&text, "VmSwap:").unwrap_or(0);
        Some(MappedMemory { anonymous, shared: field(&text, "RssShmem:").unwrap_or(0) })
    };
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    read(format!("/proc/{pid}/status"))
        .or_else(|| {
            threads().find_map(|thread| read(format!("{}/status", thread.path().display())))
        })
        .unwrap_or_default()
}

/// Returns the total memory of the processes in bytes. Memory that several of them share is counted
/// several times.
fn memory(pids: &[u32], files: UnnamedFiles) -> u64 {
    let all = pids.iter().map(|pid| mapped(*pid));
    let (own, shared) = all.fold((0, 0), |sum, it| (sum.0 + it.anonymous, sum.1 + it.shared));
    // A mapped in-memory file may also be open, so only the larger sum is added.
    own + shared.max(in_memory_files(pids, files))
}

/// Returns the total memory of the processes in bytes. Memory that several processes share is
/// divided among them. If the share of a process cannot be read, everything that the process maps
/// is counted.
fn proportional(pids: &[u32], files: UnnamedFiles) -> u64 {
    let (mut own, mut shared) = (0, 0);
    for pid in pids {
        if let Ok(text) = read_text_proc(format!("/proc/{pid}/smaps_rollup"))
            && let Some(anonymous) = field(&text, "Pss_Anon:")
        {
            own += anonymous + field(&text, "SwapPss:").unwrap_or(0);
            shared += field(&text, "Pss_Shmem:").unwrap_or(0);
        } else {
            let all = mapped(*pid);
            own += all.anonymous;
            shared += all.shared;
        }
    }
    own + shared.max(in_memory_files(pids, files))
}

/// Returns the total size in bytes of the unnamed in-memory files that these processes use.
fn in_memory_files(pids: &[u32], files: UnnamedFiles) -> u64 {
    let mut seen = BTreeSet::new();
    let mut sum = 0;
    for (path, data) in tree::unnamed_files(pids, files) {
        if seen.insert((data.dev(), data.ino()))
            && statfs(&path).is_ok_and(|system| system.f_type == TMPFS)
        {
            sum += data.blocks() * 512;
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
        let before = memory(&pids, UnnamedFiles::Open);
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = fs::File::from(file);
        file.write_all(&vec![1; 64 << 20]).unwrap();
        let after = memory(&pids, UnnamedFiles::Open);
        assert!(after >= before + (60 << 20), "{before} {after}");
        let caps = ResourceLimits { memory: Some(60 << 20), ..ResourceLimits::default() };
        let mut monitor = TreeMonitor::new(&caps);
        let this = [tree::stat(std::process::id()).unwrap()];
        assert_eq!(monitor.compare(&this), None, "the first sample is not confirmed");
        assert!(
            matches!(monitor.compare(&this), Some(Overuse::Memory { seen, .. }) if seen > 60 << 20)
        );
    }

    #[test]
    fn memory_in_sockets_is_estimated() {
        let mut counted = InSockets { before: 1000, waiting: None };
        let sockets = |count: u64, files| (0..count).map(|inode| (inode, files)).collect();
        let at = Duration::from_millis;
        assert_eq!(counted.memory(&sockets(64, 0), at(0), || 9000), 0);
        assert_eq!(counted.memory(&sockets(70, 0), at(0), || 9000), 6 * SOCKET_BUFFERS);
        assert_eq!(counted.memory(&sockets(2, 1), at(100), || 9000), 0, "the file may be received");
        assert_eq!(counted.memory(&sockets(2, 1), at(1099), || 9000), 0);
        assert_eq!(counted.memory(&sockets(2, 1), at(1100), || 9000), 8000);
        assert_eq!(counted.memory(&sockets(2, 1), at(1100), || 900), 0);
        assert_eq!(counted.memory(&sockets(2, 0), at(1200), || 9000), 0, "the file was received");
        assert_eq!(counted.memory(&sockets(2, 1), at(1300), || 9000), 0);
    }

    #[test]
    fn files_waiting_in_sockets_are_found() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let inode =
            |socket: &std::os::unix::net::UnixStream| rustix::fs::fstat(socket).unwrap().st_ino;
        let seen = || tree::sockets(&[std::process::id()]);
        assert_eq!(seen().get(&inode(&theirs)), Some(&0));
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let files = [std::os::fd::AsFd::as_fd(&file)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        assert!(message.push(SendAncillaryMessage::ScmRights(&files)));
        let text = [std::io::IoSlice::new(b"x")];
        sendmsg(&ours, &text, &mut message, SendFlags::empty()).unwrap();
        assert_eq!(seen().get(&inode(&theirs)), Some(&1));
        assert_eq!(seen().get(&inode(&ours)), Some(&0));
    }

    #[test]
    fn time_of_ended_processes_is_kept() {
        let process = |pid, ticks| Stat {
            pid,
            state: b'S',
            parent: 1,
            group: 1,
            ticks,
            threads: 1,
            start: 0,
        };
        // These numbers exceed the largest process id on Linux.
        let (a, b) = (5_000_001, 5_000_002);
        let mut counted = CountedTime::default();
        let tick = Duration::from_millis(1000 / clock_ticks_per_second());
        assert_eq!(counted.count(&[process(a, [100, 0]), process(b, [50, 0])], 0), tick * 150);
        // `b` has exited, and its parent ignores the exit.
        assert_eq!(counted.count(&[process(a, [120, 0])], 0), tick * 170);
        // `a` has reaped children that do not appear in any sample.
        assert_eq!(counted.count(&[process(a, [120, 400])], 0), tick * 520);
        assert_eq!(counted.count(&[], 0), tick * 520);
    }

    #[test]
    fn fields_of_proc_are_parsed() {
        assert_eq!(field("A:\t 1 kB\nRssAnon:\t  12 kB\n", "RssAnon:"), Some(12 * 1024));
        assert_eq!(field("RssAnon: 12\n", "RssAnon:"), None);
        assert!(default_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
