//! `runner schedule`: shows when jobs are due, and simulates a period. These commands neither start
//! nor write anything.

mod simulate;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runner_engine::outcome::Exit;
use runner_engine::schedule::simulate::Simulated;
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::tick::REPORT_JOB;
use runner_engine::zones;
use serde::Serialize;

use super::Cli;
use crate::config::{Config, values};
use crate::project::{self, LoadedProject};
use crate::ui::{Failure, Ui, View, show, when};

/// Show when jobs are due: the next scheduled times, a description in words, or a simulation of
/// a period
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner schedule next dream")]
pub struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    Next(NextArgs),
    Explain(ExplainArgs),
    Simulate(simulate::SimulateArgs),
}

impl ScheduleArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        dispatch!(&self.command, ScheduleCommand: Next Explain Simulate => run(cli))
    }
}

/// Show the next scheduled times of a job or an expression
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner schedule next --cron '30 2 * * MON-FRI' --zone Europe/Berlin --from 2026-03-27"
)]
struct NextArgs {
    #[command(flatten)]
    what: ScheduleTarget,
    /// The start: RFC 3339, or a date or time in the zone [default: now]
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// Number of scheduled times
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

/// Describe in words when a job or an expression is due
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner schedule explain --cron '0 9 1 * 5'")]
struct ExplainArgs {
    #[command(flatten)]
    what: ScheduleTarget,
}

/// The schedule of a job, or a schedule to try.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("schedule").args(["job", "cron", "every", "daily"]).required(true)))]
struct ScheduleTarget {
    /// A job in the project
    job: Option<String>,
    /// A cron expression: minute, hour, day of month, month, day of week
    #[arg(long, value_name = "EXPR")]
    cron: Option<String>,
    /// An interval, like 15m
    #[arg(long, value_name = "D")]
    every: Option<String>,
    /// A daily time, like 02:30
    #[arg(long, value_name = "T")]
    daily: Option<String>,
    /// The IANA time zone [default: that of the job, the project's night or this machine, in that
    /// order]
    #[arg(long)]
    zone: Option<String>,
}

/// A schedule, with its next scheduled times if they were requested.
#[derive(Debug, Serialize)]
struct ScheduleView {
    trigger: String,
    zone: String,
    words: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Vec<ScheduledTime>>,
}

#[derive(Debug, Serialize)]
struct ScheduledTime {
    at: Timestamp,
    local: String,
    /// The local time as the table shows it.
    #[serde(skip)]
    shown: String,
}

impl View for ScheduleView {
    fn print(&self, _ui: Ui) {
        let text = match self.next.as_deref() {
            None => format!("{}: {}\n", self.trigger, self.words),
            Some([]) => format!("never due: {}\n", self.words),
            Some(next) => {
                let rows = next.iter().map(|time| show::row([&time.shown, &time.at.to_string()]));
                show::table(&rows.collect::<Vec<_>>())
            }
        };
        show::out(&text);
    }
}

impl ScheduleView {
    fn of(schedule: &Schedule, next: Option<Vec<ScheduledTime>>) -> Self {
        Self {
            trigger: schedule.trigger.to_string(),
            zone: schedule.zone.clone(),
            words: schedule.describe(),
            next,
        }
    }
}

impl ExplainArgs {
    fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        cli.ui.show(&ScheduleView::of(&self.what.schedule(cli)?, None));
        Ok(Exit::Done)
    }
}

impl NextArgs {
    fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let schedule = self.what.schedule(cli)?;
        let zone = zone(&schedule.zone)?;
        let from = match &self.from {
            Some(from) => parse_time(from, &zone, cli.env.wall()?)?,
            // Intervals count from this time, so fractions of a second are removed for readability.
            None => {
                let now = cli.env.wall()?;
                Timestamp::from_second(now.as_second()).unwrap_or(now)
            }
        };
        let mut found = Vec::new();
        let mut at = from;
        for _ in 0..self.count {
            let next = schedule.next_after(at, from);
            let next = next.map_err(|error| Failure::configuration(error.to_string()))?;
            let Some(next) = next else { break };
            let local = next.to_zoned(zone.clone());
            found.push(ScheduledTime {
                at: next,
                local: local.to_string(),
                shown: local.strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
            });
            at = next;
        }
        cli.ui.show(&ScheduleView::of(&schedule, Some(found)));
        Ok(Exit::Done)
    }
}

impl ScheduleTarget {
    /// Returns the schedule of the named job, or the schedule in the flags.
    fn schedule(&self, cli: &Cli<'_>) -> Result<Schedule, Failure> {
        let trigger = if let Some(text) = &self.cron {
            let cron = text.parse().map_err(|error| {
                Failure::usage(format!("--cron: {error}")).hint("runner schedule next --help")
            })?;
            Trigger::Cron(cron)
        } else if let Some(text) = &self.every {
            Trigger::Every(duration("--every", text)?)
        } else if let Some(text) = &self.daily {
            let time =
                values::time(text).map_err(|why| Failure::usage(format!("--daily: {why}")))?;
            Trigger::Daily(time)
        } else {
            let name = self.job.as_deref().unwrap_or_default();
            let project = LoadedProject::load(cli.env, cli.here)?;
            let mut schedule = jobs(&project.config, Some(name))?.remove(0).schedule;
            if let Some(named) = &self.zone {
                zone(named)?;
                schedule.zone.clone_from(named);
            }
            return Ok(schedule);
        };
        let zone_name = match &self.zone {
            Some(named) => named.clone(),
            // In a project, the default is the zone of the night. A project that cannot be read is
            // an error.
            None => match project::find(cli.here) {
                Ok(root) => LoadedProject::load(cli.env, &root)?.config.night.zone,
                Err(_) => zones::system_name(),
            },
        };
        zone(&zone_name)?;
        Ok(Schedule { trigger, zone: zone_name, night: None })
    }
}

/// Returns one job, or all enabled jobs, with their policies for missed times.
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

fn zone(name: &str) -> Result<TimeZone, Failure> {
    zones::get(name).map_err(|_| {
        Failure::usage(format!("unknown time zone {name:?} (names look like Europe/Berlin or UTC)"))
    })
}

fn duration(flag: &str, text: &str) -> Result<SignedDuration, Failure> {
    values::duration(text).map_err(|why| Failure::usage(format!("{flag}: {why}")))
}

fn parse_time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, Failure> {
    when::parse_time(text, zone, now).map_err(Failure::usage)
}
