//! The clock: the only place that reads one.
//!
//! Schedules run on wall time; deadlines run on boot time, which counts suspend and never jumps.
//! Everything that decides takes the moment as an argument; only the program makes a [`Clock`].

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Wall time: may jump.
    pub wall: Timestamp,
    /// Time since boot, suspend included: never jumps, has no date.
    pub boot: Duration,
}

/// Where the time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The host's clocks.
    Host,
    /// A file that several processes share in tests: its first line is the wall time (RFC 3339),
    /// an optional second line is added, in seconds, to the host's boot time.
    File(PathBuf),
}

/// The test clock's file could not be used.
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
    /// Only a [`Clock::File`] can fail: the file is missing or holds no time.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    pub fn read(&self) -> Result<Moment, ClockError> {
        let boot = boot_time();
        match self {
            Self::Host => Ok(Moment {
                wall: Timestamp::now(),
                boot,
            }),
            Self::File(path) => {
                let fail = |why: String| ClockError {
                    path: path.clone(),
                    why,
                };
                let text =
                    fs::read_to_string(path).map_err(|error: io::Error| fail(error.to_string()))?;
                let mut lines = text.lines();
                let wall = lines.next().unwrap_or_default().trim();
                let wall = wall
                    .parse()
                    .map_err(|error: jiff::Error| fail(error.to_string()))?;
                let ahead = match lines.next().map(str::trim).filter(|line| !line.is_empty()) {
                    None => 0.0,
                    Some(line) => line
                        .parse::<f64>()
                        .map_err(|error| fail(error.to_string()))?,
                };
                let ahead =
                    Duration::try_from_secs_f64(ahead).map_err(|error| fail(error.to_string()))?;
                Ok(Moment {
                    wall,
                    boot: boot + ahead,
                })
            }
        }
    }
}

/// Time since boot, suspend included: what every deadline is measured with.
pub fn boot_time() -> Duration {
    let spec = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(spec.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spec.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_moves_the_wall_clock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock");
        let clock = Clock::File(path.clone());
        assert!(clock.read().is_err());
        fs::write(&path, "2026-03-29T00:59:00Z\n3600\n").unwrap();
        let moment = clock.read().unwrap();
        assert_eq!(moment.wall.to_string(), "2026-03-29T00:59:00Z");
        assert!(moment.boot >= boot_time() + Duration::from_secs(3_590));
        fs::write(&path, "half past nine").unwrap();
        assert!(clock.read().unwrap_err().to_string().contains("test clock"));
    }
}
