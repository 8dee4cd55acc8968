//! Recovers an earlier run, and decides whether this run resumes it.
//!
//! ```text
//! latest ──its run has a final summary──> set aside under runs/<id>, a new run begins
//!   └── it has none: it died ──> its summary is written, `failed`
//!             ├── same goal, and its time is not over ──> this run continues it, under its id
//!             └── else ──> set aside, a new run begins
//! ```
//!
//! The caller must hold the run lock. Recorded iterations are trusted up to the first one that is
//! missing, has the wrong id or number, or began before its predecessor ended.

use std::time::Duration;

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_text::counted;

use super::OvernightSpec;
use super::commit::Recovered;
use super::night::noted;
use super::output::{LOG, Output, OutputError, RunState, SUMMARY};
use super::ownership::Standing;
use super::report;
use super::summary::{Iteration, RunStatus, Summary};

/// An opened run, either new or resumed.
pub struct OpenedRun {
    pub state: RunState,
    /// The iterations that an earlier process of this run recorded.
    pub iterations: Vec<Iteration>,
    /// The lines to report about the earlier run.
    pub reported: Vec<String>,
}

impl OpenedRun {
    /// Returns the run's remaining wall-clock time, or all of its time if the clock was set back to
    /// before its start.
    pub fn left(&self, now: Timestamp) -> Duration {
        let whole = Duration::from_secs(self.state.timeout_seconds);
        let began = self.state.started_at.parse().unwrap_or(now);
        whole.saturating_sub(now.duration_since(began).try_into().unwrap_or_default())
    }
}

/// Records the iterations that recovery found to be committed, and returns the lines to report.
pub fn note(out: &Output, recovered: &Recovered) -> Vec<String> {
    let mut reported = Vec::new();
    let forward = recovered.rolled_forward.iter().map(|it| (it, true));
    let done = recovered.done.iter().map(|it| (it, false));
    for ((id, record), rolled) in forward.chain(done) {
        if rolled {
            reported.push(format!("recovered: the commit of {id} was finished"));
        }
        let Some((run, iteration)) = noted(out, record) else {
            continue;
        };
        let name = format!("{run}/iterations/iter-{}.json", iteration.index);
        if out.read::<Iteration>(&name).is_none()
            && let Err(error) = out.json(&name, &iteration)
        {
            reported.push(format!("{id} could not be recorded: {error}"));
        }
    }
    reported.extend(recovered.foreign.iter().map(|path| {
        format!(
            "{path} was left alone: runner did not write it, or it is damaged; the corpus may be only partly committed"
        )
    }));
    reported
}

/// A run that died, with the summary that was written for it.
pub struct DeadRun {
    state: RunState,
    iterations: Vec<Iteration>,
    summary: Summary,
    /// The lines to report about the run.
    reported: Vec<String>,
}

/// If the last run died, records the reason in its state and writes its summary. Returns `None` if
/// the last run ended, or if there is no earlier run.
///
/// # Errors
/// Returns an error if the output folder is refused or cannot be written.
pub fn report_dead(out: &Output, now: Timestamp) -> Result<Option<DeadRun>, OutputError> {
    let Standing::Earlier(_) = out.inspect()? else { return Ok(None) };
    let written: Option<Summary> = out.read(SUMMARY[0]);
    // The summary of a dead run does not mark the end of the run, because the process that wrote
    // the summary may also have died.
    let ended = |state: &RunState| {
        state.died.is_none()
            && written.as_ref().is_some_and(|it| {
                it.run_id == state.run_id
                    && matches!(it.status, RunStatus::Done | RunStatus::Failed)
            })
    };
    let Some(mut state) = out.runs().pop().filter(|state| !ended(state)) else { return Ok(None) };
    let step = state.last_step.clone().unwrap_or_else(|| "none".to_owned());
    let at = state.at_step.clone().unwrap_or_else(|| "its beginning".to_owned());
    let why = format!("run {} died at {at}; last completed step: {step}", state.run_id);
    state.died = Some(why.clone());
    out.json(&format!("{}/run.json", state.run_id), &state)?;
    let (iterations, rejected) = rehydrate(out, &state.run_id);
    let summary = dead_summary(out, &state, &iterations, &why, now);
    report::write(out, &summary)?;
    let mut reported = vec![format!("recovered: {why}")];
    reported.extend(rejected);
    Ok(Some(DeadRun { state, iterations, summary, reported }))
}

/// Opens a new run, or resumes a dead run with its results.
///
/// # Errors
/// Returns an error if the output folder is refused, or cannot be written or moved.
pub fn open(
    out: &Output,
    spec: &OvernightSpec,
    run: &RunId,
    now: Timestamp,
    timeout_seconds: u64,
) -> Result<OpenedRun, OutputError> {
    let fresh = RunState {
        run_id: run.to_string(),
        started_at: format!("{now:.0}"),
        goal: spec.goal.clone(),
        timeout_seconds,
        ..RunState::default()
    };
    let Standing::Earlier(earlier) = out.inspect()? else {
        return Ok(OpenedRun { state: fresh, iterations: Vec::new(), reported: Vec::new() });
    };
    let mut reported = Vec::new();
    if let Some(dead) = report_dead(out, now)? {
        let DeadRun { state: mut dead, iterations, summary: report, reported: lines } = dead;
        reported = lines;
        if goes_on(&dead, spec, now, timeout_seconds) {
            dead.resumed += 1;
            dead.died = None;
            dead.timeout_seconds = dead.timeout_seconds.max(timeout_seconds);
            let name = format!("{}/interrupted-{}", dead.run_id, dead.resumed);
            report::write_as(out, &name, &report)?;
            out.drop_summary()?;
            // Messages from earlier attempts are reported too, because they concern the same night.
            reported.splice(0..0, report.degraded.iter().cloned());
            reported.push(format!(
                "run {} continues after {}; its earlier report is {}",
                dead.run_id,
                counted(iterations.len(), "iteration"),
                out.path_of(&format!("{name}.json"))
            ));
            return Ok(OpenedRun { state: dead, iterations, reported });
        }
    }
    let summary: Option<Summary> = out.read(SUMMARY[0]);
    let name = (out.runs().pop())
        .map(|state| state.run_id)
        .or(summary.map(|it| it.run_id))
        .filter(|id| id.parse::<RunId>().is_ok())
        .unwrap_or_else(|| "before".to_owned());
    let aside = out.set_aside(&earlier, &name)?;
    if !reported.is_empty() {
        reported.push(format!("the report of the dead run is {aside}/{}", SUMMARY[0]));
    }
    Ok(OpenedRun { state: fresh, iterations: Vec::new(), reported })
}

/// Returns whether a dead run is resumed, which requires the same goal, some time left and a valid
/// start time.
fn goes_on(dead: &RunState, spec: &OvernightSpec, now: Timestamp, timeout_seconds: u64) -> bool {
    let Ok(began) = dead.started_at.parse::<Timestamp>() else {
        return false;
    };
    let passed = now.duration_since(began).as_secs();
    let most = i64::try_from(dead.timeout_seconds.max(timeout_seconds)).unwrap_or(i64::MAX);
    // Setting the clock back does not prevent the run from being resumed.
    dead.goal == spec.goal && passed < most
}

/// Returns the recorded iterations and the lines to report. The iterations end before the first one
/// that is missing, does not match its file name or began before its predecessor ended.
pub fn rehydrate(out: &Output, run: &str) -> (Vec<Iteration>, Vec<String>) {
    let mut found = Vec::new();
    let mut reported = Vec::new();
    for index in 1.. {
        let name = format!("{run}/iterations/iter-{index}.json");
        let Some(iteration) = out.read::<Iteration>(&name) else {
            break;
        };
        if iteration.index != index || iteration.id != format!("{run}-iter-{index}") {
            reported.push(format!(
                "{name} is rejected: its content names the iteration {}",
                iteration.id
            ));
            break;
        }
        let ended = |it: &Iteration| it.finished_at.parse::<Timestamp>().ok();
        let began = iteration.started_at.parse::<Timestamp>().ok();
        let later = found.last().and_then(ended).zip(began).is_none_or(|(end, began)| began >= end);
        if !later {
            reported.push(format!(
                "{name} is rejected: its iteration began before its predecessor ended"
            ));
            break;
        }
        found.push(iteration);
    }
    (found, reported)
}

/// Builds the summary that a dead run could not write.
fn dead_summary(
    out: &Output,
    dead: &RunState,
    iterations: &[Iteration],
    why: &str,
    now: Timestamp,
) -> Summary {
    let partial: Option<Summary> = out.read(&format!("{}/partial.json", dead.run_id));
    let mut summary = partial
        .filter(|it| it.run_id == dead.run_id)
        .unwrap_or_else(|| Summary::planned(&dead.run_id));
    summary.output_dir = out.below().to_owned();
    summary.started_at.clone_from(&dead.started_at);
    summary.finished_at = format!("{now:.0}");
    if summary.duration.is_empty() {
        summary.duration = "0s".to_owned();
    }
    summary.runtime.log_path = out.path_of(LOG);
    summary.iterations = iterations.to_vec();
    summary.status = RunStatus::Failed;
    summary.failure_reason = Some(why.to_owned());
    summary.artifacts.insert("log".to_owned(), LOG.to_owned());
    summary
}
