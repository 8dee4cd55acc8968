//! Tests the morning after defects of the schedule and the machine, such as a full disk, a missing
//! timer and a wrong clock.

use super::*;

#[test]
fn unstarted_jobs_are_explained() {
    let case = |name, toml: String, prepare, exit, headline, status, alerts| Case {
        name,
        toml,
        prepare,
        expected: Morning { exit, headline, status, alerts },
    };
    let fails = || runs("exit 3", "");
    check(vec![
        case(
            "a job that failed three times",
            fails(),
            |fixture| {
                for _ in 0..3 {
                    at(fixture, "2026-11-21T21:00:00Z", &["run", "tidy"]).ends(1);
                }
            },
            0,
            "tidy (stopped) did not run; 1 skipped",
            &["STOPPED", "nothing; each job with a schedule is stopped"],
            &["breaker"],
        ),
        case(
            "three manual nights without a login",
            asks(&format!("type = \"claude\"\nprogram = \"{FAKES}/claude\"")),
            |fixture| {
                for _ in 0..3 {
                    at(fixture, "2026-11-21T21:00:00Z", &["night"]).ends(77);
                }
            },
            77,
            "ask (auth) did not run; 1 failed",
            &["FAILED", "not logged in", "ask at 2026-11-23 02:30"],
            FAILED,
        ),
        case(
            "a start deadline that has passed",
            runs("true", "start_within = \"1m\"\n") + "[night]\nat = \"02:00\"\n",
            nothing,
            0,
            "tidy (late) did not run; 1 skipped",
            &["last night"],
            &[],
        ),
        case(
            "a time that passed while nothing ran",
            runs("true", "catch_up = \"none\"\n") + "[night]\nat = \"22:00\"\n",
            nothing,
            0,
            "no night",
            &["missed", "nothing was running"],
            &["missed"],
        ),
        case(
            "a minimum interval",
            runs("true", "min_interval = \"12h\"\n"),
            |fixture| {
                at(fixture, "2026-11-21T21:00:00Z", &["run", "tidy"]).ends(0);
            },
            0,
            "1 skipped",
            &["1 skipped"],
            &[],
        ),
        case(
            "quiet hours",
            runs("true", "quiet = \"02:00-06:00\"\n"),
            nothing,
            0,
            "tidy (still waiting) did not run",
            &["queued"],
            &[],
        ),
    ]);
}

#[test]
fn full_disk_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Mounted::at(&folder.path().join("project"), "16m") else {
        skip("mount", "no small file system can be mounted here");
        return;
    };
    let case = Case {
        name: "a full disk",
        toml: "[jobs.dream]\nretries = 0\n".to_owned(),
        prepare: |fixture| {
            let mut file = fs::File::create(fixture.path("fill")).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
        },
        expected: Morning {
            exit: 78,
            headline: "dream (environment) did not run; 1 failed",
            status: &["FAILED", "No space left on device"],
            // The night's report cannot be written either.
            alerts: FAILED,
        },
    };
    let all = differences_in(&case, Fixture::at(folder));
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn missing_timer_and_wrong_clock_are_reported() {
    let case = Case {
        name: "",
        toml: runs("true", ""),
        prepare: nothing,
        expected: Morning { exit: 0, headline: "", status: &[], alerts: &[] },
    };
    let fixture = evening(&case, Fixture::new());
    at(&fixture, MORNING, &["status"])
        .ends(0)
        .expect_text("NO TICKS: `runner tick` has not run since");
    at(&fixture, MORNING, &["doctor"]).ends(1).expect_text("has not run since");
    let fixture = evening(&case, Fixture::new());
    at(&fixture, "2036-01-01T00:00:00Z", &["tick"]);
    at(&fixture, NIGHT, &["tick"]).ends(1).expect_text("set back");
    at(&fixture, NIGHT, &["status"]).ends(0).expect_text("next due");
}
