//! Computes when a job is due, as pure arithmetic over a watermark in a time zone.
//!
//! Wall-clock triggers follow the calendar of their zone: a time in a spring gap is due once, at
//! the end of the gap, and a time that autumn repeats is due once, at its first pass. Intervals
//! follow elapsed time. This module must never read a clock.

pub mod cron;
mod describe;
mod due;
mod fields;
mod occurrences;
pub mod simulate;
mod zoned;

use std::fmt;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use cron::{BadCron, Cron};
use occurrences::{DailyTime, ScheduledTimes};

/// Maximum delay at which a scheduled time still counts as met. Host timers run every quarter of an
/// hour.
pub const ON_TIME: SignedDuration = SignedDuration::from_mins(20);

/// The condition that makes a job due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Only a person or another job starts the job.
    Manual,
    /// The job is due each time this duration has passed.
    Every(SignedDuration),
    /// The job is due once per civil day, at this time.
    Daily(Time),
    /// The job is due at the scheduled times of a cron expression.
    Cron(Cron),
    /// The job is due when another job of the same project ends.
    After(After),
}

/// The end of another job, as a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    pub job: String,
    pub on: On,
}

/// The ends of another job that count as a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Only ends of runs that published the requested artifacts, degraded runs included.
    Success,
    /// Ends of all runs that did work, including failed ones; a skipped run does not count.
    End,
}

/// A trigger with all data that is needed to evaluate it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The condition that makes the job due.
    pub trigger: Trigger,
    /// The IANA zone of the civil times.
    pub zone: String,
    /// The time for which a night stays open that an occurrence of this schedule opens; `None` if
    /// its occurrences open no night.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub night: Option<SignedDuration>,
}

/// The error for a zone name that is not in the IANA database.
#[derive(Debug, thiserror::Error)]
#[error("unknown time zone {0:?} (names look like Europe/Berlin or UTC)")]
pub struct UnknownZone(pub String);

/// The scheduled times that became due since the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The scheduled times to run, in ascending order.
    pub fire: Vec<Timestamp>,
    /// Scheduled times that passed and are not run.
    pub missed: Option<Missed>,
    /// The time up to which all scheduled times are handled.
    pub watermark: Timestamp,
    /// The next scheduled time after the watermark.
    pub next: Option<Timestamp>,
}

/// A sequence of missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    pub first: Timestamp,
    pub last: Timestamp,
    /// The exact number of missed scheduled times.
    pub count: u64,
}

impl Schedule {
    /// Returns the schedule of a job that only a person starts.
    pub fn manual() -> Self {
        Self { trigger: Trigger::Manual, zone: "UTC".to_owned(), night: None }
    }

    /// Returns the first time strictly after `after` at which the trigger is due. An interval
    /// counts from `anchor`.
    ///
    /// # Errors
    /// Returns an error if the zone is unknown.
    pub fn next_after(
        &self,
        after: Timestamp,
        anchor: Timestamp,
    ) -> Result<Option<Timestamp>, UnknownZone> {
        Ok(self.times(anchor)?.next_after(after))
    }

    /// Counts the scheduled times in `(after, until]` exactly. The cost is proportional to the days
    /// between them, not to the number of scheduled times.
    ///
    /// # Errors
    /// Returns an error if the zone is unknown.
    pub fn count(
        &self,
        after: Timestamp,
        until: Timestamp,
        anchor: Timestamp,
    ) -> Result<u64, UnknownZone> {
        Ok(self.times(anchor)?.count(after, until))
    }

    fn times(&self, anchor: Timestamp) -> Result<ScheduledTimes<'_>, UnknownZone> {
        let zone = || TimeZone::get(&self.zone).map_err(|_| UnknownZone(self.zone.clone()));
        Ok(match &self.trigger {
            Trigger::Manual | Trigger::After(_) => ScheduledTimes::Never,
            Trigger::Every(period) => ScheduledTimes::Every(*period, anchor),
            Trigger::Daily(time) => ScheduledTimes::Daily(DailyTime(*time), zone()?),
            Trigger::Cron(cron) => ScheduledTimes::Cron(cron, zone()?),
        })
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual => f.write_str("manual"),
            Self::Every(period) => write!(f, "every {period:#}"),
            Self::Daily(time) => write!(f, "daily {}", time.strftime("%H:%M")),
            Self::Cron(cron) => write!(f, "cron {cron}"),
            Self::After(After { job, on }) => match on {
                On::Success => write!(f, "after {job}"),
                On::End => write!(f, "after {job} ends"),
            },
        }
    }
}
