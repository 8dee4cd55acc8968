//! Cron expressions as in Debian's cron (five fields, names, and nicknames such as `@daily`), with
//! the extensions `L`, `W` and `#`.
//!
//! croner parses an expression and reports the days that it matches. The module `zoned` applies the
//! zone's transitions, because croner itself follows elapsed time for a list of fixed hours and
//! drops a skipped time if the gap ends on another day. This module must never change an
//! expression's text, which is printed as the user wrote it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronComponent, CronPattern, Weekday};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::fields::{Fields, spelled};
use super::zoned::{self, Calendar};

/// Number of years after which the Gregorian calendar repeats, including the weekdays.
const CYCLE: i16 = 400;

/// A cron expression. Two expressions are equal if they are written identically.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    plan: Arc<CronPlan>,
}

/// The error for a string that is not a cron expression, or for an expression that is never due.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a cron expression: {why}")]
pub struct BadCron {
    text: String,
    why: String,
}

/// A parsed cron expression.
#[derive(Debug)]
struct CronPlan {
    /// The minutes as a bit set: bit m is minute m.
    minutes: u64,
    /// The hours as a bit set: bit h is hour h.
    hours: u32,
    /// The months as a bit set: bit m is month m, counted from 1.
    months: u16,
    /// The pattern that matches days. Its other fields are not used.
    days: CronPattern,
    /// Whether the scheduled times follow elapsed time.
    elapsed: bool,
}

impl Cron {
    /// Returns the first scheduled time strictly after `after` in `zone`, if there is one.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.plan.elapsed {
            zoned::next_elapsed(&*self.plan, zone, after)
        } else {
            zoned::next_fixed(&*self.plan, zone, after)
        }
    }

    /// Counts the scheduled times in `(after, until]` in `zone`. The cost is proportional to the
    /// number of days in the period.
    pub fn count(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> u64 {
        if self.plan.elapsed {
            zoned::count_elapsed(&*self.plan, zone, after, until)
        } else {
            zoned::count_fixed(&*self.plan, zone, after, until)
        }
    }

    /// Returns whether the scheduled times follow elapsed time, which is the case if the minute or
    /// hour field begins with `*`. For such an expression, a gap adds no scheduled time, and the
    /// scheduled times in both passes of a fold are due.
    pub fn follows_elapsed_time(&self) -> bool {
        self.plan.elapsed
    }
}

impl CronPlan {
    fn read(text: &str) -> Result<Self, String> {
        let spelled = spelled(text)?;
        let fields = Fields::read(&spelled)?;
        let mut pattern = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .dom_and_dow(fields.both_days())
            .build()
            .parse(&spelled)
            .map_err(|error| error.to_string())?
            .pattern;
        // croner stores one byte for each year up to 5000. These bytes are not needed.
        pattern.years = CronComponent::new(0, 0, 0, 0);
        let bits = |component: &CronComponent| {
            component.values().iter().fold(0_u64, |bits, value| bits | 1 << value)
        };
        let plan = Self {
            minutes: bits(&pattern.minutes),
            hours: u32::try_from(bits(&pattern.hours)).unwrap_or(u32::MAX),
            months: u16::try_from(bits(&pattern.months)).unwrap_or(u16::MAX),
            elapsed: fields.elapsed(),
            days: pattern,
        };
        let start = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        if plan.next(start).is_none() {
            return Err("it would never be due: none of its months has such a day".to_owned());
        }
        Ok(plan)
    }

    fn on(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset().unsigned_abs();
        self.days
            .day_match(
                i32::from(date.year()),
                u32::from(date.month().unsigned_abs()),
                u32::from(date.day().unsigned_abs()),
                Weekday::from_days_from_sunday(u32::from(weekday)),
            )
            .unwrap_or(false)
    }

    fn in_month(&self, date: Date) -> bool {
        self.months & 1 << date.month() != 0
    }

    /// Returns the first matching day on or after `day`. The search ends after one calendar cycle.
    fn day_from(&self, mut day: Date) -> Option<Date> {
        let last = day.year().saturating_add(CYCLE);
        loop {
            if !self.in_month(day) {
                day = day.last_of_month().tomorrow().ok()?;
            } else if self.on(day) {
                return Some(day);
            } else {
                day = day.tomorrow().ok()?;
            }
            if day.year() > last {
                return None;
            }
        }
    }

    /// Returns the first matching time of day at or after `(hour, minute)`.
    fn time_from(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        let later = |bits: u64, from: i8| {
            let left = bits.checked_shr(from.unsigned_abs().into()).unwrap_or(0);
            let ahead = i8::try_from(left.trailing_zeros()).ok()?;
            (left != 0).then_some(from + ahead)
        };
        let first = later(self.minutes, 0)?;
        match later(self.hours.into(), hour)? {
            this if this == hour => match later(self.minutes, minute) {
                Some(minute) => Some((hour, minute)),
                None => Some((later(self.hours.into(), hour + 1)?, first)),
            },
            next => Some((next, first)),
        }
    }

    /// Counts the matching times of day before `hour:minute`.
    fn times_before(&self, hour: i8, minute: i8) -> u64 {
        let below = |bits: u64, end: i8| u64::from((bits & ((1 << end) - 1)).count_ones());
        let whole = below(self.hours.into(), hour) * u64::from(self.minutes.count_ones());
        let begun = self.hours >> hour & 1 == 1;
        whole + if begun { below(self.minutes, minute) } else { 0 }
    }

    /// Counts the scheduled times on the days from `from` (inclusive) to `until` (exclusive).
    fn times_of_days(&self, mut from: Date, until: Date) -> u64 {
        let a_day = u64::from(self.hours.count_ones() * self.minutes.count_ones());
        let mut days = 0;
        while from < until {
            let next = if self.in_month(from) {
                days += u64::from(self.on(from));
                from.tomorrow()
            } else {
                from.last_of_month().tomorrow()
            };
            let Ok(next) = next else { break };
            from = next;
        }
        days * a_day
    }

    /// Counts the scheduled times on the day of `at`, up to and including `at`.
    fn times_up_to(&self, at: DateTime) -> u64 {
        if self.in_month(at.date()) && self.on(at.date()) {
            self.times_before(at.hour(), at.minute() + 1)
        } else {
            0
        }
    }
}

impl Calendar for CronPlan {
    fn next(&self, after: DateTime) -> Option<DateTime> {
        let mut day = after.date();
        // Scheduled times are whole minutes, so the search starts at the next minute.
        if self.in_month(day)
            && self.on(day)
            && let Some((hour, minute)) = self.time_from(after.hour(), after.minute() + 1)
        {
            return Some(day.at(hour, minute, 0, 0));
        }
        day = self.day_from(day.tomorrow().ok()?)?;
        let (hour, minute) = self.time_from(0, 0)?;
        Some(day.at(hour, minute, 0, 0))
    }

    fn count(&self, after: DateTime, until: DateTime) -> u64 {
        if until <= after {
            return 0;
        }
        (self.times_of_days(after.date(), until.date()) + self.times_up_to(until))
            .saturating_sub(self.times_up_to(after))
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl FromStr for Cron {
    type Err = BadCron;
    fn from_str(text: &str) -> Result<Self, BadCron> {
        match CronPlan::read(text) {
            Ok(plan) => Ok(Self { text: text.to_owned(), plan: Arc::new(plan) }),
            Err(why) => Err(BadCron { text: text.to_owned(), why }),
        }
    }
}

impl TryFrom<String> for Cron {
    type Error = BadCron;
    fn try_from(text: String) -> Result<Self, BadCron> {
        text.parse()
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
