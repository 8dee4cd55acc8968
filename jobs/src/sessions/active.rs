//! A session's active work: the files that it worked on, and the issues still open when it ended.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::event::{Action, Event};
use super::tasks::errors::brief;
use super::tasks::{Findings, graph};

/// Maximum number of active files.
pub const FILES: usize = 12;
/// Maximum number of unresolved issues.
const ISSUES: usize = 5;
/// The number of events after which a call's recency weight is halved.
const HALF: f64 = 40.0;

/// An issue that was open at the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// The trigger of an error, or `loop`.
    pub kind: String,
    pub signature: String,
    pub count: u32,
}

/// Returns at most [`FILES`] of a session's files, most active first. Recent edits have the most
/// weight. A file has more weight if it was changed together with other files, or if it is the
/// subject of an open error.
pub fn active_files(events: &[Event]) -> Vec<String> {
    let last = events.len();
    let calls = events.iter().filter(|event| event.is_call());
    // A subject is open if the last call about it failed.
    let ends: HashMap<(&str, &str), &Event> = calls.map(|event| (event.about(), event)).collect();
    let open: Vec<&str> =
        ends.into_values().filter(|it| it.error().is_some()).map(|it| it.target.as_str()).collect();
    let mut scores: BTreeMap<&str, f64> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "a session has at most 20,000 events")]
        let age = (last - at) as f64;
        let weight = match (event.action, event.tool.as_str()) {
            (Action::Edit, _) => 4.0,
            (Action::Read, "Read") => 1.0,
            _ => continue,
        };
        *scores.entry(&event.target).or_default() += weight * (0.2 + (-age / HALF).exp2());
    }
    for files in graph::changed_by_turn(events).into_values() {
        let others = f64::from(u32::try_from(files.len().saturating_sub(1)).unwrap_or(0).min(5));
        for file in files {
            scores.entry(file).and_modify(|score| *score *= 0.05_f64.mul_add(others, 1.0));
        }
    }
    for (file, score) in &mut scores {
        if open.iter().any(|target| target.contains(file)) {
            *score *= 2.0;
        }
    }
    // A file outside the session's folder is irrelevant to the next session.
    let mut files: Vec<(&str, f64)> = scores
        .into_iter()
        .filter(|(file, _)| !file.starts_with(['/', '~']) && !file.is_empty())
        .collect();
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    files.into_iter().take(FILES).map(|(file, _)| brief(file, 160)).collect()
}

/// Returns at most `ISSUES` issues that were open at the end, loops first.
pub fn unresolved(findings: &Findings) -> Vec<Unresolved> {
    let errors = findings.errors.iter().filter(|error| !error.resolved).map(|error| Unresolved {
        kind: error.trigger.clone(),
        signature: error.signature.clone(),
        count: error.count,
    });
    let loops = findings.loops.iter().filter(|it| !it.resolved).map(|it| Unresolved {
        kind: "loop".to_owned(),
        signature: it.what.clone(),
        count: it.count,
    });
    loops.chain(errors).take(ISSUES).collect()
}
