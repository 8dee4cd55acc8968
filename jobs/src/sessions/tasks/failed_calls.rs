//! The commands that failed in a session and those that passed. The guard hook's hints are based on
//! both.

use std::collections::{BTreeMap, BTreeSet};

use runner_text::redact::Redacted;
use serde::{Deserialize, Serialize};

use crate::sessions::event::{Event, Outcome};

/// Maximum length of a command in bytes. A longer one is rarely repeated exactly.
pub const LONGEST: usize = 160;
/// Maximum number of failed commands, and of passed commands, to keep.
const MOST: usize = 10;
const PASSED: usize = 150;

/// A command whose last outcome in a session was a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCall {
    pub command: String,
    /// The trigger of its last error.
    pub trigger: String,
    pub signature: String,
    /// The number of times the command failed in the session since it last passed.
    pub count: u32,
}

/// Returns the commands whose last outcome was a failure, most frequent first.
pub fn failed_calls(events: &[Event]) -> Vec<FailedCall> {
    let mut failed: BTreeMap<String, FailedCall> = BTreeMap::new();
    for event in events {
        let Some(command) = command(&event.tool, &event.target) else { continue };
        match &event.outcome {
            Outcome::Passed => drop(failed.remove(&command)),
            Outcome::Failed(error) if error.telling => {
                let known = failed.entry(command.clone()).or_insert_with(|| FailedCall {
                    command,
                    trigger: String::new(),
                    signature: String::new(),
                    count: 0,
                });
                known.trigger.clone_from(&error.trigger);
                known.signature.clone_from(&error.line);
                known.count += 1;
            }
            _ => {}
        }
    }
    let mut all: Vec<FailedCall> = failed.into_values().collect();
    all.sort_by_key(|call| std::cmp::Reverse(call.count));
    all.truncate(MOST);
    all
}

/// Returns the short digests of the last commands that passed.
pub fn passed_calls(events: &[Event]) -> BTreeSet<u32> {
    let mut passed = BTreeSet::new();
    for event in events.iter().rev().filter(|event| event.outcome == Outcome::Passed) {
        passed.extend(command(&event.tool, &event.target).map(|it| short(&it)));
        if passed.len() == PASSED {
            break;
        }
    }
    passed
}

/// Returns a command in the form used for comparison, or `None` if the tool runs no command or the
/// command is too long.
pub fn command(tool: &str, target: &str) -> Option<String> {
    let target = target.trim();
    (tool == "Bash" && !target.is_empty() && target.len() <= LONGEST)
        .then(|| Redacted::of(target).head(LONGEST).into_string())
}

/// Returns a short digest of a command.
pub fn short(command: &str) -> u32 {
    let digest = runner_engine::digest::Digest::of(command.as_bytes()).short();
    u32::from_str_radix(&digest[..8], 16).unwrap_or_default()
}
