//! Executes one admitted run, from its job's work to its committed outcome.
//!
//! ```text
//! Admitted + Context ──job──> Finished ──finish──> FinishedScope ──place──> settled
//!                        └──> JobError ───────────────────settle──────────> settled
//! ```
//!
//! This module settles the run at most once, under its fence. If the process dies first, recovery
//! settles the run. This module must never publish anything from a failed run.

use jiff::Timestamp;
use runner_engine::awake::Inhibitor;
use runner_engine::error_chain::{plain, whole};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::publish::{LogError, PublishError, PublishLog as _};
use runner_engine::scope::{FinishedScope, Scope};
use runner_engine::store::{Admitted, RunSummary, Store, StoreError};
use runner_text::redact::Redactor;

use crate::denied::PathSetting;
use crate::lifecycle::publish::{CommitTarget, publish};
use crate::{Context, Finished, JobError, JobSpec};

#[derive(Clone, Debug, PartialEq)]
pub struct SettledRun {
    pub outcome: Outcome,
    /// The run's human-readable report.
    pub summary: RunSummary,
}

/// Why a run's own process could not settle it, or could not record its final outcome.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// Another process has taken over, so this one must not change anything else.
    #[error("another run of this job took over while this one was running")]
    TakenOver,
    /// The artifacts are recorded, but not all of them could be moved. Recovery completes the
    /// publication.
    #[error("not all artifacts could be published yet: {0}")]
    Unfinished(String),
    /// The database could not be used. Recovery settles the run if it is not settled yet.
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

/// Runs the job, publishes the staged files, and settles the run.
///
/// # Errors
/// Returns an error only if the run could not be settled, or if a settled run could not be marked
/// as degraded. A job's failure is an outcome.
pub fn execute(mut ctx: Context<'_>, spec: &JobSpec) -> Result<SettledRun, ExecuteError> {
    let done = ctx.work.open().and_then(|()| spec.kind.run(&mut ctx, &spec.name));
    let done = ctx.work.finish(done);
    // An idle, deferred or cancelled run has nothing to replay.
    let recording = match &done {
        Err(JobError::Nothing(_) | JobError::Wait { .. } | JobError::Cancelled { .. }) => None,
        _ => ctx.take(spec),
    };
    let mut summary = describe(&mut ctx, spec);
    let done = done.map(|finished| degraded(&mut ctx, finished));
    let now = ctx.clock.wall();
    let work = ctx.work.lines();
    summary.facts = std::mem::take(&mut ctx.facts);
    let Context { admitted, files, spender, redactor, programs, publish: wanted, cancel, .. } = ctx;
    let clean = |line: String| redactor.redact(&line).into_owned();
    let setting = match spec.kind.works() {
        Some(_) => PathSetting::Writes,
        None => PathSetting::Missing,
    };
    let denied = spender.denied().map(|denied| denied.describe(files.root(), setting));
    let notes = spender.notes().into_iter().chain(denied).map(clean);
    let (root, run_dir) = (files.root(), files.run_dir());
    let (scope, _until_settled) = files.into_scope();
    let is_done = done.is_ok();
    let outcome = match done {
        Ok(finished) => take_report(finished, &mut summary, &redactor),
        Err(error) => {
            let outcome = redacted(error.outcome(now), &redactor);
            summary.headline = outcome.why().unwrap_or_default().to_owned();
            summary.lines = work.into_iter().map(clean).collect();
            outcome
        }
    };
    if let Some(recording) = recording {
        recording.write(&outcome, &redactor);
    }
    if succeeds(&outcome) || !summary.backend.is_empty() {
        summary.lines.extend(notes);
    }
    let mut settlement = Settlement { admitted, store: spender.into_store(), summary, now };
    // The staged files of a finished run are published even if the run is idle.
    if !is_done {
        drop(scope);
        return settlement.settle(outcome);
    }
    let gaps = settlement.summary.gaps.iter();
    let gaps = gaps.map(|gap| format!("limitation of its sandbox: {gap}"));
    settlement.summary.lines.extend(gaps);
    let done = settlement.publish(scope, outcome)?;
    // The original run already made the commit, so a replay makes none.
    let wanted = wanted.filter(|_| succeeds(&done.outcome) && !ctx.recording.replays());
    let Some(wanted) = wanted else {
        return Ok(done);
    };
    let (env, marker) = (programs.env(), admitted.run().as_str());
    let place = CommitTarget { root, run_dir, env, marker, cancel: &cancel };
    match publish(&place, &wanted) {
        Ok(()) => Ok(done),
        Err(why) => settlement.degrade(clean(why)),
    }
}

fn succeeds(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded | Outcome::Degraded { .. })
}

/// Summarizes which backends answered, which sandboxes were applied, and whether the host was kept
/// awake.
fn describe(ctx: &mut Context<'_>, spec: &JobSpec) -> RunSummary {
    let panel = ctx.spender.panel().asked.as_slice();
    let applied = ctx.programs.applied();
    let described = ctx.spender.backend();
    RunSummary {
        backend: match (panel, ctx.spender.asked()) {
            ([], true) => ctx.spender.backend_name().to_owned(),
            ([], false) => String::new(),
            (panel, _) => joined(panel.iter().map(|(name, _)| name)),
        },
        containment: match (spec.kind.program(), applied) {
            (_, Some(applied)) => applied.to_string(),
            (_, None) if !panel.is_empty() => {
                joined(panel.iter().map(|(_, voice)| &voice.containment))
            }
            (Some(_), None) => "nothing was started".to_owned(),
            (None, None) => described.containment,
        },
        sandbox: match applied {
            Some(applied) => Some(applied.sandbox),
            None => {
                let panel = panel.iter().map(|(_, voice)| voice.sandbox);
                panel.chain([described.sandbox]).flatten().max()
            }
        },
        gaps: applied.iter().flat_map(|applied| applied.gaps()).map(str::to_owned).collect(),
        failed_tools: ctx.spender.failed_tools(),
        awake: ctx.keeper.as_mut().map(Inhibitor::standing),
        ..RunSummary::default()
    }
}

/// Joins the distinct strings with commas, in order of first occurrence.
fn joined<'a>(all: impl Iterator<Item = &'a String>) -> String {
    let mut own: Vec<&str> = Vec::new();
    for one in all {
        if !own.contains(&one.as_str()) {
            own.push(one);
        }
    }
    own.join(", ")
}

/// Marks a result as degraded if its agent's actions are not recorded, or if the rule-based answer
/// replaced a model's answer.
fn degraded(ctx: &mut Context<'_>, mut finished: Finished) -> Finished {
    let unrecorded = ctx.spender.unrecorded();
    let unrecorded =
        unrecorded.map(|why| format!("the actions of its agent are not recorded: {why}"));
    let instead = ctx.spender.fell().last().or(ctx.spender.passed().last());
    let instead = instead.filter(|_| ctx.spender.answers_by_rule());
    let instead = instead.map(|last| format!("answered by rule: {last}"));
    finished.degraded = finished.degraded.or(unrecorded).or(instead);
    finished
}

/// Redacts the job's report text and moves it into the summary, together with the job's facts.
/// Returns the run's outcome.
fn take_report(finished: Finished, summary: &mut RunSummary, redactor: &Redactor) -> Outcome {
    let clean = |text: &str| redactor.redact(text).into_owned();
    summary.headline = clean(&finished.headline);
    summary.lines = finished.lines.iter().map(|line| clean(line)).collect();
    summary.refused = finished.refused.iter().map(|what| clean(what)).collect();
    summary.facts.extend(finished.facts);
    match (finished.idle, finished.degraded) {
        (Some(why), _) => Outcome::skipped(SkipReason::Idle, clean(&why)),
        (None, None) => Outcome::Succeeded,
        (None, Some(why)) => Outcome::Degraded { why: clean(&why) },
    }
}

/// Removes secrets and the operating system's error numbers from an outcome's reason.
pub fn redacted(outcome: Outcome, redactor: &Redactor) -> Outcome {
    outcome.map_why(|why| plain(&redactor.redact(why)))
}

/// A run whose work is done but whose outcome is not committed yet.
struct Settlement<'a> {
    admitted: &'a Admitted,
    store: &'a mut Store,
    summary: RunSummary,
    now: Timestamp,
}

impl Settlement<'_> {
    fn settle(&mut self, outcome: Outcome) -> Result<SettledRun, ExecuteError> {
        let (run, fence) = (self.admitted.run(), self.admitted.fence());
        let settled = self.store.settle(run, Some(fence), &outcome, &self.summary, self.now);
        self.settled(settled, outcome)
    }

    fn settled(
        &self,
        settled: Result<(), StoreError>,
        outcome: Outcome,
    ) -> Result<SettledRun, ExecuteError> {
        match settled {
            Err(StoreError::StaleFence { .. }) => Err(ExecuteError::TakenOver),
            done => Ok(done.map(|()| SettledRun { outcome, summary: self.summary.clone() })?),
        }
    }

    /// Publishes the staged files, which also settles the run.
    fn publish(&mut self, scope: Scope, outcome: Outcome) -> Result<SettledRun, ExecuteError> {
        let (run, fence) = (self.admitted.run(), self.admitted.fence());
        let ready = match scope.finish(run.clone(), fence, outcome.clone()) {
            Ok(ready) => ready,
            Err(error) => return self.fail(Class::Environment, whole(&error)),
        };
        if ready.is_empty() {
            return self.settle_unpublished(outcome);
        }
        // A removed file is not an artifact.
        let entries = ready.manifest.entries.iter().filter(|entry| entry.staged.is_some());
        self.summary.artifacts = entries.map(|entry| entry.target.to_string()).collect();
        match self.place(&ready) {
            Ok(()) => Ok(SettledRun { outcome, summary: self.summary.clone() }),
            Err(PublishError::Log(LogError::StaleFence { .. })) => Err(ExecuteError::TakenOver),
            Err(error) if self.is_recorded(&error) => Err(ExecuteError::Unfinished(whole(&error))),
            Err(error) => {
                self.summary.artifacts.clear();
                self.fail(place_class(&error), whole(&error))
            }
        }
    }

    /// Settles a run that staged nothing. Such a run leaves nothing to recover or clean up.
    fn settle_unpublished(&mut self, outcome: Outcome) -> Result<SettledRun, ExecuteError> {
        let (run, fence) = (self.admitted.run(), self.admitted.fence());
        match self.store.settle_unpublished(run, fence, &outcome, &self.summary, self.now) {
            Err(LogError::StaleFence { .. }) => Err(ExecuteError::TakenOver),
            Err(error) => self.fail(Class::Internal, whole(&error)),
            Ok(()) => Ok(SettledRun { outcome, summary: self.summary.clone() }),
        }
    }

    fn place(&mut self, ready: &FinishedScope) -> Result<(), PublishError> {
        let mut log = self.store.publish_log(Some(&self.summary), self.now);
        if let Some(leftover) = ready.place(&mut log)?.leftover {
            tracing::warn!(%leftover, "staging could not be removed");
        }
        Ok(())
    }

    /// Returns whether the manifest is, or may be, recorded. In that case, only recovery may settle
    /// the run. Returns false for a conflict or an invalid staged file, after which this process
    /// settles the run.
    fn is_recorded(&mut self, error: &PublishError) -> bool {
        let log = self.store.publish_log(None, self.now);
        !matches!(error, PublishError::Conflict(_) | PublishError::Staged { .. })
            && !matches!(log.manifest(self.admitted.run()), Ok(None))
    }

    /// Settles a run as failed because its publication failed.
    fn fail(&mut self, class: Class, why: String) -> Result<SettledRun, ExecuteError> {
        self.summary.headline.clone_from(&why);
        let outcome = Outcome::Failed { class, why };
        if class != Class::Guard {
            return self.settle(outcome);
        }
        let (run, fence) = (self.admitted.run(), self.admitted.fence());
        let settled = self.store.settle_conflict(run, fence, &outcome, &self.summary, self.now);
        self.settled(settled, outcome)
    }

    /// Marks a settled run as degraded because its published artifacts were not committed.
    fn degrade(&mut self, why: String) -> Result<SettledRun, ExecuteError> {
        tracing::warn!(why, "the artifacts were published but not committed");
        self.summary.lines.push(why.clone());
        let outcome = Outcome::Degraded { why };
        self.store.degrade(self.admitted.run(), &outcome, &self.summary)?;
        Ok(SettledRun { outcome, summary: self.summary.clone() })
    }
}

fn place_class(error: &PublishError) -> Class {
    match error {
        PublishError::Changed(_) | PublishError::Conflict(_) | PublishError::Staged { .. } => {
            Class::Guard
        }
        PublishError::Manifest(_) | PublishError::Log(_) => Class::Internal,
        PublishError::Fs(_) => Class::Environment,
    }
}
