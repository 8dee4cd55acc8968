//! The time of a run.

use std::time::Duration;

use jiff::Timestamp;
use runner_engine::store::Admitted;
use runner_engine::time::{Clock, boot_time};

/// The clock of a run, with the run's own `now` and deadline.
#[derive(Clone, Copy)]
pub struct RunClock<'a> {
    clock: &'a Clock,
    now: Timestamp,
    deadline: Duration,
}

impl<'a> RunClock<'a> {
    pub(crate) fn new(clock: &'a Clock, admitted: &Admitted) -> Self {
        Self { clock, now: admitted.started(), deadline: admitted.deadline() }
    }

    /// Returns the wall-clock time at admission, which is the only `now` of the whole run.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the time that the run has left.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_sub(boot_time())
    }

    /// Reads the wall clock for the run's own bookkeeping; jobs use [`RunClock::now`].
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.read().map_or(self.now, |reading| reading.wall)
    }

    /// Returns the clock itself, for a manual edit within the run.
    pub(crate) fn clock(&self) -> &'a Clock {
        self.clock
    }
}
