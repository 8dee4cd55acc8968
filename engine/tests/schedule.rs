//! Compares schedules with cronsim's results and with an independent oracle.
//!
//! `RUNNER_TEST_SCALE` multiplies the number of random cases, and `RUNNER_TEST_SEED` repeats a test
//! run.

// Tests may panic, and this one prints figures.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "schedule/conformance.rs"]
mod conformance;
#[path = "schedule/expressions.rs"]
mod expressions;
#[path = "schedule/oracle.rs"]
mod oracle;
#[path = "schedule/stretches.rs"]
mod stretches;
#[path = "schedule/transitions.rs"]
mod transitions;

use std::io::Write as _;

/// Reads a number from an environment variable.
#[allow(clippy::disallowed_methods)]
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Writes directly to stderr, which the test harness does not capture.
fn print_line(line: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "{line}").unwrap();
}

/// The SplitMix64 random number generator.
struct Random(u64);

impl Random {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// Returns a number from `low` to `high`, inclusive.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll(high - low + 1)
    }
}
