//! Task 3, repair sequences: the steps between an error and a successful call with the same intent,
//! if the error did not recur within the session.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::errors::brief;
use crate::sessions::event::{Action, Event, Outcome};

/// Maximum number of events between an error and its repair.
const WINDOW: usize = 60;
/// Maximum number of steps in a sequence.
const STEPS: usize = 8;

/// A repaired error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub trigger: String,
    pub signature: String,
    /// The steps in order. The last one is the call that succeeded.
    pub steps: Vec<String>,
    /// The action that repaired the error, if it was a single one.
    pub fix: Option<String>,
    /// The lines of the error and of the success.
    pub evidence: Vec<u64>,
}

/// Returns the repairs of a session, at most one for each trigger.
pub fn repairs(events: &[Event]) -> Vec<Repair> {
    let mut found: Vec<Repair> = Vec::new();
    // Only the last occurrence of an error can have been repaired.
    let errors =
        events.iter().enumerate().filter_map(|(at, it)| Some((it.error()?.trigger.as_str(), at)));
    let last: HashMap<&str, usize> = errors.collect();
    for (at, event) in events.iter().enumerate() {
        let Some(error) = event.error().filter(|error| error.telling) else { continue };
        if last.get(error.trigger.as_str()) != Some(&at) {
            continue;
        }
        let rest = events[at + 1..].iter().take(WINDOW);
        let passed = |later: &Event| {
            later.outcome == Outcome::Passed
                && later.about() == event.about()
                && (hides_errors(event) || !hides_errors(later))
        };
        let Some(end) = rest.clone().position(passed) else { continue };
        let Some(success) = events.get(at + 1 + end) else { continue };
        let between: Vec<&Event> = rest
            .take(end)
            .filter(|step| step.is_call() && step.outcome == Outcome::Passed)
            .filter(|step| !updates_lists(step))
            .collect();
        let actions: Vec<&&Event> = between.iter().filter(|step| acts(step)).collect();
        // A read of another target is not a change.
        let changed = success.target != event.target && event.action != Action::Read;
        // If the same call passes without a change, nothing was repaired.
        if actions.is_empty() && !changed {
            continue;
        }
        let mut steps: Vec<String> = Vec::new();
        for step in between.iter().copied().chain([success]) {
            let text = describe(step);
            if steps.last() != Some(&text) {
                steps.push(text);
            }
        }
        // The steps closest to the success matter most.
        let skip = steps.len().saturating_sub(STEPS);
        let fix = match actions.as_slice() {
            [] => Some(format!(
                "run `{}` instead of `{}`",
                brief(&success.target, 90),
                brief(&event.target, 90)
            )),
            [only] => Some(describe(only)),
            _ => None,
        };
        found.push(Repair {
            trigger: error.trigger.clone(),
            signature: error.line.clone(),
            steps: steps.split_off(skip),
            fix,
            evidence: vec![event.line, success.line],
        });
    }
    found
}

/// Returns whether a step may have changed something.
fn acts(event: &Event) -> bool {
    matches!(event.action, Action::Edit | Action::Other)
}

/// Returns whether a tool only updates the model's own lists.
fn updates_lists(event: &Event) -> bool {
    matches!(
        event.tool.as_str(),
        "TodoWrite" | "TaskUpdate" | "TaskCreate" | "TaskList" | "update_plan"
    )
}

/// Returns whether a command may pass without showing an error even if part of it fails.
fn hides_errors(event: &Event) -> bool {
    let line = event.target.as_str();
    let silent = line.contains("2>/dev/null") || line.contains("2> /dev/null");
    event.tool == "Bash" && (silent && line.contains('|') || line.contains("|| true"))
}

/// Describes a step in one line.
pub(super) fn describe(event: &Event) -> String {
    match (event.action, event.tool.as_str()) {
        (_, "Bash") => format!("run `{}`", brief(&event.target, 90)),
        (Action::Read, "Read") => format!("read {}", brief(&event.target, 90)),
        (Action::Read, _) => format!("search for {}", brief(&event.target, 80)),
        (Action::Edit, _) => format!("edit {}", brief(&event.target, 90)),
        (_, tool) => brief(&format!("use {tool} {}", event.target), 90),
    }
}
