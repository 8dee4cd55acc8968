//! `runner schedule simulate`: shows the runs, catch-ups and missed times of a period.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runner_engine::outcome::Exit;
use runner_engine::schedule::simulate::{Fate, Simulated, SimulatedEvent, Stretch, simulate};
use runner_engine::zones;
use serde::Serialize;

use super::{duration, jobs, parse_time, zone};
use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, show};

/// Show what would run, be caught up or be missed, for all enabled jobs of the project or for one
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner schedule simulate --from 2026-11-20 --to 2026-11-24 --asleep 2026-11-20T20:00..2026-11-23T08:00"
)]
pub(super) struct SimulateArgs {
    /// Simulate only this job
    job: Option<String>,
    /// The start of the period: RFC 3339, or a date or time in the zone of the project's night
    #[arg(long, value_name = "T")]
    from: String,
    /// The end of the period
    #[arg(long, value_name = "T")]
    to: String,
    /// A period without ticks, followed by a tick (may be repeated)
    #[arg(long, value_name = "FROM..TO")]
    asleep: Vec<String>,
    /// The interval of the host timer's ticks
    #[arg(long, value_name = "D", default_value = "15m")]
    tick: String,
}

#[derive(Debug, Serialize)]
struct Simulation {
    from: Timestamp,
    to: Timestamp,
    tick_seconds: i64,
    run: u64,
    caught_up: u64,
    missed: u64,
    events: Vec<ShownEvent>,
}

#[derive(Debug, Serialize)]
struct ShownEvent {
    job: String,
    due: Timestamp,
    last: Timestamp,
    count: u64,
    outcome: EventOutcome,
    /// The time at which the run starts, or at which the tick records the missed time.
    at: Timestamp,
    #[serde(skip)]
    zone: TimeZone,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum EventOutcome {
    Run,
    CaughtUp,
    Missed,
}

impl SimulateArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        let zone = zone(&project.config.night.zone)?;
        let stretch = self.stretch(cli.env.wall()?, &zone)?;
        let jobs = jobs(&project.config, self.job.as_deref())?;
        let events =
            simulate(&jobs, &stretch).map_err(|error| Failure::usage(error.to_string()))?;
        cli.ui.show(&Simulation::of(&jobs, &stretch, events));
        Ok(Exit::Done)
    }

    fn stretch(&self, now: Timestamp, zone: &TimeZone) -> Result<Stretch, Failure> {
        let span = |from: &str, to: &str| -> Result<(Timestamp, Timestamp), Failure> {
            let (begins, ends) = (parse_time(from, zone, now)?, parse_time(to, zone, now)?);
            if begins < ends {
                Ok((begins, ends))
            } else {
                Err(Failure::usage(format!("{from} is not before {to}")))
            }
        };
        let asleep = self.asleep.iter().map(|text| match text.split_once("..") {
        Some((from, to)) => span(from, to),
        None => Err(Failure::usage(format!(
            "--asleep {text:?}: expected two times with .. between them, like 2026-11-20T20:00..2026-11-23T08:00"
        ))),
    });
        let (from, to) = span(&self.from, &self.to)?;
        let tick = duration("--tick", &self.tick)?;
        if tick < SignedDuration::from_secs(1) {
            return Err(Failure::usage("--tick: must be at least one second"));
        }
        Ok(Stretch { from, to, asleep: asleep.collect::<Result<_, _>>()?, tick })
    }
}

impl Simulation {
    fn of(jobs: &[Simulated], stretch: &Stretch, events: Vec<SimulatedEvent>) -> Self {
        let mut simulation = Self {
            from: stretch.from,
            to: stretch.to,
            tick_seconds: stretch.tick.as_secs(),
            run: 0,
            caught_up: 0,
            missed: 0,
            events: Vec::with_capacity(events.len()),
        };
        for SimulatedEvent { job, due, fate } in events {
            let zone = jobs.iter().find(|known| known.name == job);
            let zone = zone.and_then(|job| zones::get(&job.schedule.zone).ok());
            let zone = zone.unwrap_or(TimeZone::UTC);
            let (outcome, last, count, at) = match fate {
                Fate::Run { starts } => (EventOutcome::Run, due, 1, starts),
                Fate::CaughtUp { starts } => (EventOutcome::CaughtUp, due, 1, starts),
                Fate::Missed { last, count, found } => (EventOutcome::Missed, last, count, found),
            };
            *match outcome {
                EventOutcome::Run => &mut simulation.run,
                EventOutcome::CaughtUp => &mut simulation.caught_up,
                EventOutcome::Missed => &mut simulation.missed,
            } += count;
            simulation.events.push(ShownEvent { job, due, last, count, outcome, at, zone });
        }
        simulation
    }
}

impl ShownEvent {
    fn row(&self) -> Vec<String> {
        let local = |at: Timestamp| {
            let local = at.to_zoned(self.zone.clone());
            local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
        };
        let (starts, text) = match (self.outcome, self.count) {
            (EventOutcome::Run, _) => (local(self.at), "run".to_owned()),
            (EventOutcome::CaughtUp, _) => (local(self.at), "caught up".to_owned()),
            (EventOutcome::Missed, 1) => ("-".to_owned(), "missed".to_owned()),
            (EventOutcome::Missed, count) => {
                ("-".to_owned(), format!("missed ×{count}, last at {}", local(self.last)))
            }
        };
        vec![local(self.due), starts, self.job.clone(), text]
    }
}

impl View for Simulation {
    fn print(&self, _ui: Ui) {
        if self.events.is_empty() {
            return show::out("nothing would be due\n");
        }
        let mut rows = vec![show::row(["DUE", "STARTS", "JOB", "RESULT"])];
        rows.extend(self.events.iter().map(ShownEvent::row));
        show::out(&format!(
            "{}{} run, {} caught up, {} missed\n",
            show::table(&rows),
            self.run,
            self.caught_up,
            self.missed
        ));
    }
}
