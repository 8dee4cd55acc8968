//! The summary that a night leaves to be read: `summary.json` version 2, with its iterations and
//! its dreamscape.
//!
//! The field names are a contract that other programs read; a field that is `None` is left out. The
//! summary holds nothing that is not also in an artifact or in the database.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::corpus::health::Fitness;
use super::packet::Packet;

/// Which mode a run is of; the contract has one.
pub const MODE: &str = "dream.local-bedtime";
/// Where the rules of the run and of the report stand.
pub const GUIDE: &str = "docs/guide/overnight.md";

/// How a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Not begun.
    #[default]
    Planned,
    /// Gone through without a trace.
    DryRun,
    /// Ended by itself.
    Done,
    /// Ended before its end.
    Failed,
}

/// The whole summary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The form of this document: 2.
    pub schema_version: u32,
    /// [`MODE`].
    pub mode: String,
    /// The run's id.
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The project.
    pub repo_root: String,
    /// Where the artifacts are.
    pub output_dir: String,
    /// How it stands.
    pub status: RunStatus,
    /// Whether nothing was to be kept.
    pub dry_run: bool,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// When it ended.
    pub finished_at: String,
    /// How long it took, like `1m2.5s`.
    pub duration: String,
    /// How it was run.
    pub runtime: Runtime,
    /// The steps in their order.
    pub steps: Vec<NightStep>,
    /// The artifacts by name, below the output folder.
    pub artifacts: BTreeMap<String, String>,
    /// The health report of the corpus as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_health: Option<Value>,
    /// The retrieval bench, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval_live: Option<Value>,
    /// The report of the promotions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_loop: Option<Value>,
    /// The brief for the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub briefing: Option<Value>,
    /// The result of the council.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub council: Option<Value>,
    /// The night in few words.
    pub dreamscape: Dreamscape,
    /// The packets to begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub morning_packets: Option<Vec<Packet>>,
    /// Soft failures of the night.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Commands worth typing.
    pub recommended: Vec<String>,
    /// The first of them.
    pub next_action: String,
    /// How much the night brought, by name.
    #[serde(default, rename = "yield", skip_serializing_if = "Option::is_none")]
    pub gain: Option<BTreeMap<String, u64>>,
    /// Whether thin packets were looked at again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_haul: Option<LongHaul>,
    /// The iterations of the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<Iteration>,
    /// By how much the composite changed over the night.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitness_delta: Option<f64>,
    /// Why the loop ended without gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau_reason: Option<String>,
    /// The regression that ended the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regression_reason: Option<String>,
    /// Rescues when the night began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_only_budget_initial: Option<u64>,
    /// Rescues that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_only_remaining: Option<u64>,
    /// Whether measuring failed too often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_failure_halt: Option<bool>,
    /// Whether the time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_exhausted: Option<bool>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

/// How a run was run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Runtime {
    /// Whether the host was to be kept awake.
    pub keep_awake: bool,
    /// By what it was.
    pub keep_awake_mode: String,
    /// A note on what keeping the host awake does not guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_awake_note: Option<String>,
    /// The time that was asked for.
    pub requested_timeout: String,
    /// The time that it got.
    pub effective_timeout: String,
    /// The lock.
    pub lock_path: String,
    /// The log.
    pub log_path: String,
    /// Where the rules of the run stand.
    pub process_contract_doc: String,
    /// Where the rules of the report stand.
    pub report_contract_doc: String,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepStatus {
    /// Not begun.
    #[default]
    Planned,
    /// Done.
    Done,
    /// Failed, and the run went on.
    SoftFail,
    /// Failed, and the run with it.
    Failed,
    /// There was nothing to do.
    Skipped,
}

/// One step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NightStep {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub status: StepStatus,
    /// The command that does it manually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The step's artifact, below the output folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The steps of a run and the commands that do them manually.
pub const STEPS: [(&str, Option<&str>); 10] = [
    ("close-loop", Some("runner corpus close-loop --threshold 0h --json")),
    ("defrag-preview", Some("runner corpus defrag --prune --dedup --oscillation-sweep --json")),
    ("metrics-health", Some("runner corpus health --json")),
    ("retrieval-bench", Some("runner corpus bench --live --json")),
    ("knowledge-brief", Some("runner corpus brief --goal GOAL --json")),
    ("council-packet", None),
    ("runner-passes", None),
    ("council-synthesis", None),
    ("morning-packets", None),
    ("bead-sync", None),
];

/// The night in few words.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Dreamscape {
    /// How the corpus is.
    pub weather: String,
    /// How much of the night can be seen.
    pub visibility: String,
    /// The result of the council in a few words.
    pub council: String,
    /// The points on which the councillors disagree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tension: Option<String>,
    /// Where to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_move: Option<String>,
}

/// The second look at thin packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LongHaul {
    /// Whether it may be taken.
    pub enabled: bool,
    /// Whether it was.
    pub active: bool,
    /// Why.
    pub trigger_reason: String,
    /// Why it ended.
    pub exit_reason: String,
    /// How many looks.
    pub probe_count: u64,
    /// How many in a row added nothing.
    pub zero_delta_probe_streak: u64,
}

/// How an iteration ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IterationStatus {
    /// It is part of the corpus.
    #[default]
    Done,
    /// It is, with a reservation.
    Degraded,
    /// It is not: it could not be measured, or not be committed.
    RolledBackPreCommit,
    /// It is not: it would have made the corpus worse, or no better.
    HaltedOnRegressionPreCommit,
    /// Only in old reports.
    HaltedOnRegressionPostCommit,
    /// It could not be made.
    Failed,
}

/// One iteration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Iteration {
    /// `<run>-iter-N`.
    pub id: String,
    /// N, from 1.
    pub index: u64,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    pub finished_at: String,
    /// How long it took.
    pub duration: String,
    /// How it ended.
    pub status: IterationStatus,
    /// Results of the INGEST stage.
    #[serde(default)]
    pub ingest: Value,
    /// Results of the REDUCE stage.
    #[serde(default)]
    pub reduce: Value,
    /// Results of the MEASURE stage, in short.
    #[serde(default)]
    pub measure: Value,
    /// The figures before.
    pub fitness_before: Option<Fitness>,
    /// The figures of what was staged.
    pub fitness_after: Option<Fitness>,
    /// By how much the composite changed.
    pub fitness_delta: f64,
    /// Soft failures of the iteration.
    #[serde(default)]
    pub degraded: Vec<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Summary {
    /// Makes a summary with all its steps planned.
    pub fn planned(run_id: &str) -> Self {
        Self {
            schema_version: 2,
            mode: MODE.to_owned(),
            run_id: run_id.to_owned(),
            steps: STEPS
                .iter()
                .map(|(name, command)| NightStep {
                    name: (*name).to_owned(),
                    command: command.map(str::to_owned),
                    ..NightStep::default()
                })
                .collect(),
            next_action: "runner overnight report".to_owned(),
            ..Self::default()
        }
    }

    /// Returns the step with this name.
    pub fn step(&mut self, name: &str) -> Option<&mut NightStep> {
        self.steps.iter_mut().find(|step| step.name == name)
    }

    /// Returns the name of the last step that was done.
    pub fn last_step(&self) -> Option<&str> {
        let mut done = self.steps.iter().rev();
        done.find(|step| step.status == StepStatus::Done).map(|step| step.name.as_str())
    }
}

/// Formats a duration as the contract requires: `1h2m3.5s`.
pub fn length(time: Duration) -> String {
    let (hours, minutes) = (time.as_secs() / 3600, time.as_secs() / 60 % 60);
    let millis = time.as_millis() % 60_000;
    let seconds = format!("{}.{:03}", millis / 1000, millis % 1000);
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_others_read_them() {
        for (millis, text) in [
            (0, "0s"),
            (1_500, "1.5s"),
            (62_000, "1m2s"),
            (8 * 3_600_000, "8h0m0s"),
            (3_723_040, "1h2m3.04s"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn the_words_are_the_contracts() {
        let word = |status| serde_json::to_value(status).unwrap();
        assert_eq!(
            word(IterationStatus::HaltedOnRegressionPreCommit),
            "halted-on-regression-pre-commit"
        );
        assert_eq!(word(IterationStatus::RolledBackPreCommit), "rolled-back-pre-commit");
        assert_eq!(serde_json::to_value(RunStatus::DryRun).unwrap(), "dry-run");
        let summary = serde_json::to_value(Summary::planned("R")).unwrap();
        assert_eq!(summary["steps"].as_array().unwrap().len(), 10);
        assert!(summary.get("regression_reason").is_none());
    }
}
