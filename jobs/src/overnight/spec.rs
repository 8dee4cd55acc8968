//! The settings of a night.

use runner_text::values::{Span, Text, read_folder};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OvernightSpec {
    /// The goal of the night; empty if it has none in particular.
    pub goal: String,
    /// The folder below the project that its artifacts go to; the night before is kept in `runs`
    /// beside it.
    #[serde(deserialize_with = "read_folder")]
    pub output_dir: String,
    /// True if the host is to be kept awake: the job's own setting, repeated here for the record.
    #[serde(skip)]
    pub keep_awake: bool,
    /// The `[backends.NAME]` that are asked for a bounded report.
    pub runners: Vec<String>,
    /// The time that all of them together may take.
    #[serde(with = "seconds")]
    #[schemars(with = "Text<Span>")]
    pub council_timeout: u64,
    /// True if the councillors may propose unsolicited work.
    pub creative_lane: bool,
    /// A markdown list below the project of what comes first in the morning; empty for none.
    pub queue: String,
    /// Maximum number of iterations; 0 for as many as the time allows.
    pub max_iterations: u64,
    /// A change of fitness below this counts as none.
    #[schemars(range(min = 0, max = 1))]
    pub plateau_epsilon: f64,
    /// The number of such changes in a row that is a plateau.
    #[schemars(range(min = 2, max = 1000))]
    pub plateau_window: usize,
    /// True if a rescue is spent where a strict night would halt.
    pub warn_only: bool,
    /// The most that a checkpoint of the corpus may take, in megabytes.
    #[schemars(range(min = 1))]
    pub checkpoint_max_mb: u64,
    /// The command that begins with a packet: {prompt}, {title}, {packet} and {id} are put in, each as
    /// one word of a shell.
    pub morning_command: String,
}

/// Seconds that are written as text with a unit.
mod seconds {
    use super::*;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Text::<Span>::deserialize(deserializer).map(|span| span.0.as_secs().unsigned_abs())
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
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
