//! Reads the clocks. No other module reads a clock directly.
//!
//! Schedules use wall time. Deadlines use boot time, which includes suspended time and never jumps.
//! A function that makes a decision takes the time as an argument.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::files::{SMALL, read_text_host};
use jiff::{SignedDuration, Timestamp};

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The wall-clock time, which may jump.
    pub wall: Timestamp,
    /// The time since boot, including suspended time. It never jumps and has no date.
    pub boot: Duration,
}

/// The source of the time.
#[derive(Clone, Debug)]
pub enum Clock {
    Host,
    /// A file shared by a test's processes. The first line is the wall-clock time in RFC 3339
    /// format. An optional second line is a number of seconds to add to the host's boot time.
    File(PathBuf),
}

/// The error for a test clock whose file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the test clock {path}: {why}")]
pub struct ClockError {
    path: PathBuf,
    why: String,
}

impl Clock {
    /// Reads both clocks.
    ///
    /// # Errors
    /// Returns an error only for a [`Clock::File`] whose file cannot be read or does not have the
    /// expected format.
    #[allow(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    pub fn read(&self) -> Result<ClockReading, ClockError> {
        let boot = boot_time();
        match self {
            Self::Host => Ok(ClockReading { wall: Timestamp::now(), boot }),
            Self::File(path) => {
                let fail = |why: String| ClockError { path: path.clone(), why };
                let text = read_text_host(path, SMALL).map_err(|error| fail(error.to_string()))?;
                let mut lines = text.lines();
                let wall = lines.next().unwrap_or_default().trim();
                let wall = wall.parse().map_err(|error: jiff::Error| fail(error.to_string()))?;
                let ahead = match lines.next().map(str::trim).filter(|line| !line.is_empty()) {
                    None => 0.0,
                    Some(line) => line.parse::<f64>().map_err(|error| fail(error.to_string()))?,
                };
                let ahead =
                    Duration::try_from_secs_f64(ahead).map_err(|error| fail(error.to_string()))?;
                Ok(ClockReading { wall, boot: boot + ahead })
            }
        }
    }
}

/// Returns the time since boot, including suspended time.
pub fn boot_time() -> Duration {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(spec.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spec.tv_nsec).unwrap_or(0))
}

/// A longer gap between two readings means that the host slept or the process was suspended.
const SLEPT: Duration = Duration::from_secs(30);
/// If the advances of the two clocks differ by at least this much, the wall clock was set. Slewing
/// changes the wall clock far more slowly.
const SET: SignedDuration = SignedDuration::from_secs(2);

/// A change between two clock readings in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum ClockChange {
    /// The host slept, or this process did not run.
    Slept {
        /// The length of the gap on the boot clock.
        gap: Duration,
    },
    /// The wall clock was set forward or back.
    ClockSet {
        /// The change, which is negative if the clock was set back.
        by: SignedDuration,
    },
}

impl ClockChange {
    /// Returns the name of the change in the database's events.
    pub fn as_str(&self) -> &'static str {
        self.into_str()
    }
}

impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slept { gap } => {
                let gap = SignedDuration::from_secs(gap.as_secs().cast_signed());
                write!(
                    f,
                    "no schedule was checked for {gap:#}: the host slept, or this process was suspended"
                )
            }
            Self::ClockSet { by } => {
                let way = if by.is_negative() { "back" } else { "forward" };
                let by = SignedDuration::from_secs(by.as_secs()).abs();
                write!(f, "the wall clock was set {way} by {by:#}")
            }
        }
    }
}

/// Compares an earlier reading with a later one. Both kinds of change can occur together, because
/// hosts often set the wall clock right after waking.
pub fn compare(before: ClockReading, after: ClockReading) -> Vec<ClockChange> {
    let mut notices = Vec::new();
    let gap = after.boot.saturating_sub(before.boot);
    if gap > SLEPT {
        notices.push(ClockChange::Slept { gap });
    }
    let wall = after.wall.duration_since(before.wall);
    let boot = SignedDuration::try_from(gap).unwrap_or(SignedDuration::MAX);
    let by = wall.saturating_sub(boot);
    if by.abs() >= SET {
        notices.push(ClockChange::ClockSet { by });
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall: i64, boot: u64) -> ClockReading {
        ClockReading {
            wall: Timestamp::from_second(wall).unwrap(),
            boot: Duration::from_secs(boot),
        }
    }

    #[test]
    fn clock_readings_reveal_sleep_and_clock_changes() {
        let slept = |gap| ClockChange::Slept { gap: Duration::from_secs(gap) };
        let set = |by| ClockChange::ClockSet { by: SignedDuration::from_secs(by) };
        let from = at(1_000_000, 500);
        assert_eq!(compare(from, from), []);
        assert_eq!(compare(from, at(1_000_001, 501)), []);
        assert_eq!(compare(from, at(1_000_030, 530)), []);
        assert_eq!(compare(from, at(1_000_031, 531)), [slept(31)]);
        // The host slept for a weekend.
        assert_eq!(compare(from, at(1_200_000, 200_500)), [slept(200_000)]);
        assert_eq!(compare(from, at(1_000_002, 501)), []);
        assert_eq!(compare(from, at(1_000_003, 501)), [set(2)]);
        assert_eq!(compare(from, at(999_999, 501)), [set(-2)]);
        assert_eq!(compare(from, at(996_401, 501)), [set(-3_600)]);
        // The host slept for a minute, and its clock was set forward by an hour on waking.
        assert_eq!(compare(from, at(1_003_660, 560)), [slept(60), set(3_600)]);
        // If the boot clock seems to go back, only the wall clocks are compared.
        assert_eq!(compare(from, at(1_000_001, 400)), []);
        let text = set(-3_600).to_string();
        assert_eq!(text, "the wall clock was set back by 1h");
    }

    #[test]
    fn clock_file_sets_the_wall_clock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let clock = Clock::File(path.clone());
        assert!(clock.read().is_err());
        std::fs::write(&path, "2026-03-29T00:59:00Z\n3600\n").unwrap();
        let reading = clock.read().unwrap();
        assert_eq!(reading.wall.to_string(), "2026-03-29T00:59:00Z");
        assert!(reading.boot >= boot_time() + Duration::from_secs(3_590));
        std::fs::write(&path, "half past nine").unwrap();
        assert!(clock.read().unwrap_err().to_string().contains("test clock"));
    }
}
