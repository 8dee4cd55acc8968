//! The settings of a job of kind `sessions`.

use runner_text::values::read_folder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tasks::Task;
use crate::steps;

/// The sessions to analyze, and where the findings are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsSpec {
    /// The folder in the project for artifacts and findings.
    #[serde(deserialize_with = "read_folder")]
    pub folder: String,
    /// Additional folders with transcripts (*.jsonl), absolute or relative to the project. Claude
    /// Code and Codex transcripts are always found.
    pub transcripts: Vec<String>,
    /// The tasks to skip.
    pub skip: Vec<Task>,
    /// The number of seconds without an event before a session counts as idle and is analyzed.
    #[schemars(range(min = 1))]
    pub idle: u32,
    /// The maximum number of sessions in one run.
    #[schemars(range(min = 1))]
    pub batch: u32,
    /// The id or transcript path of a session to analyze even if it is not idle. Set by `runner
    /// sessions analyze` and `end`.
    pub session: Option<String>,
    /// Whether the session in `session` has ended. Set by `runner sessions end`.
    pub ended: bool,
    /// Whether to reanalyze all sessions. Set by `runner sessions analyze --all`.
    pub all: bool,
    /// A decision about an artifact. Set by `runner sessions artifacts`.
    pub change: Option<String>,
    /// The file of tool uses recorded by runner.
    #[serde(skip)]
    pub steps: String,
}

impl Default for SessionsSpec {
    fn default() -> Self {
        Self {
            folder: ".warden/cross-session".to_owned(),
            transcripts: Vec::new(),
            skip: Vec::new(),
            idle: 60,
            batch: 50,
            session: None,
            ended: false,
            all: false,
            change: None,
            steps: steps::FILE.to_owned(),
        }
    }
}
