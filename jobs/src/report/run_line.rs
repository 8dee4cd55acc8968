//! A run in a report.

use jiff::Timestamp;
use runner_engine::awake::SleepInhibition;
use runner_engine::outcome::Outcome;
use runner_engine::sandbox::SandboxLevel;
use runner_engine::store::Amounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::log_tail::LogTail;

/// One run in the report.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RunLine {
    /// The id of the run.
    pub run: String,
    /// The id of the occurrence, which all its attempts share. Empty in reports of an earlier
    /// version.
    #[serde(default)]
    pub occurrence: String,
    pub job: String,
    /// The job kind.
    pub kind: String,
    /// The attempt number, starting at 1.
    pub attempt: u32,
    /// The outcome, or `None` while the run is in progress.
    pub outcome: Option<Outcome>,
    /// The time at which the run was admitted.
    pub started: Option<Timestamp>,
    /// The time at which the run was settled.
    pub finished: Option<Timestamp>,
    pub spent: Amounts,
    /// Number of calls that did not report their usage and are charged the reserved amount.
    #[serde(default)]
    pub unstated_calls: u64,
    /// Number of calls that reported their tokens but have no price. They are charged the reserved
    /// amount of money.
    #[serde(default)]
    pub unpriced_calls: u64,
    /// Number of calls that reported a higher cost than the run had left, and were charged what was
    /// left.
    #[serde(default)]
    pub limited_calls: u64,
    /// The one-line summary of the run.
    pub headline: String,
    /// Further lines about the run.
    pub lines: Vec<String>,
    /// Figures by name.
    pub facts: Map<String, Value>,
    pub artifacts: Vec<String>,
    pub backend: String,
    /// A description of the sandbox of the run's child processes.
    pub containment: String,
    /// The weakest sandbox of the run's child processes, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxLevel>,
    /// The parts not covered by the sandbox of the run's own program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The elements of replies that a check refused, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Number of failed tool uses.
    #[serde(default)]
    pub failed_tools: u64,
    /// The result of keeping the machine awake, if that was requested.
    #[serde(default)]
    pub awake: Option<SleepInhibition>,
    /// The end of the run's log and output, and its models' replies. Set only in a
    /// [`super::whole`] report, and only for the worst runs of a large night.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<LogTail>,
}

impl RunLine {
    /// Returns the most informative line about the run: its headline, or else the reason for its
    /// outcome.
    pub fn message(&self) -> &str {
        let why = self.outcome.as_ref().and_then(Outcome::why);
        if self.headline.is_empty() { why.unwrap_or_default() } else { &self.headline }
    }

    /// Returns the name of the run's outcome. Without an outcome, returns `running`, or `queued` if
    /// the run has not started.
    pub fn as_str(&self) -> &str {
        let open = if self.started.is_some() { "running" } else { "queued" };
        self.outcome.as_ref().map_or(open, Outcome::as_str)
    }
}
