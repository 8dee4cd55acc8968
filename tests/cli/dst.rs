//! Tests both daylight-saving transitions of a zone with a faked host clock.

use std::process::Command;
use std::time::{Instant, SystemTime};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::fixture::{CommandOutput, Fixture, print_line, skip};
use crate::served::NO_DREAM;

const ZONE: &str = "Europe/Berlin";

/// Returns a command that runs the program and all its children with the wall clock set to `now`.
/// The boot clock is unchanged.
fn at(fixture: &Fixture, now: Timestamp, args: &[&str]) -> Command {
    let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ahead = now.as_duration() - SignedDuration::try_from(real.unwrap()).unwrap();
    let ahead = format!("{:+.3}", ahead.as_secs_f64());
    let mut words = vec!["-m", "-f", &ahead, env!("CARGO_BIN_EXE_runner")];
    words.extend(args);
    let mut command = fixture.command("faketime", &words);
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("TZ", ZONE);
    command
}

/// Returns the times one second after each minute from 01:50 to 03:10, on the seven days around
/// `middle`.
fn minutes(middle: Date) -> Vec<Timestamp> {
    let zone = TimeZone::get(ZONE).unwrap();
    let mut minutes_around = Vec::new();
    for day in -3..=3 {
        let day = middle.checked_add(SignedDuration::from_hours(24 * day)).unwrap();
        let begins = zone.to_timestamp(day.at(1, 50, 0, 0)).unwrap();
        let ends = zone.to_timestamp(day.at(3, 10, 0, 0)).unwrap();
        let mut now = begins;
        while now <= ends {
            minutes_around.push(now + SignedDuration::from_secs(1));
            now += SignedDuration::from_mins(1);
        }
    }
    minutes_around
}

#[test]
fn job_runs_once_daily_across_clock_changes() {
    let faked = Command::new("faketime").args(["2026-03-29", "true"]).output();
    if !faked.is_ok_and(|tried| tried.status.success()) {
        skip("faketime", "faketime is not installed");
        return;
    }
    let began = Instant::now();
    let mut ticks = 0;
    for (middle, before, on, after) in [
        // The skipped 02:30 is due at the end of the gap. The repeated 02:30 is due only once, at
        // its first occurrence.
        (date(2026, 3, 29), "01:30", "01:00", "00:30"),
        (date(2026, 10, 25), "00:30", "00:30", "01:30"),
    ] {
        let fixture = Fixture::new();
        let minutes_around = minutes(middle);
        let first = minutes_around[0] - SignedDuration::from_hours(12);
        CommandOutput::of(at(&fixture, first, &["init"]).output().unwrap()).ends(0);
        let job = |name: &str, trigger: &str| {
            format!(
                "[jobs.{name}]\nkind = \"command\"\ntrigger = \"{trigger}\"\nzone = \"{ZONE}\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> {name}\"]\n"
            )
        };
        let jobs = [
            job("daily", "daily 02:30"),
            job("cron", "cron 30 2 * * *"),
            // This job uses the host's zone, which is the default.
            job("host", "daily 02:30").replace(&format!("zone = \"{ZONE}\"\n"), ""),
        ];
        fixture.configure(&format!("{NO_DREAM}{}", jobs.concat()));
        CommandOutput::of(at(&fixture, first, &["tick"]).output().unwrap()).ends(0);
        for now in &minutes_around {
            CommandOutput::of(at(&fixture, *now, &["tick"]).output().unwrap()).ends(0);
        }
        ticks += minutes_around.len();
        let due: Vec<String> = (-3..=3)
            .map(|day| {
                let date = middle.checked_add(SignedDuration::from_hours(24 * day)).unwrap();
                let time = [before, on, after][usize::try_from(day.signum() + 1).unwrap()];
                format!("{date}T{time}:00Z")
            })
            .collect();
        for name in ["daily", "cron", "host"] {
            let db = fixture.store();
            let mut rows = db
                .prepare(
                    "SELECT o.key, r.started - o.due, r.outcome ->> 'outcome' FROM runs r
                     JOIN occurrences o ON o.id = r.occurrence JOIN jobs j ON j.id = o.job
                     WHERE j.name = ?1 ORDER BY o.due",
                )
                .unwrap();
            let rows = rows.query_map([name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            let found: Vec<(String, i64, String)> = rows.unwrap().map(Result::unwrap).collect();
            let keys: Vec<_> = found.iter().map(|(key, ..)| key.clone()).collect();
            assert_eq!(keys, due, "{name}");
            for (key, late, outcome) in found {
                assert_eq!(outcome, "succeeded", "{name} {key}");
                // Each run starts within the due minute.
                assert!((0..60_000).contains(&late), "{name} {key}: {late} ms late");
            }
            assert_eq!(fixture.read(name).lines().count(), 7, "{name}");
        }
        assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), 21);
        assert_eq!(fixture.survivors(), Vec::<String>::new());
    }
    print_line(&format!(
        "both transitions of {ZONE}: {ticks} ticks under faketime, 42 runs; {:.1} s",
        began.elapsed().as_secs_f64()
    ));
}
