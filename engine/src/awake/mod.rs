//! Keeping the machine awake while a run works.
//!
//! ```text
//! Means (pure: which words) ──start──> a program of the host holds a lock on sleep
//!                                           │ says that it has it, or why not
//!                                           v
//!    Keeper ──standing──> Awake ──> the run's summary, its report
//!       └── dropped, or this process dies in any way ──> the program ends, and its lock with it
//! ```
//!
//! The lock is held by a program of the host and not by this process: no bus to speak, no library to
//! carry. Its life hangs on a pipe of ours (or on our number, for `caffeinate`), so `kill -9` lets go of
//! it as well. It is a plain child in our own process group: what sweeps the trees of runs leaves it.
//!
//! Must never hold a run up or make it fail, never keep the screen on, and never say more than it got: a
//! lid that is closed and a battery that is empty win.

mod inhibitor;
mod inhibitor_command;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use inhibitor::{InhibitRequest, Inhibitor};
pub use inhibitor_command::{InhibitScope, InhibitorCommand};

/// How much was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InhibitLevel {
    /// The machine neither fell asleep by itself nor was put to sleep by a program that asks first.
    Sleep,
    /// It did not fall asleep by itself; whoever puts it to sleep does.
    Idle,
    /// It was held, and let go before the run was over.
    ForAWhile,
    /// Nothing.
    Nothing,
}

/// The result of the request to stay awake, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepInhibition {
    /// How much was got.
    pub held: InhibitLevel,
    /// The service that was asked: `logind`, `caffeinate`; empty if there is none.
    pub by: String,
    /// Why it is not more; empty where all was got.
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
