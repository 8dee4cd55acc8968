//! The `runner schedule` commands: show when jobs are due, and simulate a span of time. They start
//! nothing and write nothing.

use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runner_engine::outcome::Exit;
use runner_engine::schedule::simulate::{Fate, Simulated, SimulatedEvent, Stretch, simulate};
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::tick::REPORT_JOB;
use serde::Serialize;

use crate::cli::Failure;
use crate::cli::args::{Listing, ScheduleCommand, ScheduleTarget};
use crate::cli::{show, when};
use crate::config::{Config, values};
use crate::env::Env;
use crate::project::{self, LoadedProject};

#[derive(Debug, Serialize)]
struct ScheduleJson {
    trigger: String,
    zone: String,
    words: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Vec<ScheduledTimeJson>>,
}

#[derive(Debug, Serialize)]
struct ScheduledTimeJson {
    at: Timestamp,
    local: String,
}

#[derive(Debug, Serialize)]
struct SimulationJson {
    from: Timestamp,
    to: Timestamp,
    tick_seconds: i64,
    run: u64,
    caught_up: u64,
    missed: u64,
    events: Vec<EventJson>,
}

#[derive(Debug, Serialize)]
struct EventJson {
    job: String,
    due: Timestamp,
    last: Timestamp,
    count: u64,
    outcome: &'static str,
    /// The time at which the run starts, or at which the scheduler decides not to start one.
    at: Timestamp,
}

/// Carries out one of the `schedule` commands.
pub fn run(home: &Env, here: &Path, command: &ScheduleCommand) -> Result<Exit, Failure> {
    match command {
        ScheduleCommand::Next { what, from, count, listing } => {
            next(home, here, what, from.as_deref(), *count, *listing)
        }
        ScheduleCommand::Explain { what, listing } => explain(home, here, what, *listing),
        ScheduleCommand::Simulate { job, from, to, asleep, tick, listing } => {
            let project = LoadedProject::load(home, here)?;
            let zone = zone(&project.config.night.zone)?;
            let stretch = stretch(home.wall()?, &zone, from, to, asleep, tick)?;
            let jobs = jobs(&project.config, job.as_deref())?;
            print_simulation(&jobs, &stretch, *listing)
        }
    }
}

fn next(
    home: &Env,
    here: &Path,
    what: &ScheduleTarget,
    from: Option<&str>,
    count: u32,
    listing: Listing,
) -> Result<Exit, Failure> {
    let schedule = schedule(home, here, what)?;
    let zone = zone(&schedule.zone)?;
    let from = match from {
        Some(from) => parse_time(from, &zone, home.wall()?)?,
        // Intervals count from this time, so fractions of a second are removed to keep the output
        // readable.
        None => {
            let now = home.wall()?;
            Timestamp::from_second(now.as_second()).unwrap_or(now)
        }
    };
    let mut found: Vec<Timestamp> = Vec::new();
    let mut at = from;
    for _ in 0..count {
        let next = schedule.next_after(at, from);
        let next = next.map_err(|error| Failure::configuration(error.to_string()))?;
        let Some(next) = next else { break };
        found.push(next);
        at = next;
    }
    if listing.json {
        let local = |at: &Timestamp| ScheduledTimeJson {
            at: *at,
            local: at.to_zoned(zone.clone()).to_string(),
        };
        show::json(&ScheduleJson {
            next: Some(found.iter().map(local).collect()),
            ..of(&schedule)
        });
    } else if found.is_empty() {
        show::out(&format!("no scheduled time makes it due: {}\n", schedule.describe()));
    } else {
        let row = |at: &Timestamp| {
            let local = at.to_zoned(zone.clone());
            let local = local.strftime("%a %Y-%m-%d %H:%M:%S %:z");
            vec![local.to_string(), at.to_string()]
        };
        show::out(&show::table(&found.iter().map(row).collect::<Vec<_>>()));
    }
    Ok(Exit::Done)
}

fn explain(
    home: &Env,
    here: &Path,
    what: &ScheduleTarget,
    listing: Listing,
) -> Result<Exit, Failure> {
    let schedule = schedule(home, here, what)?;
    if listing.json {
        show::json(&of(&schedule));
    } else {
        show::out(&format!("{}: {}\n", schedule.trigger, schedule.describe()));
    }
    Ok(Exit::Done)
}

fn of(schedule: &Schedule) -> ScheduleJson {
    ScheduleJson {
        trigger: schedule.trigger.to_string(),
        zone: schedule.zone.clone(),
        words: schedule.describe(),
        next: None,
    }
}

/// Parses and checks the schedule on the command line.
fn schedule(home: &Env, here: &Path, what: &ScheduleTarget) -> Result<Schedule, Failure> {
    let trigger = if let Some(text) = &what.cron {
        let cron = text.parse().map_err(|error| {
            Failure::usage(format!("--cron: {error}")).hint("runner schedule next --help")
        })?;
        Trigger::Cron(cron)
    } else if let Some(text) = &what.every {
        Trigger::Every(duration("--every", text)?)
    } else if let Some(text) = &what.daily {
        let time = values::time(text).map_err(|why| Failure::usage(format!("--daily: {why}")))?;
        Trigger::Daily(time)
    } else {
        let name = what.job.as_deref().unwrap_or_default();
        let project = LoadedProject::load(home, here)?;
        let mut schedule = jobs(&project.config, Some(name))?.remove(0).schedule;
        if let Some(named) = &what.zone {
            zone(named)?;
            schedule.zone.clone_from(named);
        }
        return Ok(schedule);
    };
    let zone_name = match &what.zone {
        Some(named) => named.clone(),
        // In a project the zone is that of its night; a project that cannot be read is an error.
        None => match project::find(here) {
            Ok(root) => LoadedProject::load(home, &root)?.config.night.zone,
            Err(_) => TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
        },
    };
    zone(&zone_name)?;
    Ok(Schedule { trigger, zone: zone_name, night: None })
}

/// Returns one job, or all enabled jobs, with their policies for late scheduled times.
fn jobs(config: &Config, only: Option<&str>) -> Result<Vec<Simulated>, Failure> {
    if let Some(name) = only {
        config.job(name)?;
    }
    let rows = config.job_rows()?.into_iter();
    Ok(rows
        .filter(|row| row.name != REPORT_JOB)
        .filter(|row| only.map_or(row.enabled, |only| only == row.name))
        .map(|row| Simulated {
            catch_up: row.policy.catch_up,
            name: row.name,
            schedule: row.schedule,
        })
        .collect())
}

fn stretch(
    now: Timestamp,
    zone: &TimeZone,
    from: &str,
    to: &str,
    asleep: &[String],
    tick: &str,
) -> Result<Stretch, Failure> {
    let span = |from: &str, to: &str| -> Result<(Timestamp, Timestamp), Failure> {
        let (begins, ends) = (parse_time(from, zone, now)?, parse_time(to, zone, now)?);
        if begins < ends {
            Ok((begins, ends))
        } else {
            Err(Failure::usage(format!("{from} is not before {to}")))
        }
    };
    let asleep = asleep.iter().map(|text| match text.split_once("..") {
        Some((from, to)) => span(from, to),
        None => Err(Failure::usage(format!(
            "--asleep {text:?}: expected two times with .. between them, like 2026-11-20T20:00..2026-11-23T08:00"
        ))),
    });
    let (from, to) = span(from, to)?;
    let tick = duration("--tick", tick)?;
    if tick < SignedDuration::from_secs(1) {
        return Err(Failure::usage("--tick: must be at least one second"));
    }
    Ok(Stretch { from, to, asleep: asleep.collect::<Result<_, _>>()?, tick })
}

fn print_simulation(
    jobs: &[Simulated],
    stretch: &Stretch,
    listing: Listing,
) -> Result<Exit, Failure> {
    let events = simulate(jobs, stretch).map_err(|error| Failure::usage(error.to_string()))?;
    let mut json = SimulationJson {
        from: stretch.from,
        to: stretch.to,
        tick_seconds: stretch.tick.as_secs(),
        run: 0,
        caught_up: 0,
        missed: 0,
        events: Vec::with_capacity(events.len()),
    };
    for SimulatedEvent { job, due, fate } in events {
        let (outcome, last, count, at) = match fate {
            Fate::Run { starts } => ("run", due, 1, starts),
            Fate::CaughtUp { starts } => ("caught-up", due, 1, starts),
            Fate::Missed { last, count, found } => ("missed", last, count, found),
        };
        *match fate {
            Fate::Run { .. } => &mut json.run,
            Fate::CaughtUp { .. } => &mut json.caught_up,
            Fate::Missed { .. } => &mut json.missed,
        } += count;
        json.events.push(EventJson { job, due, last, count, outcome, at });
    }
    if listing.json {
        show::json(&json);
        return Ok(Exit::Done);
    }
    let mut rows = vec![["DUE", "STARTS", "JOB", "WHAT"].map(str::to_owned).to_vec()];
    for event in &json.events {
        let zone = jobs.iter().find(|job| job.name == event.job);
        let zone = zone.and_then(|job| TimeZone::get(&job.schedule.zone).ok());
        let zone = zone.unwrap_or(TimeZone::UTC);
        let local = |at: Timestamp| {
            let local = at.to_zoned(zone.clone());
            local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
        };
        let (starts, what) = match event.outcome {
            "missed" if event.count == 1 => ("-".to_owned(), "missed".to_owned()),
            "missed" => (
                "-".to_owned(),
                format!("missed ×{}, the last at {}", event.count, local(event.last)),
            ),
            "caught-up" => (local(event.at), "caught up with".to_owned()),
            outcome => (local(event.at), outcome.to_owned()),
        };
        rows.push(vec![local(event.due), starts, event.job.clone(), what]);
    }
    if json.events.is_empty() {
        show::out("nothing would be due\n");
    } else {
        show::out(&format!(
            "{}{} run, {} caught up with, {} missed\n",
            show::table(&rows),
            json.run,
            json.caught_up,
            json.missed
        ));
    }
    Ok(Exit::Done)
}

fn zone(name: &str) -> Result<TimeZone, Failure> {
    TimeZone::get(name).map_err(|_| {
        Failure::usage(format!("unknown time zone {name:?} (names look like Europe/Berlin or UTC)"))
    })
}

fn duration(flag: &str, text: &str) -> Result<SignedDuration, Failure> {
    values::duration(text).map_err(|why| Failure::usage(format!("{flag}: {why}")))
}

fn parse_time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, Failure> {
    when::parse_time(text, zone, now).map_err(Failure::usage)
}
