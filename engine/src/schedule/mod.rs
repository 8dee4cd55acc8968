//! Computes when a job is due.
//!
//! Wall-clock triggers follow their zone's calendar. A time that a spring gap skips is due once, at
//! the end of the gap. A time that is repeated in autumn is due once, the first time that the clock
//! shows it. Intervals follow elapsed time, and so do cron expressions whose minute or hour field
//! begins with `*`. This module must never read a clock.

pub mod cron;
mod describe;
mod due;
mod fields;
mod occurrences;
pub mod simulate;
mod zoned;

use std::fmt;

use crate::zones;
use jiff::civil::Time;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use cron::{BadCron, Cron};
pub(crate) use occurrences::just_before;
use occurrences::{DailyTime, ScheduledTimes};

/// Maximum delay at which a start is still on time. Host timers fire every 15 minutes.
pub const ON_TIME: SignedDuration = SignedDuration::from_mins(20);

/// The condition that makes a job due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The job is started only by the user or by another job.
    Manual,
    /// The job is due whenever this duration has passed.
    Every(SignedDuration),
    /// The job is due once per civil day at this time.
    Daily(Time),
    /// The job is due at the scheduled times of a cron expression.
    Cron(Cron),
    /// The job is due when another job in the same project ends.
    After(After),
}

/// A trigger that makes a job due when another job ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    pub job: String,
    pub on: On,
}

/// Which finished runs of another job make a job due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Only runs that published artifacts, including degraded runs.
    Success,
    /// All finished runs, including failed and cancelled runs, but not skipped or deferred runs.
    End,
}

/// A trigger, its time zone and its night.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The condition that makes the job due.
    pub trigger: Trigger,
    /// The IANA time zone of the civil times.
    pub zone: String,
    /// The length of the night opened by an occurrence. `None` if the schedule opens no nights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub night: Option<SignedDuration>,
}

/// The error for a zone name that is not in the IANA time zone database.
#[derive(Debug, thiserror::Error)]
#[error("unknown time zone {0:?} (names look like Europe/Berlin or UTC)")]
pub struct UnknownZone(pub String);

/// The scheduled times that have become due since the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The scheduled times for which the job runs now, in ascending order.
    pub fire: Vec<Timestamp>,
    /// The scheduled times for which the job does not run, if there are any.
    pub missed: Option<Missed>,
    /// The new watermark: all scheduled times up to here are handled.
    pub watermark: Timestamp,
    /// The first scheduled time after `now`, if there is one.
    pub next: Option<Timestamp>,
}

/// A stretch of missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    pub first: Timestamp,
    pub last: Timestamp,
    /// The exact number of missed scheduled times.
    pub count: u64,
}

impl Schedule {
    /// Returns a schedule for a job without scheduled times.
    pub fn manual() -> Self {
        Self { trigger: Trigger::Manual, zone: "UTC".to_owned(), night: None }
    }

    /// Returns the first scheduled time strictly after `after`, or `None` if there is none.
    /// Intervals start at `anchor`.
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

    /// Counts the scheduled times in `(after, until]`. Intervals start at `anchor`. The cost
    /// depends on the number of days in the period, not on the number of scheduled times.
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
        let zone = || zones::get(&self.zone).map_err(|_| UnknownZone(self.zone.clone()));
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
