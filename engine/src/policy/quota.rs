//! Computes how long to wait after a provider refuses a request because of a limit.
//!
//! ```text
//! future time reported ───────> wait until then (8 days at most; a later time is noted)
//! no time or past time ───────> wait that doubles with each refusal: 5 m, 10 m, 20 m … 4 h
//! ```
//!
//! This module does no I/O and reads no clock. A wait does not count as an attempt, so it uses none
//! of the job's retries.

use jiff::{SignedDuration, Timestamp};

use super::share;
use crate::digest::Digest;

/// Maximum wait for a reset time reported by the provider. The longest known limit lasts a week.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(8 * 24);
/// Period over which the next requests of jobs that are waiting for the same reset are spread.
pub const SPREAD: SignedDuration = SignedDuration::from_secs(60);
/// The wait after the first refusal if the provider reported no usable time.
pub const FIRST: SignedDuration = SignedDuration::from_mins(5);
/// The longest wait if the provider reported no usable time.
pub const SLOWEST: SignedDuration = SignedDuration::from_hours(4);
/// Number of consecutive refusals, each following a full wait, after which the job stops waiting.
pub const MOST: u32 = 24;

/// The time of the next request to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The earliest time of the next request.
    pub until: Timestamp,
    /// A remark for the report if the provider reported no reset time or the time was not used.
    pub remark: Option<String>,
}

/// Returns the time of the next request after the `streak`th consecutive refusal, which occurred at
/// `now`. `said` is the reset time that the provider reported, if any.
pub fn wake(said: Option<Timestamp>, streak: u32, now: Timestamp) -> Wake {
    let after = |wait| now.saturating_add(wait).unwrap_or(Timestamp::MAX);
    let latest = after(LONGEST);
    match said {
        Some(said) if said > latest => Wake {
            until: latest,
            remark: Some(format!(
                "the stated reset time is {said}, which is more than 8 days ahead; the provider is asked again after 8 days"
            )),
        },
        Some(said) if said > now => Wake { until: said, remark: None },
        _ => {
            let doublings = streak.saturating_sub(1).min(10);
            let wait = FIRST.saturating_mul(1 << doublings).min(SLOWEST);
            let remark = match said {
                Some(said) => {
                    format!(
                        "the stated reset time is {said}, which has passed; the provider is asked again after {wait:#}"
                    )
                }
                None => {
                    format!("no reset time was stated; the provider is asked again after {wait:#}")
                }
            };
            Wake { until: after(wait), remark: Some(remark) }
        }
    }
}

/// Returns the time of a job's next request after a reset, spread over [`SPREAD`]. The same `salt`
/// always gives the same delay.
pub fn spread(until: Timestamp, salt: &str) -> Timestamp {
    let digest = Digest::of(salt.as_bytes()).short();
    let dice = u64::from_str_radix(&digest, 16).expect("a short digest is 16 hex digits");
    until.saturating_add(share(SPREAD, dice)).unwrap_or(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now() -> Timestamp {
        "2026-11-21T22:00:00Z".parse().unwrap()
    }

    fn at(hours: i64) -> Option<Timestamp> {
        now().checked_add(SignedDuration::from_hours(hours)).ok()
    }

    #[test]
    fn only_plausible_reset_times_are_used() {
        assert_eq!(wake(at(5), 1, now()), Wake { until: at(5).unwrap(), remark: None });
        let far = wake(at(24 * 9), 1, now());
        assert_eq!(far.until, at(24 * 8).unwrap());
        assert!(far.remark.unwrap().contains("more than 8 days"));
        for said in [at(-1), at(0), None] {
            let waits: Vec<i64> = (1..=9)
                .map(|streak| {
                    let wake = wake(said, streak, now());
                    assert!(wake.remark.is_some());
                    wake.until.duration_since(now()).as_secs() / 60
                })
                .collect();
            assert_eq!(waits, [5, 10, 20, 40, 80, 160, 240, 240, 240], "{said:?}");
        }
    }

    #[test]
    fn deferred_runs_resume_at_spread_times() {
        let mut back: Vec<i128> = (0..10)
            .map(|n| {
                let until = spread(now(), &format!("run {n}"));
                until.duration_since(now()).as_millis()
            })
            .collect();
        back.sort_unstable();
        assert!(back.last().unwrap() - back[0] > 20_000, "{back:?}");
        let closest = back.windows(2).map(|two| two[1] - two[0]).min().unwrap();
        assert!(closest > 19, "{back:?}");
        assert_eq!(spread(now(), "run 3"), spread(now(), "run 3"));
    }

    proptest! {
        #[test]
        fn wake_time_is_future_and_bounded(said in proptest::option::of(any::<i64>()), streak: u32) {
            let said = said.and_then(|said| Timestamp::from_second(said % 250_000_000_000).ok());
            let wake = wake(said, streak, now());
            prop_assert!(wake.until > now());
            prop_assert!(wake.until.duration_since(now()) <= LONGEST);
        }
    }
}
