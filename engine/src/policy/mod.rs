//! A job's scheduling settings: catch-up, overlap, gates and retries.
//!
//! The settings are plain data with defaults, stored in the database alongside the job. This module
//! must never read a clock or do I/O.

mod quiet;
pub mod quota;
mod retry;

use jiff::SignedDuration;
use jiff::civil::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
pub use retry::retryable;

/// Maximum number of a job's scheduled times that are waiting or in progress under
/// [`Overlap::Queue`]. Additional scheduled times are skipped.
pub const QUEUE: u32 = 100;
/// The group for jobs that do not specify one.
pub const DEFAULT_GROUP: &str = "default";

/// The settings for starting, delaying and retrying a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Rules for missed scheduled times.
    pub catch_up: CatchUp,
    /// Rule for a scheduled time that arrives before an earlier run has finished.
    pub overlap: Overlap,
    /// Maximum start delay. An occurrence that has not started by then is skipped. `None` sets no
    /// limit.
    pub start_within: Option<SignedDuration>,
    /// Hours of the day during which the job does not start.
    pub quiet: Option<Quiet>,
    /// Minimum time from the start of the job's last run to its next scheduled start.
    pub min_interval: Option<SignedDuration>,
    /// Minimum battery level in percent while the host is on battery power. At 0 the job never
    /// waits, and at 100 it always waits.
    pub min_battery: u8,
    /// One-minute load average per core, in thousandths, above which the job waits. `None` sets no
    /// limit.
    pub max_load: Option<u32>,
    pub group: ConcurrencyGroup,
    /// The job's priority among waiting jobs. Higher values start first.
    pub priority: i32,
    pub retry: Retry,
    /// The fleet whose hosts run the job. `None` runs it on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetJob>,
}

/// Job settings shared by the hosts of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetJob {
    /// The fleet's name in the user's configuration.
    pub name: String,
    /// Tags that a host needs to run the job.
    pub tags: Vec<String>,
}

/// Settings for missed scheduled times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatchUp {
    pub which: CatchUpScope,
    /// Maximum age of a missed scheduled time for which the job still runs.
    pub window: SignedDuration,
    /// Maximum number of missed scheduled times for which the job runs if `which` is `All`. Older
    /// scheduled times are recorded as missed.
    pub cap: u32,
    /// Time span over which late starts are spread.
    pub stagger: SignedDuration,
}

/// The late scheduled times for which a job still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUpScope {
    /// None. The job runs only for a scheduled time that is on time (see
    /// [`ON_TIME`](crate::schedule::ON_TIME)).
    None,
    /// Only the most recent missed scheduled time.
    Last,
    /// All missed scheduled times, in order.
    All,
}

/// Handling of a scheduled time that arrives before an earlier run has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// The later scheduled time is skipped.
    Skip,
    /// The later scheduled time waits for its turn.
    Queue,
    /// The later scheduled time replaces the earlier one, which is cancelled.
    Replace,
}

/// Daily quiet hours in the job's time zone. If `from` is later than `to`, they span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    pub from: Time,
    /// The end of the quiet hours, exclusive.
    pub to: Time,
}

/// A set of jobs, possibly from several projects, with a limit on concurrent runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrencyGroup {
    pub name: String,
    /// Maximum number of the group's jobs that may run concurrently. Never 0.
    pub slots: u32,
}

/// Settings for retries after a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Maximum number of attempts after the first attempt.
    pub count: u32,
    /// Maximum wait before each retry. The last value applies to all later retries.
    pub backoff: Vec<SignedDuration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            catch_up: CatchUp::default(),
            overlap: Overlap::Skip,
            start_within: None,
            quiet: None,
            min_interval: None,
            min_battery: 0,
            max_load: None,
            group: ConcurrencyGroup { name: DEFAULT_GROUP.to_owned(), slots: 4 },
            priority: 0,
            retry: Retry { count: 2, backoff: [1, 5, 15].map(SignedDuration::from_mins).to_vec() },
            fleet: None,
        }
    }
}

impl Default for CatchUp {
    fn default() -> Self {
        Self {
            which: CatchUpScope::Last,
            window: SignedDuration::from_hours(24),
            cap: 100,
            stagger: SignedDuration::from_secs(60),
        }
    }
}

impl CatchUp {
    /// Returns the delay of a late start, in whole milliseconds from zero to `stagger`. The same
    /// `salt` always gives the same delay, and the delays of different salts are evenly
    /// distributed.
    pub fn stagger_of(&self, salt: &str) -> SignedDuration {
        let digest = Digest::of(salt.as_bytes()).short();
        let dice = u64::from_str_radix(&digest, 16).expect("a short digest is 16 hex digits");
        share(self.stagger, dice)
    }
}

/// Scales `dice` evenly to `[0, whole]`, in whole milliseconds. Returns zero if `whole` is
/// negative.
fn share(whole: SignedDuration, dice: u64) -> SignedDuration {
    let steps = u128::try_from(whole.as_millis()).map_or(1, |millis| millis + 1);
    let millis = (u128::from(dice) * steps) >> 64;
    SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).min(whole.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stagger_is_spread_and_deterministic() {
        let catch_up = CatchUp::default();
        let mut waits: Vec<i128> = (0..600)
            .map(|n| {
                let salt = format!("project/job{n}");
                let wait = catch_up.stagger_of(&salt);
                assert_eq!(wait, catch_up.stagger_of(&salt));
                assert!(wait >= SignedDuration::ZERO && wait <= catch_up.stagger);
                wait.as_millis()
            })
            .collect();
        waits.sort_unstable();
        let widest = waits.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest < Some(3_000), "{widest:?}");
        let none = CatchUp { stagger: SignedDuration::ZERO, ..catch_up };
        assert_eq!(none.stagger_of("project/job1"), SignedDuration::ZERO);
    }

    #[test]
    fn missing_settings_have_defaults() {
        let read: Policy = serde_json::from_str("{\"priority\": -3}").unwrap();
        let expected = Policy { priority: -3, ..Policy::default() };
        assert_eq!(read, expected);
        let text = serde_json::to_string(&expected).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), expected);
    }
}
