//! Task 10, the resume packet: a short summary of the last session for the next one.
//!
//! The packet is derived from the newest session that did something and from the artifacts. It is
//! deterministic, has at most 500 tokens, and is background: it must never ask for anything.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::artifact::{Artifact, CONFIDENT, Content};
use super::event::{Action, Event};
use super::record::{Ending, SessionRecord};
use super::tasks::errors::brief;
use super::tasks::injection::{ARTIFACT_MARK, PACKET_MARK};
use super::tasks::phases::Phase;
use super::tasks::{Findings, graph};

/// Maximum length of a rendered packet in bytes: 500 tokens of four bytes.
pub const LONGEST: usize = 2_000;
/// Maximum number of active files.
const FILES: usize = 12;
/// Maximum number of unresolved issues.
const ISSUES: usize = 5;
/// The number of calls after which the weight of a call halves.
const HALF: f64 = 40.0;

/// An issue that was open at the end of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// The trigger of an error, or `loop`.
    pub kind: String,
    pub signature: String,
    pub count: u32,
}

/// The phase arc of a packet, one entry for each phase in order of its first call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketPhase {
    pub phase: Phase,
    pub turns: u32,
    pub at: Option<Timestamp>,
}

/// The summary of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSummary {
    pub phase_arc: Vec<PacketPhase>,
    pub duration_s: i64,
    pub outcome: Ending,
}

/// An artifact in a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketArtifact {
    pub id: String,
    pub text: String,
}

/// The content of `resume.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    pub schema_version: u32,
    pub session: String,
    pub project: String,
    pub branch: Option<String>,
    pub ended_at: Option<Timestamp>,
    pub summary: PacketSummary,
    pub active_files: Vec<String>,
    pub unresolved: Vec<Unresolved>,
    pub playbooks: Vec<PacketArtifact>,
    pub conventions: Vec<PacketArtifact>,
}

/// Returns the files of a session, the most active ones first: recent edits count most, and files
/// that were changed together or that an open error is about count more.
pub fn active_files(events: &[Event]) -> Vec<String> {
    let last = events.len();
    let open: Vec<&str> = events
        .iter()
        .enumerate()
        .filter(|(at, event)| {
            let subject = event.subject();
            let passed = |later: &Event| later.error().is_none() && later.subject() == subject;
            event.error().is_some() && !events[at + 1..].iter().any(passed)
        })
        .map(|(_, event)| event.target.as_str())
        .collect();
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
    // A file outside of the session's folder means nothing to the next session.
    let mut files: Vec<(&str, f64)> = scores
        .into_iter()
        .filter(|(file, _)| !file.starts_with(['/', '~']) && !file.is_empty())
        .collect();
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    files.into_iter().take(FILES).map(|(file, _)| brief(file, 160)).collect()
}

/// Returns the issues that were open at the end.
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

/// Makes the packet for the next session, from the newest session with a call.
pub fn packet(records: &[&SessionRecord], artifacts: &[Artifact], project: &str) -> Option<Packet> {
    let newest = records
        .iter()
        .filter(|record| record.calls > 0)
        .max_by_key(|record| (record.ended_at, std::cmp::Reverse(&record.session)))?;
    let entry =
        |artifact: &Artifact, text: String| PacketArtifact { id: artifact.id.clone(), text };
    let sure = |artifact: &&Artifact| artifact.content.confidence() >= CONFIDENT || artifact.pinned;
    let open = |kind: &str| newest.unresolved.iter().any(|issue| issue.kind == kind);
    let playbooks = artifacts.iter().filter(sure).filter_map(|artifact| match &artifact.content {
        Content::DreamPlaybook { trigger, sequence, .. } if open(trigger) => {
            Some(entry(artifact, format!("{trigger}: {}", sequence.join("; "))))
        }
        Content::RepairPattern { error_signature, fix_action, .. }
            if newest.unresolved.iter().any(|issue| issue.signature == *error_signature) =>
        {
            Some(entry(artifact, format!("{error_signature}: {fix_action}")))
        }
        _ => None,
    });
    let extension = |file: &String| file.rsplit_once('.').map(|(_, end)| format!(".{end} "));
    let kinds: Vec<String> = newest.active_files.iter().filter_map(extension).collect();
    let conventions =
        artifacts.iter().filter(sure).filter_map(|artifact| match &artifact.content {
            Content::ProjectConvention { domain, pattern, .. } => {
                let about =
                    domain == "commits" || kinds.iter().any(|kind| pattern.starts_with(kind));
                // A person decides between conventions that contradict each other.
                (about && artifact.conflicts.is_empty()).then(|| entry(artifact, pattern.clone()))
            }
            _ => None,
        });
    let mut phase_arc: Vec<PacketPhase> = Vec::new();
    for span in newest.phases() {
        match phase_arc.iter_mut().find(|it| it.phase == span.phase) {
            Some(known) => known.turns += span.turns,
            None => {
                phase_arc.push(PacketPhase { phase: span.phase, turns: span.turns, at: span.at })
            }
        }
    }
    let mut packet = Packet {
        schema_version: 1,
        session: newest.session.clone(),
        project: project.to_owned(),
        branch: newest.branch.clone(),
        ended_at: newest.ended_at,
        summary: PacketSummary {
            phase_arc,
            duration_s: newest.duration_s(),
            outcome: newest.ending,
        },
        active_files: newest.active_files.clone(),
        unresolved: newest.unresolved.clone(),
        playbooks: playbooks.take(3).collect(),
        conventions: conventions.take(4).collect(),
    };
    packet.shrink();
    Some(packet)
}

impl Packet {
    /// Drops the least important entries until the rendered packet has its maximum length.
    fn shrink(&mut self) {
        while self.render().len() > LONGEST {
            let dropped = self.conventions.pop().is_some()
                || (self.active_files.len() > 4 && self.active_files.pop().is_some())
                || (self.playbooks.len() > 1 && self.playbooks.pop().is_some())
                || (self.unresolved.len() > 1 && self.unresolved.pop().is_some())
                || self.playbooks.pop().is_some()
                || self.active_files.pop().is_some()
                || self.unresolved.pop().is_some()
                || self.branch.take().is_some();
            if !dropped {
                break;
            }
        }
    }

    /// Formats the packet as it is added to a session, in at most 2,000 bytes.
    pub fn render(&self) -> String {
        let Self { summary, .. } = self;
        let mut text =
            "Background from the last session in this project; do nothing about it unasked.\n"
                .to_owned();
        text.push_str(PACKET_MARK);
        text.push_str(&self.session);
        if let Some(branch) = &self.branch {
            text.push_str(&format!(" on branch {branch}"));
        }
        if let Some(ended_at) = self.ended_at {
            text.push_str(&format!(", ended {}", ended_at.strftime("%Y-%m-%d %H:%M UTC")));
        }
        let outcome = match summary.outcome {
            Ending::Clean => "clean",
            Ending::Interrupted => "interrupted",
        };
        text.push_str(&format!(", {outcome} after {} min", summary.duration_s / 60));
        let phases = summary.phase_arc.iter();
        let phases: Vec<String> =
            phases.map(|it| format!("{} ({} turns)", it.phase.as_str(), it.turns)).collect();
        if !phases.is_empty() {
            text.push_str(&format!(". Phases: {}", phases.join(", ")));
        }
        text.push_str(".\n");
        if !self.active_files.is_empty() {
            text.push_str(&format!("Files in work: {}\n", self.active_files.join(", ")));
        }
        for issue in &self.unresolved {
            let Unresolved { kind, signature, count } = issue;
            text.push_str(&format!("Unresolved: {kind} ({count} times): {signature}\n"));
        }
        for playbook in &self.playbooks {
            let PacketArtifact { id, text: steps } = playbook;
            text.push_str(&format!("This worked before: {steps}{ARTIFACT_MARK}{id}]\n"));
        }
        for convention in &self.conventions {
            let PacketArtifact { id, text: pattern } = convention;
            text.push_str(&format!("Convention: {pattern}{ARTIFACT_MARK}{id}]\n"));
        }
        text
    }
}
