//! Tests catch-up on a laptop that sleeps from Friday evening to Monday morning.

use std::collections::BTreeSet;
use std::fs;

use jiff::{SignedDuration, Timestamp};

use crate::fixture::{CommandOutput, Fixture};
use crate::served::{Daemon, NO_DREAM, begin, missed, over, runs};

const FRIDAY: &str = "2026-11-20T19:30:00Z";
/// Monday morning: the wall clock, and the seconds of boot time since Friday.
const MONDAY: (&str, i64) = ("2026-11-23T08:45:00Z", (2 * 24 + 13) * 3_600 + 15 * 60);

/// Creates a project on Friday evening with jobs that are due every hour on the hour.
fn weekend(jobs: &[(&str, &str)]) -> Fixture {
    let fixture = Fixture::new();
    fixture.run_at(FRIDAY, &["init"]).ends(0);
    let jobs = jobs.iter().map(|(name, more)| {
        format!(
            "[jobs.{name}]\nkind = \"command\"\ntrigger = \"cron 0 * * * *\"\n{}{more}\n",
            if more.contains("program") {
                String::new()
            } else {
                format!("program = \"sh\"\nargs = [\"-c\", \"echo {name} >> ran\"]\n")
            }
        )
    });
    // At the sandbox level `files-only`, a job cannot create files in the project's top folder.
    fixture.write("ran", "");
    fixture.configure(&format!("{NO_DREAM}{}", jobs.collect::<String>()));
    fixture
}

/// Sets the clock to `later` seconds after the host woke on Monday, and returns that time.
fn woken(fixture: &Fixture, later: i64) -> Timestamp {
    let (monday, slept) = MONDAY;
    let now = monday.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(later);
    fixture.set_clock(format!("{now}\n{}", slept + later));
    now
}

#[test]
fn each_job_catches_up_once_after_sleep() {
    let names = ["mail", "notes", "index", "sums", "links"];
    let fixture = weekend(&names.map(|name| (name, "stagger = \"60s\"")));
    let mut daemon = Daemon::start(&fixture, &[]);
    let now = woken(&fixture, 0);
    let reported = daemon.tick();
    daemon.wait_for_text("the host slept");
    assert!(reported["started"].as_array().unwrap().len() <= 1, "{reported}");
    // Each job has one missed period, from Friday 20:00 to Monday 07:00, and one run.
    for name in names {
        assert_eq!(
            missed(&fixture, name),
            ["2026-11-20T20:00:00Z 2026-11-23T07:00:00Z 60"],
            "{name}"
        );
        assert_eq!(runs(&fixture, name).len(), 1, "{name}");
    }
    let listed = fixture.run_with_clock(&["runs", "--json"]).ends(0).json();
    let listed = listed.as_array().unwrap();
    let mut places = BTreeSet::new();
    for one in listed {
        assert_eq!(one["due"], "2026-11-23T08:00:00Z");
        // A run that has left the queue has no `ready_at`.
        let ready = one["ready_at"].as_str().map_or(now, |at| at.parse().unwrap());
        let wait = ready.duration_since(now);
        assert!(!wait.is_negative() && wait <= SignedDuration::from_secs(60), "{wait}");
        places.insert(wait);
    }
    assert!(places.len() >= 4, "the runs are not staggered: {places:?}");
    // After half a minute, only runs whose `ready_at` has passed may have started.
    let half = woken(&fixture, 30);
    daemon.tick();
    for one in listed {
        let ready = one["ready_at"].as_str().map_or(now, |at| at.parse().unwrap());
        let began = runs(&fixture, one["job"].as_str().unwrap())[0].0 != "queued";
        // A run may be ready but still queued, because its group runs at most four jobs at a time.
        assert!(!began || ready <= half, "{one}");
    }
    woken(&fixture, 61);
    daemon.tick();
    for one in listed {
        over(&fixture, one["id"].as_str().unwrap());
    }
    daemon.tick();
    for name in names {
        assert_eq!(runs(&fixture, name), [("succeeded".to_owned(), String::new())], "{name}");
    }
    let ran = fixture.read("ran");
    assert_eq!(ran.lines().count(), 5, "a job did not run exactly once: {ran}");
    assert_eq!(ran.lines().collect::<BTreeSet<_>>(), names.into());
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), 10);
    let slept = "SELECT count(*) FROM events WHERE kind = 'slept'";
    assert!(fixture.count(slept) > 0);
    fixture.set_clock(format!("2026-11-23T09:00:00Z\n{}", MONDAY.1 + 900));
    daemon.tick();
    assert_eq!(runs(&fixture, "mail").len(), 2);
}

#[test]
fn tick_waits_for_staggered_runs() {
    let fixture = weekend(&[
        (
            "now",
            "program = \"sh\"\nargs = [\"-c\", \"echo now >> ran; echo up > up.fifo\"]\nstagger = \"0s\"",
        ),
        ("one", "stagger = \"60s\""),
        ("two", "stagger = \"60s\""),
    ]);
    fixture.command("mkfifo", &["up.fifo"]).status().unwrap();
    fixture.run_with_clock(&["tick"]).ends(0);
    woken(&fixture, 0);
    let tick = begin(&fixture, &["tick", "--json"]);
    // A job writes to the pipe. By then, the tick has recorded all three occurrences.
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    // The tick reads the clock repeatedly, so it notices that the other runs are ready.
    woken(&fixture, 61);
    let reported = CommandOutput::of(tick.wait_with_output().unwrap()).ends(0).json();
    assert_eq!(reported["started"].as_array().unwrap().len(), 3, "{reported}");
    assert_eq!(fixture.read("ran").lines().count(), 3);
}

#[test]
fn catch_up_respects_order_and_cap() {
    let fixture = weekend(&[
        ("all", "catch_up = \"all\"\ncatch_up_cap = 5"),
        ("day", "catch_up = \"all\"\ncatch_up_window = \"3h\""),
        ("none", "catch_up = \"none\""),
    ]);
    fixture.run_with_clock(&["tick"]).ends(0);
    woken(&fixture, 0);
    let reported = fixture.run_with_clock(&["tick", "--json"]).ends(0).json();
    assert_eq!(reported["started"].as_array().unwrap().len(), 8, "{reported}");
    let due = |job: &str| -> String {
        let sql = "SELECT group_concat(strftime('%d %H', due / 1000, 'unixepoch'), ', ') FROM
            (SELECT o.due FROM runs r JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = r.job
             WHERE j.name = ?1 AND r.outcome ->> 'outcome' = 'succeeded' ORDER BY r.fence)";
        let found: Option<String> =
            fixture.store().query_row(sql, [job], |row| row.get(0)).unwrap();
        found.unwrap_or_default()
    };
    assert_eq!(due("all"), "23 04, 23 05, 23 06, 23 07, 23 08");
    assert_eq!(missed(&fixture, "all"), ["2026-11-20T20:00:00Z 2026-11-23T03:00:00Z 56"]);
    assert_eq!(due("day"), "23 06, 23 07, 23 08");
    assert_eq!(missed(&fixture, "day"), ["2026-11-20T20:00:00Z 2026-11-23T05:00:00Z 58"]);
    assert_eq!(due("none"), "");
    assert_eq!(missed(&fixture, "none"), ["2026-11-20T20:00:00Z 2026-11-23T08:00:00Z 61"]);
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences WHERE missed"), 3);
    fixture.run_with_clock(&["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 8);
    // All three jobs are on time again.
    fixture.run_at(format!("2026-11-23T09:00:00Z\n{}", MONDAY.1 + 900), &["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 11);
    assert_eq!(due("none"), "23 09");
    let reported = fixture.run_with_clock(&["status"]).ends(0);
    reported.expect_text("missed");
}
