//! What a job wants of its clock and of the queue: catch-up, overlap, gates, retries.
//!
//! Plain data with a default each, kept in the ledger beside the job, and the pure rules that need
//! nothing else. This module must never read a clock or do IO.

use jiff::SignedDuration;
use jiff::civil::Time;
use serde::{Deserialize, Serialize};

/// The most of one job's moments that wait behind each other; further ones are skipped.
pub const QUEUE: u32 = 100;
/// The group of jobs that name none.
pub const DEFAULT_GROUP: &str = "default";

/// How a job is to be started, held back and tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// What becomes of moments that passed with nothing there to run them.
    pub catch_up: CatchUp,
    /// What becomes of a moment that comes while an earlier one is not over.
    pub overlap: Overlap,
    /// An occurrence that has not begun so long after it was due is skipped; absent: it waits.
    pub start_within: Option<SignedDuration>,
    /// Hours of the day in which it is not started.
    pub quiet: Option<Quiet>,
    /// A clock does not start it sooner than this after its last run that began.
    pub min_interval: Option<SignedDuration>,
    /// On battery power below this many percent it waits; 0 never, 100 always on battery.
    pub min_battery: u8,
    /// The load of one minute per core, in thousandths, above which it waits.
    pub max_load: Option<u32>,
    /// The group whose slots it shares.
    pub group: Group,
    /// Higher goes first among those that wait.
    pub priority: i32,
    /// How often and how long after a failure it is tried again.
    pub retry: Retry,
}

/// What becomes of missed moments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatchUp {
    /// Which of them are run.
    pub which: Which,
    /// How late a moment may be and still be run for.
    pub window: SignedDuration,
    /// The most that `all` runs; older ones are missed.
    pub cap: u32,
    /// Late ones are spread over this long, so that not all jobs wake at once.
    pub stagger: SignedDuration,
}

/// Which missed moments are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// Only a moment that is not late at all.
    None,
    /// The last one.
    Last,
    /// Each of them, in their order.
    All,
}

/// What becomes of a moment that comes while an earlier one is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// It is skipped.
    Skip,
    /// It waits its turn.
    Queue,
    /// It takes the place of the earlier one, which is cancelled.
    Replace,
}

/// Hours of the day, in the job's zone; `from` later than `to` spans midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiet {
    /// The first quiet moment.
    pub from: Time,
    /// The first moment that is not quiet any more.
    pub to: Time,
}

/// A set of jobs, of all projects, that share slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many of its jobs run at once, at most; never 0.
    pub slots: u32,
}

/// How a failure is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How often, besides the first attempt.
    pub count: u32,
    /// The longest wait before each further attempt; the last one stands for all that follow.
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
            group: Group {
                name: DEFAULT_GROUP.to_owned(),
                slots: 4,
            },
            priority: 0,
            retry: Retry {
                count: 2,
                backoff: [1, 5, 15].map(SignedDuration::from_mins).to_vec(),
            },
        }
    }
}

impl Default for CatchUp {
    fn default() -> Self {
        Self {
            which: Which::Last,
            window: SignedDuration::from_hours(24),
            cap: 100,
            stagger: SignedDuration::from_secs(60),
        }
    }
}

impl Retry {
    /// placeholder
    pub fn wait(&self, failures: u32, _seed: u64) -> Option<SignedDuration> {
        (failures <= self.count && failures > 0).then(|| {
            self.backoff
                .get(failures as usize - 1)
                .or(self.backoff.last())
                .copied()
                .unwrap_or_default()
        })
    }
}
impl CatchUp {
    /// placeholder
    pub fn stagger_of(&self, _salt: &str) -> SignedDuration {
        self.stagger
    }
}
/// placeholder
pub fn retryable(outcome: &crate::outcome::Outcome) -> bool {
    matches!(outcome, crate::outcome::Outcome::TimedOut { .. })
        || matches!(
            outcome.class(),
            Some(
                crate::outcome::Class::Crash
                    | crate::outcome::Class::Environment
                    | crate::outcome::Class::Silent
                    | crate::outcome::Class::Malformed
                    | crate::outcome::Class::ArtifactMissing
                    | crate::outcome::Class::RateLimited
            )
        )
}
