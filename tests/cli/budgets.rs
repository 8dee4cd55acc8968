//! Tests shared budgets, grants, provider limits, and acknowledged failures.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::fixture::{CommandOutput, Fixture, Random, ended_within, print_line, scaled};

/// Creates a second project of the same user, appends `toml` to its `runner.toml`, and returns its
/// folder.
pub fn other(fixture: &Fixture, toml: &str) -> PathBuf {
    let path = fixture.root().join("other");
    fs::create_dir_all(&path).unwrap();
    let dir = path.to_str().unwrap();
    fixture.git(&["init", "--quiet", "--initial-branch=main", dir]);
    fixture.git(&["-C", dir, "commit", "--quiet", "--allow-empty", "-m", "Begin"]);
    fixture.run(&["-C", dir, "init"]).ends(0);
    let file = path.join("runner.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, format!("{text}\n{toml}")).unwrap();
    path
}

fn user(fixture: &Fixture, toml: &str) {
    let path = fixture.root().join("config/runner/config.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{text}\n{toml}")).unwrap();
}

/// Returns the settings of `jobs` jobs that each ask a program once. The program appends a line to
/// the file `calls` for each call. All calls are charged to the pool `max`.
fn asks(calls: &Path, jobs: usize, wait: &str) -> String {
    let mut toml = format!(
        "[jobs.dream]\nenabled = false\n[backends.model]\ntype = \"command\"\nprogram = \"sh\"\npool = \"max\"\n\
         args = [\"-c\", \"echo call >> {}; {wait}echo an answer\"]\n",
        calls.display()
    );
    for job in 0..jobs {
        toml.push_str(&format!(
            "[jobs.ask{job}]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"notes/{job}.md\"\nbackend = \"model\"\n\
             trigger = \"manual\"\nbudget = {{ calls = 1 }}\n\
             # The program records its calls outside the project.\nsandbox = \"off\"\n"
        ));
    }
    toml
}

fn lines(path: &Path) -> i64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    i64::try_from(text.lines().count()).unwrap()
}

#[test]
fn concurrent_killed_runs_respect_pool_limits() {
    const CAP: i64 = 12;
    let mut dice = Random::new("budgets");
    let (rounds, began) = (scaled(1), Instant::now());
    let (mut made, mut killed) = (0, 0);
    for round in 0..rounds {
        let fixture = Fixture::new();
        fixture.run(&["init"]).ends(0);
        user(
            &fixture,
            &format!("[pools.max.day]\ncalls = {CAP}\n[pools.max.window]\ncalls = {CAP}\n"),
        );
        let calls = fixture.root().join("calls");
        fixture.configure(&asks(&calls, 25, ""));
        let second = other(&fixture, &asks(&calls, 25, ""));
        let mut runs: Vec<(Child, Duration)> = Vec::new();
        for n in 0..50 {
            let folder = match n % 2 {
                0 => fixture.project(),
                _ => second.clone(),
            };
            let job = format!("ask{}", n / 2);
            let run = fixture
                .runner(&["-C", folder.to_str().unwrap(), "run", &job])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            // About a third of the runs are killed, each at a random time unless it has ended.
            let delay = Duration::from_micros(dice.roll(1_500_000));
            runs.push((run, if dice.roll(3) == 0 { delay } else { Duration::MAX }));
        }
        runs.sort_by_key(|(_, delay)| *delay);
        let start = Instant::now();
        for (run, delay) in &mut runs {
            if *delay == Duration::MAX {
                continue;
            }
            if !ended_within(run.id(), delay.saturating_sub(start.elapsed())) {
                let group = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
                killed += i32::from(kill_process_group(group, Signal::KILL).is_ok());
            }
        }
        for (run, _) in &mut runs {
            run.wait().unwrap();
        }
        fixture.run(&["tick"]);
        let charged = fixture
            .count("SELECT coalesce(sum(calls), 0) FROM budget_usage WHERE level = 'pool-day'");
        let asked = lines(&calls);
        made += asked;
        let why = format!("round {round}: {asked} calls, {charged} charged, cap {CAP}");
        assert!(asked <= charged && charged <= CAP, "{why}");
        assert_eq!(fixture.count("SELECT count(*) FROM reservations WHERE open"), 0, "{why}");
        assert_eq!(fixture.count("SELECT coalesce(sum(calls), 0) FROM requests"), charged, "{why}");
        // No killed run keeps a reservation.
        let left = fixture.run(&["budget", "--json"]).ends(0).json();
        let pool = budget_level(&left, "pool-day");
        assert_eq!(pool["left"]["calls"], CAP - charged, "{why}");
        assert!(fixture.survivors().is_empty());
    }
    assert!(made > 0, "no run called a model");
    print_line(&format!(
        "budgets: {rounds} rounds of 50 runs, {made} calls made, {killed} killed, {:.1} s",
        began.elapsed().as_secs_f64()
    ));
}

fn budget_level(reported: &serde_json::Value, level: &str) -> serde_json::Value {
    let levels = reported["budgets"].as_array().unwrap();
    let found = levels.iter().find(|one| one["level"] == level);
    found.unwrap_or_else(|| panic!("no {level} in {reported}")).clone()
}

fn at(fixture: &Fixture, clock: &str, args: &[&str]) -> CommandOutput {
    fixture.set_clock(clock);
    let mut command = fixture.runner_with_clock(args);
    CommandOutput::of(command.env("USER", "ann").output().unwrap())
}

#[test]
fn budget_grant_ends_with_its_day() {
    let fixture = Fixture::new();
    at(&fixture, "2026-11-21T20:00:00Z", &["init"]).ends(0);
    user(&fixture, "[pools.max.day]\ncalls = 1\nmoney = 5\n[pools.max.week]\ncalls = 9\n");
    let calls = fixture.root().join("calls");
    fixture.configure(&asks(&calls, 2, ""));
    let noon = "2026-11-21T12:00:00Z";
    at(&fixture, noon, &["run", "ask0"]).ends(0);
    at(&fixture, noon, &["run", "ask1"]).ends(1).expect_text("over-budget");
    let grant = ["budget", "grant", "pool:max:day"];
    for (bad, why) in [
        (&["calls=0", "--reason", "x"][..], "a whole number from 1"),
        (&["time=500ms", "--reason", "x"], "at least a second"),
        (&["calls=1", "--reason", " "], "state what the grant is for"),
        (&["call=1", "--reason", "x"], "the units are"),
        (&["ideas=5", "--reason", "x"], "has no limit for ideas"),
        (&["money=nan", "--reason", "x"], "dollars"),
        (&["money=-1", "--reason", "x"], "dollars"),
        (&["money=0.0000001", "--reason", "x"], "dollars"),
        (&["calls=1", "calls=2", "--reason", "x"], "given twice"),
        (&["calls=1", "--reason", "x", "--until", "2026-11-21T11:00:00Z"], "is in the past"),
    ] {
        at(&fixture, noon, &[&grant[..], bad].concat()).ends(2).expect_text(why);
    }
    at(&fixture, noon, &["budget", "grant", "night", "calls=1", "--reason", "x"])
        .ends(65)
        .expect_text("no night is open");
    let given = [&grant[..], &["calls=2", "money=2.50", "--reason", "the audit"]].concat();
    at(&fixture, noon, &given).ends(0).expect_text("may spend 2 calls, $2.50 more; 2 calls");
    let plan =
        at(&fixture, noon, &["run", "ask1", "--dry-run", "--json"]).ends(0).json().to_string();
    let calls = r#""calls":{"cap":3,"used":1,"left":2}"#;
    assert!(plan.contains(calls), "the dry run does not show the grant: {plan}");
    at(&fixture, noon, &["run", "ask1"]).ends(0);
    at(&fixture, noon, &["budget"])
        .ends(0)
        .expect_text("2 used of 1 + 2 granted, 1 left")
        .expect_text("by ann")
        .expect_text("the audit")
        .expect_text("renews 2026-11-22 00:00 UTC");
    let reported = at(&fixture, noon, &["budget", "show", "--json"]).ends(0).json();
    let pool = budget_level(&reported, "pool-day");
    assert_eq!((&pool["used"]["calls"], &pool["left"]["calls"]), (&2.into(), &1.into()));
    assert_eq!(pool["renews"], "2026-11-22T00:00:00Z");
    assert_eq!(pool["grants"][0]["who"], "ann");
    // The grant ends with the day, so the next day has the configured limit again.
    let next = at(&fixture, "2026-11-22T12:00:00Z", &["budget", "--json"]).json();
    let pool = budget_level(&next, "pool-day");
    assert_eq!((&pool["used"]["calls"], &pool["left"]["calls"]), (&0.into(), &1.into()));
    for (by, name) in
        [("job", "ask0"), ("backend", "model"), ("day", "2026-11-21"), ("pool", "max")]
    {
        at(&fixture, noon, &["budget", "history", "--by", by]).ends(0).expect_text(name);
    }
    let by = at(&fixture, noon, &["budget", "history", "--by", "backend", "--json"]).ends(0).json();
    assert_eq!((&by[0]["spent"]["calls"], &by[0]["unstated_calls"]), (&2.into(), &2.into()));
    let runs = at(&fixture, noon, &["runs", "--json", "--job", "ask0"]).json();
    let run = runs[0]["id"].as_str().unwrap();
    at(&fixture, noon, &["runs", "show", run])
        .ends(0)
        .expect_text("1 call charged at the reserved maximum")
        .expect_text("pool-day max 2026-11-21: had reserved 1 call");
    let shown = at(&fixture, noon, &["runs", "show", run, "--json"]).json();
    assert_eq!(shown["usage"][1]["level"], "pool-day");
    at(&fixture, noon, &["config", "set", "jobs.ask0.trigger", "night"]).ends(0);
    at(&fixture, noon, &["night"]);
    let report = at(&fixture, noon, &["report", "--json"]).json();
    assert!(report["grants"].to_string().contains("for the pool max, by ann"), "{report}");
    at(&fixture, "2026-11-23T12:00:00Z", &["run", "ask1"]).ends(0);
    let by = at(&fixture, noon, &["budget", "history", "--by", "pool", "--json"]).ends(0).json();
    let days = fixture.count("SELECT sum(calls) FROM budget_usage WHERE level = 'pool-day'");
    assert_eq!(by.as_array().unwrap().len(), 1, "{by}");
    assert_eq!((&by[0]["name"], &by[0]["spent"]["calls"]), (&"max".into(), &days.into()));
}

#[test]
fn pool_limit_defers_jobs_of_all_projects() {
    let fixture = Fixture::new();
    at(&fixture, "2026-11-21T20:00:00Z", &["init"]).ends(0);
    user(&fixture, "[pools.max]\nunlimited = true\n");
    let calls = fixture.root().join("calls");
    fixture.configure(&asks(&calls, 5, ""));
    let second = other(&fixture, &asks(&calls, 5, ""));
    let second = second.to_str().unwrap().to_owned();
    let now = "2026-11-21T20:30:00Z";
    let until: jiff::Timestamp = "2026-11-21T22:00:00Z".parse().unwrap();
    at(&fixture, now, &["tick"]).ends(0);
    fixture
        .store()
        .execute(
            "INSERT INTO limits (pool, until, streak, noted, why) VALUES ('max', ?1, 1, 0, '5-hour limit')",
            [until.as_millisecond()],
        )
        .unwrap();
    for job in 0..5 {
        let job = format!("ask{job}");
        at(&fixture, now, &["enqueue", &job]).ends(0);
        at(&fixture, now, &["-C", &second, "enqueue", &job]).ends(0);
    }
    at(&fixture, now, &["tick"]).ends(0);
    assert_eq!(lines(&calls), 0, "the rate-limited backend was asked");
    let mut back: Vec<i64> = Vec::new();
    let store = fixture.store();
    let mut statement = store
        .prepare("SELECT ready_at FROM runs WHERE state = 'queued' ORDER BY ready_at")
        .unwrap();
    let rows = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    back.extend(rows.map(Result::unwrap));
    assert_eq!(back.len(), 10, "not all runs were deferred");
    let (first, last) = (back[0] - until.as_millisecond(), back[9] - until.as_millisecond());
    assert!(first >= 0 && last <= 60_000 && last - first > 1_000, "{back:?}");
    at(&fixture, now, &["budget"])
        .ends(0)
        .expect_text("pool max is rate-limited until 2026-11-21 22:00 UTC");
    // The limit of a backend without a pool concerns only its project.
    let sql = "INSERT INTO limits (pool, until, streak, noted, why)
               SELECT id || ' model', ?1, 1, 0, 'x' FROM projects WHERE path LIKE '%/other'";
    assert_eq!(fixture.store().execute(sql, [until.as_millisecond()]).unwrap(), 1);
    let shown = |folder: &str| {
        let budget = at(&fixture, now, &["-C", folder, "budget", "--json"]).ends(0).json();
        budget["limits"].as_array().unwrap().len()
    };
    assert_eq!((shown(fixture.project().to_str().unwrap()), shown(&second)), (1, 2));
    fixture.store().execute("DELETE FROM limits WHERE pool LIKE '% model'", []).unwrap();
    // After the reset, a tick starts the deferred runs.
    at(&fixture, "2026-11-21T22:02:00Z", &["tick"]).ends(0);
    assert_eq!(lines(&calls), 10);
    assert_eq!(fixture.count("SELECT count(*) FROM limits"), 0, "the limit is still recorded");
    // A manual run starts despite the limit.
    fixture
        .store()
        .execute(
            "INSERT INTO limits (pool, until, streak, noted, why) VALUES ('max', ?1, 1, 0, 'x')",
            [until.as_millisecond()],
        )
        .unwrap();
    at(&fixture, now, &["run", "ask0"]).ends(0);
    assert_eq!(lines(&calls), 11);
}

#[test]
fn failing_job_stops_until_acknowledged() {
    let fixture = Fixture::new();
    at(&fixture, "2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.configure(
        "[jobs.dream]\nenabled = false\n[jobs.bad]\nkind = \"command\"\nprogram = \"false\"\n\
         trigger = \"every 1h\"\nretries = 0\n",
    );
    at(&fixture, "2026-11-21T20:30:00Z", &["tick"]).ends(0);
    for hour in ["21", "22", "23"] {
        at(&fixture, &format!("2026-11-21T{hour}:30:00Z"), &["tick"]).ends(1);
    }
    at(&fixture, "2026-11-22T00:30:00Z", &["tick"]).ends(0);
    at(&fixture, "2026-11-22T00:31:00Z", &["runs"])
        .ends(0)
        .expect_text("stopped after 3 failures in a row; fix the cause, then");
    at(&fixture, "2026-11-22T00:31:00Z", &["status"])
        .expect_text("bad: 3 consecutive failures; `runner jobs reset bad`");
    let runs = at(&fixture, "2026-11-22T00:31:00Z", &["runs", "--json"]).json();
    let failed = runs[1]["id"].as_str().unwrap();
    at(&fixture, "2026-11-22T00:31:00Z", &["runs", "show", failed])
        .expect_text("then `runner jobs reset bad`");
    assert!(fixture.path(".runner/failed/bad.json").is_file());
    let reported =
        at(&fixture, "2026-11-22T00:32:00Z", &["jobs", "reset", "bad", "--json"]).ends(0).json();
    assert_eq!((&reported[0]["failures"], &reported[0]["was_stopped"]), (&3.into(), &true.into()));
    assert!(!fixture.path(".runner/failed/bad.json").exists());
    assert_eq!(
        fixture.count(
            "SELECT count(*) FROM events WHERE kind = 'acknowledged' AND detail LIKE '%by ann'"
        ),
        1
    );
    let quiet = at(&fixture, "2026-11-22T00:33:00Z", &["status", "--json"]).json();
    assert_eq!(quiet["projects"][0]["stopped"].as_array().unwrap().len(), 0);
    at(&fixture, "2026-11-22T01:30:00Z", &["tick"]).ends(1);
    at(&fixture, "2026-11-22T01:31:00Z", &["jobs", "reset", "--all"])
        .ends(0)
        .expect_text("bad: acknowledged 1 consecutive failure");
    at(&fixture, "2026-11-22T01:31:00Z", &["jobs", "reset", "--all"])
        .ends(0)
        .expect_text("nothing to acknowledge");
    at(&fixture, "2026-11-22T01:31:00Z", &["jobs", "reset", "bda"])
        .ends(78)
        .expect_text("did you mean \"bad\"");
}

#[test]
fn refused_job_is_reported_once() {
    let fixture = Fixture::new();
    at(&fixture, "2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.configure(
        "[jobs.dream]\nenabled = false\n[backends.model]\ntype = \"command\"\nprogram = \"my-model\"\n\
         [jobs.ask]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"notes/a.md\"\nbackend = \"model\"\n\
         trigger = \"every 1h\"\n",
    );
    at(&fixture, "2026-11-21T20:30:00Z", &["tick"]).ends(0);
    at(&fixture, "2026-11-21T21:30:00Z", &["tick"]).ends(69);
    for hour in ["22", "23"] {
        at(&fixture, &format!("2026-11-21T{hour}:30:00Z"), &["tick"]).ends(69);
    }
    // A run fails at each scheduled time, but the breaker remains closed, and the user gets one
    // alert.
    let failed = "SELECT count(*) FROM runs WHERE outcome ->> 'outcome' = 'failed'";
    assert_eq!(fixture.count(failed), 3);
    let status = at(&fixture, "2026-11-21T23:40:00Z", &["status"]).ends(0).out;
    assert!(status.contains("not-installed") && !status.contains("STOPPED"), "{status}");
    assert_eq!(fixture.count("SELECT count(*) FROM alerts"), 1);
    assert_eq!(fixture.count("SELECT count FROM alerts"), 3);
    let program = fixture.root().join("my-model");
    fs::write(&program, "#!/bin/sh\necho an answer\n").unwrap();
    assert!(
        fixture.command("chmod", &["+x", program.to_str().unwrap()]).status().unwrap().success()
    );
    let text = fixture.read("runner.toml").replace("\"my-model\"", &format!("{:?}", program));
    fixture.write("runner.toml", text);
    at(&fixture, "2026-11-22T00:30:00Z", &["tick"]).ends(0);
    assert!(fixture.path("notes/a.md").is_file());
    assert!(!fixture.path(".runner/failed/ask.json").exists());
}

#[test]
fn pools_and_prices_require_user_config() {
    let fixture = Fixture::with("");
    for toml in ["[pools.max]\nunlimited = true\n", "[prices.x]\ninput_cost_per_token = 0\n"] {
        let before = fixture.read("runner.toml");
        fixture.configure(toml);
        fixture.run(&["config", "check"]).ends(78).expect_text("must be in your own config.toml");
        fixture.write("runner.toml", before);
    }
    fixture.run(&["config", "set", "pools.max.unlimited", "true"]).ends(78).expect_text("--user");
    fixture.run(&["config", "set", "--user", "pools.max.unlimited", "true"]).ends(0);
    user(&fixture, "[pools.empty]\noverage = true\n");
    fixture.run(&["config", "check"]).ends(78).expect_text("the pool has no limit");
}
