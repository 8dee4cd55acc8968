//! The record of one analyzed session: its cursor, its counts, and the findings of its tasks.

use jiff::Timestamp;
use runner_text::redact::Redacted;
use serde::{Deserialize, Serialize};

use super::active::{Unresolved, active_files, unresolved};
use super::event::{Action, Outcome, Session};
use super::sources::Source;
use super::tasks::{Findings, PhaseSpan, Task};
use super::transcript::{LineGap, Tally};

/// Maximum size of a record in bytes.
pub const LARGEST: usize = 16 * 1024;

/// How a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The end was reported, or the last event, apart from injected context, was the model's
    /// answer.
    Clean,
    #[default]
    Interrupted,
}

/// The findings of a session, as they are stored in `sessions/<id>.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionRecord {
    pub schema_version: u32,
    pub session: String,
    /// The path of the transcript.
    pub path: String,
    /// The number of bytes that were read and counted.
    pub bytes: u64,
    /// The size of the file when it was read, in bytes.
    pub size: u64,
    /// The modification time of the file when it was read.
    pub modified: Option<Timestamp>,
    /// The counts of the transcript and of its sub-agents' transcripts.
    pub tally: Tally,
    pub branch: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub ending: Ending,
    /// Whether the agent's program or the user reported the end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    pub turns: u32,
    pub calls: u32,
    pub failed: u32,
    pub denied: u32,
    /// The last line that counts for another session, or 0 if there is none. `None` if an older
    /// version wrote the record.
    pub shared_until: Option<u64>,
    /// The number of events that were not analyzed, because newer ones reached the limit.
    pub left_out: u64,
    pub active_files: Vec<String>,
    pub unresolved: Vec<Unresolved>,
    pub findings: Findings,
}

impl SessionRecord {
    /// Analyzes a session.
    pub fn of(id: &str, session: &Session, skip: &[Task]) -> Self {
        let events = session.events.as_slice();
        let findings = Findings::of(session, skip);
        let count = |is: &dyn Fn(&Outcome) -> bool| {
            let own = session.own().iter();
            let found = own.filter(|event| event.is_call() && is(&event.outcome)).count();
            u32::try_from(found).unwrap_or(u32::MAX)
        };
        // Context added by a hook at the end is not part of the work.
        let last = events.iter().rev().find(|event| event.action != Action::Injection);
        let clean = last.is_some_and(|last| last.action == Action::Answer);
        let unresolved = unresolved(&findings);
        Self {
            schema_version: 1,
            session: id.to_owned(),
            branch: session.branch.as_deref().map(|it| Redacted::of(it).head(200).into_string()),
            started_at: session.started_at,
            ended_at: session.ended_at,
            ending: if clean { Ending::Clean } else { Ending::Interrupted },
            turns: events.last().map_or(0, |event| event.turn),
            calls: count(&|_| true),
            failed: count(&|outcome| matches!(outcome, Outcome::Failed(_))),
            denied: count(&|outcome| *outcome == Outcome::Denied),
            shared_until: Some(session.shared_until),
            left_out: session.left_out,
            active_files: active_files(events),
            unresolved,
            findings,
            ..Self::default()
        }
    }

    /// Adds the counts from reading the transcript and its sub-agents' transcripts.
    #[must_use]
    pub fn counted(self, source: &Source, tally: Tally, place: LineGap) -> Self {
        Self {
            path: source.path.to_string_lossy().into_owned(),
            size: source.size,
            modified: Some(source.modified),
            bytes: place.offset,
            tally,
            ..self
        }
    }

    /// Records whether the session has ended. An end that was reported earlier remains valid until
    /// the session makes another call.
    pub fn note_end(&mut self, ended: bool, before: Option<&Self>) {
        self.ended = ended || before.is_some_and(|it| it.ended && it.calls == self.calls);
        if self.ended {
            self.ending = Ending::Clean;
        }
    }

    /// Returns the duration of the session in seconds.
    pub fn duration_s(&self) -> i64 {
        match (self.started_at, self.ended_at) {
            (Some(start), Some(end)) => end.duration_since(start).as_secs().max(0),
            _ => 0,
        }
    }

    /// Returns the phases of the session.
    pub fn phases(&self) -> &[PhaseSpan] {
        &self.findings.phase_arc
    }

    /// Returns the content of the record's file. Findings are dropped from the longest list until
    /// the record fits into its maximum size.
    pub fn file(&mut self) -> Vec<u8> {
        loop {
            // Redacting a long record takes far longer than measuring its length.
            let long = serde_json::to_vec(self).is_ok_and(|bytes| bytes.len() > LARGEST);
            let bytes = if long { Vec::new() } else { compact(self) };
            if !long && bytes.len() <= LARGEST {
                return bytes;
            }
            let found = &mut self.findings;
            let lists: [(usize, &mut dyn FnMut(usize)); 10] = [
                (found.failed_calls.len() * 2, &mut |to| found.failed_calls.truncate(to)),
                (found.workflows.len() * 3, &mut |to| found.workflows.truncate(to)),
                (found.errors.len() * 2, &mut |to| found.errors.truncate(to)),
                (found.repairs.len() * 4, &mut |to| found.repairs.truncate(to)),
                (found.loops.len(), &mut |to| found.loops.truncate(to)),
                (found.trust.len(), &mut |to| found.trust.truncate(to)),
                (found.phase_arc.len(), &mut |to| found.phase_arc.truncate(to)),
                (found.co_change.len(), &mut |to| found.co_change.truncate(to)),
                (found.commands.len(), &mut |to| found.commands.truncate(to)),
                (found.injections.len(), &mut |to| found.injections.truncate(to)),
            ];
            let Some(longest) = lists.into_iter().max_by_key(|(length, _)| *length) else {
                return compact(self);
            };
            if longest.0 == 0 {
                return compact(self);
            }
            let weight = longest.0;
            (longest.1)(weight / 6);
        }
    }
}

/// Returns a value as compact JSON with secrets removed and a trailing line feed.
pub(super) fn compact(value: &impl Serialize) -> Vec<u8> {
    let text = Redacted::json(value).map(Redacted::into_string).unwrap_or_default();
    (text + "\n").into_bytes()
}
