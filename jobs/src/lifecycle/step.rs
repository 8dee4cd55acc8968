//! Decides what one tick of a cycle does.
//!
//! ```text
//!             gate closed, or backing off
//!            ┌──────── skipped: gate ────────┐
//!            │                               │
//!   ┌──> at(state, hits) ──go──> run ──┬── done: hits + 1, or NEXT ────┐
//!   │        ▲                         └── failed ─ stays ─┐           │
//!   │        └─────────────────────────────────────────────┘           │
//!   └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! This module must never advance the position: only a run's publication does that.

use jiff::{SignedDuration, Timestamp};

use super::spec::CycleState;

/// Number of consecutive failures after which the cycle waits before it retries.
pub const AT_ONCE: u32 = 3;
/// The wait after [`AT_ONCE`] failures. It doubles with each additional failure, up to
/// [`LONGEST_WAIT`].
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(15);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(6);

#[derive(Clone, Copy, Debug, Default)]
pub struct TickFacts<'f> {
    /// The name of the job that runs the cycle.
    pub job: &'f str,
    /// The time of the state's last successful run, or `None` if there was none.
    pub ran: Option<Timestamp>,
    /// Number of consecutive failures of the job that runs the cycle.
    pub failures: u32,
    /// The time of the last failure, or `None` if the job has no failure marker.
    pub failed: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CycleStep {
    /// Do the state's work.
    Go,
    /// Do nothing and keep the position.
    Gate { until: Timestamp, why: String },
}

/// Decides what a tick at `now` does in a state.
pub fn step(state: &CycleState, facts: &TickFacts<'_>, now: Timestamp) -> CycleStep {
    let name = &state.name;
    if let (Some(least), Some(ran)) = (state.min_interval, facts.ran)
        && let Ok(until) = ran.checked_add(least)
        // If the last run is in the future, the clock was set back, and the gate is open.
        && now < until
        && ran <= now
    {
        let why = format!("gate: {name} ran at {ran:.0} and does not run again before {until:.0}");
        return CycleStep::Gate { until, why };
    }
    if let Some(wait) = wait(facts.failures)
        && let Some(failed) = facts.failed
        && let Ok(until) = failed.checked_add(wait)
        && now < until
        && failed <= now
    {
        let why = format!(
            "gate: {0} failed {1} times in a row and is not tried again before {until:.0}; \
             `runner jobs reset {0}` ends the backoff",
            facts.job, facts.failures
        );
        return CycleStep::Gate { until, why };
    }
    CycleStep::Go
}

/// Returns the wait after `failures` consecutive failures, or `None` if the next tick retries.
fn wait(failures: u32) -> Option<SignedDuration> {
    let further = failures.checked_sub(AT_ONCE)?;
    let factor = 1_i32.checked_shl(further.min(16))?;
    let wait = FIRST_WAIT.checked_mul(factor)?;
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::super::spec::{DEFAULT, parse};
    use super::*;
    use runner_text::org::BoardForm;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_780_000_000 + minutes * 60).unwrap()
    }

    fn goes(facts: TickFacts<'_>, now: i64) -> bool {
        let spec = parse(DEFAULT, BoardForm::Org).unwrap();
        step(spec.state("rem").unwrap(), &facts, at(now)) == CycleStep::Go
    }

    #[test]
    fn min_interval_begins_at_the_last_run() {
        let ran = TickFacts { ran: Some(at(0)), ..TickFacts::default() };
        assert!(goes(TickFacts::default(), 0));
        assert!(!goes(ran, 0) && !goes(ran, 49));
        assert!(goes(ran, 50));
        // The clock was set back by a day.
        assert!(goes(ran, -1440));
    }

    #[test]
    fn waits_grow_after_three_failures() {
        let failed = |failures| TickFacts { failures, failed: Some(at(0)), ..TickFacts::default() };
        assert!(goes(failed(1), 0) && goes(failed(2), 0));
        for (failures, minutes) in [(3, 15), (4, 30), (5, 60), (9, 360), (4_000_000_000, 360)] {
            assert!(!goes(failed(failures), minutes - 1), "{failures}");
            assert!(goes(failed(failures), minutes), "{failures}");
        }
    }
}
