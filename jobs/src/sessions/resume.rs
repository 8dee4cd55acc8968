//! Task 10, the resume packet: a short summary of the last session for the next one.
//!
//! The packet is derived from the artifacts and from the newest session that made a call. It is
//! deterministic and has at most 500 tokens. It is only background, so it must never ask for
//! anything.

use jiff::Timestamp;
use runner_text::counted;
use serde::{Deserialize, Serialize};

use super::active::{FILES, Unresolved};
use super::artifact::{Artifact, CONFIDENT, Content};
use super::record::{Ending, SessionRecord};
use super::tasks::injection::{ARTIFACT_MARK, PACKET_MARK};
use super::tasks::phases::Phase;

/// Maximum length of a rendered packet in bytes: 500 tokens at four bytes each.
pub const LONGEST: usize = 2_000;
/// Maximum number of earlier sessions whose files are added to the list.
const EARLIER: usize = 4;

/// One phase in a packet's phase arc. The arc has one entry per phase, ordered by first call.
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

/// Creates the packet for the next session from the newest session that made a call. Returns `None`
/// if no session made a call.
pub fn packet(records: &[&SessionRecord], artifacts: &[Artifact], project: &str) -> Option<Packet> {
    let newest = records
        .iter()
        .filter(|record| record.calls > 0)
        .max_by_key(|record| (record.ended_at, std::cmp::Reverse(&record.session)))?;
    let entry =
        |artifact: &Artifact, text: String| PacketArtifact { id: artifact.id.clone(), text };
    let sure = |artifact: &&Artifact| artifact.content.confidence() >= CONFIDENT || artifact.pinned;
    let playbooks = artifacts.iter().filter(sure).filter_map(|artifact| match &artifact.content {
        Content::DreamPlaybook { trigger, sequence, .. }
            if newest.unresolved.iter().any(|issue| artifact.is_playbook_for(&issue.kind)) =>
        {
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
                // Conventions that contradict each other are left out, because the user must decide
                // between them.
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
        active_files: files_on_branch(records, newest),
        unresolved: newest.unresolved.clone(),
        playbooks: playbooks.take(3).collect(),
        conventions: conventions.take(4).collect(),
    };
    packet.shrink();
    Some(packet)
}

/// Returns the active files of the newest session, followed by those of earlier sessions on the
/// same branch, because short sessions often continue the work of an earlier one.
fn files_on_branch(records: &[&SessionRecord], newest: &SessionRecord) -> Vec<String> {
    let mut earlier: Vec<&&SessionRecord> = records
        .iter()
        .filter(|it| {
            it.branch == newest.branch
                && it.ended_at <= newest.ended_at
                && it.session != newest.session
        })
        .collect();
    earlier.sort_by(|a, b| b.ended_at.cmp(&a.ended_at).then(a.session.cmp(&b.session)));
    let mut files = newest.active_files.clone();
    for file in earlier.into_iter().take(EARLIER).flat_map(|record| &record.active_files) {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
    files.truncate(FILES);
    files
}

impl Packet {
    /// Drops the least important entries until the rendered packet fits into its maximum length.
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

    /// Formats the packet for insertion into a session, in at most 2,000 bytes.
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
        let phases: Vec<String> = phases
            .map(|it| format!("{} ({})", it.phase.as_str(), counted(it.turns, "turn")))
            .collect();
        if !phases.is_empty() {
            text.push_str(&format!(". Phases: {}", phases.join(", ")));
        }
        text.push_str(".\n");
        if !self.active_files.is_empty() {
            text.push_str(&format!("Files in work: {}\n", self.active_files.join(", ")));
        }
        for issue in &self.unresolved {
            let Unresolved { kind, signature, count } = issue;
            let times = counted(*count, "time");
            text.push_str(&format!("Unresolved: {kind} ({times}): {signature}\n"));
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
