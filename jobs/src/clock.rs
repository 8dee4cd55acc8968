//! The start time and the remaining time of a run.

use std::time::Duration;

use jiff::Timestamp;
use runner_engine::store::Admitted;
use runner_engine::time::{Clock, boot_time};

/// A clock with the start time and the deadline of one run.
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

    /// Returns the wall-clock time at admission. A job that is recorded uses no other source of the
    /// current time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the time left until the run's deadline.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_sub(boot_time())
    }

    /// Reads the wall clock for bookkeeping, or returns the run's start time if the clock cannot be
    /// read. A job that is recorded uses [`RunClock::now`] instead.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.read().map_or(self.now, |reading| reading.wall)
    }

    /// Returns the underlying clock, for a manual edit during the run.
    pub(crate) fn clock(&self) -> &'a Clock {
        self.clock
    }
}
