//! Tests `runner schedule`, which previews due times in any zone.

use crate::fixture::Fixture;

#[test]
fn next_prints_local_and_utc_times() {
    let fixture = Fixture::new();
    let said = fixture
        .run(&[
            "schedule",
            "next",
            "--cron",
            "30 2 * * *",
            "--zone",
            "Europe/Berlin",
            "--from",
            "2026-03-28",
            "-n",
            "3",
        ])
        .ends(0);
    assert_eq!(
        said.out,
        "Sat 2026-03-28 02:30:00 +01:00  2026-03-28T01:30:00Z\n\
         Sun 2026-03-29 03:00:00 +02:00  2026-03-29T01:00:00Z\n\
         Mon 2026-03-30 02:30:00 +02:00  2026-03-30T00:30:00Z\n"
    );
    assert!(!fixture.state().exists(), "a preview created files");
    let json = fixture
        .run(&[
            "schedule",
            "next",
            "--every",
            "90m",
            "--zone",
            "UTC",
            "--from",
            "2026-01-01T00:00:30Z",
            "--json",
        ])
        .ends(0)
        .json();
    assert_eq!(json["next"].as_array().unwrap().len(), 5);
    assert_eq!(json["next"][1]["at"], "2026-01-01T03:00:30Z");
    assert_eq!(json["next"][0]["local"], "2026-01-01T01:30:30+00:00[UTC]");
    fixture
        .run(&["schedule", "next", "--daily", "02:30", "--from", "2026-01-01T02:30"])
        .ends(0)
        .expect_text("Fri 2026-01-02 02:30:00 +00:00");
}

#[test]
fn named_job_uses_its_project_schedule() {
    let fixture = Fixture::with(
        "[jobs.count]\nkind = \"command\"\ntrigger = \"every 1h\"\nprogram = \"true\"\n\
         [jobs.hand]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"true\"\n",
    );
    fixture
        .run(&[
            "schedule",
            "next",
            "dream",
            "--from",
            "2026-11-21",
            "-n",
            "1",
            "--zone",
            "Asia/Kathmandu",
        ])
        .ends(0)
        .expect_text("Sat 2026-11-21 02:30:00 +05:45  2026-11-20T20:45:00Z");
    fixture
        .run(&["schedule", "explain", "dream"])
        .ends(0)
        .expect_text("daily 02:30: at 02:30 each day, in UTC");
    fixture.run(&["schedule", "next", "hand"]).ends(0).expect_text("never due");
    fixture.run(&["schedule", "next", "cuont"]).ends(78).expect_text("count");
}

#[test]
fn explain_states_the_schedule_rules() {
    let fixture = Fixture::new();
    let explain = |cron: &str| {
        let args = ["schedule", "explain", "--cron", cron, "--zone", "America/New_York"];
        fixture.run(&args).ends(0)
    };
    explain("0 9 13 * FRI").expect_text("on the 13th, and also on Friday");
    explain("0 9 */2 * FRI").expect_text("when that is also Friday");
    explain("0 9 * * *").expect_text("a time that a clock change skips");
    explain("*/5 * * * *").expect_text("follows elapsed time");
}

#[test]
fn command_line_mistakes_are_usage_errors() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &str); 9] = [
        (&["next"], "--cron"),
        (&["next", "--cron", "0 0 31 2 *"], "never be due"),
        (&["next", "--cron", "0 0 0 1 1 *"], "none for seconds"),
        (&["next", "--cron", "@reboot"], "not a calendar time"),
        (&["next", "--cron", "* * * * *", "--every", "1h"], "cannot be used"),
        (&["next", "--every", "soon"], "is not a duration"),
        (&["explain", "--daily", "25:00"], "is not a time of day"),
        (&["next", "--daily", "02:30", "--zone", "Mars/Olympus"], "unknown time zone"),
        (&["next", "--daily", "02:30", "--from", "tomorrow"], "is not a time"),
    ];
    for (args, words) in cases {
        let args = [&["schedule"], args].concat();
        fixture.run(&args).ends(2).expect_text(words);
    }
    fixture
        .run(&["schedule", "simulate", "--from", "2026-01-01", "--to", "2026-01-02"])
        .ends(78)
        .expect_text("runner init");
}

#[test]
fn simulate_covers_a_weekend_asleep() {
    let fixture = Fixture::with(
        "[jobs.count]\nkind = \"command\"\ntrigger = \"every 6h\"\nprogram = \"true\"\n\
         [jobs.off]\nkind = \"command\"\ntrigger = \"every 1h\"\nprogram = \"true\"\nenabled = false\n",
    );
    let simulate = |more: &[&str]| {
        let args = [
            "schedule",
            "simulate",
            "--from",
            "2026-11-20",
            "--to",
            "2026-11-24",
            "--asleep",
            "2026-11-20T20:00..2026-11-23T08:07",
        ];
        fixture.run(&[&args, more].concat())
    };
    let all = simulate(&["--json"]).ends(0).json();
    let of = |job: &str| {
        let events = all["events"].as_array().unwrap().iter();
        events
            .filter(|event| event["job"] == job)
            .map(|event| format!("{} {}", event["outcome"].as_str().unwrap(), event["count"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("dream"), ["run 1", "missed 2", "caught-up 1"]);
    assert_eq!(
        of("count"),
        ["run 1", "run 1", "run 1", "missed 9", "caught-up 1", "run 1", "run 1", "run 1"]
    );
    assert!(of("off").is_empty());
    assert_eq!(all["missed"], 11);
    simulate(&["dream"])
        .ends(0)
        .expect_text("2026-11-23 02:30:00 +00:00  2026-11-23 08:07:00 +00:00  dream  caught up")
        .expect_text("missed ×2, last at 2026-11-22 02:30:00 +00:00")
        .expect_text("1 run, 1 caught up, 2 missed");
    simulate(&["--asleep", "then"]).ends(2).expect_text("two times with ..");
    simulate(&["--tick", "0s"]).ends(2).expect_text("--tick");
}
