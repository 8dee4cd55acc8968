//! The data model for a night's report, from which all its forms are rendered.

use jiff::Timestamp;
use runner_engine::awake::InhibitLevel;
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::store::Amounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget_usage::UnitUsage;
use super::dreamscape::Dreamscape;
use super::fleet_usage::FleetUsage;
use super::pending::PendingItem;
use super::proposals::ReportedProposal;
use super::refusals::Refusal;
use super::run_line::RunLine;

/// The version of the JSON format.
pub const SCHEMA: u32 = 1;

/// The report of one night.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct NightReport {
    /// The version of the JSON format, `SCHEMA`.
    pub schema_version: u32,
    /// The name of the night: its civil date, with a number if necessary.
    pub night: String,
    /// The name of the project's folder.
    pub project: String,
    /// The time at which the night's run window started.
    pub opened: Timestamp,
    /// The time at which the night was closed or, while it is open, at which the report was built.
    pub closed: Timestamp,
    /// The name of the worst outcome of a run, or `succeeded` if there is no worse one. A job that
    /// did not run counts as `missed` or, while it waits for another attempt, as `deferred`.
    pub worst: String,
    /// The total amounts spent by all runs of the night.
    pub spent: Amounts,
    /// The runs, in the order in which they were recorded.
    pub runs: Vec<RunLine>,
    /// The jobs that were due and have no outcome yet.
    pub open: Vec<String>,
    /// The jobs that were due that night and did not run, in the order of the runs. Jobs that only
    /// missed a scheduled time come last.
    #[serde(default)]
    pub not_run: Vec<NotRun>,
    /// Scheduled times that passed while no process could run them, found when this night was
    /// recorded.
    #[serde(default)]
    pub missed: Vec<String>,
    /// Curator work done outside of nightly runs since the previous night, with the result for each
    /// file.
    #[serde(default)]
    pub by_day: Vec<String>,
    /// Amounts granted on top of the nightly and daily caps, with who granted them and why.
    #[serde(default)]
    pub grants: Vec<String>,
    /// Alerts that were raised, continued or ended since the night opened, with their undelivered
    /// messages.
    #[serde(default)]
    pub alerts: Vec<String>,
    /// Number of messages about these alerts that were not delivered.
    #[serde(default)]
    pub undelivered: usize,
    /// The budget usage by unit: the cap, the amount reserved, the amount spent and the amount
    /// left.
    #[serde(default)]
    pub budgets: Vec<UnitUsage>,
    /// The usage of fleet budgets by the runs executed on fleet hosts. It is not part of `spent` or
    /// `budgets`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fleets: Vec<FleetUsage>,
    /// Refusals by guards, by budgets, at admission, or while checking a reply.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// The proposals generated overnight plus any earlier ones still pending, with their current
    /// decisions. Set only in a [`super::whole`] report.
    #[serde(default)]
    pub proposals: Vec<ReportedProposal>,
    /// Number of further proposals left out of the report.
    #[serde(default)]
    pub more_proposals: usize,
    /// Why proposals could not be read. Set only in a [`super::whole`] report.
    #[serde(default)]
    pub unread_proposals: Vec<String>,
    /// Other items awaiting human attention. Set only in a [`super::whole`] report.
    #[serde(default)]
    pub waiting: Vec<PendingItem>,
    /// The results of the overnight runs. Set only in a [`super::whole`] report.
    #[serde(default)]
    pub dreamscapes: Vec<Dreamscape>,
    /// The next steps for the user, most urgent first. Set only in a [`super::whole`] report.
    #[serde(default)]
    pub first: Vec<NextStep>,
}

/// Outcome names from best to worst. [`NightReport::worst`] is the last of them that occurs.
pub(super) const ORDER: [&str; 9] = [
    "succeeded",
    "skipped",
    "deferred",
    "degraded",
    "missed",
    "cancelled",
    "timed-out",
    "lost",
    "failed",
];

impl NightReport {
    /// Returns a one-line summary of the night. It begins with the jobs that did not run, if any.
    pub fn headline(&self) -> String {
        let mut text = self.outcomes();
        let asleep = self.not_kept_awake();
        if asleep > 0 {
            text.push_str(&format!("; {asleep} not kept awake"));
        }
        if let Some(not_run) = self.describe_not_run() {
            text = if text.is_empty() { not_run } else { format!("{not_run}; {text}") };
        }
        if text.is_empty() { "nothing was due".to_owned() } else { text }
    }

    /// Returns the number of runs that worked without the requested sleep inhibition, or lost it
    /// before they finished.
    pub fn not_kept_awake(&self) -> usize {
        let worked = |run: &&RunLine| !matches!(run.outcome, Some(Outcome::Skipped { .. }));
        let held = self.runs.iter().filter(worked).filter_map(|run| run.awake.as_ref());
        let held = held.map(|awake| awake.held);
        held.filter(|held| matches!(held, InhibitLevel::Nothing | InhibitLevel::ForAWhile)).count()
    }

    /// Names at most three jobs that did not run, each with the category of the reason, and counts
    /// the others. Returns `None` if every due job ran.
    pub fn describe_not_run(&self) -> Option<String> {
        const NAMED: usize = 3;
        let named = self.not_run.iter().take(NAMED);
        let named: Vec<String> =
            named.map(|it| format!("{} ({})", it.job, it.because.as_str())).collect();
        let more = self.not_run.len().saturating_sub(NAMED);
        match (named.is_empty(), more) {
            (true, _) => None,
            (false, 0) => Some(format!("{} did not run", named.join(", "))),
            (false, _) => Some(format!("{} and {more} more did not run", named.join(", "))),
        }
    }

    /// Returns the count of each outcome and of the unfinished jobs, or an empty string if nothing
    /// was due.
    fn outcomes(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for word in ORDER {
            let count = self.last_attempts().filter(|run| run.as_str() == word).count();
            if count > 0 {
                counts.push((word, count));
            }
        }
        let mut text = counts
            .iter()
            .map(|(word, count)| format!("{count} {word}"))
            .collect::<Vec<_>>()
            .join(", ");
        if !self.open.is_empty() {
            text.push_str(&format!(
                "{}{} unfinished",
                if text.is_empty() { "" } else { ", " },
                self.open.len()
            ));
        }
        text
    }

    /// Returns the runs that are not followed by a later attempt for the same occurrence.
    pub fn last_attempts(&self) -> impl Iterator<Item = &RunLine> {
        self.runs.iter().enumerate().filter_map(|(index, run)| {
            let later = self.runs[index + 1..]
                .iter()
                .filter(|other| other.job == run.job && other.occurrence == run.occurrence)
                .any(|other| other.attempt > run.attempt);
            (!later).then_some(run)
        })
    }
}

/// A job that was due and did not run.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NotRun {
    pub job: String,
    /// The category of the reason.
    #[serde(flatten)]
    pub because: NotRunReason,
    /// The reason.
    pub why: String,
}

/// Why a job did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(tag = "because", content = "kind", rename_all = "kebab-case")]
pub enum NotRunReason {
    /// A pre-start check failed.
    Failed(Class),
    Skipped(SkipReason),
    Deferred,
    Cancelled,
    /// It was still queued when the report was made.
    Waiting,
    /// Its scheduled time passed while nothing could run it.
    Missed,
}

impl NotRunReason {
    /// Returns why a run with this outcome never started, or `None` if the outcome is an expected
    /// skip or the outcome of a run that started.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Failed { class, .. } => Some(Self::Failed(*class)),
            Outcome::Skipped { reason, .. } if !reason.is_expected() => {
                Some(Self::Skipped(*reason))
            }
            Outcome::Deferred { .. } => Some(Self::Deferred),
            Outcome::Cancelled { .. } => Some(Self::Cancelled),
            Outcome::Missed { .. } => Some(Self::Missed),
            Outcome::Skipped { .. }
            | Outcome::Succeeded
            | Outcome::Degraded { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Lost { .. } => None,
        }
    }

    /// Returns the display name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed(class) => class.as_str(),
            Self::Skipped(reason) => reason.as_str(),
            Self::Deferred => "deferred",
            Self::Cancelled => "cancelled",
            Self::Waiting => "still waiting",
            Self::Missed => "missed",
        }
    }
}

/// One step for the user to take.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct NextStep {
    pub what: String,
    /// The reason for the step, or a hint on how to take it.
    pub why: String,
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests::{failed, night, run};

    #[test]
    fn failed_occurrence_counts_beside_a_retried_one() {
        let mut lost = failed("tidy", Class::Crash, "exit 3");
        lost.occurrence = "first".into();
        let mut retried = failed("tidy", Class::Silent, "no answer");
        retried.occurrence = "second".into();
        let mut done = run("tidy", "command");
        (done.occurrence, done.attempt) = ("second".into(), 2);
        let report = night(vec![lost, retried, done]);
        assert_eq!(report.outcomes(), "1 succeeded, 1 failed");
    }
}
