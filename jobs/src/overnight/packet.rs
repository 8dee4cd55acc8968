//! The data of a morning packet.

use serde::{Deserialize, Serialize};

/// A morning packet: a piece of work for the user to start with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// `dream-` and sixteen hexadecimal digits. The same work always has the same id.
    pub id: String,
    /// The rank, starting at 1.
    pub rank: u64,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub severity: String,
    /// How well the evidence supports the packet: `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<String>,
    /// The source of the work, such as `finding` or `pinned-queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_epic: Option<String>,
    /// The repository that the work concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_repo: Option<String>,
    /// Why the packet is listed.
    pub why_now: String,
    /// The full description of the work.
    #[serde(default)]
    pub description: String,
    /// The complete evidence recorded by whoever found the work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finder_evidence: String,
    /// Number of days since the work was found, or `None` if that date is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_days: Option<i64>,
    /// Number of times work on the packet failed.
    #[serde(default)]
    pub failures: u64,
    /// The items that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The commit that probably completed the work after it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probably_done: Option<String>,
    /// The evidence. Each line refers to something that exists.
    pub evidence: Vec<String>,
    /// The files that the work concerns.
    pub target_files: Vec<String>,
    /// The tests that probably cover the work.
    pub likely_tests: Vec<String>,
    /// The command for starting work on the packet.
    pub morning_command: String,
    /// False if the packet is not written to the work file. `None` is treated as true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_backed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bead_id: Option<String>,
    /// The path of the packet's own file, relative to the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_path: Option<String>,
    /// The key shared by packets about the same work. It is not stored in the artifact.
    #[serde(skip)]
    pub dedup_key: String,
}
