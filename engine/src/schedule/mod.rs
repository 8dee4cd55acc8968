//! When a job is due: pure arithmetic over a watermark, in a zone.
//!
//! Wall-clock triggers follow the calendar of their zone: a time that a spring gap swallows is due
//! once, at the end of the gap; one that autumn repeats is due once, at its first pass. Intervals
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
    /// Only a person or another job.
    Manual,
    /// Each time this long has passed.
    Every(SignedDuration),
    /// Once a civil day at this time.
    Daily(Time),
    /// The scheduled times of a cron expression.
    Cron(Cron),
    /// The end of another job of the same project.
    After(After),
}

/// The end of another job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Its name.
    pub job: String,
    /// Which of its ends count.
    pub on: On,
}

/// Which ends of another job count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Only ends of runs that published the requested artifacts, degraded runs included.
    Success,
    /// Any of one that was at work, failed ones included; not one that was skipped.
    End,
}

/// A trigger with all that is needed to evaluate it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The condition that makes the job due.
    pub trigger: Trigger,
    /// The IANA zone of the civil times.
    pub zone: String,
    /// Whether its occurrences open a night, and for how long that stays open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub night: Option<SignedDuration>,
}

/// The zone's name is not in the IANA database.
#[derive(Debug, thiserror::Error)]
#[error("unknown time zone {0:?} (names look like Europe/Berlin or UTC)")]
pub struct UnknownZone(pub String);

/// The scheduled times that became due since the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The scheduled times to run for, in their order.
    pub fire: Vec<Timestamp>,
    /// Scheduled times that passed and are not run.
    pub missed: Option<Missed>,
    /// Everything up to here is accounted for.
    pub watermark: Timestamp,
    /// The next scheduled time after the watermark.
    pub next: Option<Timestamp>,
}

/// A stretch of missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many, exactly.
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
