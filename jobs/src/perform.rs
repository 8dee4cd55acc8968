//! One admitted run, from its job's work to its committed outcome.
//!
//! ```text
//! Admitted + Context ──job──> Finished ──scope.finish──> Ready ──place──> settled
//!                        └──> JobError ──────────────────settle──────────> settled
//! ```
//!
//! Whatever happens in between, the run is settled here once, under its fence; if this process dies
//! before that, recovery does it. Must never place anything of a run that failed.

use runner_engine::awake::Keeper;
use runner_engine::causes::whole;
use runner_engine::ids::RunId;
use runner_engine::ledger::{Ledger, LedgerError, Summary};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::placement::{LogError, PlaceError, PlacementLog as _};
use runner_engine::scope::{Ready, ScopeError};

use crate::{Context, Finished, JobError, JobSpec, KindSpec, command, dream, prompt, report};

/// What a run came to, once it is settled.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// How it ended.
    pub outcome: Outcome,
    /// What it left for people.
    pub summary: Summary,
}

/// Why a run could not be settled by its own process.
#[derive(Debug, thiserror::Error)]
pub enum PerformError {
    /// Another run of the job was admitted since: this one must not touch anything any more.
    #[error("the run was taken over while it worked")]
    TakenOver,
    /// The artifacts are recorded and could not all be moved; recovery goes on with them.
    #[error("the artifacts could not all be placed yet: {0}")]
    Unfinished(String),
    /// The ledger could not be used; recovery will settle the run.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Does the job's work, places what it staged, and settles the run.
///
/// # Errors
/// Only when the run could not be settled; a job's failure is an outcome.
pub fn perform(mut ctx: Context<'_>, spec: &JobSpec) -> Result<Settled, PerformError> {
    let done = match &spec.kind {
        KindSpec::Dream(own) => dream::run(&mut ctx, own),
        KindSpec::Command(own) => command::run(&mut ctx, own),
        KindSpec::Prompt(own) => prompt::run(&mut ctx, own),
        KindSpec::Report => report::run(&mut ctx),
    };
    // Of a run that did nothing there is nothing to go through again.
    let take = match &done {
        Err(JobError::Nothing(_) | JobError::Wait { .. } | JobError::Cancelled { .. }) => None,
        _ => ctx.take(spec),
    };
    let described = ctx.backend.describe();
    let mut summary = Summary {
        backend: if ctx.asked() {
            ctx.backend.name().to_owned()
        } else {
            String::new()
        },
        containment: match (&spec.kind, &ctx.held) {
            (_, Some((held, _))) => held.clone(),
            (KindSpec::Command(_), None) => "nothing was started".to_owned(),
            (_, None) => described.containment.clone(),
        },
        awake: ctx.keeper.as_mut().map(Keeper::standing),
        ..Summary::default()
    };
    let gaps = ctx.held.take().map(|(_, gaps)| gaps).unwrap_or_default();
    let chain = (ctx.passed().to_vec(), ctx.fell().to_vec());
    let by_rule = described.kind == "builtin";
    let done = done.map(|finished| with_fallback(finished, chain, by_rule));
    let now = ctx.wall();
    let Context {
        admitted,
        scope,
        ledger,
        redactor,
        files: _until_settled,
        keeper: _awake_until_settled,
        ..
    } = ctx;
    let run = admitted.run();
    let finished = match done {
        Ok(finished) => finished,
        Err(error) => {
            drop(scope);
            let outcome = redacted(error.outcome(now), &redactor);
            if let Some(take) = take {
                take.write(&outcome, &redactor);
            }
            summary.headline = outcome.why().unwrap_or_default().to_owned();
            settle(ledger, admitted, &outcome, &summary, now)?;
            return Ok(Settled { outcome, summary });
        }
    };
    let outcome = take_words(finished, &mut summary, &redactor);
    if let Some(take) = take {
        take.write(&outcome, &redactor);
    }
    let gaps = gaps
        .iter()
        .map(|gap| format!("not held by its walls: {gap}"));
    summary.lines.extend(gaps);
    let ready = match scope.finish(run.clone(), admitted.fence(), outcome.clone()) {
        Ok(ready) => ready,
        Err(error) => return failed_to_place(ledger, admitted, summary, scope_why(&error), now),
    };
    summary.artifacts = ready
        .manifest
        .entries
        .iter()
        .map(|entry| entry.target.to_string())
        .collect();
    match place(ledger, &ready, &summary, now) {
        Ok(()) => Ok(Settled { outcome, summary }),
        Err(PlaceError::Log(LogError::StaleFence { .. })) => Err(PerformError::TakenOver),
        Err(error) if recorded(ledger, run, &error) => Err(PerformError::Unfinished(whole(&error))),
        Err(error) => {
            summary.artifacts.clear();
            failed_to_place(ledger, admitted, summary, place_why(&error), now)
        }
    }
}

fn place(
    ledger: &mut Ledger,
    ready: &Ready,
    summary: &Summary,
    now: jiff::Timestamp,
) -> Result<(), PlaceError> {
    let mut log = ledger.placement_log(Some(summary), now);
    let placed = ready.place(&mut log)?;
    if let Some(leftover) = placed.leftover {
        tracing::warn!(%leftover, "staging could not be removed");
    }
    Ok(())
}

/// Whether the manifest is recorded, so that only a placement may settle the run. A conflict is
/// final in any case.
fn recorded(ledger: &mut Ledger, run: &RunId, error: &PlaceError) -> bool {
    let log = ledger.placement_log(None, jiff::Timestamp::UNIX_EPOCH);
    !matches!(error, PlaceError::Conflict(_) | PlaceError::Staged { .. })
        && !matches!(log.manifest(run), Ok(None))
}

/// Says who was not asked and who did not answer; the answer by rule in the place of a model's is less
/// than was wanted.
fn with_fallback(
    mut finished: Finished,
    (passed, fell): (Vec<String>, Vec<String>),
    by_rule: bool,
) -> Finished {
    if let (true, Some(last)) = (by_rule, fell.last().or(passed.last())) {
        let why = format!("answered by rule: {last}");
        finished.degraded.get_or_insert(why);
    }
    let passed = passed
        .into_iter()
        .map(|one| format!("was not asked: {one}"));
    let fell = fell.into_iter().map(|one| format!("did not answer: {one}"));
    finished.lines.extend(passed.chain(fell));
    finished
}

/// Moves the job's words into the summary, redacted, and says how the run ends.
fn take_words(
    finished: Finished,
    summary: &mut Summary,
    redactor: &runner_text::redact::Redactor,
) -> Outcome {
    let clean = |text: &str| redactor.redact(text).into_owned();
    summary.headline = clean(&finished.headline);
    summary.lines = finished.lines.iter().map(|line| clean(line)).collect();
    summary.facts = finished.facts;
    match finished.degraded {
        None => Outcome::Succeeded,
        Some(why) => Outcome::Degraded { why: clean(&why) },
    }
}

fn redacted(outcome: Outcome, redactor: &runner_text::redact::Redactor) -> Outcome {
    let clean = |text: String| redactor.redact(&text).into_owned();
    match outcome {
        Outcome::Failed { class, why } => Outcome::Failed {
            class,
            why: clean(why),
        },
        Outcome::TimedOut { why } => Outcome::TimedOut { why: clean(why) },
        Outcome::Cancelled { why } => Outcome::Cancelled { why: clean(why) },
        Outcome::Skipped { why } => Outcome::Skipped { why: clean(why) },
        Outcome::Deferred { until, why } => Outcome::Deferred {
            until,
            why: clean(why),
        },
        other => other,
    }
}

fn settle(
    ledger: &mut Ledger,
    admitted: &runner_engine::ledger::Admitted,
    outcome: &Outcome,
    summary: &Summary,
    now: jiff::Timestamp,
) -> Result<(), PerformError> {
    match ledger.settle(
        admitted.run(),
        Some(admitted.fence()),
        outcome,
        summary,
        now,
    ) {
        Err(LedgerError::StaleFence { .. }) => Err(PerformError::TakenOver),
        done => Ok(done?),
    }
}

fn failed_to_place(
    ledger: &mut Ledger,
    admitted: &runner_engine::ledger::Admitted,
    mut summary: Summary,
    (class, why): (Class, String),
    now: jiff::Timestamp,
) -> Result<Settled, PerformError> {
    let outcome = Outcome::Failed { class, why };
    summary.headline = outcome.why().unwrap_or_default().to_owned();
    if class == Class::Guard {
        let (run, fence) = (admitted.run(), admitted.fence());
        match ledger.settle_conflict(run, fence, &outcome, &summary, now) {
            Err(LedgerError::StaleFence { .. }) => return Err(PerformError::TakenOver),
            done => done?,
        }
    } else {
        settle(ledger, admitted, &outcome, &summary, now)?;
    }
    Ok(Settled { outcome, summary })
}

fn scope_why(error: &ScopeError) -> (Class, String) {
    (Class::Environment, whole(error))
}

fn place_why(error: &PlaceError) -> (Class, String) {
    let class = match error {
        PlaceError::Changed(_) | PlaceError::Conflict(_) | PlaceError::Staged { .. } => {
            Class::Guard
        }
        PlaceError::Manifest(_) | PlaceError::Log(_) => Class::Internal,
        PlaceError::Fs(_) => Class::Environment,
    };
    (class, whole(error))
}
