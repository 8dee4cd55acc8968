//! Task 8, command frequency: the most frequent calls, and those that were always denied.
//!
//! The finding names a permission rule that the user may want to add. Runner never adds it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{cite, errors::brief};
use crate::sessions::event::{Action, Event, Outcome};

/// Maximum number of calls in the list. Calls that suggest a rule raise the limit, at most to
/// twice this number.
const MOST: usize = 10;
/// Minimum number of denials that suggest a rule.
const DENIALS: u32 = 2;

/// How often a session made calls with the same intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandUse {
    pub tool: String,
    /// The program and its first arguments, for commands.
    pub subject: String,
    pub count: u32,
    pub failed: u32,
    pub denied: u32,
    /// The permission rule to add, for calls that were always denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub evidence: Vec<u64>,
}

/// Returns the calls that were always denied, at least twice, and then the most frequent others.
pub fn frequency(events: &[Event]) -> Vec<CommandUse> {
    let mut uses: BTreeMap<(&str, &str), CommandUse> = BTreeMap::new();
    for event in events.iter().filter(|event| event.is_call()) {
        let used = uses.entry((&event.tool, &event.subject)).or_insert_with(|| CommandUse {
            tool: brief(&event.tool, 80),
            subject: brief(&event.subject, 80),
            count: 0,
            failed: 0,
            denied: 0,
            rule: None,
            evidence: Vec::new(),
        });
        used.count += 1;
        used.failed += u32::from(matches!(event.outcome, Outcome::Failed(_)));
        used.denied += u32::from(event.outcome == Outcome::Denied);
        if event.outcome == Outcome::Denied || event.action == Action::Other {
            cite(&mut used.evidence, event.line);
        }
    }
    let mut all: Vec<CommandUse> = uses.into_values().collect();
    for used in &mut all {
        if used.denied >= DENIALS && used.denied == used.count {
            used.rule = Some(match used.subject.as_str() {
                "" => format!("permissions.deny += \"{}\"", used.tool),
                subject => format!("permissions.deny += \"{}({subject}:*)\"", used.tool),
            });
        }
    }
    all.sort_by_key(|used| (used.rule.is_none(), std::cmp::Reverse(used.count)));
    let denied = all.iter().filter(|used| used.rule.is_some()).count();
    all.truncate(MOST + denied.min(MOST));
    all
}
