//! Task 5, loops: calls that were repeated without progress.
//!
//! A loop is three similar calls among five consecutive calls, or five consecutive reads of the
//! same target. It is resolved when a different call that is not a read succeeds within the next 20
//! calls.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{cite, errors::brief};
use crate::sessions::event::{Action, Event, Outcome};

/// The number of consecutive calls searched for similar ones.
const WINDOW: usize = 5;
/// The number of similar calls that make a loop.
const SIMILAR: usize = 3;
/// The number of consecutive reads of the same target that make a loop.
const READS: usize = 5;
/// The number of calls after a loop in which a different call must succeed to resolve it.
const ESCAPE: usize = 20;

/// A loop, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopFinding {
    /// `repeated-call` or `repeated-read`.
    pub rule: String,
    /// The repeated call.
    pub what: String,
    /// The number of calls in the loop.
    pub count: u32,
    pub resolved: bool,
    pub evidence: Vec<u64>,
}

/// Follows the calls of a session and reports when a loop begins.
#[derive(Debug, Default)]
pub(super) struct LoopDetector<'e> {
    recent: VecDeque<&'e Event>,
    /// The most recent consecutive reads of the same target.
    reads: Vec<&'e Event>,
    /// The key of the current loop, if any.
    inside: Option<String>,
}

impl<'e> LoopDetector<'e> {
    /// Adds a call. Returns whether a loop begins with it.
    pub(super) fn take(&mut self, event: &'e Event) -> bool {
        let was = self.inside.take();
        let found = self.detect(event).map(|(_, calls)| key(calls[0]));
        let begins = found.is_some() && found != was;
        // A call outside any loop ends the current loop only if it succeeded and is not the loop's
        // own call.
        self.inside = found.or(was.filter(|was| *was == key(event) || !escapes(event)));
        begins
    }

    /// Returns the rule and the calls of the loop that this call begins or continues.
    fn detect(&mut self, event: &'e Event) -> Option<(&'static str, Vec<&'e Event>)> {
        self.recent.push_back(event);
        if self.recent.len() > WINDOW {
            self.recent.pop_front();
        }
        if event.action == Action::Read {
            if self.reads.first().is_some_and(|first| key(first) != key(event)) {
                self.reads.retain(|earlier| key(earlier) == key(event));
            }
            self.reads.push(event);
        } else {
            self.reads.clear();
        }
        let similar = |other: &&&Event| alike(other, event);
        let calls: Vec<&Event> = self.recent.iter().filter(similar).copied().collect();
        if calls.len() >= SIMILAR && event.action != Action::Read {
            return Some(("repeated-call", calls));
        }
        (self.reads.len() >= READS).then(|| ("repeated-read", self.reads.clone()))
    }
}

/// Returns the part of a call used for comparison: the tool and the whole target.
fn key(event: &Event) -> String {
    format!("{} {}", event.tool, event.target)
}

/// Returns whether two calls attempt the same action with the same result. Edits to the same file
/// and passing checks are ordinary work.
fn alike(a: &Event, b: &Event) -> bool {
    let same = a.tool == b.tool && a.action == b.action;
    match (&a.outcome, &b.outcome) {
        (Outcome::Failed(first), Outcome::Failed(second)) => {
            same && first == second && a.about() == b.about()
        }
        (Outcome::Denied, Outcome::Denied) => same && a.about() == b.about(),
        (Outcome::Passed, Outcome::Passed) => {
            // The same command was run again with the same arguments.
            same && !matches!(a.action, Action::Edit | Action::Check | Action::Commit)
                && a.tool == "Bash"
                && a.target == b.target
        }
        _ => false,
    }
}

fn escapes(event: &Event) -> bool {
    event.outcome == Outcome::Passed
}

/// Returns the loops of a session.
pub fn loops(events: &[Event]) -> Vec<LoopFinding> {
    let mut detector = LoopDetector::default();
    let mut found: Vec<(LoopFinding, String)> = Vec::new();
    let calls: Vec<&Event> = events.iter().filter(|event| event.is_call()).collect();
    for (at, event) in calls.iter().enumerate() {
        let Some((rule, members)) = detector.detect(event) else { continue };
        let name = key(members[0]);
        let lines = || members.iter().map(|member| member.line);
        let known = found.iter_mut().rev().find(|(known, is)| {
            *is == name && known.evidence.iter().any(|line| lines().any(|own| own == *line))
        });
        let after = calls.iter().skip(at + 1).take(ESCAPE);
        let resolved = after
            .filter(|later| key(later) != key(event) && later.action != Action::Read)
            .any(|later| escapes(later));
        match known {
            Some((known, _)) => {
                known.count += 1;
                known.resolved = resolved;
                cite(&mut known.evidence, event.line);
            }
            None => {
                let what = brief(&name, 120);
                let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
                let mut evidence = Vec::new();
                lines().for_each(|line| cite(&mut evidence, line));
                let rule = rule.to_owned();
                found.push((LoopFinding { rule, what, count, resolved, evidence }, name));
            }
        }
    }
    found.into_iter().map(|(finding, _)| finding).collect()
}
