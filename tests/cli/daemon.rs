//! Tests the daemon: due jobs, requests from clients, and shutdown.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::{CommandOutput, ended_within};
use crate::served::{Daemon, LIMIT, WAIT, busy, fixture, outcome, owner};

#[test]
fn daemon_starts_due_jobs() {
    let fixture = fixture(
        "[jobs.count]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> times\"]\n",
    );
    let mut daemon = Daemon::start(&fixture, &[]);
    assert_eq!(daemon.tick(), json!({"is": "ticked", "started": [], "troubles": []}));
    fixture.set_clock("2026-11-21T20:01:00Z");
    // The daemon's own heartbeat may already have started the job.
    daemon.tick();
    daemon.wait_for_text("count: started");
    daemon.wait_for_text("count: succeeded");
    daemon.tick();
    assert_eq!(fixture.read("times"), "x\n");
    fixture
        .run_with_clock(&["status"])
        .ends(0)
        .expect_text(&format!("daemon: pid {} since", daemon.child.id()));
    daemon.signal(Signal::TERM);
    daemon.ends(0);
    fixture.run_with_clock(&["status"]).ends(0).expect_text("no daemon");
    assert!(!fixture.state().join("control.sock").exists());
    let log = fs::read_to_string(fixture.state().join("daemon.log")).unwrap();
    assert!(log.contains("ready") && log.contains("the wall clock was set"), "{log}");
    assert!(fixture.count("SELECT count(*) FROM events WHERE kind = 'clock-set'") > 0);
}

#[test]
fn second_daemon_names_the_first() {
    let fixture = fixture("");
    let daemon = Daemon::start(&fixture, &[]);
    fixture.run_with_clock(&["daemon"]).ends(75).expect_text(&format!("PID {}", daemon.child.id()));
    let status = fixture.run_with_clock(&["status", "--json"]).ends(0).json();
    assert_eq!(status["daemon"]["pid"], daemon.child.id());
    assert_eq!(status["daemon"]["live"], json!([]));
}

#[test]
fn invalid_configuration_defers_runs_until_fixed() {
    let fixture = fixture(WAIT);
    let mut daemon = Daemon::start(&fixture, &[]);
    let good = fixture.read("runner.toml");
    fixture.write("runner.toml", format!("{good}\n[jobs.wait\n"));
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_text("runner.toml");
    assert!(line.contains("project"), "{line}");
    fixture.set_clock("2026-11-21T20:01:00Z");
    daemon.tick();
    daemon.wait_for_text("wait: started");
    daemon.wait_for_text("wait: deferred");
    fixture.write("runner.toml", good);
    daemon.signal(Signal::HUP);
    daemon.wait_for_text("configuration read again");
    fixture.set_clock("2026-11-21T20:10:00Z");
    daemon.tick();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    daemon.wait_for_text("wait: succeeded");
}

#[test]
fn stop_waits_for_live_runs() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &["--drain", "1h"]);
    daemon.signal(Signal::TERM);
    daemon.wait_for_text("1 run may continue for 1h");
    let status = daemon.ask(r#"{"ask":"status"}"#);
    assert_eq!((&status["draining"], &status["live"][0]["job"]), (&json!(true), &json!("wait")));
    assert_eq!(daemon.tick()["is"], "error");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    daemon.ends(0);
    assert!(outcome(&fixture, &id).contains("succeeded"));
}

#[test]
fn second_stop_cancels_live_runs() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &["--drain", "1h"]);
    daemon.signal(Signal::INT);
    daemon.wait_for_text("may continue");
    daemon.signal(Signal::TERM);
    daemon.ends(0);
    assert!(outcome(&fixture, &id).contains("cancelled"));
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}

#[test]
fn stop_kills_processes_that_ignore_sigterm() {
    let fixture = fixture(
        "[jobs.deaf]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"trap '' TERM; setsid sh -c 'trap \\\"\\\" TERM; echo up > up.fifo; while :; do sleep 1000; done'\"]\n",
    );
    let (daemon, id) = busy(&fixture, &["--drain", "0s"]);
    let began = Instant::now();
    daemon.signal(Signal::TERM);
    daemon.ends(0);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let reported = outcome(&fixture, &id);
    assert!(reported.contains("cancelled"), "the run did not settle itself: {reported}");
    assert!(reported.contains("the daemon was asked to stop"), "{reported}");
}

#[test]
fn third_stop_kills_a_hung_run() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &["--drain", "1h"]);
    let pid = owner(&fixture);
    kill_process(pid, Signal::STOP).unwrap();
    daemon.signal(Signal::TERM);
    daemon.wait_for_text("may continue");
    daemon.signal(Signal::TERM);
    daemon.wait_for_text("asking 1 run to stop");
    daemon.signal(Signal::TERM);
    daemon.wait_for_text("killing 1 run");
    daemon.ends(0);
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let reported = outcome(&fixture, &id);
    assert!(reported.contains("the daemon was asked to stop"), "{reported}");
}

#[test]
fn private_socket_rejects_invalid_requests() {
    let fixture = fixture("");
    let daemon = Daemon::start(&fixture, &[]);
    let path = fixture.state().join("control.sock");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for bad in [
        "",
        "{",
        "null",
        "{\"ask\":\"dance\"}",
        "{\"ask\":\"tick\",\"loud\":1}",
        "{\"ask\":\"follow\",\"run\":\"nonsense\"}",
        "\u{7}\u{0}x",
    ] {
        let reported = daemon.ask(bad);
        assert_eq!(reported["is"], "error", "{bad:?}: {reported}");
    }
    let unknown = "01KA5V7Q4B0000000000000000";
    for ask in ["follow", "cancel"] {
        let reported = daemon.ask(&format!(r#"{{"ask":"{ask}","run":"{unknown}"}}"#));
        assert!(reported["why"].as_str().unwrap().contains(unknown), "{reported}");
    }
    // The client sends invalid UTF-8, and then a long line without an end.
    let mut stream = daemon.connect();
    stream.write_all(b"\xff\xfe\n").unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    assert!(line.contains("error"), "{line}");
    // The daemon may close the connection during this write.
    let _closed = stream.write_all(&vec![b'x'; 70_000]);
    line.clear();
    // Nothing, if the connection was reset.
    let _reset = replies.read_line(&mut line);
    assert!(line.is_empty() || line.contains("error"), "{line}");
    // More clients than the daemon serves at a time send no complete request, and another client
    // reads no replies. They do not block the daemon.
    let slow = |number: usize| {
        let mut client = daemon.connect();
        if number.is_multiple_of(2) {
            client.write_all(b"{\"ask\":").unwrap();
        }
        client
    };
    let silent: Vec<_> = (0..80).map(slow).collect();
    let mut deaf = daemon.connect();
    for _ in 0..100 {
        deaf.write_all(b"{\"ask\":\"status\"}\n").unwrap();
    }
    let began = Instant::now();
    assert_eq!(daemon.tick()["is"], "ticked");
    // If slow clients blocked new ones, the answer would arrive only after the first of them had
    // timed out, after 30 seconds.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn followed_log_ends_with_the_run() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &[]);
    let follow = || {
        let mut command = fixture.runner(&["runs", "logs", &id, "--follow"]);
        command.stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let through = follow();
    let mut first = BufReader::new(daemon.connect());
    let request = format!("{{\"ask\":\"follow\",\"run\":\"{id}\"}}\n");
    first.get_mut().write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    first.read_line(&mut line).unwrap();
    assert!(line.contains("begins"), "{line}");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    let said = CommandOutput::of(through.wait_with_output().unwrap()).ends(0);
    assert!(said.out.contains("begins"), "{said:?}");
    assert!(said.out.contains("settled"), "{said:?}");
    assert!(said.out.ends_with("wait: succeeded\n"), "{said:?}");
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"is": "over", "outcome": "wait: succeeded"}));
    daemon.wait_for_text("wait: succeeded");
    daemon.signal(Signal::TERM);
    daemon.ends(0);
    // Without a daemon, the command prints the same output for the finished run.
    assert_eq!(CommandOutput::of(follow().wait_with_output().unwrap()).out, said.out);
    fixture.run_with_clock(&["runs", "logs", "01ZZZZZZZZ", "--follow"]).ends(65);
}

#[test]
fn follower_survives_a_killed_daemon() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &[]);
    let mut follower =
        fixture.runner(&["runs", "logs", &id, "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(follower.stdout.take().unwrap());
    let mut said = String::new();
    out.read_line(&mut said).unwrap();
    let pid = owner(&fixture);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    assert!(ended_within(pid.as_raw_nonzero().get().cast_unsigned(), LIMIT));
    let whole = fixture.run_with_clock(&["runs", "logs", &id]).out;
    assert_eq!(said, format!("{whole}wait: succeeded\n"), "a line is lost or duplicated");
}

#[test]
fn follower_exits_when_its_output_closes() {
    let fixture = fixture(WAIT);
    let (daemon, id) = busy(&fixture, &[]);
    for _ in 0..2 {
        let mut follower = fixture
            .runner(&["runs", "logs", &id, "--follow"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(follower.stdout.take());
        assert!(
            ended_within(follower.id(), LIMIT),
            "the follower did not exit when its output closed"
        );
        follower.wait().unwrap();
        // The second follower has no daemon.
        kill_process(Pid::from_child(&daemon.child), Signal::KILL).unwrap();
        assert!(ended_within(daemon.child.id(), LIMIT));
    }
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
}

#[test]
fn run_follow_streams_the_log() {
    let fixture = fixture(WAIT);
    let mut child =
        fixture.runner(&["run", "wait", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("begins"), "{line}");
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("settled") && rest.contains("wait: succeeded"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // A reader that disconnects does not harm the run.
    let mut child =
        fixture.runner(&["run", "wait", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    fixture.run_with_clock(&["run", "wait", "--follow", "--json"]).ends(2);
}

#[test]
fn daemon_cancels_a_run_on_request() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &[]);
    let request = format!(r#"{{"ask":"cancel","run":"{id}"}}"#);
    assert_eq!(daemon.ask(&request)["is"], "cancelled");
    daemon.wait_for_text("wait: cancelled");
    let reported = daemon.ask(&request);
    assert!(reported["why"].as_str().unwrap().contains("has already ended"), "{reported}");
}

#[test]
fn run_survives_a_killed_daemon() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &[]);
    let pid = owner(&fixture);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(fixture.state().join("control.sock").exists(), "the socket is missing");
    fixture.run_with_clock(&["status"]).ends(0).expect_text("no daemon");
    let second = Daemon::start(&fixture, &[]);
    assert_eq!(second.tick()["started"], json!([]));
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(ended_within(pid.as_raw_nonzero().get().cast_unsigned(), LIMIT));
    assert!(outcome(&fixture, &id).contains("succeeded"));
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 1);
    second.signal(Signal::TERM);
    second.ends(0);
}

#[test]
fn next_daemon_settles_killed_runs() {
    let fixture = fixture(WAIT);
    let (mut daemon, id) = busy(&fixture, &[]);
    let pid = owner(&fixture);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert!(ended_within(pid.as_raw_nonzero().get().cast_unsigned(), LIMIT));
    let second = Daemon::start(&fixture, &[]);
    assert!(outcome(&fixture, &id).contains("lost"), "the first tick did not settle the run");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    drop(second);
}

#[test]
fn service_manager_receives_notifications() {
    let fixture = fixture(
        "[jobs.env]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\nsandbox = \"off\"\nargs = [\"-c\", \"read _ _ _ run _ < /proc/$PPID/stat; tr '\\\\0' '\\\\n' < /proc/$run/environ > seen\"]\n",
    );
    let path = fixture.root().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut daemon = Daemon::with(
        &fixture,
        &[],
        &[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "400000")],
    );
    let hears = |words: &str| {
        let mut all = String::new();
        while !all.contains(words) {
            let mut reported = [0; 4096];
            let count = manager
                .recv(&mut reported)
                .unwrap_or_else(|error| panic!("no {words} in {all}: {error}"));
            all.push_str(std::str::from_utf8(&reported[..count]).unwrap());
        }
    };
    hears("READY=1");
    hears("STATUS=0 runs live");
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    hears("RELOADING=1\nMONOTONIC_USEC=");
    hears("READY=1");
    fixture.set_clock("2026-11-21T20:01:00Z");
    daemon.tick();
    daemon.wait_for_text("env: succeeded");
    let seen = fixture.read("seen");
    assert!(
        seen.contains("XDG_STATE_HOME"),
        "this is not the environment of the run's process: {seen}"
    );
    assert!(!seen.contains("NOTIFY_SOCKET") && !seen.contains("WATCHDOG"), "{seen}");
    daemon.signal(Signal::TERM);
    hears("STOPPING=1");
    daemon.ends(0);
}
