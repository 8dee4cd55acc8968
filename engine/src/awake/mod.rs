//! Keeps the machine awake during a run.
//!
//! ```text
//! InhibitorCommand (pure) ──start──> a host program holds an inhibition lock
//!                                           │ reports that it holds the lock, or an error
//!                                           v
//!    Inhibitor ──standing──> SleepInhibition ──> the run's summary, its report
//!       └── dropped, or this process dies ──> the program ends and releases the lock
//! ```
//!
//! The program exits when a pipe from this process is closed, so even `kill -9` releases the lock.
//! (`caffeinate` watches the process id instead.) The program belongs to runner's own process
//! group, so terminating a run's process tree does not affect it.
//!
//! Rejected: a D-Bus client, which would add a dependency.
//!
//! This module must never make a run fail, keep the screen on, or report more than was granted. The
//! machine still sleeps when the lid is closed or the battery is empty.

mod inhibitor;
mod inhibitor_command;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use inhibitor::{InhibitRequest, Inhibitor};
pub use inhibitor_command::{InhibitScope, InhibitorCommand};

/// The kinds of sleep that are inhibited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitLevel {
    /// Automatic sleep, and sleep requested by programs that respect inhibitions. On macOS, only
    /// automatic sleep while the machine runs on battery.
    Sleep,
    /// Only automatic sleep. A request for sleep still takes effect.
    Idle,
    /// The inhibition ended before the run did.
    ForAWhile,
    /// No sleep is inhibited.
    Nothing,
}

/// The result of a request to keep the machine awake.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SleepInhibition {
    pub held: InhibitLevel,
    /// The service that inhibits sleep on this system: `logind` or `caffeinate`. Empty if runner
    /// supports none.
    pub by: String,
    /// The reason why the inhibition is incomplete, or empty if it is complete.
    #[serde(default)]
    pub why: String,
}

impl fmt::Display for SleepInhibition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held {
            InhibitLevel::Sleep => write!(f, "kept awake by {}", self.by),
            InhibitLevel::Idle => write!(
                f,
                "automatic sleep was inhibited by {}; requested sleep was not inhibited: {}",
                self.by, self.why
            ),
            InhibitLevel::ForAWhile => {
                write!(f, "kept awake by {} for part of the time: {}", self.by, self.why)
            }
            InhibitLevel::Nothing => write!(f, "not kept awake: {}", self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inhibitions_display_and_load() {
        let row = r#"{"held":"nothing","by":"","why":"no logind answers"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "not kept awake: no logind answers");
        let row = r#"{"held":"sleep","by":"logind"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "kept awake by logind");
    }
}
