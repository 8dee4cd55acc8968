//! The queue from the shell: putting in, holding, taking out, asking again.

mod ends;
mod pause;

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::house::{House, Said, ended_within};
use crate::served::Daemon;

const LIMIT: Duration = Duration::from_secs(60);
const JOBS: &str = "[jobs.dream]\nenabled = false\n\
    [jobs.count]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> times\"]\n\
    [jobs.good]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", \"[ -e good ]\"]\n\
    [jobs.wait]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
    args = [\"-c\", \"setsid sleep 1000 & echo up > up.fifo; read word < go.fifo\"]\n";

fn clock(house: &House, clock: &str) {
    let draft = house.root().join("clock.new");
    fs::write(&draft, format!("2026-11-21T{clock}:00Z")).unwrap();
    fs::rename(draft, house.root().join("clock")).unwrap();
}

fn run(house: &House, args: &[&str]) -> Said {
    let mut command = house.runner(args);
    command.env("RUNNER_TEST_CLOCK", house.root().join("clock"));
    Said::of(command.output().unwrap())
}

/// A project at 20:00 with these jobs besides the usual ones of this file.
fn house(toml: &str) -> House {
    let house = House::new();
    clock(&house, "20:00");
    run(&house, &["init"]).ends(0);
    house.configure(&format!("{JOBS}{toml}"));
    let fifos = house.command("mkfifo", &["up.fifo", "go.fifo"]).status();
    assert!(fifos.unwrap().success());
    house
}

/// Puts a job into the queue; its run.
#[track_caller]
fn enqueue(house: &House, args: &[&str]) -> String {
    let mut words = vec!["--quiet", "enqueue"];
    words.extend(args);
    let said = run(house, &words).ends(0);
    assert_eq!(said.err, "");
    said.out.trim().to_owned()
}

/// The jobs of what a tick started, in order.
#[track_caller]
fn ticked(house: &House) -> Vec<String> {
    let said = run(house, &["tick", "--json"]);
    let started = said.json()["started"].as_array().unwrap().clone();
    let job = |run: &serde_json::Value| run["job"].as_str().unwrap().to_owned();
    started.iter().map(job).collect()
}

fn shown(house: &House, run_id: &str) -> serde_json::Value {
    run(house, &["runs", "show", run_id, "--json"])
        .ends(0)
        .json()
}

/// A tick that has just begun the job that waits.
fn busy(house: &House) -> Child {
    let tick = house
        .runner(&["tick"])
        .env("RUNNER_TEST_CLOCK", house.root().join("clock"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(house.path("up.fifo")).unwrap(), "up\n");
    tick
}

#[test]
fn what_is_put_in_is_run_by_the_next_tick() {
    let house = house("");
    let said = run(&house, &["enqueue", "count"]).ends(0);
    assert!(
        said.out.ends_with(" count queued: ready, waits its turn\n"),
        "{said:?}"
    );
    let id = said.out.split(' ').next().unwrap().to_owned();
    run(&house, &["runs"])
        .ends(0)
        .says("queued")
        .says("waits its turn");
    run(&house, &["status"]).ends(0).says(&format!(
        "count: ready, waits its turn in group default (run {id})"
    ));
    let status = run(&house, &["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["queued"]["count"], 1);
    assert_eq!(status["projects"][0]["queued"]["next"][0]["run"], *id);
    assert_eq!(ticked(&house), ["count"]);
    assert_eq!(house.read("times"), "x\n");
    assert!(ticked(&house).is_empty());
    let row = shown(&house, &id);
    assert_eq!(
        (&row["outcome"], &row["origin"]),
        (&"succeeded".into(), &"queue".into())
    );
    let json = run(&house, &["enqueue", "count", "--json"]).ends(0).json();
    assert_eq!(
        (&json["state"], &json["job"]),
        (&"queued".into(), &"count".into())
    );
}

#[test]
fn settings_hold_for_one_run_and_are_shown() {
    let house = house("");
    let args = "args=[\"-c\", \"echo y >> times\"]";
    let with = enqueue(&house, &["count", "--set", args, "--set", "timeout=5m"]);
    let plain = enqueue(&house, &["count"]);
    assert_eq!(ticked(&house), ["count", "count"]);
    assert_eq!(house.read("times"), "y\nx\n");
    assert_eq!(shown(&house, &with)["settings"]["timeout"], "5m");
    assert_eq!(shown(&house, &plain)["settings"], serde_json::json!({}));
    run(&house, &["runs", "show", &with])
        .says("timeout = 5m")
        .says("echo y");
}

#[test]
fn a_bad_wish_is_refused_at_once_and_nothing_is_queued() {
    let house = house("");
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
        run(&house, &["enqueue", "count", "--set", bad])
            .ends(2)
            .says("--set");
    }
    for bad in ["soon", "25:00", "-2h", ""] {
        run(&house, &["enqueue", "count", &format!("--at={bad}")]).ends(2);
    }
    run(&house, &["enqueue", "cuont"])
        .ends(78)
        .says("cuont")
        .says("count");
    run(&house, &["enqueue", "report"]).ends(78);
    run(&house, &["enqueue", "count", "--after", "01ZZZZ"])
        .ends(65)
        .says("01ZZZZ");
    run(&house, &["enqueue"]).ends(2);
    assert_eq!(house.count("SELECT count(*) FROM runs"), 0);
}

#[test]
fn a_later_moment_is_waited_for() {
    let house = house("");
    let said = run(&house, &["enqueue", "count", "--at", "23:00"]).ends(0);
    assert!(
        said.out.contains("waits until 2026-11-21 23:00:00"),
        "{said:?}"
    );
    clock(&house, "22:50");
    assert!(ticked(&house).is_empty());
    run(&house, &["runs"]).says("waits until");
    clock(&house, "23:00");
    assert_eq!(ticked(&house), ["count"]);
}

#[test]
fn the_more_important_goes_first_through_one_slot() {
    let job = |name: &str, more: &str| {
        format!("[jobs.{name}]\nkind = \"command\"\nprogram = \"true\"\ngroup = \"one\"\n{more}")
    };
    let house = house(&format!(
        "[groups.one]\nslots = 1\n{}{}{}{}",
        job("a", ""),
        job("b", ""),
        job("c", "priority = 3\n"),
        job("d", "")
    ));
    enqueue(&house, &["a"]);
    enqueue(&house, &["b", "--priority", "7"]);
    enqueue(&house, &["c"]);
    enqueue(&house, &["d", "--priority", "-1"]);
    assert_eq!(ticked(&house), ["b", "c", "a", "d"]);
}

#[test]
fn one_follows_the_success_of_another() {
    let house = house("");
    house.write("good", "");
    let first = enqueue(&house, &["good"]);
    let said = run(&house, &["enqueue", "count", "--after", &first]).ends(0);
    let expected = format!("waits for good to succeed (run {first})");
    assert!(said.out.contains(&expected), "{said:?}");
    run(&house, &["runs"]).says(&expected);
    run(&house, &["status"]).says(&expected);
    assert_eq!(ticked(&house), ["good", "count"]);
    // One that is over counts as it ended.
    run(&house, &["enqueue", "count", "--after", &first])
        .ends(0)
        .says("waits its turn");
    assert_eq!(ticked(&house), ["count"]);
}

#[test]
fn what_follows_a_failure_is_skipped_with_all_behind_it() {
    let house = house("retries = 0\n");
    let first = enqueue(&house, &["good"]);
    let second = enqueue(&house, &["count", "--after", &first]);
    let third = enqueue(&house, &["count", "--after", &second]);
    run(&house, &["cancel", &first]).ends(0);
    for run in [&second, &third] {
        let row = shown(&house, run);
        assert_eq!(row["outcome"], "skipped");
        assert_eq!(
            row["why"],
            "what it was to follow ended as cancelled: by hand"
        );
    }
    let late = run(&house, &["enqueue", "count", "--after", &first]).ends(0);
    assert!(
        late.out.contains("skipped: what it was to follow"),
        "{late:?}"
    );
    assert!(ticked(&house).is_empty());
}

#[test]
fn the_same_key_is_the_same_wish() {
    let house = house("");
    let first = enqueue(&house, &["count", "--key", "monday"]);
    let again = run(
        &house,
        &["enqueue", "count", "--key", "monday", "--at", "23:00"],
    )
    .ends(0);
    assert!(again.out.contains(&first), "{again:?}");
    again.says("asked for with this key before");
    assert_eq!(ticked(&house), ["count"]);
    assert_eq!(
        run(&house, &["enqueue", "count", "--key", "monday", "--json"])
            .ends(0)
            .json()["id"],
        *first
    );
    run(&house, &["run", "count", "--key", "monday"])
        .ends(0)
        .says("before");
    assert!(ticked(&house).is_empty());
    assert_eq!(house.read("times"), "x\n");
}
