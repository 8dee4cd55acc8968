//! Tests the queue commands.

mod ends;
mod pause;

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{CommandOutput, Fixture, ended_within};
use crate::served::Daemon;

const LIMIT: Duration = Duration::from_secs(60);
const JOBS: &str = "[jobs.dream]\nenabled = false\n\
    [jobs.count]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> times\"]\n\
    [jobs.good]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"[ -e good ]\"]\n\
    [jobs.wait]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
    args = [\"-c\", \"setsid sleep 1000 & echo up > up.fifo; read word < go.fifo\"]\n";

fn clock(fixture: &Fixture, clock: &str) {
    fixture.set_clock(format!("2026-11-21T{clock}:00Z"));
}

fn run(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    fixture.run_with_clock(args)
}

/// Creates a project at 20:00 with the jobs in `toml` and in [`JOBS`].
fn fixture(toml: &str) -> Fixture {
    let fixture = Fixture::new();
    clock(&fixture, "20:00");
    run(&fixture, &["init"]).ends(0);
    fixture.configure(&format!("{JOBS}{toml}"));
    fixture.write("times", "");
    let fifos = fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status();
    assert!(fifos.unwrap().success());
    fixture
}

/// Adds a job to the queue and returns the id of its run.
#[track_caller]
fn enqueue(fixture: &Fixture, args: &[&str]) -> String {
    let mut words = vec!["--quiet", "enqueue"];
    words.extend(args);
    let said = run(fixture, &words).ends(0);
    assert_eq!(said.err, "");
    said.out.trim().to_owned()
}

/// Ticks, and returns the jobs of the started runs in order.
#[track_caller]
fn ticked(fixture: &Fixture) -> Vec<String> {
    let said = run(fixture, &["tick", "--json"]);
    let started = said.json()["started"].as_array().unwrap().clone();
    let job = |run: &serde_json::Value| run["job"].as_str().unwrap().to_owned();
    started.iter().map(job).collect()
}

fn shown(fixture: &Fixture, run_id: &str) -> serde_json::Value {
    run(fixture, &["runs", "show", run_id, "--json"]).ends(0).json()
}

/// Starts a tick and waits until the job `wait` is running.
fn busy(fixture: &Fixture) -> Child {
    let tick = fixture
        .runner_with_clock(&["tick"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    tick
}

#[test]
fn next_tick_starts_queued_runs() {
    let fixture = fixture("");
    let said = run(&fixture, &["enqueue", "count"]).ends(0);
    assert!(said.out.ends_with(" count queued: ready, waiting its turn\n"), "{said:?}");
    let id = said.out.split(' ').next().unwrap().to_owned();
    run(&fixture, &["runs"]).ends(0).expect_text("queued").expect_text("waiting its turn");
    run(&fixture, &["status"])
        .ends(0)
        .expect_text(&format!("count: ready, waiting its turn in group default (run {id})"));
    let status = run(&fixture, &["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["queued"]["count"], 1);
    assert_eq!(status["projects"][0]["queued"]["next"][0]["run"], *id);
    assert_eq!(ticked(&fixture), ["count"]);
    assert_eq!(fixture.read("times"), "x\n");
    assert!(ticked(&fixture).is_empty());
    let row = shown(&fixture, &id);
    assert_eq!((&row["outcome"], &row["origin"]), (&"succeeded".into(), &"queue".into()));
    let json = run(&fixture, &["enqueue", "count", "--json"]).ends(0).json();
    assert_eq!((&json["state"], &json["job"]), (&"queued".into(), &"count".into()));
}

#[test]
fn enqueued_settings_apply_to_one_run() {
    let fixture = fixture("");
    let args = "args=[\"-c\", \"echo y >> times\"]";
    let with = enqueue(&fixture, &["count", "--set", args, "--set", "timeout=5m"]);
    let plain = enqueue(&fixture, &["count"]);
    assert_eq!(ticked(&fixture), ["count", "count"]);
    assert_eq!(fixture.read("times"), "y\nx\n");
    assert_eq!(shown(&fixture, &with)["settings"]["timeout"], "5m");
    assert_eq!(shown(&fixture, &plain)["settings"], serde_json::json!({}));
    run(&fixture, &["runs", "show", &with]).expect_text("timeout = 5m").expect_text("echo y");
}

#[test]
fn invalid_requests_are_not_queued() {
    let fixture = fixture("");
    for bad in [
        "nonsense=1",
        "timeout=soon",
        "priority=3",
        "trigger=manual",
        "kind=dream",
        "=1",
        "timeout",
        "a..b=1",
    ] {
        run(&fixture, &["enqueue", "count", "--set", bad]).ends(2).expect_text("--set");
    }
    for bad in ["soon", "25:00", "-2h", ""] {
        run(&fixture, &["enqueue", "count", &format!("--at={bad}")]).ends(2);
    }
    run(&fixture, &["enqueue", "cuont"]).ends(78).expect_text("cuont").expect_text("count");
    run(&fixture, &["enqueue", "report"]).ends(78);
    run(&fixture, &["enqueue", "count", "--after", "01ZZZZ"]).ends(65).expect_text("01ZZZZ");
    run(&fixture, &["enqueue"]).ends(2);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 0);
}

#[test]
fn run_waits_for_the_requested_time() {
    let fixture = fixture("");
    let said = run(&fixture, &["enqueue", "count", "--at", "23:00"]).ends(0);
    assert!(said.out.contains("waits until 2026-11-21 23:00:00"), "{said:?}");
    clock(&fixture, "22:50");
    assert!(ticked(&fixture).is_empty());
    run(&fixture, &["runs"]).expect_text("waits until");
    clock(&fixture, "23:00");
    assert_eq!(ticked(&fixture), ["count"]);
}

#[test]
fn higher_priority_runs_first() {
    let job = |name: &str, more: &str| {
        format!("[jobs.{name}]\nkind = \"command\"\nprogram = \"true\"\ngroup = \"one\"\n{more}")
    };
    let fixture = fixture(&format!(
        "[groups.one]\nslots = 1\n{}{}{}{}",
        job("a", ""),
        job("b", ""),
        job("c", "priority = 3\n"),
        job("d", "")
    ));
    enqueue(&fixture, &["a"]);
    enqueue(&fixture, &["b", "--priority", "7"]);
    enqueue(&fixture, &["c"]);
    enqueue(&fixture, &["d", "--priority", "-1"]);
    assert_eq!(ticked(&fixture), ["b", "c", "a", "d"]);
}

#[test]
fn run_waits_for_predecessor_success() {
    let fixture = fixture("");
    fixture.write("good", "");
    let first = enqueue(&fixture, &["good"]);
    let said = run(&fixture, &["enqueue", "count", "--after", &first]).ends(0);
    let expected = format!("waits for good to succeed (run {first})");
    assert!(said.out.contains(&expected), "{said:?}");
    run(&fixture, &["runs"]).expect_text(&expected);
    run(&fixture, &["status"]).expect_text(&expected);
    assert_eq!(ticked(&fixture), ["good", "count"]);
    // A predecessor that has already succeeded delays nothing.
    run(&fixture, &["enqueue", "count", "--after", &first]).ends(0).expect_text("waiting its turn");
    assert_eq!(ticked(&fixture), ["count"]);
}

#[test]
fn runs_after_cancelled_predecessor_are_skipped() {
    let fixture = fixture("retries = 0\n");
    let first = enqueue(&fixture, &["good"]);
    let second = enqueue(&fixture, &["count", "--after", &first]);
    let third = enqueue(&fixture, &["count", "--after", &second]);
    run(&fixture, &["cancel", &first]).ends(0);
    for run in [&second, &third] {
        let row = shown(&fixture, run);
        assert_eq!(row["outcome"], "skipped");
        assert_eq!(row["why"], "the run before it ended as cancelled: manually");
    }
    let late = run(&fixture, &["enqueue", "count", "--after", &first]).ends(0);
    assert!(late.out.contains("skipped: the run before it ended as cancelled"), "{late:?}");
    assert!(ticked(&fixture).is_empty());
}

#[test]
fn repeated_key_returns_the_same_run() {
    let fixture = fixture("");
    let first = enqueue(&fixture, &["count", "--key", "monday"]);
    let again = run(&fixture, &["enqueue", "count", "--key", "monday", "--at", "23:00"]).ends(0);
    assert!(again.out.contains(&first), "{again:?}");
    again.expect_text("already requested with this key");
    assert_eq!(ticked(&fixture), ["count"]);
    assert_eq!(
        run(&fixture, &["enqueue", "count", "--key", "monday", "--json"]).ends(0).json()["id"],
        *first
    );
    run(&fixture, &["run", "count", "--key", "monday"])
        .ends(0)
        .expect_text("already requested with this key");
    assert!(ticked(&fixture).is_empty());
    assert_eq!(fixture.read("times"), "x\n");
}
