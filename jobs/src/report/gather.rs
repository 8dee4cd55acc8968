//! Reads a night's report from the database and from the artifacts of its runs.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::ids::ProjectId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{
    AlertEnd, Amounts, DAY, JOB, MessageState, NIGHT, Night, NightId, RunFilter, RunRow, RunState,
    Store, StoreError, budget_seconds,
};
use runner_engine::tick::REPORT_JOB;
use runner_text::redact::Redacted;

use crate::log_tail::LogTail;

use super::model::{NightReport, NotRun, NotRunReason, ORDER, SCHEMA};
use super::run_line::RunLine;
use super::{
    budget_usage, by_day, dreamscape, fleet_usage, next_steps, pending, proposals, refusals,
};

/// Maximum number of runs whose log and output a report contains.
const WITH_FILES: usize = 50;
/// Maximum number of characters of a model's reply in a report.
const REPLY: usize = 2_000;

/// Reads a night from the database, and adds details from the artifacts of its runs.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read. An artifact that cannot be read does
/// not cause an error.
pub fn whole(
    store: &Store,
    night: NightId,
    root: &Path,
    now: Timestamp,
) -> Result<NightReport, StoreError> {
    let mut report = gather(store, night, root, now)?;
    let project = store.night(night)?.project;
    let dreams = proposals::dream_jobs(store, &project)?;
    let found = proposals::read(root, &dreams, &report.runs, report.closed);
    (report.proposals, report.more_proposals) = (found.proposals, found.more);
    report.unread_proposals = found.unread;
    report.waiting = pending::read(root, &report.runs, &pending::curator_folder(store, &project)?);
    report.dreamscapes = dreamscape::read(root, &report.runs);
    report.first = next_steps::moves(&report);
    if let Some(state) = store.path().parent() {
        read_files(state, &mut report.runs);
    }
    Ok(report)
}

/// Adds the last lines of the log and output, and the models' replies, to the first [`WITH_FILES`]
/// runs that began, starting with those that did not succeed.
fn read_files(state: &Path, runs: &mut [RunLine]) {
    let mut began: Vec<&mut RunLine> =
        runs.iter_mut().filter(|run| run.started.is_some()).collect();
    began.sort_by_key(|run| matches!(run.outcome, Some(Outcome::Succeeded)));
    for line in began.into_iter().take(WITH_FILES) {
        line.files = line.run.parse().ok().map(|run| LogTail::of(state, &run));
        for reply in line.files.iter_mut().flat_map(|files| &mut files.replies) {
            reply.text = Redacted::of(&reply.text).head(REPLY).into_string();
        }
    }
}

/// Reads a night from the database alone.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read.
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
    let mut budgets_used = BTreeSet::new();
    for run in rows {
        if !matches!(run.state, RunState::Settled { .. }) {
            open.push(run.job_name.clone());
        }
        held = held.plus(store.reserved_for(&run.id)?);
        let levels = store.held_by(&run.id)?.into_iter();
        budgets_used.extend(levels.map(|held| (held.level, held.key)));
        let line = run_line(store, run)?;
        spent = spent.plus(line.spent);
        runs.push(line);
    }
    let (missed, missed_jobs) = missed_times(store, &row)?;
    let date = row.name.get(..10).unwrap_or(&row.name);
    budgets_used.insert((NIGHT.to_owned(), night.0.to_string()));
    budgets_used.insert((DAY.to_owned(), format!("{} {date}", row.project)));
    let grants = grants(store, budgets_used)?;
    let until = row.closed.unwrap_or(now);
    let by_day = by_day::runs_by_day(store, &row, until)?;
    let budgets = budget_usage::of_night(store, &row, held, spent, until)?;
    let fleets = fleet_usage::of_runs(&runs);
    let refused = refusals::refusals_of_night(&runs);
    // Alerts about the last runs are raised after the night has closed.
    let next = store.next_opening(&row)?.map_or(now, |next| next.max(until));
    let (alerts, undelivered) = alerts(store, &row.project, row.opens, next.min(now))?;
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
        not_run: Vec::new(),
        missed,
        by_day,
        grants,
        alerts,
        undelivered,
        budgets,
        fleets,
        refused,
        proposals: Vec::new(),
        more_proposals: 0,
        unread_proposals: Vec::new(),
        waiting: Vec::new(),
        dreamscapes: Vec::new(),
        first: Vec::new(),
    };
    report.not_run = not_run(&report, missed_jobs);
    if row.closed.is_none() && now < row.closes {
        // While the night is open, a job that was never deferred still awaits its first attempt, so
        // it is not listed.
        let put_off =
            |job: &str| report.runs.iter().any(|it| it.job == job && it.outcome.is_some());
        report.not_run.retain(|it| it.because != NotRunReason::Waiting || put_off(&it.job));
    }
    let not_run = report.not_run.iter().filter_map(|it| match it.because {
        NotRunReason::Missed => Some("missed"),
        NotRunReason::Waiting => Some("deferred"),
        _ => None,
    });
    let worst = (report.last_attempts().map(RunLine::as_str))
        .chain(not_run)
        .filter_map(|outcome| ORDER.iter().position(|word| *word == outcome))
        .max();
    report.worst = ORDER[worst.unwrap_or(0)].to_owned();
    Ok(report)
}

/// Describes the missed times of a night, and returns the jobs that missed them.
fn missed_times(store: &Store, row: &Night) -> Result<(Vec<String>, Vec<NotRun>), StoreError> {
    let (mut lines, mut jobs) = (Vec::new(), Vec::new());
    // A job that only missed its times has no run that would belong to the night, so the night's
    // report has all times since the previous night.
    let from = store.previous_closing(row)?.unwrap_or(Timestamp::UNIX_EPOCH);
    let apart = store.missed_in(&row.project, (from, row.closes))?;
    for occurrence in store.occurrences_of(row.id)?.into_iter().chain(apart) {
        if let Some(outcome @ Outcome::Missed { first, last, count, .. }) = &occurrence.outcome {
            let job = store.job_by_id(occurrence.job)?.name;
            let why = outcome.why().unwrap_or_default();
            lines.push(match count {
                1 => format!("{job} at {first}: {why}"),
                _ => format!("{job}, {count} times from {first} to {last}: {why}"),
            });
            jobs.push(NotRun { job, because: NotRunReason::Missed, why: why.to_owned() });
        }
    }
    Ok((lines, jobs))
}

/// Describes the grants that were added to these budgets, which are named by level and key.
fn grants(store: &Store, budgets: BTreeSet<(String, String)>) -> Result<Vec<String>, StoreError> {
    let mut grants = Vec::new();
    for (level, key) in budgets {
        for grant in store.grants(&level, &key)? {
            let amounts = super::markdown::amounts(grant.amounts);
            // The key of a job's budget begins with the project, and that of a pool with its name.
            let name = key.split(' ').nth(usize::from(level == JOB)).unwrap_or_default();
            let budget = match level.as_str() {
                NIGHT | DAY => level.clone(),
                JOB => format!("job {name}"),
                _ => format!("pool {name}"),
            };
            grants.push(format!("{amounts} for the {budget}, by {}: {}", grant.who, grant.reason));
        }
    }
    Ok(grants)
}

/// Returns the jobs that were due that night and did not run. A job is left out if any of its runs
/// started.
fn not_run(report: &NightReport, missed: Vec<NotRun>) -> Vec<NotRun> {
    let began = |job: &str| report.runs.iter().any(|run| run.job == job && run.started.is_some());
    let not_started = report.last_attempts().filter(|run| run.started.is_none());
    let not_started = not_started.filter_map(|run| {
        // A deferred run has another attempt, which is still queued.
        let put_off = report.runs.iter().rfind(|it| it.job == run.job && it.outcome.is_some());
        let outcome = run.outcome.as_ref();
        let because = outcome.map_or(Some(NotRunReason::Waiting), NotRunReason::of)?;
        let why = outcome.or(put_off.and_then(|it| it.outcome.as_ref())).and_then(Outcome::why);
        Some(NotRun { job: run.job.clone(), because, why: why.unwrap_or_default().to_owned() })
    });
    let mut found: Vec<NotRun> = Vec::new();
    for one in not_started.chain(missed) {
        if !began(&one.job) && found.iter().all(|known| known.job != one.job) {
            found.push(one);
        }
    }
    found
}

/// Returns a line for each alert that was raised, continued or ended between `from` and `to`, and
/// the number of undelivered messages about these alerts.
fn alerts(
    store: &Store,
    project: &ProjectId,
    from: Timestamp,
    to: Timestamp,
) -> Result<(Vec<String>, usize), StoreError> {
    let mut lines = Vec::new();
    let mut undelivered = 0;
    for alert in store.alerts_between(project, from, to)? {
        let mut line = format!("{}: {}", alert.job_name, alert.kind.as_str());
        if alert.count > 1 {
            line.push_str(&format!(", {} times", alert.count));
        }
        match (&alert.ended, &alert.silenced) {
            (Some((_, AlertEnd::Recovered)), _) => line.push_str(", over"),
            (Some((_, AlertEnd::Acknowledged { by })), _) => {
                line.push_str(&format!(", acknowledged by {by}"));
            }
            (None, Some((_, who))) => line.push_str(&format!(", silenced by {who}")),
            (None, None) => {}
        }
        for message in store.messages_of(&alert.id)? {
            let lost = matches!(message.state, MessageState::Waiting | MessageState::GivenUp);
            if lost && !message.said.is_empty() {
                undelivered += 1;
                line.push_str(&format!("; NOT DELIVERED to {}: {}", message.channel, message.said));
            }
        }
        lines.push(line);
    }
    Ok((lines, undelivered))
}

fn run_line(store: &Store, run: RunRow) -> Result<RunLine, StoreError> {
    let mut spent = store.spent_by(&run.id)?;
    let (started, finished) = (run.started(), run.finished());
    if let (Some(started), Some(finished)) = (started, finished) {
        spent.seconds = budget_seconds(started, finished);
    }
    Ok(RunLine {
        run: run.id.to_string(),
        occurrence: run.occurrence.to_string(),
        outcome: run.outcome().cloned(),
        started,
        finished,
        job: run.job_name,
        kind: run.kind,
        attempt: run.attempt,
        spent,
        unstated_calls: store.unstated_calls(&run.id)?,
        unpriced_calls: store.unpriced_calls(&run.id)?,
        limited_calls: store.limited_calls(&run.id)?,
        headline: run.summary.headline,
        lines: run.summary.lines,
        facts: run.summary.facts,
        artifacts: run.summary.artifacts,
        backend: run.summary.backend,
        containment: run.summary.containment,
        sandbox: run.summary.sandbox,
        gaps: run.summary.gaps,
        refused: run.summary.refused,
        failed_tools: run.summary.failed_tools,
        awake: run.summary.awake,
        files: None,
    })
}
