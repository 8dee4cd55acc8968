//! The summary of a night: `summary.json` version 2, with its iterations and its dreamscape.
//!
//! The field names are a contract with the other programs that read them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::corpus::fitness::Fitness;
use super::packet::Packet;

/// The mode of a run. The contract defines only this one.
pub const MODE: &str = "dream.local-bedtime";
/// The document that contains the rules of the run and of the report.
pub const GUIDE: &str = "docs/guide/overnight.md";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// The run has not ended.
    #[default]
    Planned,
    /// The run was a dry run.
    DryRun,
    /// The run completed.
    Done,
    /// The run failed or its process died.
    Failed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The format version of the summary: 2.
    pub schema_version: u32,
    /// Always [`MODE`].
    pub mode: String,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The project's root folder.
    pub repo_root: String,
    /// The output folder, relative to the project.
    pub output_dir: String,
    pub status: RunStatus,
    /// True for a dry run, which writes nothing.
    pub dry_run: bool,
    /// The time at which the run began, in RFC 3339.
    pub started_at: String,
    /// The time at which the run ended.
    pub finished_at: String,
    /// The duration of the run, for example `1m2.5s`.
    pub duration: String,
    /// The conditions of the run.
    pub runtime: Runtime,
    /// The steps, in order.
    pub steps: Vec<NightStep>,
    /// The artifacts by name, as paths relative to the output folder.
    pub artifacts: BTreeMap<String, String>,
    /// The corpus's health report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_health: Option<Value>,
    /// The main figures of the retrieval bench.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieval_live: Option<Value>,
    /// The numbers of promoted and considered nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_loop: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub briefing: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub council: Option<Value>,
    /// A short description of the night.
    pub dreamscape: Dreamscape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub morning_packets: Option<Vec<Packet>>,
    /// Soft failures of the night, and warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    /// Commands that the run recommends.
    pub recommended: Vec<String>,
    /// The first recommended command.
    pub next_action: String,
    /// The night's gains: counts by name.
    #[serde(default, rename = "yield", skip_serializing_if = "Option::is_none")]
    pub gain: Option<BTreeMap<String, u64>>,
    /// The search for more evidence, which runs if the packets are thin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_haul: Option<LongHaul>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations: Vec<Iteration>,
    /// The change in the composite during the night.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitness_delta: Option<f64>,
    /// Why the loop ended, if it ended on a plateau.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plateau_reason: Option<String>,
    /// The regression that ended the loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regression_reason: Option<String>,
    /// Number of rescues left when the loop began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_only_budget_initial: Option<u64>,
    /// Number of rescues left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_only_remaining: Option<u64>,
    /// True if the loop ended because too many measurements failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_failure_halt: Option<bool>,
    /// True if the loop ended because it ran out of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_exhausted: Option<bool>,
    /// Why the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

/// How the host was kept awake, the run's time limits, and the paths of its lock, log and rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Runtime {
    /// True if the host was to be kept awake.
    pub keep_awake: bool,
    /// The mechanism that kept the host awake, or `none`.
    pub keep_awake_mode: String,
    /// A note on the limits of keeping the host awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_awake_note: Option<String>,
    /// The time limit that was requested.
    pub requested_timeout: String,
    /// The time limit that was applied.
    pub effective_timeout: String,
    pub lock_path: String,
    pub log_path: String,
    /// The document that contains the rules of the run.
    pub process_contract_doc: String,
    /// The document that contains the rules of the report.
    pub report_contract_doc: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepStatus {
    /// The step has not begun.
    #[default]
    Planned,
    Done,
    /// The step failed, and the run continued.
    SoftFail,
    /// The step failed and ended the run.
    Failed,
    /// The step was skipped for the reason in its note.
    Skipped,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NightStep {
    pub name: String,
    pub status: StepStatus,
    /// The command that runs the step manually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The step's artifact, as a path relative to the output folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The steps of a run, each with the command that runs it manually, if there is one.
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

/// A short description of a night.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Dreamscape {
    /// The state of the corpus, for example `clear` or `storm`.
    pub weather: String,
    /// `high`, `medium` or `low`, depending on the number of soft failures.
    pub visibility: String,
    /// A short description of the council's result.
    pub council: String,
    /// The points on which the councillors disagree, or `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tension: Option<String>,
    /// The command that starts work on the first packet, or `None` if there is no packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_move: Option<String>,
}

/// The search for more evidence, which runs if the packets are thin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LongHaul {
    /// True if the long haul was allowed.
    pub enabled: bool,
    /// True if the long haul ran.
    pub active: bool,
    pub trigger_reason: String,
    /// Why the long haul ended or did not run.
    pub exit_reason: String,
    pub probe_count: u64,
    /// Number of consecutive probes at the end that added nothing.
    pub zero_delta_probe_streak: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IterationStatus {
    /// The iteration is part of the corpus.
    #[default]
    Done,
    /// The iteration is part of the corpus, but fields or content were lost in its commit.
    Degraded,
    /// The iteration is not part of the corpus, because it could not be measured or committed.
    RolledBackPreCommit,
    /// The iteration is not part of the corpus, because it would have made the corpus worse or no
    /// better.
    HaltedOnRegressionPreCommit,
    /// A status that occurs only in old reports.
    HaltedOnRegressionPostCommit,
    /// The iteration could not be staged.
    Failed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Iteration {
    /// The id of the iteration: `<run>-iter-N`.
    pub id: String,
    /// The iteration number N, starting at 1.
    pub index: u64,
    pub started_at: String,
    pub finished_at: String,
    pub duration: String,
    pub status: IterationStatus,
    /// Results of the INGEST stage.
    #[serde(default)]
    pub ingest: Value,
    /// Results of the REDUCE stage.
    #[serde(default)]
    pub reduce: Value,
    /// A condensed form of the MEASURE stage's results.
    #[serde(default)]
    pub measure: Value,
    pub fitness_before: Option<Fitness>,
    /// The fitness of the staged copy after the iteration's steps.
    pub fitness_after: Option<Fitness>,
    /// The change in the composite, or 0 if it is unknown.
    pub fitness_delta: f64,
    /// Soft failures of the iteration.
    #[serde(default)]
    pub degraded: Vec<String>,
    /// Why the iteration failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Summary {
    /// Creates a summary in which all steps are planned.
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

    pub fn step(&mut self, name: &str) -> Option<&mut NightStep> {
        self.steps.iter_mut().find(|step| step.name == name)
    }

    /// Returns the name of the last completed step, or `None` if no step is completed.
    pub fn last_step(&self) -> Option<&str> {
        let mut done = self.steps.iter().rev();
        done.find(|step| step.status == StepStatus::Done).map(|step| step.name.as_str())
    }
}

/// Formats a duration as the contract requires, for example `1h2m3.5s`.
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
    fn durations_have_the_contract_format() {
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
    fn serialized_names_match_the_contract() {
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
