//! Executes one admitted run, from its job's work to its committed outcome.
//!
//! ```text
//! Admitted + Context ──job──> Finished ──scope.finish──> Ready ──place──> settled
//!                        └──> JobError ──────────────────settle──────────> settled
//! ```
//!
//! This module settles the run exactly once, under its fence. If the process dies before that,
//! recovery settles the run. This module must never publish anything from a failed run.

use runner_engine::awake::Inhibitor;
use runner_engine::error_chain::{plain, whole};
use runner_engine::ids::RunId;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::publish::{LogError, PublishError, PublishLog as _};
use runner_engine::scope::{FinishedScope, ScopeError};
use runner_engine::store::{RunSummary, Store, StoreError};

use crate::lifecycle::publish;
use crate::report::refusals::describe_failed_tools;
use crate::{Context, Finished, JobError, JobSpec};

/// The result of a settled run.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledRun {
    pub outcome: Outcome,
    /// The run's report for people.
    pub summary: RunSummary,
}

/// The reason why a run could not be settled by its own process.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// Another run of the job was admitted in the meantime, so this run must not change anything
    /// else.
    #[error("another run of this job took over while this one was running")]
    TakenOver,
    /// The artifacts are recorded, but not all of them could be moved; recovery completes the
    /// publication.
    #[error("not all artifacts could be published yet: {0}")]
    Unfinished(String),
    /// The database could not be used; recovery will settle the run.
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

/// Does the job's work, publishes the staged files, and settles the run.
///
/// # Errors
/// Returns an error only if the run could not be settled. A job's failure is an outcome.
pub fn execute(mut ctx: Context<'_>, spec: &JobSpec) -> Result<SettledRun, ExecuteError> {
    let done = spec.kind.run(&mut ctx, &spec.name);
    // A run that did nothing has nothing to replay.
    let take = match &done {
        Err(JobError::Nothing(_) | JobError::Wait { .. } | JobError::Cancelled { .. }) => None,
        _ => ctx.take(spec),
    };
    let mut summary = summarize(&mut ctx, spec);
    let reported = backend_notes(&ctx);
    let by_rule = (ctx.backend.describe().kind == "builtin")
        .then(|| ctx.fell().last().or(ctx.passed().last()).cloned())
        .flatten();
    let unrecorded = ctx.unrecorded.take();
    let done = done.map(|mut finished| {
        if let Some(why) = unrecorded {
            let why = format!("the actions of its agent are not recorded: {why}");
            finished.degraded.get_or_insert(why);
        }
        finished
    });
    let now = ctx.wall();
    let Context {
        admitted,
        scope,
        store,
        redactor,
        files: _until_settled,
        keeper: _awake_until_settled,
        root,
        run_dir,
        env,
        publish: wanted,
        cancel,
        recording,
        ..
    } = ctx;
    let run = admitted.run();
    let finished = match done {
        Ok(finished) => by_rule_instead(finished, by_rule),
        Err(error) => {
            drop(scope);
            let outcome = redacted(error.outcome(now), &redactor);
            if let Some(take) = take {
                take.write(&outcome, &redactor);
            }
            summary.headline = outcome.why().unwrap_or_default().to_owned();
            if !summary.backend.is_empty() {
                let reported = reported.iter().map(|line| redactor.redact(line).into_owned());
                summary.lines.extend(reported);
            }
            settle(store, admitted, &outcome, &summary, now)?;
            return Ok(SettledRun { outcome, summary });
        }
    };
    let outcome = take_words(finished, &mut summary, &redactor);
    let reported = reported.iter().map(|line| redactor.redact(line).into_owned());
    summary.lines.extend(reported);
    if let Some(take) = take {
        take.write(&outcome, &redactor);
    }
    let gaps = summary.gaps.iter().map(|gap| format!("not held by its sandbox: {gap}"));
    summary.lines.extend(gaps);
    let ready = match scope.finish(run.clone(), admitted.fence(), outcome.clone()) {
        Ok(ready) => ready,
        Err(error) => return failed_to_place(store, admitted, summary, scope_why(&error), now),
    };
    summary.artifacts = ready
        .manifest
        .entries
        .iter()
        // A removed file is not an artifact.
        .filter(|entry| entry.staged.is_some())
        .map(|entry| entry.target.to_string())
        .collect();
    match publish_artifacts(store, &ready, &summary, now) {
        Ok(()) => {
            let place =
                publish::CommitTarget { root, run_dir, env, marker: run.as_str(), cancel: &cancel };
            // The original run already made the commit, so a replay makes none.
            let wanted = wanted.filter(|_| !recording.replays());
            let committed = wanted.map_or(Ok(()), |wanted| publish::publish(&place, &wanted));
            let Err(why) = committed else {
                return Ok(SettledRun { outcome, summary });
            };
            // The artifacts remain published; the settled run reports that they are not committed.
            let why = redactor.redact(&why).into_owned();
            tracing::warn!(why, "the artifacts were published but not committed");
            summary.lines.push(why.clone());
            let outcome = Outcome::Degraded { why };
            store.degrade(run, &outcome, &summary)?;
            Ok(SettledRun { outcome, summary })
        }
        Err(PublishError::Log(LogError::StaleFence { .. })) => Err(ExecuteError::TakenOver),
        Err(error) if recorded(store, run, &error) => Err(ExecuteError::Unfinished(whole(&error))),
        Err(error) => {
            summary.artifacts.clear();
            failed_to_place(store, admitted, summary, place_why(&error), now)
        }
    }
}

/// Describes who answered, in which sandbox, and whether the host stayed awake.
fn summarize(ctx: &mut Context<'_>, spec: &JobSpec) -> RunSummary {
    let described = ctx.backend.describe();
    RunSummary {
        backend: match (ctx.voices().asked.as_slice(), ctx.asked()) {
            ([], true) => ctx.backend.name().to_owned(),
            ([], false) => String::new(),
            (voices, _) => joined(voices.iter().map(|(name, _)| name)),
        },
        containment: match (spec.kind.program(), &ctx.held) {
            (_, Some(held)) => held.to_string(),
            (_, None) if !ctx.voices().asked.is_empty() => {
                joined(ctx.voices().asked.iter().map(|(_, voice)| &voice.containment))
            }
            (Some(_), None) => "nothing was started".to_owned(),
            (_, None) => described.containment.clone(),
        },
        sandbox: match &ctx.held {
            Some(held) => Some(held.sandbox),
            None => {
                let voices = ctx.voices().asked.iter().map(|(_, voice)| voice.sandbox);
                voices.chain([described.sandbox]).flatten().max()
            }
        },
        gaps: ctx.held.iter().flat_map(|held| held.gaps()).map(str::to_owned).collect(),
        failed_tools: ctx.failed_tools(),
        awake: ctx.keeper.as_mut().map(Inhibitor::standing),
        ..RunSummary::default()
    }
}

/// Joins the distinct strings in their order.
fn joined<'a>(all: impl Iterator<Item = &'a String>) -> String {
    let mut own: Vec<&str> = Vec::new();
    for one in all {
        if !own.contains(&one.as_str()) {
            own.push(one);
        }
    }
    own.join(", ")
}

fn publish_artifacts(
    store: &mut Store,
    ready: &FinishedScope,
    summary: &RunSummary,
    now: jiff::Timestamp,
) -> Result<(), PublishError> {
    let mut log = store.publish_log(Some(summary), now);
    let published = ready.place(&mut log)?;
    if let Some(leftover) = published.leftover {
        tracing::warn!(%leftover, "staging could not be removed");
    }
    Ok(())
}

/// Checks whether the manifest is recorded, so that only a publication may settle the run. A
/// conflict is always final.
fn recorded(store: &mut Store, run: &RunId, error: &PublishError) -> bool {
    let log = store.publish_log(None, jiff::Timestamp::UNIX_EPOCH);
    !matches!(error, PublishError::Conflict(_) | PublishError::Staged { .. })
        && !matches!(log.manifest(run), Ok(None))
}

/// Returns the notes on the backends: those that were not asked, those that did not answer, and the
/// tool uses that failed.
fn backend_notes(ctx: &Context<'_>) -> Vec<String> {
    let passed = ctx.passed().iter();
    let passed = passed.map(|one| format!("was not asked: {one}"));
    let fell = ctx.fell().iter();
    let fell = fell.map(|one| format!("did not answer: {one}"));
    let mut lines: Vec<String> = passed.chain(fell).collect();
    lines.extend(describe_failed_tools(ctx.failed_tools()));
    lines
}

/// Marks a result as degraded if the rule-based answer replaced a model's answer. `instead` names
/// the model and the reason.
fn by_rule_instead(mut finished: Finished, instead: Option<String>) -> Finished {
    if let Some(last) = instead {
        let why = format!("answered by rule: {last}");
        finished.degraded.get_or_insert(why);
    }
    finished
}

/// Moves the job's texts into the summary, redacted, and returns the run's outcome.
fn take_words(
    finished: Finished,
    summary: &mut RunSummary,
    redactor: &runner_text::redact::Redactor,
) -> Outcome {
    let clean = |text: &str| redactor.redact(text).into_owned();
    summary.headline = clean(&finished.headline);
    summary.lines = finished.lines.iter().map(|line| clean(line)).collect();
    summary.refused = finished.refused.iter().map(|what| clean(what)).collect();
    summary.facts = finished.facts;
    match finished.degraded {
        None => Outcome::Succeeded,
        Some(why) => Outcome::Degraded { why: clean(&why) },
    }
}

fn redacted(outcome: Outcome, redactor: &runner_text::redact::Redactor) -> Outcome {
    let clean = |text: String| plain(&redactor.redact(&text));
    match outcome {
        Outcome::Failed { class, why } => Outcome::Failed { class, why: clean(why) },
        Outcome::TimedOut { why } => Outcome::TimedOut { why: clean(why) },
        Outcome::Cancelled { why } => Outcome::Cancelled { why: clean(why) },
        Outcome::Skipped { why } => Outcome::Skipped { why: clean(why) },
        Outcome::Deferred { until, why } => Outcome::Deferred { until, why: clean(why) },
        other => other,
    }
}

fn settle(
    store: &mut Store,
    admitted: &runner_engine::store::Admitted,
    outcome: &Outcome,
    summary: &RunSummary,
    now: jiff::Timestamp,
) -> Result<(), ExecuteError> {
    match store.settle(admitted.run(), Some(admitted.fence()), outcome, summary, now) {
        Err(StoreError::StaleFence { .. }) => Err(ExecuteError::TakenOver),
        done => Ok(done?),
    }
}

fn failed_to_place(
    store: &mut Store,
    admitted: &runner_engine::store::Admitted,
    mut summary: RunSummary,
    (class, why): (Class, String),
    now: jiff::Timestamp,
) -> Result<SettledRun, ExecuteError> {
    let outcome = Outcome::Failed { class, why };
    summary.headline = outcome.why().unwrap_or_default().to_owned();
    if class == Class::Guard {
        let (run, fence) = (admitted.run(), admitted.fence());
        match store.settle_conflict(run, fence, &outcome, &summary, now) {
            Err(StoreError::StaleFence { .. }) => return Err(ExecuteError::TakenOver),
            done => done?,
        }
    } else {
        settle(store, admitted, &outcome, &summary, now)?;
    }
    Ok(SettledRun { outcome, summary })
}

fn scope_why(error: &ScopeError) -> (Class, String) {
    (Class::Environment, whole(error))
}

fn place_why(error: &PublishError) -> (Class, String) {
    let class = match error {
        PublishError::Changed(_) | PublishError::Conflict(_) | PublishError::Staged { .. } => {
            Class::Guard
        }
        PublishError::Manifest(_) | PublishError::Log(_) => Class::Internal,
        PublishError::Fs(_) => Class::Environment,
    };
    (class, whole(error))
}
