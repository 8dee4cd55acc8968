//! The settings of a night.

use serde::{Deserialize, Serialize};

/// The settings of a job of kind `overnight`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OvernightSpec {
    /// The night's goal; empty if it has none in particular.
    pub goal: String,
    /// Where its artifacts go, below the project.
    pub output_dir: String,
    /// True if the host is to be kept awake: the job's own setting, repeated here for the record.
    #[serde(skip)]
    pub keep_awake: bool,
    /// Backends that are asked for a bounded report.
    pub runners: Vec<String>,
    /// How long all of them together may take, in seconds.
    pub council_timeout: u64,
    /// Whether they may propose what nobody asked for.
    pub creative_lane: bool,
    /// A markdown file of what comes first, below the project; empty: none.
    pub queue: String,
    /// The most iterations; 0: as many as the time allows.
    pub max_iterations: u64,
    /// A change of fitness below this is as good as none.
    pub plateau_epsilon: f64,
    /// So many of those in a row are a plateau; 2 at the least.
    pub plateau_window: usize,
    /// Whether rescues are spent where a strict night would halt.
    pub warn_only: bool,
    /// The most that a checkpoint may take, in megabytes.
    pub checkpoint_max_mb: u64,
    /// How to begin with a packet: `{prompt}`, `{title}`, `{packet}` and `{id}` are put in, each as
    /// one word of a shell.
    pub morning_command: String,
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
