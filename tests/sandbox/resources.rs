//! Tests the limits on memory, processes, processor time and disk space, each with many ways around
//! it.
//!
//! A way that the sandbox refuses prints `refused`. A way that gets around its limit exits without
//! a reported overuse, and prints `through` unless it uses disk space. The tests print how many
//! ways ended in each manner and, except for disk space, the largest observed use of the limit.

use std::fs;
use std::path::Path;
use std::time::Duration;

use runner_engine::process::{Cancel, Ended, OutputVerdict, Reason, run};
use runner_engine::sandbox::{
    FolderQuota, LimitControl, Overuse, ResourceLimits, Sandbox, SandboxMechanism,
};

use super::ways::{CPU_WAYS, DISK_WAYS, MEMORY_WAYS, NOT_SAMPLED, PROCESS_WAYS, Way};
use super::{means, shell};

/// The limit on memory, in bytes.
const MEMORY: u64 = 200 << 20;
/// The limit on processes.
const PROCESSES: u64 = 60;
/// The limit on processor time.
const CPU_TIME: Duration = Duration::from_secs(1);

/// The results of all ways around a limit with one kind of sandbox.
#[derive(Default)]
struct Results {
    cgroup: usize,
    sampled: usize,
    refused: usize,
    not_sampled: usize,
    /// The largest observed use, in percent of the limit.
    most: u64,
    through: Vec<String>,
}

impl Results {
    fn add(&mut self, name: &str, ended: &Ended, use_of_limit: impl Fn(Overuse) -> Option<u64>) {
        assert_eq!(ended.survivors, 0, "{name}");
        let text = String::from_utf8_lossy(&ended.stdout);
        match ended.reason {
            Reason::Overuse(over) => {
                let percent = use_of_limit(over).unwrap_or_else(|| panic!("{name}: {over:?}"));
                self.most = self.most.max(percent);
                let limits = &ended.containment.as_ref().unwrap().limits;
                assert_eq!(limits.len(), 1, "{name}: {limits:?}");
                match limits[0].by {
                    LimitControl::Cgroup => self.cgroup += 1,
                    LimitControl::Sampled => self.sampled += 1,
                }
            }
            Reason::Quota => self.sampled += 1,
            Reason::Exited if text.contains("refused") && !text.contains("through") => {
                self.refused += 1;
            }
            Reason::Exited if NOT_SAMPLED.contains(&name) => self.not_sampled += 1,
            reason => self.through.push(format!("{name}: {reason:?}, {:?}, {text}", ended.status)),
        }
    }

    fn check(&self, limit: &str, means: SandboxMechanism) {
        println!(
            "{limit}, {means:?}: {} ended by the kernel, {} sampled and ended, {} refused, {} not seen; at most {} % of the limit",
            self.cgroup, self.sampled, self.refused, self.not_sampled, self.most
        );
        assert!(self.through.is_empty(), "{limit}, {means:?}: {:#?}", self.through);
    }
}

fn end(script: &str, cwd: &Path, sandbox: Sandbox) -> Ended {
    let mut spec = shell(script, cwd, sandbox);
    spec.limits.term_to_kill = Duration::from_millis(200);
    spec.env.insert("Q".to_owned(), cwd.display().to_string());
    run(&spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue).unwrap()
}

/// Runs every way in a writable folder with these limits.
fn end_each(
    ways: &[Way],
    means: SandboxMechanism,
    caps: &ResourceLimits,
    use_of_limit: impl Fn(Overuse) -> Option<u64>,
) -> Results {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    let mut results = Results::default();
    for (name, script) in ways {
        let sandbox =
            Sandbox { means, caps: caps.clone(), write: vec![root.clone()], ..Sandbox::default() };
        results.add(name, &end(script, &root, sandbox), &use_of_limit);
    }
    results
}

#[test]
fn memory_beyond_the_limit_ends_the_tree() {
    let caps = ResourceLimits { memory: Some(MEMORY), ..ResourceLimits::default() };
    for means in means() {
        let results = end_each(MEMORY_WAYS, means, &caps, |over| match over {
            Overuse::Memory { limit: MEMORY, seen } => Some(100 * seen / MEMORY),
            _ => None,
        });
        results.check("memory", means);
        // Memory that several processes share is counted only once.
        let shared = "perl -e '$x = \"a\" x (60 << 20); for (1..4) { fork or do { sleep 1; exit } } 1 while wait > 0; print \"done\"'";
        let caps = caps.clone();
        let ended =
            end(shared, Path::new("/var/tmp"), Sandbox { means, caps, ..Sandbox::default() });
        assert_eq!((ended.reason, &ended.stdout[..]), (Reason::Exited, &b"done"[..]), "{means:?}");
    }
}

#[test]
fn processes_beyond_the_limit_end_the_tree() {
    let caps = ResourceLimits { processes: PROCESSES, ..ResourceLimits::default() };
    for means in means() {
        let results = end_each(PROCESS_WAYS, means, &caps, |over| match over {
            Overuse::Processes { limit: PROCESSES, seen } => Some(100 * seen / PROCESSES),
            _ => None,
        });
        results.check("processes", means);
    }
}

#[test]
fn processor_time_beyond_the_limit_ends_the_tree() {
    let caps = ResourceLimits { cpu_time: Some(CPU_TIME), ..ResourceLimits::default() };
    for means in means() {
        let results = end_each(CPU_WAYS, means, &caps, |over| match over {
            Overuse::CpuTime { limit: CPU_TIME, seen } => u64::try_from(seen.as_millis() / 10).ok(),
            _ => None,
        });
        results.check("processor time", means);
    }
}

#[test]
fn disk_space_beyond_the_quota_is_found() {
    for means in means() {
        let mut results = Results::default();
        for (name, script) in DISK_WAYS {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let root = fs::canonicalize(folder.path()).unwrap();
            let sandbox = Sandbox {
                means,
                write: vec![root.clone()],
                temp: Some(root.join("tmp")),
                quota: Some(FolderQuota { folder: root.clone(), bytes: 30_000_000 }),
                ..Sandbox::default()
            };
            results.add(name, &end(script, &root, sandbox), |_| None);
            runner_engine::files::remove_tree(&root).unwrap();
        }
        results.check("disk space", means);
    }
}

#[test]
fn only_limits_that_are_set_are_reported() {
    let applied = |caps| {
        let sandbox = Sandbox { caps, ..Sandbox::default() };
        end("true", Path::new("/var/tmp"), sandbox).containment.unwrap().to_string()
    };
    let text = applied(ResourceLimits::default());
    assert!(!text.contains("limits") && !text.contains("sampled"), "{text}");
    let text = applied(ResourceLimits {
        memory: Some(2_000_000_000),
        processes: 60,
        cpu_time: Some(Duration::from_secs(90)),
        ..ResourceLimits::default()
    });
    let [memory, processes] = ["memory 2000 MB", "processes 60"].map(|limit| {
        ["cgroup", "sampled"].into_iter().any(|by| text.contains(&format!("{limit} {by}")))
    });
    assert!(memory && processes && text.ends_with("cpu time 90 s sampled"), "{text}");
}
