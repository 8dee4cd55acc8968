//! The scheduled times of one trigger in its zone.
//!
//! The cost of a query depends on the number of days in the period and on the number of times
//! returned, not on how often the trigger is due. Even the schedule of a job that is due every
//! second is cheap to evaluate after the machine has been suspended for a year. This module must
//! never decide whether a job runs at a scheduled time.

use std::collections::VecDeque;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use super::cron::Cron;
use super::zoned::{self, Calendar};

/// A trigger with its resolved zone, ready for evaluation.
pub(super) enum ScheduledTimes<'a> {
    /// The trigger has no scheduled times.
    Never,
    /// A period and the time at which the first period starts.
    Every(SignedDuration, Timestamp),
    Daily(DailyTime, TimeZone),
    Cron(&'a Cron, TimeZone),
}

/// A calendar with a single time of day.
pub(super) struct DailyTime(pub Time);

impl ScheduledTimes<'_> {
    /// Returns the first scheduled time strictly after `after`, if there is one.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Every(period, anchor) => {
                let passed = periods(*period, *anchor, after)?;
                let ahead = (passed + 1).checked_mul(period.as_millis())?;
                let ahead = SignedDuration::from_millis(i64::try_from(ahead).ok()?);
                anchor.checked_add(ahead).ok()
            }
            Self::Daily(daily, zone) => zoned::next_fixed(daily, zone, after),
            Self::Cron(cron, zone) => cron.next_after(after, zone),
        }
    }

    /// Counts the scheduled times in `(after, until]`.
    pub(super) fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        if until <= after {
            return 0;
        }
        match self {
            Self::Never => 0,
            Self::Every(period, anchor) => {
                let passed = |at| periods(*period, *anchor, at).unwrap_or(0);
                u64::try_from(passed(until) - passed(after)).unwrap_or(0)
            }
            Self::Daily(daily, zone) => zoned::count_fixed(daily, zone, after, until),
            Self::Cron(cron, zone) => cron.count(after, until, zone),
        }
    }

    /// Returns at most `most` scheduled times in `(after, until]`, the newest ones, in ascending
    /// order.
    pub(super) fn newest(&self, after: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
        let mut span =
            SignedDuration::from_mins(i64::try_from(most).unwrap_or(i64::MAX).min(1 << 20));
        // The span doubles until it contains enough scheduled times, so that the search below need
        // not start at a distant `after`.
        let from = loop {
            let from = until.checked_sub(span).unwrap_or(after).max(after);
            if from == after || self.count(from, until) >= most as u64 {
                break from;
            }
            span = span.saturating_mul(2);
        };
        let mut found = VecDeque::new();
        let mut next = self.next_after(from);
        while let Some(at) = next.filter(|at| *at <= until) {
            if found.len() == most {
                found.pop_front();
            }
            found.push_back(at);
            next = self.next_after(at);
        }
        found.into()
    }
}

/// Counts the whole periods that have passed since the anchor. Returns `None` if the period is not
/// positive.
fn periods(period: SignedDuration, anchor: Timestamp, at: Timestamp) -> Option<i128> {
    let step = period.as_millis();
    (step > 0).then(|| at.duration_since(anchor).as_millis().max(0) / step)
}

impl DailyTime {
    /// Returns the day number of the last daily time at or before `at`. Only differences between
    /// day numbers are meaningful.
    fn days_up_to(&self, at: DateTime) -> i64 {
        let epoch = jiff::civil::Date::constant(1970, 1, 1);
        let days = at.date().duration_since(epoch).as_hours() / 24;
        days - i64::from(at.time() < self.0)
    }
}

impl Calendar for DailyTime {
    fn next(&self, after: DateTime) -> Option<DateTime> {
        let day = after.date();
        let day = if after.time() < self.0 { day } else { day.tomorrow().ok()? };
        Some(day.to_datetime(self.0))
    }

    fn count(&self, after: DateTime, until: DateTime) -> u64 {
        u64::try_from(self.days_up_to(until) - self.days_up_to(after)).unwrap_or(0)
    }
}

pub(crate) fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(1.nanosecond()).unwrap_or(at)
}
