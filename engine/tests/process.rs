//! Tests of process supervision with real child processes. The shell scripts hang, flood their
//! output, ignore signals or leave processes behind.
//!
//! The tests themselves do not sleep. A long sleep in a script is always cut short.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test may panic if the setup fails

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use runner_engine::process::tree::{is_alive, kill_marked, start_time};
use runner_engine::process::{
    Cancel, ChildSandbox, ChildSpec, Ended, ExitStatus, Limits, MARKER_VARIABLE, OutputVerdict,
    Reason, SpawnError, Stdin, Stream, run,
};
use runner_engine::time::boot_time;

const SHORT: Duration = Duration::from_millis(150);
/// A limit far above these tests' deadlines, for busy machines, and far below the scripts' long
/// sleeps.
const SOON: Duration = Duration::from_secs(8);

/// A lock held in shared mode by most tests, and exclusively by tests that must run alone.
static TOGETHER: RwLock<()> = RwLock::new(());

fn spec(test: &str, script: &str) -> ChildSpec {
    ChildSpec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        cwd: "/".into(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        stdin: Stdin::Null,
        limits: Limits { total: Some(Duration::from_secs(60)), ..Limits::default() },
        marker: format!("test-{test}-{}", std::process::id()),
        sandbox: ChildSandbox::Off,
    }
}

/// Creates a spec with the working folder `place`. The script may write a process id to the file
/// `pid` there.
fn spec_in(place: &Path, test: &str, script: &str) -> ChildSpec {
    ChildSpec { cwd: place.into(), ..spec(test, script) }
}

fn pid_in(place: &Path) -> u32 {
    fs::read_to_string(place.join("pid")).unwrap().trim().parse().unwrap()
}

/// Runs the child and checks the invariants that hold for every run.
fn finish(spec: &ChildSpec) -> Ended {
    let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    finish_alone(spec)
}

fn finish_alone(spec: &ChildSpec) -> Ended {
    let ended = run(spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue).unwrap();
    check(spec, &ended);
    ended
}

fn check(spec: &ChildSpec, ended: &Ended) {
    assert_eq!(ended.survivors, 0);
    assert_eq!(kill_marked(&spec.marker).count, 0, "processes of {} survived", spec.marker);
    assert!(ended.took() < SOON, "the run took {:?}", ended.took());
}

#[test]
fn exit_0_without_output_succeeds() {
    let ended = finish(&spec("empty", "exit 0"));
    assert_eq!((ended.status, ended.reason), (ExitStatus::Exit(0), Reason::Exited));
    assert!(ended.stdout.is_empty() && ended.stderr.is_empty() && ended.killed == 0);
    assert!(ended.is_success() && !ended.lingered);
}

#[test]
fn exit_status_and_both_streams_are_returned() {
    let ended = finish(&spec("codes", "echo out; echo err >&2; exit 42"));
    assert_eq!(ended.status, ExitStatus::Exit(42));
    assert_eq!((ended.stdout.as_slice(), ended.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    let ended = finish(&spec("signal", "kill -9 $$"));
    assert_eq!((ended.status, ended.reason), (ExitStatus::Signal(9), Reason::Exited));
    assert!(!ended.is_success());
}

#[test]
fn silent_child_ends_at_first_byte_deadline() {
    let mut spec = spec("silent", "exec sleep 1000");
    spec.limits.first_byte = Some(SHORT);
    let ended = finish(&spec);
    assert_eq!((ended.status, ended.reason), (ExitStatus::Signal(15), Reason::FirstByteDeadline));
    assert!(ended.took() >= SHORT);
}

#[test]
fn stalled_child_ends_at_idle_deadline() {
    let mut spec = spec("stall", "echo begun; exec sleep 1000");
    spec.limits.first_byte = Some(SOON);
    spec.limits.idle = Some(SHORT);
    let ended = finish(&spec);
    assert_eq!(ended.reason, Reason::IdleDeadline);
    assert_eq!(ended.stdout, b"begun\n");
}

#[test]
fn dripping_output_ends_at_total_deadline() {
    let mut spec = spec("drip", "while :; do echo drip; sleep 0.02; done");
    spec.limits.idle = Some(SOON);
    spec.limits.total = Some(SHORT);
    let ended = finish(&spec);
    assert_eq!(ended.reason, Reason::TotalDeadline);
    assert!(ended.stdout.starts_with(b"drip\n"));
}

#[test]
fn flooding_output_is_cut_at_the_cap() {
    for (stream, script) in [(Stream::Stdout, "exec yes"), (Stream::Stderr, "exec yes >&2")] {
        let mut spec = spec("flood", script);
        spec.limits.output_cap = 1_000_000;
        let ended = finish(&spec);
        assert_eq!(ended.reason, Reason::OutputCap { stream });
        let (full, other) = match stream {
            Stream::Stdout => (&ended.stdout, &ended.stderr),
            Stream::Stderr => (&ended.stderr, &ended.stdout),
        };
        assert_eq!((full.len(), other.len()), (1_000_000, 0));
        assert_eq!(ended.stdout_truncated, stream == Stream::Stdout);
        assert_eq!(ended.stderr_truncated, stream == Stream::Stderr);
    }
}

#[test]
fn large_output_before_exit_is_complete() {
    let script = "head -c 3000000 /dev/zero; head -c 1000000 /dev/zero >&2";
    let ended = finish(&spec("large", script));
    assert_eq!((ended.stdout.len(), ended.stderr.len()), (3_000_000, 1_000_000));
    assert!(ended.is_success());
}

#[test]
fn enlarged_pipe_is_read_completely() {
    let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let script = "echo $$; until [ -e go ]; do sleep 0.01; done; exec head -c 900000 /dev/zero";
    let mut spec = spec_in(place.path(), "pipe", script);
    spec.limits.drain = Duration::ZERO;
    let ended = run(&spec, &Cancel::new().unwrap(), &mut |_, bytes| {
        if let Ok(pid) = String::from_utf8_lossy(bytes).trim().parse::<i32>() {
            // Some programs enlarge their pipe like this. The observer waits until the program has
            // written everything and has exited.
            let pipe = fs::File::open(format!("/proc/{pid}/fd/1")).unwrap();
            rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20).unwrap();
            drop(pipe);
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let flags = rustix::process::PidfdFlags::empty();
            let process = rustix::process::pidfd_open(pid, flags).unwrap();
            fs::write(place.path().join("go"), "").unwrap();
            let wanted = rustix::event::PollFlags::IN;
            let mut fds = [rustix::event::PollFd::new(&process, wanted)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
        OutputVerdict::Continue
    });
    let ended = ended.unwrap();
    check(&spec, &ended);
    let zeros = ended.stdout.iter().filter(|byte| **byte == 0).count();
    assert_eq!((zeros, ended.reason), (900_000, Reason::Exited));
}

#[test]
fn grandchild_holding_the_pipe_does_not_block() {
    let ended = finish(&spec("holds", "sleep 1000 & echo done"));
    assert_eq!((ended.status, ended.reason), (ExitStatus::Exit(0), Reason::Exited));
    assert_eq!((ended.stdout.as_slice(), ended.killed), (&b"done\n"[..], 1));
}

#[test]
fn grandchild_flooding_the_pipe_does_not_block() {
    let ended = finish(&spec("floods", "yes & echo done; exit 3"));
    assert_eq!((ended.status, ended.killed), (ExitStatus::Exit(3), 1));
}

#[test]
fn grandchild_in_own_session_is_swept() {
    let place = tempfile::tempdir().unwrap();
    let script = "setsid -f sh -c 'echo $$ >pid; exec sleep 1000'; until [ -s pid ]; do :; done";
    let ended = finish(&spec_in(place.path(), "session", script));
    assert_eq!((ended.status, ended.killed), (ExitStatus::Exit(0), 1));
    assert_eq!(start_time(pid_in(place.path())), None, "a process or a zombie was left behind");
}

#[test]
fn detached_orphan_without_marker_is_swept() {
    let _alone = TOGETHER.write().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let script = "env -i /usr/bin/setsid -f /bin/sh -c 'echo $$ >pid; sleep 1000 & wait'
                  until [ -s pid ]; do :; done";
    let ended = finish_alone(&spec_in(place.path(), "orphan", script));
    assert_eq!(ended.status, ExitStatus::Exit(0));
    // The killed processes are the shell and, if it had started, its `sleep`.
    assert!((1..=2).contains(&ended.killed), "{}", ended.killed);
    assert_eq!(start_time(pid_in(place.path())), None);
}

#[test]
fn exited_orphans_are_reaped() {
    let _alone = TOGETHER.write().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let script = "setsid -f sh -c 'echo $$ >pid'; until [ -s pid ]; do :; done";
    finish_alone(&spec_in(place.path(), "reaped", script));
    assert_eq!(start_time(pid_in(place.path())), None, "a zombie was left behind");
}

#[test]
fn a_child_ignoring_term_is_killed() {
    let script = "trap '' TERM; sleep 1000 & echo begun; while :; do sleep 1; done";
    let mut spec = spec("stubborn", script);
    spec.limits.idle = Some(SHORT);
    spec.limits.term_to_kill = SHORT;
    let ended = finish(&spec);
    assert_eq!((ended.status, ended.reason), (ExitStatus::Signal(9), Reason::IdleDeadline));
    assert!(ended.took() >= SHORT * 2);
    assert!(ended.killed >= 1, "{}", ended.killed);
}

#[test]
fn child_can_exit_cleanly_on_term() {
    let script = "trap 'echo bye; exit 9' TERM; echo begun; while :; do sleep 0.01; done";
    let mut spec = spec("order", script);
    spec.limits.idle = Some(SHORT);
    let ended = finish(&spec);
    assert_eq!((ended.status, ended.reason), (ExitStatus::Exit(9), Reason::IdleDeadline));
    assert_eq!(ended.stdout, b"begun\nbye\n");
}

#[test]
fn a_cancelled_token_ends_the_child() {
    let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    let cancel = Cancel::new().unwrap();
    let spec = spec("cancel", "echo begun; exec sleep 1000");
    let other = cancel.clone();
    let ended = run(&spec, &cancel, &mut |_, _| {
        other.cancel("ctrl-c");
        OutputVerdict::Continue
    });
    let ended = ended.unwrap();
    check(&spec, &ended);
    assert_eq!((ended.status, ended.reason), (ExitStatus::Signal(15), Reason::Cancelled));
    let refused = run(&spec, &cancel, &mut |_, _| OutputVerdict::Continue).unwrap_err();
    assert_eq!(refused.to_string(), "cancelled before the start: ctrl-c");
}

#[test]
fn child_lingers_only_for_its_exit_grace() {
    let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    let mut spec = spec("linger", "echo RESULT; exec sleep 1000");
    spec.limits.exit_grace = SHORT;
    let mut text = Vec::new();
    let ended = run(&spec, &Cancel::new().unwrap(), &mut |stream, bytes| {
        assert_eq!(stream, Stream::Stdout);
        text.extend_from_slice(bytes);
        if text.ends_with(b"RESULT\n") {
            OutputVerdict::ResultSeen
        } else {
            OutputVerdict::Continue
        }
    });
    let ended = ended.unwrap();
    check(&spec, &ended);
    assert!(ended.lingered && ended.is_success() && ended.took() >= SHORT);
    assert_eq!((ended.status, ended.reason), (ExitStatus::Signal(15), Reason::Exited));
}

#[test]
fn unread_input_does_not_block() {
    let mut deaf = spec("deaf", "exec sleep 1000");
    deaf.stdin = Stdin::Bytes(vec![b'x'; 8 << 20]);
    deaf.limits.first_byte = Some(SHORT);
    assert_eq!(finish(&deaf).reason, Reason::FirstByteDeadline);
    let closed = ChildSpec { stdin: deaf.stdin, ..spec("closed", "exec <&-; echo done") };
    let ended = finish(&closed);
    assert_eq!((ended.status, ended.stdout.as_slice()), (ExitStatus::Exit(0), &b"done\n"[..]));
}

#[test]
fn input_and_output_flow_concurrently() {
    let mut spec = spec("cat", "exec cat");
    let bytes: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    spec.stdin = Stdin::Bytes(bytes.clone());
    let ended = finish(&spec);
    assert!(ended.is_success() && ended.stdout == bytes);
}

#[test]
fn empty_input_is_end_of_file() {
    for stdin in [Stdin::Null, Stdin::Bytes(Vec::new())] {
        let ended = finish(&ChildSpec { stdin, ..spec("no-input", "cat; echo eof") });
        assert_eq!(ended.stdout, b"eof\n");
    }
}

#[test]
fn binary_output_is_passed_on() {
    let ended = finish(&spec("bytes", r"printf '\377\000\376'"));
    assert_eq!(ended.stdout, [0xff, 0, 0xfe]);
}

#[test]
fn child_environment_is_allowlist_plus_marker() {
    let mut spec = spec("env", "");
    spec.program = "env".into();
    spec.args.clear();
    spec.env.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    let text = String::from_utf8(finish(&spec).stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let marker = format!("{MARKER_VARIABLE}={}", spec.marker);
    assert_eq!(lines, ["LANG=C.UTF-8", "PATH=/usr/bin:/bin", &marker]);
}

#[test]
fn child_starts_in_folder_and_own_group() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec_in(place.path(), "group", "pwd; echo $$; cut -d' ' -f5 /proc/$$/stat");
    let text = String::from_utf8(finish(&spec).stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].as_bytes(), place.path().as_os_str().as_bytes());
    assert_eq!(lines[1], lines[2]);
}

#[test]
fn spawn_errors_name_program_and_path() {
    let place = tempfile::tempdir().unwrap();
    let start = |spec: &ChildSpec| {
        let mut none = |_: Stream, _: &[u8]| OutputVerdict::Continue;
        run(spec, &Cancel::new().unwrap(), &mut none).unwrap_err()
    };
    let mut missing = spec("missing", "");
    missing.program = "no-such-agent".into();
    let text = start(&missing).to_string();
    assert_eq!(text, "no program no-such-agent (searched /usr/bin, /bin)");
    missing.env.clear();
    assert!(start(&missing).to_string().contains("the child's PATH is empty"));

    let mut nowhere = spec("nowhere", "");
    nowhere.cwd = place.path().join("gone");
    assert!(matches!(start(&nowhere), SpawnError::Cwd { .. }));
    fs::write(&nowhere.cwd, "").unwrap();
    assert!(start(&nowhere).to_string().contains("it is not a folder"));

    let script = place.path().join("agent");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let mut unfit = spec("unfit", "");
    unfit.program = script.clone();
    assert!(matches!(start(&unfit), SpawnError::NotExecutable { .. }));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, executable).unwrap();
    let text = start(&unfit).to_string();
    assert!(text.contains("interpreter or loader"), "{text}");
}

/// Starts a process without a supervisor, as if its supervisor had died.
fn left_behind(marker: &str, script: &str) -> (Child, u32, u64) {
    let mut child = Command::new("/bin/sh");
    child.args(["-c", script]).env(MARKER_VARIABLE, marker);
    let child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    // `spawn` may return before the new process has executed the program.
    let ours = fs::read_link("/proc/self/exe").unwrap();
    while fs::read_link(format!("/proc/{pid}/exe")).unwrap() == ours {
        std::thread::yield_now();
    }
    (child, pid, start_time(pid).unwrap())
}

#[test]
fn recovery_kills_only_marked_processes() {
    let marker = format!("test-recovery-{}", std::process::id());
    let other_marker = format!("{marker}0");
    let (mut ours, pid, start) = left_behind(&marker, "trap '' TERM; sleep 1000; :");
    let (mut other, other_pid, other_start) = left_behind(&other_marker, "read line");
    assert!(is_alive(pid, start) && !is_alive(pid, start + 1));
    let killed = kill_marked(&marker);
    assert!((1..=2).contains(&killed.count), "{killed:?}");
    assert_eq!(killed.survivors, 0);
    assert!(!is_alive(pid, start), "a zombie is treated as alive");
    assert!(is_alive(other_pid, other_start));
    assert_eq!(kill_marked(&marker).count, 0);
    ours.wait().unwrap();
    assert_eq!(kill_marked(&other_marker).count, 1);
    other.wait().unwrap();
}

#[test]
fn concurrent_runs_do_not_affect_each_other() {
    let begun = boot_time();
    std::thread::scope(|scope| {
        let side = |number: u32| {
            let script = format!("setsid -f sleep 1000; sleep 0.0{number}; echo {number}");
            let ended = finish(&spec(&format!("side-{number}"), &script));
            assert_eq!(ended.stdout, format!("{number}\n").as_bytes());
            assert_eq!((ended.status, ended.killed), (ExitStatus::Exit(0), 1));
        };
        for number in 0..8 {
            scope.spawn(move || side(number));
        }
    });
    assert!(boot_time() - begun < SOON * 2);
}

#[test]
fn children_of_a_run_survive_sibling_sweeps() {
    let marker = format!("test-siblings-{}", std::process::id());
    for (long, short) in [("", ""), ("/1", "/2"), ("/1", ""), ("", "/2")] {
        let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
        let cancel = Cancel::new().unwrap();
        let mut long = ChildSpec { marker: format!("{marker}{long}"), ..spec("", "") };
        long.args[1] = "echo begun; until [ -e go ]; do sleep 0.01; done; echo whole".into();
        let place = tempfile::tempdir().unwrap();
        long.cwd = place.path().into();
        let short = ChildSpec { marker: format!("{marker}{short}"), ..spec("", "sleep 1000 &") };
        let ended = run(&long, &cancel, &mut |_, bytes| {
            if bytes == b"begun\n" {
                // While this child runs, another child starts, exits and is swept.
                let ended = run(&short, &cancel, &mut |_, _| OutputVerdict::Continue).unwrap();
                assert_eq!((ended.status, ended.killed), (ExitStatus::Exit(0), 1));
                fs::write(place.path().join("go"), "").unwrap();
            }
            OutputVerdict::Continue
        });
        let ended = ended.unwrap();
        assert_eq!((ended.status, ended.survivors), (ExitStatus::Exit(0), 0));
        assert_eq!(ended.stdout, b"begun\nwhole\n");
    }
    assert_eq!(kill_marked(&marker).count, 0);
}

#[test]
fn a_panicking_observer_leaves_no_process() {
    let _together = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    let spec = spec("panic", "echo begun; sleep 1000 & sleep 1000");
    let panicked = std::panic::catch_unwind(|| {
        run(&spec, &Cancel::new().unwrap(), &mut |_, _| panic!("the observer panics"))
    });
    assert!(panicked.is_err());
    assert_eq!(kill_marked(&spec.marker).count, 0);
}
