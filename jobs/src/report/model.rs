//! The data model of a night's report: the one source of all its forms.

use std::path::Path;

use jiff::Timestamp;
use runner_engine::awake::SleepInhibition;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{
    Amounts, DAY, MessageState, NIGHT, NightId, RunFilter, RunRow, RunState, Store, StoreError,
};
use runner_engine::tick::REPORT_JOB;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::budget_usage::{self, UnitUsage};
use super::by_day;
use super::dreamscape::{self, Dreamscape};
use super::next_steps::{self, NextStep};
use super::pending::{self, PendingItem};
use super::proposals::{self, ReportedProposal};
use super::refusals::{self, Refusal};

/// The version of the JSON form.
pub const SCHEMA: u32 = 1;

/// The report of one night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NightReport {
    /// The version of this form.
    pub schema_version: u32,
    /// The night's name: its civil date, perhaps with a number.
    pub night: String,
    /// The project's folder name.
    pub project: String,
    /// When it opened.
    pub opened: Timestamp,
    /// When its report was made.
    pub closed: Timestamp,
    /// The worst word among its outcomes; `succeeded` when all did.
    pub worst: String,
    /// The amounts that all its runs spent.
    pub spent: Amounts,
    /// Its runs, in the order in which they were due.
    pub runs: Vec<RunLine>,
    /// The jobs that were due and have no outcome yet.
    pub open: Vec<String>,
    /// Scheduled times that passed while nothing was there to run them, found when this night was
    /// recorded.
    #[serde(default)]
    pub missed: Vec<String>,
    /// The curators' work outside of nights since the night before, with the result of each of
    /// their files.
    #[serde(default)]
    pub by_day: Vec<String>,
    /// The amounts granted in addition to the caps of the night and of its day, with the grantor
    /// and the reason.
    #[serde(default)]
    pub grants: Vec<String>,
    /// Alerts that were raised, went on or ended in it, and which of them did not arrive.
    #[serde(default)]
    pub alerts: Vec<String>,
    /// The budget usage by unit: the cap, the amount reserved, the amount spent and the amount
    /// left.
    #[serde(default)]
    pub accounts: Vec<UnitUsage>,
    /// Refusals by guards, by budgets, at admission, or in the check of a reply.
    #[serde(default)]
    pub refused: Vec<Refusal>,
    /// The proposals of its dreams, with the current decisions. Only in a [`whole`] report.
    #[serde(default)]
    pub proposals: Vec<ReportedProposal>,
    /// Number of further proposals that the report leaves out.
    #[serde(default)]
    pub more_proposals: usize,
    /// Other items that wait for a person. Only in a [`whole`] report.
    #[serde(default)]
    pub waiting: Vec<PendingItem>,
    /// The results of its overnight runs. Only in a [`whole`] report.
    #[serde(default)]
    pub dreamscapes: Vec<Dreamscape>,
    /// The next steps for a person, the most urgent first. Only in a [`whole`] report.
    #[serde(default)]
    pub first: Vec<NextStep>,
}

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

/// Words from best to worst: what a night exits with.
const ORDER: [&str; 9] = [
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
    /// Returns one line about the whole night.
    pub fn headline(&self) -> String {
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
        if text.is_empty() { "nothing was due".to_owned() } else { text }
    }

    /// Returns each job's last attempt, which is the result of its occurrence.
    pub fn last_attempts(&self) -> impl Iterator<Item = &RunLine> {
        self.runs.iter().enumerate().filter_map(|(index, run)| {
            let later = self.runs[index + 1..]
                .iter()
                .any(|other| other.job == run.job && other.attempt > run.attempt);
            (!later).then_some(run)
        })
    }
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

/// Reads a night from the database, and adds the details from its runs' artifacts.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read. The report itself states which artifact
/// cannot be read.
pub fn whole(
    store: &Store,
    night: NightId,
    root: &Path,
    now: Timestamp,
) -> Result<NightReport, StoreError> {
    let mut report = gather(store, night, root, now)?;
    let jobs = store.jobs(&store.night(night)?.project)?;
    let several = jobs.iter().filter(|job| job.kind == "dream").count() > 1;
    let (proposals, more) = proposals::read(root, &report.runs, several);
    (report.proposals, report.more_proposals) = (proposals, more);
    report.waiting = pending::read(root, &report.runs);
    report.dreamscapes = dreamscape::read(root, &report.runs);
    report.first = next_steps::moves(&report);
    Ok(report)
}

/// Reads a night out of the database alone.
///
/// # Errors
/// [`StoreError`].
pub fn gather(
    store: &Store,
    night: NightId,
    root: &Path,
    now: Timestamp,
) -> Result<NightReport, StoreError> {
    let row = store.night(night)?;
    let mut rows = store.runs(&RunFilter { night: Some(night), ..RunFilter::default() })?;
    rows.retain(|run| run.kind != REPORT_JOB);
    rows.reverse();
    let mut runs = Vec::with_capacity(rows.len());
    let mut spent = Amounts::default();
    let mut held = Amounts::default();
    let mut open = Vec::new();
    for run in rows {
        if !matches!(run.state, RunState::Settled { .. }) {
            open.push(run.job_name.clone());
        }
        held = held.plus(store.reserved_for(&run.id)?);
        let line = run_line(store, run)?;
        spent = spent.plus(line.spent);
        runs.push(line);
    }
    let mut missed = Vec::new();
    for occurrence in store.occurrences_of(night)? {
        if let Some(outcome @ Outcome::Missed { first, last, count, .. }) = &occurrence.outcome {
            let job = store.job_by_id(occurrence.job)?.name;
            let why = outcome.why().unwrap_or_default();
            missed.push(match count {
                1 => format!("{job} at {first}: {why}"),
                _ => format!("{job}, {count} times from {first} to {last}: {why}"),
            });
        }
    }
    let date = row.name.get(..10).unwrap_or(&row.name);
    let mut grants = Vec::new();
    for (level, key) in [(NIGHT, night.0.to_string()), (DAY, format!("{} {date}", row.project))] {
        for grant in store.grants(level, &key)? {
            let amounts = super::markdown::amounts(grant.amounts);
            grants.push(format!("{amounts} for the {level}, by {}: {}", grant.who, grant.reason));
        }
    }
    let until = row.closed.unwrap_or(now);
    let by_day = by_day::runs_by_day(store, &row, until)?;
    let accounts = budget_usage::of_night(store, &row, held, spent, until)?;
    let refused = refusals::refusals_of_night(&runs);
    let mut report = NightReport {
        schema_version: SCHEMA,
        night: row.name,
        project: root
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        opened: row.opens,
        closed: until,
        worst: "succeeded".to_owned(),
        spent,
        runs,
        open,
        missed,
        by_day,
        grants,
        alerts: alerts(store, &row.project, row.opens, now)?,
        accounts,
        refused,
        proposals: Vec::new(),
        more_proposals: 0,
        waiting: Vec::new(),
        dreamscapes: Vec::new(),
        first: Vec::new(),
    };
    let worst = report
        .last_attempts()
        .filter_map(|run| ORDER.iter().position(|word| *word == run.as_str()))
        .max();
    report.worst = ORDER[worst.unwrap_or(0)].to_owned();
    Ok(report)
}

/// Returns a line for each alert between `from` and `to`.
fn alerts(
    store: &Store,
    project: &ProjectId,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let mut lines = Vec::new();
    for alert in store.alerts_between(project, from, to)? {
        let mut line = format!("{}: {}", alert.job_name, alert.kind.as_str());
        if alert.count > 1 {
            line.push_str(&format!(", {} times", alert.count));
        }
        match (&alert.ended, &alert.silenced) {
            (Some((_, how)), _) if how == "recovered" => line.push_str(", over"),
            (Some((_, who)), _) => line.push_str(&format!(", acknowledged by {who}")),
            (None, Some((_, who))) => line.push_str(&format!(", silenced by {who}")),
            (None, None) => {}
        }
        for message in store.messages_of(&alert.id)? {
            let lost = matches!(message.state, MessageState::Waiting | MessageState::GivenUp);
            if lost && !message.said.is_empty() {
                line.push_str(&format!("; NOT DELIVERED to {}: {}", message.channel, message.said));
            }
        }
        lines.push(line);
    }
    Ok(lines)
}

fn run_line(store: &Store, run: RunRow) -> Result<RunLine, StoreError> {
    let mut spent = store.spent_by(&run.id)?;
    let (started, finished) = (run.started(), run.finished());
    if let (Some(started), Some(finished)) = (started, finished) {
        spent.seconds = finished.duration_since(started).as_secs().unsigned_abs();
    }
    Ok(RunLine {
        run: run.id.to_string(),
        outcome: run.outcome().cloned(),
        started,
        finished,
        job: run.job_name,
        kind: run.kind,
        attempt: run.attempt,
        spent,
        unstated_calls: store.unstated_calls(&run.id)?,
        unpriced_calls: store.unpriced_calls(&run.id)?,
        headline: run.summary.headline,
        lines: run.summary.lines,
        facts: run.summary.facts,
        artifacts: run.summary.artifacts,
        backend: run.summary.backend,
        containment: run.summary.containment,
        awake: run.summary.awake,
    })
}
