//! A packet of the morning, as data.

use serde::{Deserialize, Serialize};

/// A packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// `dream-` and sixteen hexadecimal digits, the same as long as the thing is the same.
    pub id: String,
    /// From 1.
    pub rank: u64,
    pub title: String,
    /// Which kind of work.
    #[serde(rename = "type")]
    pub kind: String,
    /// How much it matters.
    pub severity: String,
    /// How sure the night is of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<String>,
    /// Where it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_epic: Option<String>,
    /// Where it belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_repo: Option<String>,
    /// Why it is here.
    pub why_now: String,
    /// The evidence; each line was looked up.
    pub evidence: Vec<String>,
    /// The files that it is about.
    pub target_files: Vec<String>,
    /// The tests that will tell.
    pub likely_tests: Vec<String>,
    /// The command to begin with.
    pub morning_command: String,
    /// Whether the work file has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_backed: Option<bool>,
    /// Its bead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bead_id: Option<String>,
    /// Its own file, below the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_path: Option<String>,
    /// The key that equal packets share. It is not in the artifact, because `id` represents it.
    #[serde(skip)]
    pub dedup_key: String,
    /// The full description of the work, for the work file and for beads.
    #[serde(skip)]
    pub description: String,
}
