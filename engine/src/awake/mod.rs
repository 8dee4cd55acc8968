//! Keeps the machine awake while a run works.
//!
//! ```text
//! InhibitorCommand (pure) ──start──> a host program holds an inhibition lock
//!                                           │ reports that it holds the lock, or an error
//!                                           v
//!    Inhibitor ──standing──> SleepInhibition ──> the run's summary, its report
//!       └── dropped, or this process dies in any way ──> the program ends and releases the lock
//! ```
//!
//! A host program holds the lock, so runner needs neither a bus client nor a library. The program
//! ends when a pipe from this process is closed (`caffeinate` watches the process id instead), so
//! even `kill -9` releases the lock. The program is a plain child in runner's own process group, so
//! the code that kills the process trees of runs does not affect it.
//!
//! This module must never delay a run or make it fail, never keep the screen on, and never report
//! more than was granted: the machine still goes to sleep when the lid is closed or the battery is
//! empty.

mod inhibitor;
mod inhibitor_command;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use inhibitor::{InhibitRequest, Inhibitor};
pub use inhibitor_command::{InhibitScope, InhibitorCommand};

/// The extent of the sleep inhibition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitLevel {
    /// The machine could neither fall asleep by itself nor be put to sleep by a program that
    /// respects inhibitions.
    Sleep,
    /// The machine could not fall asleep by itself, but a request for sleep still took effect.
    Idle,
    /// The inhibition was held, but ended before the run did.
    ForAWhile,
    /// Sleep was not inhibited.
    Nothing,
}

/// The result of a request to keep the machine awake, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepInhibition {
    pub held: InhibitLevel,
    /// The service that was asked, `logind` or `caffeinate`. Empty if there is none.
    pub by: String,
    /// The reason why the inhibition is incomplete. Empty if it is complete.
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
    fn inhibitions_display_and_load() {
        let row = r#"{"held":"nothing","by":"","why":"no logind answers"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "not kept awake: no logind answers");
        let row = r#"{"held":"sleep","by":"logind"}"#;
        let awake: SleepInhibition = serde_json::from_str(row).unwrap();
        assert_eq!(awake.to_string(), "kept awake by logind");
    }
}
