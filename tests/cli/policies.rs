//! Tests the limits that a job sets for its schedule, and manual runs that override them.

use crate::fixture::Fixture;

/// Creates a fixture with one scheduled job that was registered at noon.
fn tidy(toml: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T12:00:00Z", &["init"]).ends(0);
    fixture.configure(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n{toml}\n"
    ));
    fixture.run_at("2026-11-21T12:00:00Z", &["tick"]).ends(0);
    fixture
}

/// Ticks, and returns the outcomes of the runs that the tick started.
#[track_caller]
fn started(fixture: &Fixture, clock: &str) -> Vec<String> {
    let reported = fixture.run_at(clock, &["tick", "--json"]).ends(0).json();
    reported["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["outcome"].as_str().unwrap().to_owned())
        .collect()
}

/// Checks that the newest run was skipped with this reason.
#[track_caller]
fn newest(fixture: &Fixture, why: &str) {
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(runs[0]["outcome"], "skipped", "{runs}");
    assert_eq!(runs[0]["why"], why, "{runs}");
}

#[test]
fn quiet_hours_defer_only_scheduled_runs() {
    let fixture = tidy(
        "trigger = \"cron 0 13 * * *\"\nquiet = \"09:00-18:00\"\nzone = \"Europe/Berlin\"\nstagger = \"0s\"",
    );
    // 13:00 in Berlin is 12:00 UTC. Today's time has passed, so the job is due tomorrow.
    assert!(started(&fixture, "2026-11-22T11:59:00Z").is_empty());
    let found = started(&fixture, "2026-11-22T12:00:00Z");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("deferred until 2026-11-22T17:00:00Z"), "{found:?}");
    assert!(found[0].contains("quiet hours"), "{found:?}");
    fixture.run_at("2026-11-22T12:01:00Z", &["run", "tidy"]).ends(0).expect_text("succeeded");
    assert!(started(&fixture, "2026-11-22T16:50:00Z").is_empty());
    assert_eq!(started(&fixture, "2026-11-22T17:00:00Z"), ["succeeded"]);
    assert!(started(&fixture, "2026-11-22T17:00:01Z").is_empty());
}

#[test]
fn minimum_interval_skips_scheduled_runs() {
    let fixture = tidy("trigger = \"every 15m\"\nmin_interval = \"1h\"");
    assert_eq!(started(&fixture, "2026-11-21T12:15:00Z"), ["succeeded"]);
    for minute in [30, 45] {
        let found = started(&fixture, &format!("2026-11-21T12:{minute}:00Z"));
        let passed = minute - 15;
        let why = format!("skipped: it ran {passed}m ago, and its minimum interval is 1h");
        assert_eq!(found, [why]);
    }
    // A manual run also starts a new interval.
    fixture.run_at("2026-11-21T12:50:00Z", &["run", "tidy"]).ends(0).expect_text("succeeded");
    assert!(started(&fixture, "2026-11-21T13:15:00Z")[0].contains("it ran 25m ago"));
    assert!(started(&fixture, "2026-11-21T13:30:00Z")[0].starts_with("skipped"));
    assert!(started(&fixture, "2026-11-21T13:45:00Z")[0].starts_with("skipped"));
    assert_eq!(started(&fixture, "2026-11-21T14:00:00Z"), ["succeeded"]);
}

#[test]
fn skipped_runs_do_not_restart_the_interval() {
    let fixture = tidy("trigger = \"every 1m\"\nmin_interval = \"30m\"\nstagger = \"0s\"");
    assert_eq!(started(&fixture, "2026-11-21T12:01:00Z"), ["succeeded"]);
    for minute in 2..31 {
        let found = started(&fixture, &format!("2026-11-21T12:{minute:02}:00Z"));
        assert!(found[0].starts_with("skipped: it ran"), "{found:?}");
    }
    assert_eq!(started(&fixture, "2026-11-21T12:31:00Z"), ["succeeded"]);
}

#[test]
fn passed_start_deadline_skips_the_run() {
    let fixture =
        tidy("trigger = \"daily 02:30\"\nzone = \"UTC\"\nstart_within = \"2h\"\nstagger = \"0s\"");
    assert_eq!(started(&fixture, "2026-11-22T04:00:00Z"), ["succeeded"]);
    assert!(started(&fixture, "2026-11-23T08:00:00Z").is_empty());
    newest(&fixture, "its start deadline passed at 2026-11-23T04:30:00Z");
    fixture.run_at("2026-11-23T08:01:00Z", &["run", "tidy"]).ends(0).expect_text("succeeded");
}

#[test]
fn start_deadline_can_pass_in_quiet_hours() {
    let fixture = tidy(
        "trigger = \"daily 13:00\"\nzone = \"UTC\"\nquiet = \"09:00-18:00\"\nstart_within = \"2h\"",
    );
    assert!(started(&fixture, "2026-11-21T13:00:00Z")[0].starts_with("deferred until"));
    assert!(started(&fixture, "2026-11-21T18:00:00Z").is_empty());
    newest(&fixture, "its start deadline passed at 2026-11-21T15:00:00Z");
}

#[test]
fn breaker_opens_after_all_retries() {
    let fixture = Fixture::new();
    fixture.run_at("2026-02-28T12:00:00Z", &["init"]).ends(0);
    fixture.configure(
        "[jobs.dream]\nenabled = false\n\
         [jobs.bad]\nkind = \"command\"\nprogram = \"false\"\ntrigger = \"daily 04:00\"\n\
         backoff = [\"0s\"]\n",
    );
    for day in 1..=5 {
        fixture.run_at(format!("2026-03-0{day}T04:00:30Z"), &["tick"]);
    }
    let count = |outcome: &str| {
        fixture.count(&format!(
            "SELECT count(*) FROM occurrences JOIN jobs ON jobs.id = occurrences.job \
             WHERE jobs.name = 'bad' AND outcome ->> 'outcome' = '{outcome}'"
        ))
    };
    assert_eq!((count("failed"), count("skipped")), (3, 1));
    let runs = "SELECT count(*) FROM runs JOIN jobs ON jobs.id = runs.job \
                WHERE jobs.name = 'bad' AND outcome ->> 'outcome' = 'failed'";
    assert_eq!(fixture.count(runs), 9, "expected three attempts for each occurrence");
    let alerts = fixture.run_at("2026-03-05T05:00:00Z", &["alerts", "--json"]).json();
    let kinds: Vec<_> = alerts.as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
    assert!(kinds.contains(&"breaker".into()), "{alerts}");
}
