//! Remembers that a fleet's database did not respond, so that the next ticks do not wait for it
//! again. Times are measured since boot, so clock changes have no effect.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use runner_engine::files::{SMALL, read_text_host, write_atomic};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::time::boot_time;
use serde::{Deserialize, Serialize};

use crate::env::Env;
use crate::ui::Failure;

/// The wait after the first failure. Each further failure doubles the wait.
const FIRST: Duration = Duration::from_secs(5);

/// The lower limit of the longest wait, which a short lease reduces.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest wait.
const LONGEST: Duration = Duration::from_mins(1);

/// The last failures of a database.
#[derive(Debug, Serialize, Deserialize)]
struct Backoff {
    /// The boot during which `until` is valid.
    boot: String,
    /// The number of consecutive failures.
    failures: u32,
    /// The earliest time of the next attempt, in milliseconds since boot.
    until: u64,
    why: String,
}

fn path(home: &Env, fleet: &str) -> PathBuf {
    super::folder(home).join(format!("{fleet}.backoff"))
}

fn read(home: &Env, fleet: &str) -> Option<Backoff> {
    let text = read_text_host(path(home, fleet), SMALL).ok()?;
    let found: Backoff = serde_json::from_str(&text).ok()?;
    (found.boot == ProcessIdentity::me().boot).then_some(found)
}

/// Returns the last error if it is too early to try the database again.
pub fn reason(home: &Env, fleet: &str) -> Option<String> {
    let found = read(home, fleet)?;
    (boot_time() < Duration::from_millis(found.until)).then_some(found.why)
}

/// Returns the number of consecutive failures.
pub fn failures(home: &Env, fleet: &str) -> u32 {
    read(home, fleet).map_or(0, |found| found.failures)
}

/// Records that the database of a fleet with this lease did not respond.
pub fn note(home: &Env, (fleet, lease): (&str, Duration), why: &str) -> Result<(), Failure> {
    let failures = failures(home, fleet);
    let until = boot_time().saturating_add(wait(failures, lease));
    let noted = Backoff {
        boot: ProcessIdentity::me().boot,
        failures: failures.saturating_add(1),
        until: u64::try_from(until.as_millis()).unwrap_or(u64::MAX),
        why: why.to_owned(),
    };
    let text =
        serde_json::to_string(&noted).map_err(|error| Failure::internal(error.to_string()))?;
    write_atomic(&path(home, fleet), text.as_bytes(), 0o600)
        .map_err(|error| Failure::cannot_write(error.to_string()))
}

/// Returns the wait after this number of earlier consecutive failures. A result must be delivered
/// within its claim's lease, so the wait is at most a sixth of the lease, or [`SHORTEST`] if the
/// lease is very short.
fn wait(failures: u32, lease: Duration) -> Duration {
    let longest = LONGEST.min(lease / 6).max(SHORTEST);
    FIRST.saturating_mul(1 << failures.min(10)).min(longest)
}

/// Removes the record of failures after the database has responded.
pub fn clear(home: &Env, fleet: &str) -> Result<(), Failure> {
    let path = path(home, fleet);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::not_written(&path, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute() {
        let waits = |lease: u64| {
            let lease = Duration::from_secs(lease);
            [0, 1, 2, 3, 4, u32::MAX].map(|it| wait(it, lease).as_millis())
        };
        assert_eq!(waits(3600), [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
        assert_eq!(waits(120), [5_000, 10_000, 20_000, 20_000, 20_000, 20_000]);
        assert_eq!(waits(15), [2_500; 6]);
        assert_eq!(waits(1), [1_000; 6]);
    }
}
