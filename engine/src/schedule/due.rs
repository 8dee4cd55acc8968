//! Determines which scheduled times have become due since the watermark, and for which of them the
//! job runs.

use jiff::Timestamp;

use super::occurrences::just_before;
use super::{Due, Missed, ON_TIME, Schedule, UnknownZone};
use crate::policy::{CatchUp, CatchUpScope};

impl Schedule {
    /// Returns the scheduled times that became due in `(watermark, now]`. The scheduled times for
    /// which the job does not run form one missed stretch.
    ///
    /// An interval starts at the watermark, which advances only by whole periods, so the interval
    /// keeps its phase. The cost depends on the number of days since the watermark and on
    /// `catch_up.cap`, not on the number of scheduled times.
    ///
    /// # Errors
    /// Returns an error if the zone is unknown.
    pub fn due(
        &self,
        watermark: Timestamp,
        now: Timestamp,
        catch_up: &CatchUp,
    ) -> Result<Due, UnknownZone> {
        let (window, most) = match catch_up.which {
            CatchUpScope::None => (ON_TIME, 1),
            CatchUpScope::Last => (catch_up.window.max(ON_TIME), 1),
            CatchUpScope::All => (
                catch_up.window.max(ON_TIME),
                usize::try_from(catch_up.cap.max(1)).unwrap_or(usize::MAX),
            ),
        };
        let times = self.times(watermark)?;
        let next = times.next_after(watermark);
        let Some(first) = next.filter(|first| *first <= now) else {
            return Ok(Due { fire: Vec::new(), missed: None, watermark, next });
        };
        let opens = now.checked_sub(window).map_or(watermark, just_before);
        let fire = times.newest(opens.max(watermark), now, most);
        let older = fire.first().map_or(now, |first| just_before(*first));
        let missed = times.newest(watermark, older, 1).last().map(|last| Missed {
            first,
            last: *last,
            count: times.count(watermark, *last),
        });
        let last = fire.last().copied();
        let passed = last.or(missed.as_ref().map(|missed| missed.last));
        Ok(Due {
            watermark: passed.unwrap_or(watermark),
            next: times.next_after(now),
            fire,
            missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use jiff::civil::Time;

    use super::*;
    use crate::schedule::Trigger;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn daily(hour: i8, minute: i8) -> Schedule {
        let time = Time::constant(hour, minute, 0, 0);
        Schedule { trigger: Trigger::Daily(time), zone: "Europe/Berlin".into(), night: None }
    }

    #[test]
    fn gap_moves_due_time_and_fold_fires_once() {
        let next = |after| daily(2, 30).next_after(at(after), at(after)).unwrap().unwrap();
        // On 29 March 2026, 02:00 becomes 03:00. The skipped 02:30 is due at 03:00 summer time.
        assert_eq!(next("2026-03-28T12:00:00Z"), at("2026-03-29T01:00:00Z"));
        assert_eq!(next("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z"));
        // On 25 October 2026, 03:00 becomes 02:00. Only the first 02:30 is due, and the next
        // scheduled time is 02:30 on the next day.
        assert_eq!(next("2026-10-24T12:00:00Z"), at("2026-10-25T00:30:00Z"));
        assert_eq!(next("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z"));
    }

    #[test]
    fn long_sleep_gives_one_run_and_one_stretch() {
        let catch_up = CatchUp::default();
        let due = daily(2, 30)
            .due(at("2026-11-06T12:00:00Z"), at("2026-11-09T08:00:00Z"), &catch_up)
            .unwrap();
        assert_eq!(due.fire, [at("2026-11-09T01:30:00Z")]);
        let missed = due.missed.unwrap();
        assert_eq!((missed.first, missed.count), (at("2026-11-07T01:30:00Z"), 2));
        assert_eq!(due.watermark, at("2026-11-09T01:30:00Z"));
        assert_eq!(due.next, Some(at("2026-11-10T01:30:00Z")));
    }

    #[test]
    fn times_outside_the_window_are_missed() {
        let catch_up = CatchUp { window: SignedDuration::from_hours(1), ..CatchUp::default() };
        let due = daily(2, 30)
            .due(at("2026-11-06T12:00:00Z"), at("2026-11-07T08:00:00Z"), &catch_up)
            .unwrap();
        assert!(due.fire.is_empty());
        assert_eq!(due.missed.unwrap().count, 1);
    }

    #[test]
    fn intervals_keep_their_phase_over_long_gaps() {
        let every = Schedule {
            trigger: Trigger::Every(SignedDuration::from_secs(60)),
            ..Schedule::manual()
        };
        let start = at("2026-01-01T00:00:30Z");
        assert_eq!(every.next_after(start, start).unwrap(), Some(at("2026-01-01T00:01:30Z")));
        let due = every.due(start, at("2028-01-01T00:00:00Z"), &CatchUp::default()).unwrap();
        assert_eq!(due.fire, [at("2027-12-31T23:59:30Z")]);
        assert_eq!(due.next, Some(at("2028-01-01T00:00:30Z")));
        let missed = due.missed.unwrap();
        assert_eq!((missed.first, missed.count), (at("2026-01-01T00:01:30Z"), 730 * 1_440 - 2));
        assert_eq!(missed.last, at("2027-12-31T23:58:30Z"));
        assert!(
            Schedule::manual()
                .due(start, at("2028-01-01T00:00:00Z"), &CatchUp::default())
                .unwrap()
                .next
                .is_none()
        );
    }
}
