//! The ticks that job schedules need, and whether the host's timer provides them.
//!
//! A timer that ticks less often than a job is due would find several scheduled times at once, run
//! one and record the others as missed. This module must never change anything.

use std::collections::BTreeSet;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::zones;

use super::SchedulerKind;
use super::record::SetupRecord;
use crate::config::{Config, TriggerSpec};
use crate::daemon::client::Client;
use crate::env::Env;
use crate::ui::Failure;

/// Minimum interval of a job that a timer can serve. A job that is due more often needs the daemon.
const SHORTEST: SignedDuration = SignedDuration::from_mins(5);
/// The possible tick intervals below a quarter of an hour, in minutes. Each divides an hour evenly.
const STEPS: [i8; 5] = [12, 10, 6, 5, 4];
/// Number of scheduled times to examine. For a daily job, they cover all clock changes of a year.
const EXAMINED: usize = 370;
/// Maximum number of different minutes of the hour in a cron expression that a timer can serve.
const MINUTES: usize = 12;

/// The ticks that a schedule needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TickNeed {
    /// Ticks at least at these minutes of each hour, besides each quarter of an hour.
    Minutes(BTreeSet<i8>),
    /// More ticks than a timer provides.
    Daemon,
}

/// Returns the ticks that a schedule needs. The minutes are those in `zone`, the host scheduler's
/// time zone. They differ from the minutes in the schedule's own zone unless the offsets differ by
/// whole hours.
pub fn need(schedule: &Schedule, now: Timestamp, zone: &TimeZone) -> TickNeed {
    match &schedule.trigger {
        Trigger::Manual | Trigger::After(_) => TickNeed::Minutes(BTreeSet::new()),
        Trigger::Every(interval) if *interval < SHORTEST => TickNeed::Daemon,
        Trigger::Every(interval) => {
            // A tick may be a few seconds late, so equal intervals would occasionally skip a
            // scheduled time.
            let fits = |step: &&i8| SignedDuration::from_mins(i64::from(**step)) < *interval;
            let step = match *interval > SignedDuration::from_mins(15) {
                true => 15,
                false => *STEPS.iter().find(fits).unwrap_or(&4),
            };
            TickNeed::Minutes((0..60).step_by(usize::from(step.unsigned_abs())).collect())
        }
        Trigger::Daily(_) | Trigger::Cron(_) => {
            let next = |at: &Timestamp| schedule.next_after(*at, now).ok().flatten();
            let times = std::iter::successors(next(&now), next).take(EXAMINED);
            let minutes: BTreeSet<i8> =
                times.map(|at| at.to_zoned(zone.clone()).minute()).collect();
            match minutes.len() > MINUTES {
                true => TickNeed::Daemon,
                false => TickNeed::Minutes(minutes),
            }
        }
    }
}

/// The ticks that a project needs.
#[derive(Clone, Debug, Default)]
pub struct ProjectNeed {
    /// The minutes of each hour, besides each quarter of an hour.
    pub minutes: BTreeSet<i8>,
    /// The jobs that are due more often than a timer ticks, each with its schedule.
    pub frequent: Vec<(String, String)>,
}

/// Returns the ticks needed by a night that begins at `opens` and by the enabled jobs in `config`.
pub fn of_project(config: &Config, opens: Time, now: Timestamp) -> Result<ProjectNeed, Failure> {
    let mut needed = ProjectNeed::default();
    let host = zones::host();
    let trigger = Trigger::Daily(opens);
    let night = Schedule { trigger, zone: config.night.zone.clone(), night: None };
    if let TickNeed::Minutes(minutes) = need(&night, now, &host) {
        needed.minutes.extend(minutes);
    }
    for row in config.job_rows()?.into_iter().filter(|row| row.enabled) {
        // `setup` may be about to change the time of the night, so the row may have the old time.
        if config.jobs.get(&row.name).is_some_and(|job| matches!(job.when, TriggerSpec::Night)) {
            continue;
        }
        match need(&row.schedule, now, &host) {
            TickNeed::Minutes(minutes) => needed.minutes.extend(minutes),
            TickNeed::Daemon => needed.frequent.push((row.name, row.schedule.describe())),
        }
    }
    Ok(needed)
}

/// A difference between the ticks that a project needs and those that the host provides, and the
/// fix for it.
pub struct Disagreement {
    pub what: String,
    pub hint: &'static str,
}

/// Compares the ticks that a project needs with those that `setup` has installed. Reports no
/// difference while a daemon is running, or if runner has not set up a timer.
pub fn disagreements(home: &Env, config: &Config) -> Vec<Disagreement> {
    let Ok(record) = SetupRecord::read(&home.setup_note()) else { return Vec::new() };
    let timed = record.hosts.keys().any(|kind| *kind != SchedulerKind::Manual);
    let (Ok(now), false) = (home.wall(), record.service || !timed) else { return Vec::new() };
    let Ok(needed) = of_project(config, config.night.at, now) else { return Vec::new() };
    let missing: Vec<String> =
        needed.minutes.difference(&record.minutes()).map(ToString::to_string).collect();
    if (missing.is_empty() && needed.frequent.is_empty()) || Client::connect(home).is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !missing.is_empty() {
        found.push(Disagreement {
            what: format!(
                "jobs need ticks at minutes {} of each hour, when the timer does not tick, so scheduled times would be missed",
                missing.join(", ")
            ),
            hint: "runner setup --apply",
        });
    }
    found.extend(needed.frequent.iter().map(|(job, schedule)| Disagreement {
        what: format!("{}, so scheduled times would be missed", too_frequent(job, schedule)),
        hint: "runner setup --service --apply",
    }));
    found
}

/// Describes a job that is due more often than a timer ticks.
pub fn too_frequent(job: &str, schedule: &str) -> String {
    format!("job {job} is due {schedule}, which is more often than a timer ticks")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(trigger: Trigger) -> TickNeed {
        let now = "2026-11-21T20:00:00Z".parse().unwrap();
        need(&Schedule { trigger, ..Schedule::manual() }, now, &TimeZone::UTC)
    }

    fn minutes(step: usize) -> TickNeed {
        TickNeed::Minutes((0..60).step_by(step).collect())
    }

    #[test]
    fn ticks_are_more_frequent_than_runs() {
        let every = |minutes| needed(Trigger::Every(SignedDuration::from_mins(minutes)));
        for (interval, step) in [(5, 4), (6, 5), (7, 6), (10, 6), (12, 10), (15, 12), (16, 15)] {
            assert_eq!(every(interval), minutes(step), "every {interval}m");
        }
        assert_eq!(every(10_080), minutes(15));
        assert_eq!(every(4), TickNeed::Daemon);
        assert_eq!(every(1), TickNeed::Daemon);
    }

    #[test]
    fn cron_minutes_are_ticked_exactly() {
        let cron = |text: &str| needed(Trigger::Cron(text.parse().unwrap()));
        assert_eq!(cron("*/5 * * * *"), minutes(5));
        assert_eq!(cron("7,8 3 * * 1"), TickNeed::Minutes(BTreeSet::from([7, 8])));
        assert_eq!(cron("* * * * *"), TickNeed::Daemon);
        assert_eq!(cron("*/4 * * * *"), TickNeed::Daemon);
    }

    #[test]
    fn minutes_are_those_of_the_host() {
        let now = "2026-11-21T20:00:00Z".parse().unwrap();
        let minutes = |trigger, zone: &str, host: &str| {
            let schedule = Schedule { trigger, zone: zone.to_owned(), night: None };
            match need(&schedule, now, &zones::get(host).unwrap()) {
                TickNeed::Minutes(minutes) => minutes.into_iter().collect::<Vec<_>>(),
                TickNeed::Daemon => panic!("{schedule:?} needs a daemon"),
            }
        };
        let daily = || Trigger::Daily(Time::constant(4, 37, 0, 0));
        assert_eq!(minutes(daily(), "Europe/Berlin", "UTC"), [37]);
        assert_eq!(minutes(daily(), "Asia/Kolkata", "UTC"), [7]);
        assert_eq!(minutes(daily(), "UTC", "Asia/Kathmandu"), [22]);
        // The clock changes by half an hour.
        assert_eq!(minutes(daily(), "Australia/Lord_Howe", "UTC"), [7, 37]);
        let cron = Trigger::Cron("37 3 * * 1".parse().unwrap());
        assert_eq!(minutes(cron, "Asia/Kolkata", "UTC"), [7]);
    }
}
