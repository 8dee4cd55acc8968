//! When a job is due: pure arithmetic over a watermark, in a zone.
//!
//! Wall-clock triggers follow the calendar of their zone: a time that a spring gap swallows is due
//! once, at the end of the gap; one that autumn repeats is due once, at its first pass. Intervals
//! follow elapsed time. This module must never read a clock.

pub mod cron;

use std::collections::VecDeque;
use std::fmt;

use jiff::civil::Time;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

use crate::policy::{CatchUp, Which};
pub use cron::Cron;

/// How late a moment may be and still count as met: host timers come every quarter of an hour.
pub const ON_TIME: SignedDuration = SignedDuration::from_mins(20);
/// How many moments of a missed stretch are counted one by one; beyond it the count is a floor.
const COUNTED: u64 = 10_000;

/// What makes a job due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Only a person or another job.
    Manual,
    /// Each time this long has passed.
    Every(SignedDuration),
    /// Once a civil day at this time.
    Daily(Time),
    /// The moments of a cron expression.
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
    /// Only those that placed what was asked, degraded ones included.
    Success,
    /// Any, failed and skipped ones included.
    End,
}

/// A trigger with all that is needed to evaluate it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// What makes it due.
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

/// What has become due since the watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The moments to run for, in their order.
    pub fire: Vec<Timestamp>,
    /// Moments that passed with nothing there to run them.
    pub missed: Option<Missed>,
    /// Everything up to here is accounted for.
    pub watermark: Timestamp,
    /// The next moment after it.
    pub next: Option<Timestamp>,
}

/// A stretch of missed moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
}

impl Schedule {
    /// A job that only a person starts.
    pub fn manual() -> Self {
        Self {
            trigger: Trigger::Manual,
            zone: "UTC".to_owned(),
            night: None,
        }
    }

    /// The first moment strictly after `after` at which the trigger is due; `anchor` is where an
    /// interval counts from.
    pub fn next_after(
        &self,
        after: Timestamp,
        anchor: Timestamp,
    ) -> Result<Option<Timestamp>, UnknownZone> {
        match &self.trigger {
            Trigger::Manual | Trigger::After(_) => Ok(None),
            Trigger::Cron(cron) => {
                let zone = TimeZone::get(&self.zone).map_err(|_| UnknownZone(self.zone.clone()))?;
                Ok(cron.next_after(after, &zone))
            }
            Trigger::Every(period) => Ok(next_interval(*period, after, anchor)),
            Trigger::Daily(time) => {
                let zone = TimeZone::get(&self.zone).map_err(|_| UnknownZone(self.zone.clone()))?;
                let mut day = after.to_zoned(zone.clone()).date();
                for _ in 0..4 {
                    let at = civil_instant(&zone, day.to_datetime(*time));
                    if let Some(at) = at.filter(|at| *at > after) {
                        return Ok(Some(at));
                    }
                    let Ok(tomorrow) = day.tomorrow() else {
                        return Ok(None);
                    };
                    day = tomorrow;
                }
                Ok(None)
            }
        }
    }

    /// What became due in `(watermark, now]`. Moments that are not run for are one missed stretch.
    pub fn due(
        &self,
        watermark: Timestamp,
        now: Timestamp,
        catch_up: &CatchUp,
    ) -> Result<Due, UnknownZone> {
        let (window, most) = match catch_up.which {
            Which::None => (ON_TIME, 1),
            Which::Last => (catch_up.window.max(ON_TIME), 1),
            Which::All => (catch_up.window.max(ON_TIME), catch_up.cap.max(1) as usize),
        };
        let mut fire: VecDeque<Timestamp> = VecDeque::new();
        let mut missed: Option<Missed> = None;
        let mut passed = watermark;
        let mut next = self.next_after(watermark, watermark)?;
        while let Some(at) = next.filter(|at| *at <= now) {
            passed = at;
            if now.duration_since(at) <= window {
                fire.push_back(at);
                if fire.len() > most
                    && let Some(older) = fire.pop_front()
                {
                    add(&mut missed, older);
                }
            } else {
                add(&mut missed, at);
            }
            next = if missed
                .as_ref()
                .is_some_and(|missed| missed.count >= COUNTED)
            {
                self.last_before(now, at)?
            } else {
                self.next_after(at, watermark)?
            };
        }
        Ok(Due {
            fire: fire.into(),
            missed,
            watermark: passed,
            next,
        })
    }

    /// Jumps from `at` to shortly before `now` when a stretch is too long to be walked.
    fn last_before(&self, now: Timestamp, at: Timestamp) -> Result<Option<Timestamp>, UnknownZone> {
        let step = match &self.trigger {
            Trigger::Every(period) => *period,
            _ => SignedDuration::from_hours(50),
        };
        let from = now.saturating_sub(step).unwrap_or(now);
        self.next_after(from.max(at), at)
    }
}

fn add(missed: &mut Option<Missed>, at: Timestamp) {
    match missed {
        None => {
            *missed = Some(Missed {
                first: at,
                last: at,
                count: 1,
            })
        }
        Some(stretch) => {
            stretch.last = at;
            stretch.count += 1;
        }
    }
}

fn next_interval(period: SignedDuration, after: Timestamp, anchor: Timestamp) -> Option<Timestamp> {
    let step = period.as_millis();
    if step <= 0 {
        return None;
    }
    let passed = after.duration_since(anchor).as_millis().max(0);
    let ahead = (passed / step + 1) * step;
    let ahead = SignedDuration::from_millis(i64::try_from(ahead).ok()?);
    anchor.checked_add(ahead).ok()
}

/// The instant of a civil time: the end of the gap if a gap swallows it, the first of two.
fn civil_instant(zone: &TimeZone, at: jiff::civil::DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(at);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
        AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
        AmbiguousOffset::Gap { .. } => {
            let inside = ambiguous.later().ok()?;
            zone.preceding(inside.checked_add(1.nanosecond()).ok()?)
                .next()
                .map(|edge| edge.timestamp())
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn daily(hour: i8, minute: i8) -> Schedule {
        let time = Time::constant(hour, minute, 0, 0);
        Schedule {
            trigger: Trigger::Daily(time),
            zone: "Europe/Berlin".into(),
            night: None,
        }
    }

    #[test]
    fn a_gap_ends_early_and_a_fold_counts_once() {
        let next = |after| {
            daily(2, 30)
                .next_after(at(after), at(after))
                .unwrap()
                .unwrap()
        };
        // 29 March 2026, 02:00 -> 03:00: the swallowed 02:30 is due at 03:00 summer time.
        assert_eq!(next("2026-03-28T12:00:00Z"), at("2026-03-29T01:00:00Z"));
        assert_eq!(next("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z"));
        // 25 October 2026, 03:00 -> 02:00: the first 02:30, then the next day's.
        assert_eq!(next("2026-10-24T12:00:00Z"), at("2026-10-25T00:30:00Z"));
        assert_eq!(next("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z"));
    }

    #[test]
    fn a_weekend_asleep_is_one_run_and_one_stretch() {
        let catch_up = CatchUp::default();
        let due = daily(2, 30)
            .due(
                at("2026-11-06T12:00:00Z"),
                at("2026-11-09T08:00:00Z"),
                &catch_up,
            )
            .unwrap();
        assert_eq!(due.fire, [at("2026-11-09T01:30:00Z")]);
        let missed = due.missed.unwrap();
        assert_eq!(
            (missed.first, missed.count),
            (at("2026-11-07T01:30:00Z"), 2)
        );
        assert_eq!(due.watermark, at("2026-11-09T01:30:00Z"));
        assert_eq!(due.next, Some(at("2026-11-10T01:30:00Z")));
    }

    #[test]
    fn nothing_in_the_window_is_all_missed() {
        let catch_up = CatchUp {
            window: SignedDuration::from_hours(1),
            ..CatchUp::default()
        };
        let due = daily(2, 30)
            .due(
                at("2026-11-06T12:00:00Z"),
                at("2026-11-07T08:00:00Z"),
                &catch_up,
            )
            .unwrap();
        assert!(due.fire.is_empty());
        assert_eq!(due.missed.unwrap().count, 1);
    }

    #[test]
    fn intervals_keep_their_phase_and_long_gaps_stay_cheap() {
        let every = Schedule {
            trigger: Trigger::Every(SignedDuration::from_secs(60)),
            ..Schedule::manual()
        };
        let start = at("2026-01-01T00:00:30Z");
        assert_eq!(
            every.next_after(start, start).unwrap(),
            Some(at("2026-01-01T00:01:30Z"))
        );
        let due = every
            .due(start, at("2028-01-01T00:00:00Z"), &CatchUp::default())
            .unwrap();
        assert_eq!(due.fire, [at("2027-12-31T23:59:30Z")]);
        assert_eq!(due.next, Some(at("2028-01-01T00:00:30Z")));
        assert!(due.missed.unwrap().count >= COUNTED);
        assert!(
            Schedule::manual()
                .due(start, at("2028-01-01T00:00:00Z"), &CatchUp::default())
                .unwrap()
                .next
                .is_none()
        );
    }
}
