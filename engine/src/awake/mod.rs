//! Keeps the machine awake while a run works.
//!
//! ```text
//! Means (pure: which words) ──start──> a program of the host holds a lock on sleep
//!                                           │ says that it has it, or why not
//!                                           v
//!    Keeper ──standing──> Awake ──> the run's summary, its report
//!       └── dropped, or this process dies in any way ──> the program ends, and its lock with it
//! ```
//!
//! The lock is held by a program of the host and not by this process, so runner needs no bus client
//! and no library. The program's life depends on a pipe from this process (or on its process id,
//! for `caffeinate`), so `kill -9` releases the lock as well. The program is a plain child in our
//! own process group, so the code that kills the trees of runs leaves it alone.
//!
//! This module must never delay a run or make it fail, never keep the screen on, and never report
//! more than was granted: a closed lid and an empty battery take precedence.

mod inhibitor;
mod inhibitor_command;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use inhibitor::{InhibitRequest, Inhibitor};
pub use inhibitor_command::{InhibitScope, InhibitorCommand};

/// The degree of sleep inhibition that was achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitLevel {
    /// The machine neither fell asleep by itself nor was put to sleep by a program that asks first.
    Sleep,
    /// The machine did not fall asleep by itself; a request for sleep still takes effect.
    Idle,
    /// The inhibition was held, and released before the run was over.
    ForAWhile,
    /// Sleep was not inhibited.
    Nothing,
}

/// The result of the request to stay awake, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepInhibition {
    pub held: InhibitLevel,
    /// The service that was asked: `logind`, `caffeinate`; empty if there is none.
    pub by: String,
    /// The reason why the inhibition is incomplete; empty if it is complete.
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
                write!(f, "kept awake by {} for a part of the time: {}", self.by, self.why)
            }
            InhibitLevel::Nothing => write!(f, "not kept awake: {}", self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_it_is_and_old_rows_load() {
        let row = r#"{"held":"nothing","by":"","why":"no logind answers"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "not kept awake: no logind answers");
        let row = r#"{"held":"sleep","by":"logind"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "kept awake by logind");
    }
}
