//! A brute-force oracle, which lists every minute around a transition with its local time.
//!
//! The oracle shares no code with the implementation except jiff's conversion to local time. It
//! also implements wrong rules, to verify that the comparison can fail.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::expressions::Expression;

/// The rules that an oracle follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    Debian,
    /// Wrong: a skipped fixed time is never due.
    GapSkips,
    /// Wrong: a repeated fixed time is due in both passes.
    FoldTwice,
    /// Wrong: times that follow elapsed time are evaluated as fixed times.
    ElapsedAsFixed,
    /// Wrong: `*/2` in a day field is treated as restricted.
    BareStarOnly,
}

/// Consecutive minutes of one civil hour.
struct Block {
    date: usize,
    hour: u64,
    minutes: u64,
    /// The timestamp of the first minute, in seconds.
    begins: i64,
    /// The number of the first minute in its hour.
    first: u64,
    /// Whether the local clock shows these minutes for the first time.
    fresh: bool,
}

/// A minute skipped by a gap.
struct Swallowed {
    date: usize,
    hour: u64,
    minutes: u64,
    /// The end of the gap.
    due: i64,
}

/// The minutes in a window of time.
pub struct Table {
    pub from: Timestamp,
    pub until: Timestamp,
    dates: Vec<Date>,
    blocks: Vec<Block>,
    swallowed: Vec<Swallowed>,
}

const DAY: i64 = 86_400;

impl Table {
    /// Creates the table of the minutes in `(at - 2 days, at + 2 days]`.
    pub fn around(zone: &TimeZone, at: Timestamp) -> Self {
        let middle = at.as_second() / 60 * 60;
        let (from, until) = (middle - 2 * DAY, middle + 2 * DAY);
        let mut table = Self {
            from: Timestamp::from_second(from).unwrap(),
            until: Timestamp::from_second(until).unwrap(),
            dates: Vec::new(),
            blocks: Vec::new(),
            swallowed: Vec::new(),
        };
        let local = |at: i64| zone.to_datetime(Timestamp::from_second(at).unwrap());
        // The walk starts a day earlier, to determine which local times were shown before the
        // window.
        let mut furthest = local(from - DAY);
        let mut minute = from - DAY + 60;
        while minute <= until {
            let shown = local(minute);
            assert_eq!(shown.second(), 0, "UTC offsets have been whole minutes since 1973");
            let mut passed = next_minute(furthest);
            while passed < shown {
                if minute > from {
                    table.swallow(passed, minute);
                }
                passed = next_minute(passed);
            }
            if minute > from {
                table.show(shown, minute, shown > furthest);
            }
            furthest = furthest.max(shown);
            minute += 60;
        }
        table
    }

    fn date(&mut self, date: Date) -> usize {
        let known = self.dates.iter().position(|known| *known == date);
        known.unwrap_or_else(|| {
            self.dates.push(date);
            self.dates.len() - 1
        })
    }

    fn show(&mut self, shown: DateTime, at: i64, fresh: bool) {
        let (date, hour, minute) =
            (self.date(shown.date()), shown.hour() as u64, shown.minute() as u64);
        if let Some(last) = self.blocks.last_mut()
            && (last.date, last.hour, last.fresh) == (date, hour, fresh)
            && at - last.begins == 60 * (minute as i64 - last.first as i64)
        {
            last.minutes |= 1 << minute;
            return;
        }
        self.blocks.push(Block {
            date,
            hour,
            minutes: 1 << minute,
            begins: at,
            first: minute,
            fresh,
        });
    }

    fn swallow(&mut self, civil: DateTime, due: i64) {
        let (date, hour) = (self.date(civil.date()), civil.hour() as u64);
        self.swallowed.push(Swallowed { date, hour, minutes: 1 << civil.minute(), due });
    }

    /// Returns the scheduled times in the window in seconds, in ascending order.
    pub fn times(&self, wanted: &Expression, rules: Rules) -> Vec<i64> {
        let elapsed = wanted.elapsed && rules != Rules::ElapsedAsFixed;
        let days: Vec<bool> = self.dates.iter().map(|date| day(wanted, *date, rules)).collect();
        let mut found = Vec::new();
        for block in &self.blocks {
            if !days[block.date] || wanted.hours >> block.hour & 1 == 0 {
                continue;
            }
            if !elapsed && !block.fresh && rules != Rules::FoldTwice {
                continue;
            }
            let mut left = block.minutes & wanted.minutes;
            while left != 0 {
                let minute = i64::from(left.trailing_zeros());
                found.push(block.begins + 60 * (minute - block.first as i64));
                left &= left - 1;
            }
        }
        if !elapsed && rules != Rules::GapSkips {
            let before = found.len();
            for gone in &self.swallowed {
                if days[gone.date]
                    && wanted.hours >> gone.hour & 1 == 1
                    && wanted.minutes & gone.minutes != 0
                {
                    found.push(gone.due);
                }
            }
            if found.len() > before {
                found.sort_unstable();
                found.dedup();
            }
        }
        found
    }
}

fn next_minute(at: DateTime) -> DateTime {
    at.checked_add(jiff::SignedDuration::from_mins(1)).unwrap()
}

/// Returns whether the expression matches a date, including its month.
pub fn day(wanted: &Expression, date: Date, rules: Rules) -> bool {
    if wanted.months >> date.month() & 1 == 0 {
        return false;
    }
    let length = i64::from(date.days_in_month());
    let this = i64::from(date.day());
    let weekday =
        |day: i64| (i64::from(date.weekday().to_sunday_zero_offset()) + day - this).rem_euclid(7);
    let working = |day: i64| (1..=length).contains(&day) && (1..=5).contains(&weekday(day));
    let nearest =
        |day: i64| [0, -1, 1, -2, 2].map(|by| day + by).into_iter().find(|day| working(*day));
    let bit = |set: u64, at: i64| set >> at & 1 == 1;
    let of_month = bit(wanted.days, this)
        || wanted.last_day && this == length
        || wanted.last_working && (1..=length).rev().find(|day| working(*day)) == Some(this)
        || (1..=length).any(|day| bit(wanted.near, day) && nearest(day) == Some(this));
    let own = weekday(this);
    let of_week = bit(wanted.weekdays, own)
        || bit(wanted.nth[(this as usize - 1) / 7], own)
        || bit(wanted.last_of, own) && this + 7 > length;
    let mut starred = wanted.day_starred || wanted.weekday_starred;
    if rules == Rules::BareStarOnly {
        let field = |at: usize| wanted.text.split(' ').nth(at) == Some("*");
        starred = field(2) || field(4);
    }
    if starred { of_month && of_week } else { of_month || of_week }
}
