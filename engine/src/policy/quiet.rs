//! Computes the end of quiet hours in a time zone.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Quiet;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Maximum number of transitions to examine. Quiet hours end within a day, and no zone has that
/// many transitions within a day.
const TRANSITIONS: usize = 16;

impl Quiet {
    /// Returns the end of the current quiet hours, or `None` if `now` is not within quiet hours.
    ///
    /// If the end falls in a gap, the quiet hours end with the gap. An hour that is repeated in
    /// autumn is quiet both times. If `from` and `to` are equal, there are no quiet hours.
    pub fn until(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut quiet_for = self.left(now, zone)?;
        // Local time advances uniformly between two transitions.
        let mut from = now;
        for edge in zone.following(now).take(TRANSITIONS) {
            let edge = edge.timestamp();
            if edge.duration_since(from) > quiet_for {
                break;
            }
            from = edge;
            match self.left(edge, zone) {
                None => return Some(edge),
                Some(left) => quiet_for = left,
            }
        }
        Some(from.saturating_add(quiet_for).unwrap_or(Timestamp::MAX))
    }

    /// Returns the remaining quiet time if no further transition occurs. Returns `None` outside the
    /// quiet hours.
    fn left(&self, at: Timestamp, zone: &TimeZone) -> Option<SignedDuration> {
        let shown = zone.to_datetime(at).time();
        let quiet = if self.from <= self.to {
            self.from <= shown && shown < self.to
        } else {
            self.from <= shown || shown < self.to
        };
        let left = self.to.duration_since(shown);
        quiet.then(|| if left.is_positive() { left } else { left + DAY })
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::Time;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn until(from: (i8, i8), to: (i8, i8), now: &str) -> Option<String> {
        let time = |(hour, minute)| Time::constant(hour, minute, 0, 0);
        let quiet = Quiet { from: time(from), to: time(to) };
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        quiet.until(at(now), &zone).map(|end| end.to_string())
    }

    #[test]
    fn quiet_hours_exclude_their_end_time() {
        let office = |now| until((9, 0), (18, 0), now);
        assert_eq!(office("2026-11-20T07:59:59.999Z"), None);
        let end = Some("2026-11-20T17:00:00Z".to_owned());
        assert_eq!(office("2026-11-20T08:00:00Z"), end);
        assert_eq!(office("2026-11-20T16:59:59.5Z"), end);
        assert_eq!(office("2026-11-20T17:00:00Z"), None);
        assert_eq!(until((9, 0), (9, 0), "2026-11-20T08:00:00Z"), None);
    }

    #[test]
    fn quiet_hours_span_midnight() {
        let night = |now| until((22, 0), (6, 0), now);
        let end = Some("2026-11-21T05:00:00Z".to_owned());
        assert_eq!(night("2026-11-20T21:00:00Z"), end);
        assert_eq!(night("2026-11-21T00:00:00Z"), end);
        assert_eq!(night("2026-11-21T05:00:00Z"), None);
    }

    #[test]
    fn quiet_hours_follow_gaps_and_folds() {
        // On 29 March 2026, 02:00 becomes 03:00 at 01:00Z: the clock never shows 02:30.
        let spring = |now| until((22, 0), (2, 30), now);
        assert_eq!(spring("2026-03-29T00:30:00Z").as_deref(), Some("2026-03-29T01:00:00Z"));
        // The gap skips the start of the quiet hours, so they begin when the gap ends.
        let late = |now| until((2, 30), (4, 0), now);
        assert_eq!(late("2026-03-29T00:59:59Z"), None);
        assert_eq!(late("2026-03-29T01:00:00Z").as_deref(), Some("2026-03-29T02:00:00Z"));
        // On 25 October 2026, 03:00 becomes 02:00 at 01:00Z: the clock shows 02:30 twice.
        assert_eq!(spring("2026-10-25T00:10:00Z").as_deref(), Some("2026-10-25T00:30:00Z"));
        assert_eq!(spring("2026-10-25T00:40:00Z"), None);
        assert_eq!(spring("2026-10-25T01:10:00Z").as_deref(), Some("2026-10-25T01:30:00Z"));
        // The repeated hour is before the end, so the quiet hours last one hour longer.
        assert_eq!(
            until((22, 0), (6, 0), "2026-10-24T20:00:00Z").as_deref(),
            Some("2026-10-25T05:00:00Z")
        );
    }

    proptest! {
        #[test]
        fn quiet_hours_end_matches_minute_walk(
            zone in prop::sample::select(vec![
                "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca",
                "Asia/Beirut", "America/Santiago", "UTC",
            ]),
            edge in 0_usize..40,
            shift in -2 * 1440_i64..2 * 1440,
            from in 0_i64..1440,
            to in 0_i64..1440,
        ) {
            let zone = TimeZone::get(zone).unwrap();
            let start = at("2020-01-01T00:00:00Z");
            let near = zone.following(start).nth(edge).map_or(start, |edge| edge.timestamp());
            // A zone's table ends at 03:14:07 on 19 January 2038. The time is rounded, because the
            // loop below advances by whole minutes.
            let near = near.round(jiff::Unit::Minute).unwrap();
            let now = near + SignedDuration::from_mins(shift);
            let time = |minutes: i64| Time::midnight() + SignedDuration::from_mins(minutes);
            let quiet = Quiet { from: time(from), to: time(to) };
            let end = quiet.until(now, &zone);
            // The expected end, found by a minute-by-minute search.
            let is_quiet = |at: Timestamp| {
                let shown = zone.to_datetime(at).time();
                if from <= to {
                    quiet.from <= shown && shown < quiet.to
                } else {
                    shown >= quiet.from || shown < quiet.to
                }
            };
            let walked = is_quiet(now).then(|| {
                (1..).map(|n| now + SignedDuration::from_mins(n)).find(|at| !is_quiet(*at)).unwrap()
            });
            prop_assert_eq!(end, walked);
        }
    }
}
