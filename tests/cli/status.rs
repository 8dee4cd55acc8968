//! Tests `runner status` and `--watch`, including broken files and missing ticks.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::fixture::Fixture;

const TIDY: &str = "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 15m\"\n";

#[test]
fn status_survives_broken_configuration() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"false\"\ntrigger = \"every 15m\"\n[day.budget]\ncalls = 9\n[defaults]\nretries = 0\n",
    );
    fixture.run(&["run", "tidy"]).ends(1);
    fixture.configure("[nigth]\n");
    fixture
        .run(&["status"])
        .ends(0)
        .expect_text("TROUBLE")
        .expect_text("nigth")
        .expect_text("FAILED")
        .expect_text("tidy (")
        .expect_text("9 of 9 calls");
    let runs = fixture.run(&["runs"]).ends(0).expect_text("nigth");
    assert!(runs.out.contains("tidy"), "{runs:?}");
    fixture.run(&["runs", "--job", "tidy"]).ends(0);
    fixture.run(&["runs", "--job", "tidi"]).ends(78).expect_text("did you mean \"tidy\"?");
    fixture.run(&["pause", "tidy"]).ends(0).expect_text("nigth");
    fixture.run(&["status"]).ends(0).expect_text("paused").expect_text("tidy until");
    fixture.run(&["resume", "tidy"]).ends(0);
    fixture.run(&["pause", "tidi"]).ends(78);
    // A command that would start a run is refused.
    fixture.run(&["run", "tidy"]).ends(78);
}

#[test]
fn status_reports_unregistered_project_mistakes() {
    let fixture = Fixture::new();
    fixture.write("runner.toml", "[nigth]\n");
    fixture.run(&["status"]).ends(0).expect_text("TROUBLE").expect_text("nigth");
    let other = Fixture::with(TIDY);
    let clone = other.root().join("clone");
    other.git(&["add", "runner.toml"]);
    other.git(&["commit", "--quiet", "-m", "Look after it"]);
    other.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    let clone = clone.to_str().unwrap();
    other
        .run(&["-C", clone, "status"])
        .ends(0)
        .expect_text("another clone")
        .expect_text("runner init");
    other.run(&["-C", clone, "runs"]).ends(78).expect_text("another clone");
}

#[test]
fn missing_ticks_are_reported() {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    let status = |now: &str| fixture.run_at(now, &["status"]).ends(0).out;
    assert!(status("2026-11-21T20:00:00Z").contains("NO TICKS: `runner tick` has never run"));
    fixture.run_at("2026-11-21T20:01:00Z", &["tick"]).ends(0);
    let fresh = status("2026-11-21T21:01:00Z");
    assert!(!fresh.contains("NO TICKS"), "{fresh}");
    assert!(fresh.contains("no daemon; last tick 2026-11-21 20:01:00 UTC"), "{fresh}");
    let late = status("2026-11-21T21:01:01Z");
    assert!(
        late.contains("NO TICKS: `runner tick` has not run since 2026-11-21 20:01:00 UTC"),
        "{late}"
    );
    // If no job has a schedule, no tick is missing.
    fixture.configure("[jobs.dream]\ntrigger = \"manual\"\n");
    fixture.run_at("2026-11-21T21:02:00Z", &["tick"]).ends(0);
    assert!(!status("2026-11-23T21:00:00Z").contains("NO TICKS"));
}

#[test]
fn times_are_shown_in_the_jobs_zone() {
    let fixture = Fixture::with(
        "[night]\nzone = \"Asia/Tokyo\"\n[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"daily 07:00\"\nzone = \"Europe/Berlin\"\n",
    );
    fixture.run_at("2026-11-21T20:00:00Z", &["tick"]).ends(0);
    let next = "tidy at 2026-11-22 07:00:00 CET";
    let text = fixture.run_at("2026-11-21T20:00:00Z", &["status"]).ends(0);
    assert!(text.out.contains(next), "{}", text.out);
    let json = fixture.run_at("2026-11-21T20:00:00Z", &["status", "--json"]).json();
    let project = &json["projects"][0];
    assert_eq!(
        project["next"],
        json!({"job": "tidy", "at": "2026-11-22T06:00:00Z", "zone": "Europe/Berlin"})
    );
    assert_eq!(project["zone"], "Asia/Tokyo");
    assert_eq!(
        project["budget"]["day"]["name"], "2026-11-22",
        "the day does not follow Tokyo's time zone"
    );
    // The night's zone also applies to the preview of an expression in this project.
    let cron = ["schedule", "next", "--cron", "0 7 * * *", "-n", "1", "--json"];
    let next = fixture.run_at("2026-11-21T20:00:00Z", &cron).ends(0).json();
    assert_eq!(next["zone"], "Asia/Tokyo");
}

#[test]
fn remaining_budget_is_reported() {
    let fixture = Fixture::with("[day.budget]\nideas = 1000\n");
    fixture.write("ideas/a.md", "Maybe use a shorter name?\n");
    fixture.run(&["night"]).ends(0);
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let day = &status["projects"][0]["budget"]["day"];
    assert_eq!(day["cap"]["ideas"], 1000);
    assert_eq!(day["cap"]["tokens"], Value::Null);
    let used = day["used"]["ideas"].as_u64().unwrap();
    assert_eq!(day["left"]["ideas"].as_u64().unwrap(), 1000 - used);
    assert_eq!(status["projects"][0]["budget"]["night"], Value::Null);
    fixture.run(&["status"]).ends(0).expect_text(&format!("{} of 1000 ideas", 1000 - used));
    // The status reflects a changed file even before a tick.
    let text = fixture.read("runner.toml").replace("ideas = 1000", "ideas = 2000");
    fixture.write("runner.toml", text);
    fixture.run(&["status"]).ends(0).expect_text(&format!("{} of 2000 ideas", 2000 - used));
}

#[test]
fn repeatedly_replaced_job_is_reported_starved() {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    // The group has no free slot, so each occurrence waits until the next one replaces it.
    fixture.configure(
        "[jobs.dream]\nenabled = false\n[groups.one]\nslots = 1\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 15m\"\noverlap = \"replace\"\ngroup = \"one\"\n[jobs.long]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"cat fifo\"]\ngroup = \"one\"\n",
    );
    assert!(fixture.command("mkfifo", &["fifo"]).status().unwrap().success());
    let mut long = fixture
        .runner_with_clock(&["--quiet", "run", "long"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = fs::File::options().write(true).open(fixture.path("fifo")).unwrap();
    let mut ticks = Vec::new();
    for now in ["20:01", "20:16", "20:31", "20:46", "21:01"] {
        // These ticks only queue the job, so they end without waiting for a run.
        ticks.push(fixture.run_at(format!("2026-11-21T{now}:00Z"), &["tick"]));
    }
    let status = fixture.run_at("2026-11-21T21:01:00Z", &["status", "--json"]).json();
    assert_eq!(
        status["projects"][0]["starved"],
        json!([{"job": "tidy", "replaced_in_a_row": 3}]),
        "{ticks:?}"
    );
    fixture
        .run_at("2026-11-21T21:01:00Z", &["status"])
        .ends(0)
        .expect_text("STARVED")
        .expect_text("tidy: the last 3 scheduled times");
    drop(end);
    long.wait().unwrap();
}

#[test]
fn status_schema_matches_the_file() {
    let fixture = Fixture::new();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schemas/status.schema.json");
    assert_eq!(fixture.run(&["status", "--schema"]).ends(0).out, fs::read_to_string(kept).unwrap());
    fixture.run(&["status", "--schema", "--json"]).ends(2);
}

#[test]
fn watch_prints_changes_until_reader_closes() {
    let fixture = Fixture::with(TIDY);
    fixture.run(&["tick"]).ends(0);
    let mut child =
        fixture.runner(&["status", "--watch", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["paused"], Value::Null);
    fixture.run(&["pause", "--all"]).ends(0);
    assert_eq!(next()["paused"], json!({"job": null, "until": null}));
    fixture.run(&["resume", "--all"]).ends(0);
    assert_eq!(next()["paused"], Value::Null);
    drop(lines);
    assert!(child.wait().unwrap().success());
}

/// Opens a pseudo-terminal and returns the test's end and the program's end.
fn terminal() -> (fs::File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (ours.into(), theirs.into())
}

#[test]
fn watch_leaves_terminal_modes_unchanged() {
    let fixture = Fixture::with(TIDY);
    fixture.run(&["tick"]).ends(0);
    let (mut ours, theirs) = terminal();
    let before = rustix::termios::tcgetattr(&ours).unwrap();
    let mut child = fixture
        .runner(&["status", "--watch"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdout(theirs)
        .spawn()
        .unwrap();
    let mut seen = String::new();
    let mut until = |words: &str| {
        let mut bytes = [0; 4096];
        while !seen.contains(words) {
            let count = ours.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        std::mem::take(&mut seen)
    };
    let first = until("no daemon");
    assert!(first.starts_with("\u{1b}[2J\u{1b}[H"), "{first:?}");
    fixture.run(&["pause", "--all"]).ends(0);
    let second = until("everything is paused");
    assert!(!second.contains("\u{1b}[2J"), "the screen was cleared instead of redrawn: {second:?}");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for kept in [first, second] {
        assert!(!kept.contains("\u{1b}[?"), "a terminal mode was changed: {kept:?}");
        assert!(
            !kept.contains('m') || !kept.contains("\u{1b}[3"),
            "the output contains colours: {kept:?}"
        );
    }
    let after = rustix::termios::tcgetattr(&ours).unwrap();
    assert_eq!(before.local_modes, after.local_modes);
    // A dumb terminal gets plain text.
    let (mut ours, theirs) = terminal();
    let mut child =
        fixture.runner(&["status", "--watch"]).env("TERM", "dumb").stdout(theirs).spawn().unwrap();
    let mut plain = String::new();
    let mut bytes = [0; 4096];
    while !plain.contains("no daemon") {
        let count = ours.read(&mut bytes).unwrap();
        plain.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    drop(ours);
    child.wait().unwrap();
}

#[test]
fn failure_without_failmark_is_still_reported() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.bad]\nkind = \"command\"\nprogram = \"false\"\ntrigger = \"every 1h\"\n",
    );
    let run = fixture.run(&["run", "bad"]).ends(1);
    let reported = |fixture: &Fixture| {
        let status = fixture.run(&["status", "--json"]).ends(0).json();
        status["projects"][0]["failmarks"].clone()
    };
    let marked = reported(&fixture);
    assert_eq!(marked[0]["job"], "bad", "{marked} {run:?}");
    let mark = fs::read_dir(fixture.path(".runner"))
        .unwrap()
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect(),
                false => vec![path],
            }
        })
        .find(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("\"run_id\"")))
        .expect("a failmark");
    fs::remove_file(mark).unwrap();
    let unmarked = reported(&fixture);
    assert_eq!(unmarked.as_array().unwrap().len(), 1, "{unmarked}");
    assert_eq!(unmarked[0]["class"], marked[0]["class"]);
    assert!(unmarked[0]["hint"].as_str().unwrap().starts_with("runner runs show "), "{unmarked}");
    fixture.run(&["jobs", "reset", "bad"]).ends(0);
    assert_eq!(reported(&fixture), serde_json::json!([]));
}

#[test]
fn last_run_is_found_behind_queued_runs() {
    let bad = "[jobs.bad]\nkind = \"command\"\nprogram = \"false\"\ntrigger = \"every 1h\"\n";
    let fixture = Fixture::with(&format!("[jobs.dream]\nenabled = false\n{bad}"));
    fixture.run(&["run", "bad"]).ends(1);
    fs::remove_file(fixture.path(".runner/failed/bad.json")).unwrap();
    fixture.run(&["pause", "bad"]).ends(0);
    for _ in 0..21 {
        fixture.run(&["enqueue", "bad"]).ends(0);
    }
    let jobs = fixture.run(&["jobs", "list", "--json"]).ends(0).json();
    let bad = jobs.as_array().unwrap().iter().find(|it| it["job"] == "bad").unwrap();
    assert_eq!(bad["last"]["outcome"], "failed", "{jobs}");
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["failmarks"][0]["job"], "bad", "{status}");
}
