//! The artifacts that sessions leave for later sessions, as described in the contract.
//!
//! Artifacts from older versions are parsed too: the type of an artifact without `type` is derived
//! from its fields, and missing fields get default values. This module must never access the file
//! system.

use jiff::Timestamp;
use runner_engine::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Minimum confidence of a new artifact.
pub const CONFIDENT: f64 = 0.7;
/// Minimum number of files or messages that follow a convention. A convention with fewer has a
/// confidence of 0.
const MATCHES: u32 = 5;

/// The content of an artifact, by type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Content {
    /// Steps that repaired an error.
    DreamPlaybook {
        trigger: String,
        sequence: Vec<String>,
        confidence: f64,
        #[serde(default)]
        source_sessions: u32,
    },
    /// One action that repaired an error.
    RepairPattern {
        error_signature: String,
        fix_action: String,
        confidence: f64,
        #[serde(default)]
        occurrences: u32,
    },
    /// A form that the project's files or commit messages follow.
    ProjectConvention {
        domain: String,
        pattern: String,
        #[serde(default)]
        evidence_count: u32,
        confidence: f64,
    },
    /// Steps of a turn whose last check or commit passed.
    SuccessfulSequence {
        label: String,
        steps: Vec<String>,
        #[serde(default)]
        avg_trust_delta: i32,
        #[serde(default)]
        occurrences: u32,
        #[serde(default = "confident")]
        confidence: f64,
    },
}

fn confident() -> f64 {
    CONFIDENT
}

/// A line of a session's transcript.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Citation {
    pub session: String,
    pub line: u64,
}

/// The counts that one or more sessions add to an artifact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The number of sessions or of occurrences, depending on the artifact's type.
    pub count: u32,
    pub successes: u32,
    pub failures: u32,
}

impl Counts {
    /// Adds the counts of another session.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.successes = self.successes.saturating_add(other.successes);
        self.failures = self.failures.saturating_add(other.failures);
    }

    /// Removes the counts of a session, which must have been added before.
    pub fn remove(&mut self, other: Self) {
        self.count = self.count.saturating_sub(other.count);
        self.successes = self.successes.saturating_sub(other.successes);
        self.failures = self.failures.saturating_sub(other.failures);
    }
}

/// An artifact, with its provenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    #[serde(flatten)]
    pub content: Content,
    /// 16 hexadecimal digits.
    #[serde(default)]
    pub id: String,
    /// The rule that found the artifact.
    #[serde(default)]
    pub rule: String,
    #[serde(default)]
    pub evidence: Vec<Citation>,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// The end time of the last session that received the artifact as context.
    #[serde(default)]
    pub last_used: Option<Timestamp>,
    #[serde(default)]
    pub pinned: bool,
    /// Whether the user wrote the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    #[serde(default)]
    pub successes: u32,
    #[serde(default)]
    pub failures: u32,
    /// The counts of sessions whose findings are no longer kept.
    #[serde(default, skip_serializing_if = "is_none")]
    pub earlier: Counts,
    /// The ids of artifacts that recommend something else in the same situation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// The artifacts that were merged into this one, unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Self>,
}

fn is_none(counts: &Counts) -> bool {
    *counts == Counts::default()
}

impl Content {
    /// Returns the name of the type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DreamPlaybook { .. } => "DreamPlaybook",
            Self::RepairPattern { .. } => "RepairPattern",
            Self::ProjectConvention { .. } => "ProjectConvention",
            Self::SuccessfulSequence { .. } => "SuccessfulSequence",
        }
    }

    /// Returns the id: 16 hexadecimal digits of the SHA-256 of the artifact's type and identifying
    /// text.
    pub fn id(&self) -> String {
        let what = match self {
            Self::DreamPlaybook { trigger, .. } => trigger.clone(),
            Self::RepairPattern { error_signature, .. } => error_signature.clone(),
            Self::ProjectConvention { domain, pattern, .. } => format!("{domain}\n{pattern}"),
            Self::SuccessfulSequence { steps, .. } => steps.join("\n"),
        };
        Digest::of(format!("{}\n{what}", self.kind()).as_bytes()).short()
    }

    /// Returns the confidence, from 0 to 1.
    pub fn confidence(&self) -> f64 {
        match self {
            Self::DreamPlaybook { confidence, .. }
            | Self::RepairPattern { confidence, .. }
            | Self::ProjectConvention { confidence, .. }
            | Self::SuccessfulSequence { confidence, .. } => *confidence,
        }
    }

    /// Describes the artifact in one line.
    pub fn describe(&self) -> String {
        match self {
            Self::DreamPlaybook { trigger, sequence, .. } => {
                format!("{trigger}: {}", sequence.join("; "))
            }
            Self::RepairPattern { error_signature, fix_action, .. } => {
                format!("{error_signature}: {fix_action}")
            }
            Self::ProjectConvention { domain, pattern, .. } => format!("{domain}: {pattern}"),
            Self::SuccessfulSequence { label, steps, .. } => {
                format!("{label}: {}", steps.join("; "))
            }
        }
    }

    /// Replaces the text of an artifact with that of another artifact of the same type and
    /// identity, and keeps the counts.
    pub(super) fn take_text(&mut self, from: &Self) {
        match (self, from) {
            (Self::DreamPlaybook { sequence, .. }, Self::DreamPlaybook { sequence: new, .. }) => {
                sequence.clone_from(new);
            }
            (
                Self::RepairPattern { fix_action, .. },
                Self::RepairPattern { fix_action: new, .. },
            ) => {
                fix_action.clone_from(new);
            }
            (
                Self::SuccessfulSequence { label, .. },
                Self::SuccessfulSequence { label: new, .. },
            ) => {
                label.clone_from(new);
            }
            _ => {}
        }
    }

    /// Sets the counts, and calculates the confidence from them.
    pub(super) fn count(&mut self, counts: Counts) {
        let Counts { count, successes, failures } = counts;
        let all = f64::from(successes) + f64::from(failures);
        let share = if all > 0.0 { f64::from(successes) / all } else { 1.0 };
        let grown = (0.075_f64.mul_add(f64::from(count.saturating_sub(1)), 0.7)).min(0.95) * share;
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        match self {
            Self::DreamPlaybook { confidence, source_sessions, .. } => {
                (*confidence, *source_sessions) = (rounded(grown), count);
            }
            Self::RepairPattern { confidence, occurrences, .. }
            | Self::SuccessfulSequence { confidence, occurrences, .. } => {
                (*confidence, *occurrences) = (rounded(grown), count);
            }
            Self::ProjectConvention { confidence, evidence_count, .. } => {
                let enough = successes >= MATCHES;
                *confidence = if enough { rounded(share) } else { 0.0 };
                *evidence_count = successes;
            }
        }
    }
}

impl Artifact {
    /// Creates an artifact without counts.
    pub(super) fn new(content: Content, rule: &str, created_at: Option<Timestamp>) -> Self {
        Self {
            id: content.id(),
            content,
            rule: rule.to_owned(),
            evidence: Vec::new(),
            created_at,
            last_used: None,
            pinned: false,
            edited: false,
            successes: 0,
            failures: 0,
            earlier: Counts::default(),
            conflicts: Vec::new(),
            merged: Vec::new(),
        }
    }

    /// Returns whether the artifact, or one that was merged into it, is a playbook for this error.
    pub fn is_playbook_for(&self, error: &str) -> bool {
        let is_for = |artifact: &Self| match &artifact.content {
            Content::DreamPlaybook { trigger, .. } => trigger == error,
            _ => false,
        };
        is_for(self) || self.merged.iter().any(is_for)
    }

    /// Reads an artifact of this or an earlier version. Returns `None` if `bytes` is not an
    /// artifact.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut value: Value = serde_json::from_slice(bytes).ok()?;
        let fields = value.as_object_mut()?;
        if !fields.contains_key("type") {
            let has = |key: &str| fields.contains_key(key);
            let kind = match () {
                () if has("sequence") => "DreamPlaybook",
                () if has("fix_action") => "RepairPattern",
                () if has("pattern") => "ProjectConvention",
                () if has("steps") => "SuccessfulSequence",
                () => return None,
            };
            fields.insert("type".to_owned(), kind.into());
        }
        fields.entry("confidence").or_insert_with(|| CONFIDENT.into());
        let mut artifact: Self = serde_json::from_value(value).ok()?;
        if artifact.id.is_empty() {
            artifact.id = artifact.content.id();
        }
        Some(artifact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_shapes_are_read() {
        let seed = br#"{"type":"DreamPlaybook","trigger":"error:typescript:TS2345",
            "sequence":["read","edit"],"confidence":0.85,"source_sessions":3}"#;
        let found = Artifact::read(seed).unwrap();
        assert_eq!((found.id.len(), found.content.kind()), (16, "DreamPlaybook"));
        let first = br#"{"error_signature":"ENOENT","fix_action":"mkdir -p"}"#;
        assert_eq!(Artifact::read(first).unwrap().content.kind(), "RepairPattern");
        assert!(Artifact::read(br#"{"type":"Other"}"#).is_none());
        assert!(Artifact::read(b"[]").is_none() && Artifact::read(b"\xff").is_none());
    }

    #[test]
    fn confidence_grows_with_sessions_and_falls_with_failures() {
        let mut content = Artifact::read(br#"{"trigger":"t","sequence":["a"]}"#).unwrap().content;
        for (count, successes, failures, expected) in
            [(1, 1, 0, 0.7), (3, 3, 0, 0.85), (5, 5, 0, 0.95), (9, 9, 0, 0.95), (1, 1, 1, 0.35)]
        {
            content.count(Counts { count, successes, failures });
            assert!((content.confidence() - expected).abs() < 0.001, "{count}");
        }
        let mut rule = Artifact::read(br#"{"domain":"d","pattern":"p"}"#).unwrap().content;
        rule.count(Counts { count: 1, successes: 4, failures: 0 });
        assert!(rule.confidence() < CONFIDENT, "four matches are too few");
        rule.count(Counts { count: 1, successes: 47, failures: 1 });
        assert!(rule.confidence() > 0.97);
    }
}
