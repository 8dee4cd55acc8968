//! What people look at: help, status, ticks.

use std::fs;
use std::path::Path;

use crate::house::House;

/// Compares with a kept file; `RUNNER_UPDATE_SNAPSHOTS=1` writes it instead.
pub fn snapshot(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name);
    if std::env::var_os("RUNNER_UPDATE_SNAPSHOTS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, found).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        kept,
        found,
        "{} differs; RUNNER_UPDATE_SNAPSHOTS=1 takes the new text",
        path.display()
    );
}

#[test]
fn the_help_is_the_reference() {
    let house = House::new();
    // The manual has a page for each command that there is.
    let manual = house.root().join("man");
    house.run(&["man", &manual.display().to_string()]).ends(0);
    let mut pages: Vec<String> = fs::read_dir(&manual)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort_by_key(|name| name.trim_end_matches(".1").replace('-', " "));
    let mut all = String::new();
    for page in &pages {
        let mut args: Vec<&str> = page.trim_end_matches(".1").split('-').skip(1).collect();
        args.push("--help");
        let said = house.run(&args).ends(0);
        all.push_str(&format!("$ runner {}\n\n{}\n", args.join(" "), said.out));
    }
    snapshot("help.txt", &all);
}

#[test]
fn status_says_what_there_is() {
    let house = House::new();
    house.run(&["status"]).ends(0).says("no project yet");
    assert!(!house.state().exists(), "looking makes nothing");
    house.run(&["init"]).ends(0);
    house
        .run(&["status"])
        .ends(0)
        .says("none yet")
        .says("dream at");
    house.write("ideas/note.md", "Maybe use a shorter name?\n");
    house.run(&["night"]).ends(0);
    let status = house.run(&["status", "--json"]).ends(0).json();
    let project = &status["projects"][0];
    assert_eq!(project["last_night"]["worst"], "succeeded");
    assert_eq!(project["trouble"], serde_json::Value::Null);
    fs::remove_dir_all(house.path(".runner/reports")).unwrap();
    house
        .run(&["status"])
        .ends(0)
        .says("TROUBLE")
        .says("has no report");
    house.run(&["report"]).ends(0).says("# Night");
}

/// A clock that all processes of a house share.
fn tick_at(house: &House, at: &str) -> crate::house::Said {
    let clock = house.root().join("clock");
    fs::write(&clock, at).unwrap();
    crate::house::Said::of(
        house
            .runner(&["tick", "--json"])
            .env("RUNNER_TEST_CLOCK", &clock)
            .output()
            .unwrap(),
    )
}

#[test]
fn a_tick_runs_the_night_once_and_reports_it() {
    let house = House::new();
    let clock = house.root().join("clock");
    fs::write(&clock, "2026-11-21T20:00:00Z").unwrap();
    let init = house
        .runner(&["init"])
        .env("RUNNER_TEST_CLOCK", &clock)
        .output()
        .unwrap();
    assert!(init.status.success());
    house.write("ideas/note.md", "Maybe use a shorter name?\n");
    // Older than the quiet minutes, or the pass would be deferred.
    house
        .command("touch", &["-d", "2026-11-20T00:00:00Z", "ideas/note.md"])
        .status()
        .unwrap();
    assert!(
        tick_at(&house, "2026-11-22T02:29:59Z").ends(0).json()["started"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let told = tick_at(&house, "2026-11-22T02:30:00Z").ends(0).json();
    let jobs: Vec<_> = told["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["job"].as_str().unwrap())
        .collect();
    assert_eq!(jobs, ["dream", "report"], "{told}");
    assert!(house.path(".runner/reports/2026-11-22/report.md").is_file());
    assert!(
        tick_at(&house, "2026-11-22T02:31:00Z").ends(0).json()["started"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    // A long sleep: one run, one row for the stretch.
    tick_at(&house, "2026-11-25T08:00:00Z").ends(0);
    assert_eq!(
        house.count("SELECT count(*) FROM occurrences WHERE outcome LIKE '%\"missed\"%'"),
        1
    );
    assert_eq!(house.count("SELECT count(*) FROM nights"), 2);
}

#[test]
fn two_ticks_at_once_start_nothing_twice() {
    let house = House::with(
        "[jobs.count]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> times\"]\n[jobs.dream]\nenabled = false\n",
    );
    let clock = house.root().join("clock");
    let at = |text: &str| fs::write(&clock, text).unwrap();
    at("2026-11-21T20:00:00Z");
    let tick = || {
        let mut command = house.runner(&["tick", "--json"]);
        command
            .env("RUNNER_TEST_CLOCK", &clock)
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    tick().wait_with_output().unwrap();
    at("2026-11-21T20:05:00Z");
    let ticks: Vec<_> = (0..6).map(|_| tick()).collect();
    for child in ticks {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let runs = house.run(&["runs", "--json"]).out;
    let times = std::fs::read_to_string(house.path("times")).unwrap_or_default();
    assert_eq!(times, "x\n", "{runs}");
}
