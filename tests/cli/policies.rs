//! What a job may ask of the clocks that start it, and that a person overrules it.

use std::fs;

use crate::house::{House, Said};

fn at(house: &House, clock: &str, args: &[&str]) -> Said {
    let path = house.root().join("clock");
    fs::write(&path, clock).unwrap();
    Said::of(
        house
            .runner(args)
            .env("RUNNER_TEST_CLOCK", &path)
            .output()
            .unwrap(),
    )
}

/// One job of clocks, known since noon.
fn tidy(toml: &str) -> House {
    let house = House::new();
    at(&house, "2026-11-21T12:00:00Z", &["init"]).ends(0);
    house.configure(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n{toml}\n"
    ));
    at(&house, "2026-11-21T12:00:00Z", &["tick"]).ends(0);
    house
}

/// The outcomes of what a tick started.
#[track_caller]
fn started(house: &House, clock: &str) -> Vec<String> {
    let told = at(house, clock, &["tick", "--json"]).ends(0).json();
    told["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["outcome"].as_str().unwrap().to_owned())
        .collect()
}

/// The newest run was skipped, with this reason.
#[track_caller]
fn newest(house: &House, why: &str) {
    let runs = house.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(runs[0]["outcome"], "skipped", "{runs}");
    assert_eq!(runs[0]["why"], why, "{runs}");
}

#[test]
fn quiet_hours_make_a_clock_wait_and_not_a_person() {
    let house = tidy(
        "trigger = \"cron 0 13 * * *\"\nquiet = \"09:00-18:00\"\nzone = \"Europe/Berlin\"\nstagger = \"0s\"",
    );
    // 13:00 in Berlin is noon: that of the next day.
    assert!(started(&house, "2026-11-22T11:59:00Z").is_empty());
    let found = started(&house, "2026-11-22T12:00:00Z");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("deferred until 2026-11-22T17:00:00Z"),
        "{found:?}"
    );
    assert!(found[0].contains("quiet hours"), "{found:?}");
    at(&house, "2026-11-22T12:01:00Z", &["run", "tidy"])
        .ends(0)
        .says("succeeded");
    assert!(started(&house, "2026-11-22T16:50:00Z").is_empty());
    assert_eq!(started(&house, "2026-11-22T17:00:00Z"), ["succeeded"]);
    assert!(started(&house, "2026-11-22T17:00:01Z").is_empty());
}

#[test]
fn what_ran_a_short_while_ago_is_skipped_by_clocks() {
    let house = tidy("trigger = \"every 15m\"\nmin_interval = \"1h\"");
    assert_eq!(started(&house, "2026-11-21T12:15:00Z"), ["succeeded"]);
    for minute in [30, 45] {
        let found = started(&house, &format!("2026-11-21T12:{minute}:00Z"));
        let passed = minute - 15;
        let why = format!("skipped: it ran {passed}m ago; not sooner than every 1h");
        assert_eq!(found, [why]);
    }
    // A run by hand is one too.
    at(&house, "2026-11-21T12:50:00Z", &["run", "tidy"])
        .ends(0)
        .says("succeeded");
    assert!(started(&house, "2026-11-21T13:15:00Z")[0].contains("it ran 25m ago"));
    assert!(started(&house, "2026-11-21T13:30:00Z")[0].starts_with("skipped"));
    assert!(started(&house, "2026-11-21T13:45:00Z")[0].starts_with("skipped"));
    assert_eq!(started(&house, "2026-11-21T14:00:00Z"), ["succeeded"]);
}

#[test]
fn the_interval_looks_past_many_that_were_skipped() {
    let house = tidy("trigger = \"every 1m\"\nmin_interval = \"30m\"\nstagger = \"0s\"");
    assert_eq!(started(&house, "2026-11-21T12:01:00Z"), ["succeeded"]);
    for minute in 2..31 {
        let found = started(&house, &format!("2026-11-21T12:{minute:02}:00Z"));
        assert!(found[0].starts_with("skipped: it ran"), "{found:?}");
    }
    assert_eq!(started(&house, "2026-11-21T12:31:00Z"), ["succeeded"]);
}

#[test]
fn a_start_deadline_that_passed_is_a_skip() {
    let house =
        tidy("trigger = \"daily 02:30\"\nzone = \"UTC\"\nstart_within = \"2h\"\nstagger = \"0s\"");
    assert_eq!(started(&house, "2026-11-22T04:00:00Z"), ["succeeded"]);
    assert!(started(&house, "2026-11-23T08:00:00Z").is_empty());
    newest(&house, "its start deadline passed at 2026-11-23T04:30:00Z");
    at(&house, "2026-11-23T08:01:00Z", &["run", "tidy"])
        .ends(0)
        .says("succeeded");
}

#[test]
fn quiet_hours_may_outlast_the_start_deadline() {
    let house = tidy(
        "trigger = \"daily 13:00\"\nzone = \"UTC\"\nquiet = \"09:00-18:00\"\nstart_within = \"2h\"",
    );
    assert!(started(&house, "2026-11-21T13:00:00Z")[0].starts_with("deferred until"));
    assert!(started(&house, "2026-11-21T18:00:00Z").is_empty());
    newest(&house, "its start deadline passed at 2026-11-21T15:00:00Z");
}
