//! Tests the limits on memory, processes and disk space, each with several ways around it.

use std::fs;
use std::path::Path;

use runner_engine::process::{Cancel, Ended, OutputVerdict, Reason, run};
use runner_engine::sandbox::{FolderQuota, LimitControl, Overuse, ResourceLimits, Sandbox};

use super::{means, shell};

/// The limit on memory, in bytes.
const MEMORY: u64 = 200 << 20;

/// Ways to use 600 MiB of memory: in one process, in several, and without an address.
const MEMORY_WAYS: &[(&str, &str)] = &[
    ("one process", "perl -e '$x = \"a\" x (600 << 20); sleep 1000'"),
    ("slowly", "perl -e 'for (1..600) { $x .= \"a\" x (1 << 20) } sleep 1000'"),
    (
        "children",
        "for i in 1 2 3 4 5 6; do perl -e '$x = \"a\" x (100 << 20); sleep 1000' & done; wait",
    ),
    (
        "grandchildren",
        "for i in 1 2 3 4 5 6; do (setsid perl -e '$x = \"a\" x (100 << 20); sleep 1000' &) ; done; sleep 1000",
    ),
    ("after exec", "exec perl -e '$x = \"a\" x (600 << 20); sleep 1000'"),
    (
        "written after fork",
        "perl -e '$x = \"a\" x (100 << 20); for (1..6) { fork or do { $x =~ tr/a/b/; sleep 1000 } } sleep 1000'",
    ),
    ("cleared environment", "env -i /usr/bin/perl -e '$x = \"a\" x (600 << 20); sleep 1000'"),
    (
        "anonymous file",
        "perl -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..600) { syswrite(F, \"a\" x (1 << 20)) } sleep 1000'",
    ),
    (
        "anonymous files of many",
        "for i in 1 2 3 4 5 6; do perl -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..100) { syswrite(F, \"a\" x (1 << 20)) } sleep 1000' & done; wait",
    ),
    (
        "hidden from other processes",
        "perl -e 'syscall(157, 4, 0, 0, 0, 0); $x = \"a\" x (600 << 20); sleep 1000'",
    ),
];

fn end(script: &str, cwd: &Path, sandbox: Sandbox) -> Ended {
    let mut spec = shell(script, cwd, sandbox);
    spec.limits.term_to_kill = std::time::Duration::from_millis(200);
    run(&spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue).unwrap()
}

#[test]
fn memory_beyond_the_limit_ends_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    for means in means() {
        let mut most = 0;
        for (way, script) in MEMORY_WAYS {
            let caps = ResourceLimits { memory: Some(MEMORY), ..ResourceLimits::default() };
            let ended = end(script, folder.path(), Sandbox { means, caps, ..Sandbox::default() });
            match ended.reason {
                Reason::Overuse(Overuse::Memory { limit, seen }) => {
                    assert_eq!(limit, MEMORY, "{way}");
                    most = most.max(seen);
                }
                reason => panic!("{means:?}: {way}: {reason:?}, {:?}", ended.status),
            }
            assert_eq!(ended.survivors, 0, "{way}");
            let applied = ended.containment.unwrap();
            assert!(applied.to_string().contains(", limits "), "{applied}");
            if applied.limits == LimitControl::Cgroup {
                most = MEMORY;
            }
        }
        println!(
            "{means:?}: {} ways ended; the most that was seen is {} % of the limit",
            MEMORY_WAYS.len(),
            100 * most / MEMORY
        );
        let caps = ResourceLimits { memory: Some(MEMORY), ..ResourceLimits::default() };
        // Memory that processes share counts once.
        let shared = "perl -e '$x = \"a\" x (60 << 20); for (1..4) { fork or do { sleep 1; exit } } 1 while wait > 0; print \"done\"'";
        let ended = end(shared, folder.path(), Sandbox { means, caps, ..Sandbox::default() });
        assert_eq!((ended.reason, &ended.stdout[..]), (Reason::Exited, &b"done"[..]), "{means:?}");
    }
}

#[test]
fn processes_beyond_the_limit_end_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    for means in means() {
        for script in [
            "for i in $(seq 80); do sleep 1000 & done; wait",
            "for i in $(seq 80); do (setsid sleep 1000 &); done; sleep 1000",
            "perl -e 'for (1..80) { fork or do { sleep 1000 } } sleep 1000'",
            "perl -e 'for (1..80) { fork and do { sleep 1000 } } sleep 1000'",
        ] {
            let caps = ResourceLimits { processes: 60, ..ResourceLimits::default() };
            let ended = end(script, folder.path(), Sandbox { means, caps, ..Sandbox::default() });
            let over = Reason::Overuse(Overuse::Processes { limit: 60, seen: 0 });
            let seen = match ended.reason {
                Reason::Overuse(Overuse::Processes { limit, seen }) => (limit, seen > 60),
                reason => panic!("{means:?}: {script}: {reason:?}, not {over:?}"),
            };
            assert_eq!(seen, (60, true), "{script}");
            assert_eq!(ended.survivors, 0, "{script}");
        }
    }
}

/// Ways to store 60 MB in the folder `$Q`.
const DISK_WAYS: &[(&str, &str)] = &[
    ("one file", "head -c 60000000 /dev/zero > $Q/a; sleep 1000"),
    ("small files", "for i in $(seq 600); do head -c 100000 /dev/zero > $Q/$i; done; sleep 1000"),
    ("at the very end", "head -c 60000000 /dev/zero > $Q/a"),
    ("open without a name", "exec 9<>$Q/a; rm $Q/a; head -c 60000000 /dev/zero >&9; sleep 1000"),
    (
        "opened by a child",
        "(exec 9<>$Q/a; rm $Q/a; head -c 60000000 /dev/zero >&9; exec sleep 1000) & sleep 1000",
    ),
    (
        "never named",
        "perl -e 'sysopen(F, \"$ENV{Q}\", 020200002, 0600); for (1..60) { syswrite(F, \"a\" x 1000000) } sleep 1000'",
    ),
    (
        "mapped without a name",
        "perl -e 'open(F, \"+>\", \"$ENV{Q}/a\"); for (1..60) { syswrite(F, \"a\" x 1000000) } syscall(9, 0, 60000000, 1, 1, fileno(F), 0); unlink(\"$ENV{Q}/a\"); close(F); sleep 1000'",
    ),
    (
        "deep",
        "cd $Q; for i in $(seq 300); do mkdir ddddddddddddddddddddd; cd ddddddddddddddddddddd; done; head -c 60000000 /dev/zero > f; sleep 1000",
    ),
    ("unreadable folder", "mkdir $Q/d; head -c 60000000 /dev/zero > $Q/d/f; chmod 0 $Q/d; sleep 1"),
    (
        "links that do not add up",
        "head -c 60000000 /dev/zero > $Q/a; ln $Q/a $Q/b; rm $Q/a; sleep 1000",
    ),
];

#[test]
fn disk_space_beyond_the_quota_is_found() {
    for means in means() {
        let mut missed = Vec::new();
        for (way, script) in DISK_WAYS {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let root = fs::canonicalize(folder.path()).unwrap();
            let sandbox = Sandbox {
                means,
                write: vec![root.clone()],
                quota: Some(FolderQuota { folder: root.clone(), bytes: 30_000_000 }),
                ..Sandbox::default()
            };
            let script = format!("export Q={}; {script}", root.display());
            let ended = end(&script, &root, sandbox);
            if ended.reason != Reason::Quota {
                missed.push((way, ended.reason, ended.status));
            }
            runner_engine::files::remove_tree(&root).unwrap();
        }
        assert!(missed.is_empty(), "{means:?}: {missed:?}");
    }
}
