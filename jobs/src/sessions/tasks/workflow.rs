//! Successful workflows, for the SuccessfulSequence artifact: the steps of a turn that changed
//! files, whose last check or commit passed, and in which no call was denied and trust did not
//! fall.

use serde::{Deserialize, Serialize};

use super::signals::Signal;
use crate::sessions::event::{Action, Event, Outcome};

/// Minimum number of steps in a workflow.
const LEAST: usize = 4;
/// Maximum number of steps.
const MOST: usize = 10;

/// The steps of one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workflow {
    pub label: String,
    pub steps: Vec<String>,
    pub trust_delta: i32,
    /// The lines of the first call and of the last check or commit.
    pub evidence: Vec<u64>,
}

/// Returns the workflows of a session from the event at `from`, keeping only the first of any with
/// the same steps.
pub fn workflows(events: &[Event], signals: &[Signal], mut from: usize) -> Vec<Workflow> {
    let mut found: Vec<Workflow> = Vec::new();
    while from < events.len() {
        let turn = events[from].turn;
        let length = events[from..].iter().take_while(|event| event.turn == turn).count();
        let until = from + length;
        let before = from.checked_sub(1).map_or(100, |at| i32::from(signals[at].trust));
        let delta = i32::from(signals[until - 1].trust) - before;
        if let Some(workflow) = workflow(&events[from..until], delta)
            && found.iter().all(|known| known.steps != workflow.steps)
        {
            found.push(workflow);
        }
        from = until;
    }
    found
}

fn workflow(events: &[Event], trust_delta: i32) -> Option<Workflow> {
    let calls: Vec<&Event> = events.iter().filter(|event| event.is_call()).collect();
    let last =
        calls.iter().rev().find(|call| matches!(call.action, Action::Check | Action::Commit))?;
    let clean = calls.iter().all(|call| call.outcome != Outcome::Denied);
    // A session with full trust cannot gain more, so it is enough that trust does not fall.
    if last.outcome != Outcome::Passed || !clean || trust_delta < 0 {
        return None;
    }
    let mut steps: Vec<String> = Vec::new();
    for call in &calls {
        let is_test = call.target.to_lowercase().contains("test") || call.target.contains("spec.");
        let step = match (call.action, is_test) {
            (Action::Read, true) => "read tests".to_owned(),
            (Action::Read, false) => "read code".to_owned(),
            (Action::Edit, true) => "edit tests".to_owned(),
            (Action::Edit, false) => "edit code".to_owned(),
            (Action::Check, _) => format!("run {}", super::errors::brief(&call.subject, 60)),
            (Action::Commit, _) => "commit".to_owned(),
            _ => continue,
        };
        // Repeated steps are omitted, so equivalent workflows are recognized as the same.
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    let has = |what: &str| steps.iter().any(|step| step == what);
    let label = match (has("edit code"), has("edit tests"), has("commit")) {
        (true, true, true) => "implement with tests and commit",
        (true, true, false) => "implement with tests",
        (true, false, true) => "implement, check and commit",
        (true, false, false) => "implement and check",
        (false, true, _) => "change tests",
        _ => return None,
    };
    (LEAST..=MOST).contains(&steps.len()).then(|| Workflow {
        label: label.to_owned(),
        evidence: vec![calls[0].line, last.line],
        steps,
        trust_delta,
    })
}
