//! Hints for the guard hook: commands that failed repeatedly in finished sessions, and what an
//! artifact recommends for their errors.
//!
//! A hint requires failures in sessions other than the one that receives it, so a session is never
//! judged by its own events. A hint is background for the model: it must never allow or refuse
//! anything.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::artifact::{Artifact, CONFIDENT, Content};
use super::folder::{Digests, read_known};
use super::record::SessionRecord;
use super::sources::is_named;
use super::tasks::failed_calls::{FailedCall, command, short};
use super::tasks::injection::ARTIFACT_MARK;

/// Minimum number of failures in other sessions.
const FAILURES: u32 = 3;
/// Maximum number of hints for a project.
const MOST: usize = 40;

/// A command that failed in finished sessions and has not succeeded since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub command: String,
    /// The number of failures in each session.
    pub failures: BTreeMap<String, u32>,
    /// The action or the steps that repaired the error.
    pub worked: String,
    pub artifact: String,
}

/// Returns the hints for a project. `records` are ordered by the sessions' end times.
pub fn hints(records: &[&SessionRecord], artifacts: &[Artifact]) -> Vec<Hint> {
    let mut open: BTreeMap<&str, (&FailedCall, BTreeMap<String, u32>)> = BTreeMap::new();
    for record in records {
        let passed = &record.findings.passed_calls;
        open.retain(|command, _| !passed.contains(&short(command)));
        for call in &record.findings.failed_calls {
            let known = open.entry(&call.command).or_insert_with(|| (call, BTreeMap::new()));
            // The newest error determines the advice.
            known.0 = call;
            known.1.insert(record.session.clone(), call.count);
        }
    }
    let hint = |(call, failures): (&FailedCall, BTreeMap<String, u32>)| {
        let (worked, artifact) = advice(call, artifacts)?;
        let enough = failures.values().sum::<u32>() >= FAILURES;
        enough.then(|| Hint { command: call.command.clone(), failures, worked, artifact })
    };
    open.into_values().filter_map(hint).take(MOST).collect()
}

/// Returns an artifact's recommendation for the error of a call, and the artifact's id.
fn advice(call: &FailedCall, artifacts: &[Artifact]) -> Option<(String, String)> {
    let sure = |artifact: &&Artifact| artifact.content.confidence() >= CONFIDENT || artifact.pinned;
    let text = |artifact: &Artifact| match &artifact.content {
        Content::RepairPattern { error_signature, fix_action, .. }
            if *error_signature == call.signature =>
        {
            Some((0, fix_action.clone()))
        }
        Content::DreamPlaybook { sequence, .. } if artifact.is_playbook_for(&call.trigger) => {
            Some((1, sequence.join("; ")))
        }
        _ => None,
    };
    let found = artifacts.iter().filter(sure);
    let found = found.filter_map(|artifact| Some((text(artifact)?, &artifact.id)));
    // A single action is clearer than a sequence.
    found.min_by_key(|((rank, _), _)| *rank).map(|((_, text), id)| (text, id.clone()))
}

/// Returns the hint for a command that an agent is about to run in a session, if there is one.
///
/// `state` is the project's folder in runner's state folder. This function reads two small files
/// and writes nothing.
pub fn hint(root: &Path, state: &Path, session: &str, tool: &str, line: &str) -> Option<String> {
    let wanted = command(tool, line)?;
    let bytes = read_known(root, &Digests::load(state), "/hints.json")?;
    let all: Vec<Hint> = serde_json::from_slice(&bytes).ok()?;
    let found = all.into_iter().find(|hint| hint.command == wanted)?;
    let others = found.failures.iter().filter(|(other, _)| !is_named(other, session));
    let count: u32 = others.map(|(_, count)| count).sum();
    (count >= FAILURES).then(|| {
        let Hint { worked, artifact, .. } = &found;
        format!(
            "Background from earlier sessions: this command failed {count} times; what worked: \
             {worked}{ARTIFACT_MARK}{artifact}]"
        )
    })
}
