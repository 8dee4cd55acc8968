//! Decides whether a failure is retried and how long to wait before the retry.

use jiff::SignedDuration;
use runner_text::mix;

use super::{Retry, share};
use crate::outcome::{Class, Outcome};

impl Retry {
    /// Settings that allow no retries.
    pub const NONE: Self = Self { count: 0, backoff: Vec::new() };

    /// Returns the wait before the next attempt after `failures` failed attempts, or `None` if no
    /// attempts remain.
    ///
    /// Each wait has full jitter: every whole millisecond from zero to the step's backoff is
    /// equally likely. Jobs that failed at the same time therefore retry at different times. The
    /// same `seed` and `failures` always give the same wait. Without a backoff, the wait is zero.
    pub fn wait(&self, failures: u32, seed: u64) -> Option<SignedDuration> {
        if failures > self.count {
            return None;
        }
        let Some(step) = failures.checked_sub(1) else {
            return Some(SignedDuration::ZERO);
        };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let longest = self.backoff.get(step).or(self.backoff.last());
        let dice = mix(seed ^ mix(u64::from(failures)));
        Some(longest.map_or(SignedDuration::ZERO, |longest| share(*longest, dice)))
    }
}

/// Returns whether an outcome is retried, because another attempt might succeed without human
/// intervention. Lost runs have their own rule in [`crate::recover`].
pub fn retryable(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::TimedOut { .. } => true,
        Outcome::Failed { class, .. } => match class {
            Class::Environment
            | Class::Silent
            | Class::Malformed
            | Class::ArtifactMissing
            | Class::Exit
            | Class::Crash
            | Class::RateLimited => true,
            Class::Auth
            | Class::NotInstalled
            | Class::OverBudget
            | Class::Guard
            | Class::Internal => false,
        },
        Outcome::Succeeded
        | Outcome::Degraded { .. }
        | Outcome::Cancelled { .. }
        | Outcome::Lost { .. }
        | Outcome::Skipped { .. }
        | Outcome::Deferred { .. }
        | Outcome::Missed { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::SkipReason;
    use proptest::prelude::*;

    fn three() -> Retry {
        Retry { count: 5, backoff: [1, 5, 15].map(SignedDuration::from_mins).to_vec() }
    }

    #[test]
    fn retries_stop_at_the_attempt_limit() {
        assert!(three().wait(5, 7).is_some());
        assert_eq!(three().wait(6, 7), None);
        assert_eq!(Retry::NONE.wait(1, 7), None);
        assert_eq!(three().wait(0, 7), Some(SignedDuration::ZERO));
        let bare = Retry { backoff: Vec::new(), ..three() };
        assert_eq!(bare.wait(2, 7), Some(SignedDuration::ZERO));
    }

    #[test]
    fn backoff_is_uniform_within_each_step() {
        for (failures, longest) in [(1, 60_000), (2, 300_000), (3, 900_000), (5, 900_000)] {
            let mut tenths = [0_u32; 10];
            for seed in 0..10_000 {
                let wait = three().wait(failures, seed).unwrap().as_millis();
                tenths[usize::try_from(wait * 10 / (longest + 1)).unwrap()] += 1;
            }
            for count in tenths {
                assert!((850..1150).contains(&count), "{failures}: {tenths:?}");
            }
        }
    }

    #[test]
    fn only_transient_failures_are_retried() {
        let failed = |class| Outcome::Failed { class, why: String::new() };
        for class in [
            Class::Environment,
            Class::RateLimited,
            Class::Silent,
            Class::Malformed,
            Class::ArtifactMissing,
            Class::Exit,
            Class::Crash,
        ] {
            assert!(retryable(&failed(class)), "{class}");
        }
        for class in
            [Class::Auth, Class::NotInstalled, Class::OverBudget, Class::Guard, Class::Internal]
        {
            assert!(!retryable(&failed(class)), "{class}");
        }
        let why = String::new;
        assert!(retryable(&Outcome::TimedOut { why: why() }));
        for outcome in [
            Outcome::Succeeded,
            Outcome::Degraded { why: why() },
            Outcome::Cancelled { why: why() },
            Outcome::Lost { why: why() },
            Outcome::skipped(SkipReason::Idle, why()),
        ] {
            assert!(!retryable(&outcome), "{outcome}");
        }
    }

    proptest! {
        #[test]
        fn backoff_is_bounded_and_deterministic(failures in 1_u32..9, seed: u64, millis in 0_i64..i64::MAX) {
            let retry = Retry { count: 8, backoff: vec![SignedDuration::from_millis(millis)] };
            let wait = retry.wait(failures, seed).unwrap();
            prop_assert!(wait >= SignedDuration::ZERO && wait <= retry.backoff[0]);
            prop_assert_eq!(retry.wait(failures, seed), Some(wait));
        }
    }
}
