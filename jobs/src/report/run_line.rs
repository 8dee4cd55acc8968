//! One run in a report.

use jiff::Timestamp;
use runner_engine::awake::SleepInhibition;
use runner_engine::outcome::Outcome;
use runner_engine::store::Amounts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One run in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Its id.
    pub run: String,
    /// Its job.
    pub job: String,
    /// The job's kind.
    pub kind: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// How it ended; absent while it runs.
    pub outcome: Option<Outcome>,
    /// When it was admitted.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub finished: Option<Timestamp>,
    pub spent: Amounts,
    /// How many of its calls did not state their usage and are charged as they were reserved.
    #[serde(default)]
    pub unstated_calls: u64,
    /// How many of its calls stated their tokens, and have no price: their money is as reserved.
    #[serde(default)]
    pub unpriced_calls: u64,
    /// One line.
    pub headline: String,
    /// More lines.
    pub lines: Vec<String>,
    /// Figures by name.
    pub facts: Map<String, Value>,
    pub artifacts: Vec<String>,
    pub backend: String,
    /// How its children were confined.
    pub containment: String,
    /// The result of keeping the machine awake, if that was requested.
    #[serde(default)]
    pub awake: Option<SleepInhibition>,
}

impl RunLine {
    /// Returns the most informative line about the run: its headline, or else the reason for its
    /// outcome.
    pub fn message(&self) -> &str {
        let why = self.outcome.as_ref().and_then(Outcome::why);
        if self.headline.is_empty() { why.unwrap_or_default() } else { &self.headline }
    }

    /// Returns the name of its outcome, or `running` if it has none yet.
    pub fn as_str(&self) -> &str {
        self.outcome.as_ref().map_or("running", Outcome::as_str)
    }
}
