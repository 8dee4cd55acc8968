//! The settings for a night.

use runner_text::values::{Span, Text, read_folder};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::curator::CuratorSpec;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OvernightSpec {
    /// The goal of the night, or an empty string.
    pub goal: String,
    /// The folder in the project for the night's artifacts. The previous night is kept in `runs`
    /// beside it.
    #[serde(deserialize_with = "read_folder")]
    pub output_dir: String,
    /// Whether the host is to be kept awake, copied from the job's own setting for the summary.
    #[serde(skip)]
    pub keep_awake: bool,
    /// The folder of the curator's events, relative to the project, copied from the curator's
    /// settings.
    #[serde(skip)]
    pub worker_dir: String,
    /// The `[backends.NAME]` entries, each of which is asked for one report on the night.
    pub runners: Vec<String>,
    /// The total time for the reports of all `runners`.
    #[serde(with = "seconds")]
    #[schemars(with = "Text<Span>")]
    pub council_timeout: u64,
    /// Whether the councillors may propose unsolicited work.
    pub creative_lane: bool,
    /// A Markdown list in the project with the first tasks for the morning; empty for none.
    pub queue: String,
    /// The maximum number of iterations; 0 allows as many as fit into the time.
    pub max_iterations: u64,
    /// A change in fitness below this value counts as no change.
    #[schemars(range(min = 0, max = 1))]
    pub plateau_epsilon: f64,
    /// The number of consecutive changes below `plateau_epsilon` that constitute a plateau.
    #[schemars(range(min = 2, max = 1000))]
    pub plateau_window: usize,
    /// Whether the night spends a rescue where a strict night would stop.
    pub warn_only: bool,
    /// The maximum size of a corpus checkpoint, in megabytes.
    #[schemars(range(min = 1))]
    pub checkpoint_max_mb: u64,
    /// The command that starts work on a packet. {prompt}, {title}, {packet} and {id} are each
    /// replaced by one shell word.
    pub morning_command: String,
}

/// Serializes seconds as a string with a unit, and parses such a string.
mod seconds {
    use super::*;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Text::<Span>::deserialize(deserializer).map(|span| span.0.as_secs().unsigned_abs())
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
    pub(super) fn serialize<S: Serializer>(
        seconds: &u64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{seconds}s"))
    }
}

impl Default for OvernightSpec {
    fn default() -> Self {
        Self {
            goal: String::new(),
            output_dir: ".agents/overnight/latest".to_owned(),
            keep_awake: true,
            worker_dir: CuratorSpec::default().worker_dir,
            runners: Vec::new(),
            council_timeout: 180,
            creative_lane: false,
            queue: String::new(),
            max_iterations: 10,
            plateau_epsilon: 0.01,
            plateau_window: 2,
            warn_only: true,
            checkpoint_max_mb: 512,
            morning_command: "claude {prompt}".to_owned(),
        }
    }
}
