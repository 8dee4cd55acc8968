//! Settles runs and occurrences, and records the consequences in the same transaction.
//!
//! ```text
//! outcome of a run ──deferred{until}─────────────> occurrence stays open: queued again at until
//!                  ├─a failure to retry──────────> queued again after its backoff
//!                  └─anything else──> outcome of the occurrence
//!                                        ├─> runs that wait for it: ready, or skipped with it
//!                                        └─> jobs that follow its job: recorded
//! ```
//!
//! [`settle_row`] settles all runs and occurrences, with two exceptions: missed scheduled times,
//! and dead runs that are retried immediately.

use runner_text::counted;
use std::collections::VecDeque;

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::columns::{Query as _, free, free_json, json, millis, time, time_opt};
use super::rows::{NewOccurrence, Origin, line_up, queue};
use super::runs::BEGAN;
use super::usage::budget_seconds;
use super::{
    Fault, JobId, NightId, Result, RunSummary, StoreError, alerts, jobs, nights, reserve, totals,
};
use crate::ids::{Fence, OccurrenceId, RunId};
use crate::outcome::{Outcome, SkipReason};
use crate::policy::{Overlap, Policy, QUEUE, retryable};
use crate::schedule::{On, Schedule, Trigger};

/// Settles a run, then either queues another attempt at its occurrence or settles the occurrence.
pub(super) fn settle_row(
    tx: &Transaction<'_>,
    run: &RunId,
    outcome: &Outcome,
    summary: &RunSummary,
    now: Timestamp,
) -> Result<(), Fault> {
    let over = close(tx, run, outcome, summary, now)?;
    // If an occurrence does not succeed, all runs waiting for it, directly or through other runs,
    // are skipped.
    let mut ended = VecDeque::from([(run.clone(), over)]);
    while let Some((run, over)) = ended.pop_front() {
        match again_at(tx, &over, now)? {
            Some(again) => {
                queue(tx, &over.occurrence, again, None, now)?;
            }
            None => ended.extend(settle_occurrence(tx, over, &run, now)?),
        }
    }
    Ok(())
}

/// A run that has just ended.
pub(super) struct EndedRun {
    pub occurrence: OccurrenceId,
    job: JobId,
    seed: u64,
    /// Whether the run was cancelled. A cancelled run is never retried.
    unwanted: bool,
    outcome: Outcome,
}

/// Records the outcome of a run without settling its occurrence.
pub(super) fn close(
    tx: &Transaction<'_>,
    run: &RunId,
    outcome: &Outcome,
    summary: &RunSummary,
    now: Timestamp,
) -> Result<EndedRun, Fault> {
    type OpenRow = (OccurrenceId, JobId, Option<Timestamp>, Option<String>, i64);
    let open: Option<OpenRow> = tx.first(
        "SELECT occurrence, job, started, cancel, seed FROM runs WHERE id = ?1 AND state <> 'settled'",
        [run],
        |row| Ok((row.get(0)?, row.get(1)?, time_opt(row, 2)?, row.get(3)?, row.get(4)?)),
    )?;
    let Some((occurrence, job, started, cancel, seed)) = open else {
        return Err(Fault::not_found("unsettled run", run));
    };
    // A cancelled run only receives a signal, so the reason is read from the database.
    let unwanted = cancel.is_some();
    let outcome = match (outcome, cancel) {
        (Outcome::Cancelled { .. } | Outcome::Deferred { .. }, Some(why)) => {
            Outcome::Cancelled { why }
        }
        (outcome, _) => outcome.clone(),
    };
    tx.change(
        "UPDATE runs SET state = 'settled', outcome = ?2, summary = ?3, finished = ?4, waits_for = NULL
         WHERE id = ?1",
        params![run, free_json(&outcome), free_json(summary), millis(now)],
    )?;
    totals::add(tx, job, &outcome, started, now)?;
    if matches!(outcome, Outcome::Succeeded) {
        nights::reported(tx, &occurrence, summary)?;
    }
    if let Some(started) = started {
        reserve::settle(tx, run, budget_seconds(started, now))?;
    }
    Ok(EndedRun { occurrence, job, seed: seed.cast_unsigned(), unwanted, outcome })
}

/// Returns the time of the next attempt at the occurrence, if there is one.
fn again_at(
    tx: &Transaction<'_>,
    over: &EndedRun,
    now: Timestamp,
) -> Result<Option<Timestamp>, Fault> {
    let occurrence = &over.occurrence;
    let deferred = match &over.outcome {
        Outcome::Deferred { until, .. } => Some(*until),
        outcome if retryable(outcome) && !over.unwanted => None,
        _ => return Ok(None),
    };
    let found = tx.first(
        "SELECT o.origin, o.origin = 'manual' AND o.night IS NULL AND o.key NOT GLOB 'key *', j.policy
         FROM occurrences o JOIN jobs j ON j.id = o.job WHERE o.id = ?1",
        [occurrence],
        |row| Ok((row.get(0)?, row.get(1)?, json(row, 2)?)),
    )?;
    let (origin, reported, policy): (Origin, bool, Policy) =
        found.ok_or_else(|| Fault::not_found("occurrence", occurrence))?;
    if let Some(until) = deferred {
        // A command that requested a single run reports the deferral, so no further attempt is
        // made.
        return Ok((!reported).then_some(until));
    }
    if origin == Origin::Manual {
        return Ok(None);
    }
    let failures: u32 = tx.value(
        "SELECT count(*) FROM runs WHERE occurrence = ?1 AND outcome ->> 'outcome' IN ('failed', 'timed-out')",
        [occurrence],
    )?;
    let wait = policy.retry.wait(failures, over.seed);
    Ok(wait.map(|wait| now.saturating_add(wait).unwrap_or(now)))
}

/// Settles a run as skipped. The run must not have started.
pub(super) fn skip(
    tx: &Transaction<'_>,
    run: &RunId,
    reason: SkipReason,
    why: String,
    now: Timestamp,
) -> Result<(), Fault> {
    settle_row(tx, run, &Outcome::skipped(reason, why), &RunSummary::default(), now)
}

/// Records an occurrence's outcome after its last run. If that run is a skipped retry, the
/// occurrence gets the outcome of the last failed attempt, unless the job has succeeded since.
/// Returns the waiting runs that ended as a result. The caller must settle their occurrences.
fn settle_occurrence(
    tx: &Transaction<'_>,
    mut over: EndedRun,
    run: &RunId,
    now: Timestamp,
) -> Result<Vec<(RunId, EndedRun)>, Fault> {
    if let Outcome::Skipped { .. } = over.outcome
        && let Some(failure) = last_failure(tx, &over.occurrence)?
    {
        over.outcome = failure;
    }
    let (occurrence, outcome) = (&over.occurrence, &over.outcome);
    let night: Option<NightId> = tx.value(
        "UPDATE occurrences SET outcome = ?2, settled = ?3 WHERE id = ?1
         RETURNING (SELECT id FROM nights WHERE id = night AND closed IS NULL)",
        params![occurrence, free_json(outcome), millis(now)],
    )?;
    alerts::note(tx, occurrence, Some(run), outcome)?;
    follow(tx, &over, run, night, now)?;
    release(tx, occurrence, outcome, now)
}

/// Returns the outcome of an occurrence's last failed attempt, unless the job has succeeded since.
fn last_failure(tx: &Transaction<'_>, occurrence: &OccurrenceId) -> Result<Option<Outcome>, Fault> {
    tx.first(
        "SELECT r.outcome FROM runs r
         WHERE r.occurrence = ?1 AND r.outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost')
           AND NOT EXISTS (SELECT 1 FROM runs s WHERE s.job = r.job AND s.rowid > r.rowid
                           AND s.outcome ->> 'outcome' IN ('succeeded', 'degraded'))
         ORDER BY r.rowid DESC LIMIT 1",
        [occurrence],
        |row| json(row, 0),
    )
}

/// If this occurrence succeeded, makes the runs waiting for it ready. Otherwise, ends them as
/// skipped and returns them.
fn release(
    tx: &Transaction<'_>,
    occurrence: &OccurrenceId,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Vec<(RunId, EndedRun)>, Fault> {
    let mut ended = Vec::new();
    let waiting: Vec<RunId> =
        tx.values("SELECT id FROM runs WHERE waits_for = ?1", [occurrence])?;
    for waiting in waiting {
        if outcome.published() {
            tx.change(
                "UPDATE runs SET waits_for = NULL, ready_at = max(ready_at, ?2) WHERE id = ?1",
                params![waiting, millis(now)],
            )?;
        } else {
            let skipped = Outcome::skipped(SkipReason::Unfollowed, not_followed(outcome));
            let over = close(tx, &waiting, &skipped, &RunSummary::default(), now)?;
            ended.push((waiting, over));
        }
    }
    Ok(ended)
}

/// Returns the reason for skipping a run that is waiting for an occurrence with this outcome. In a
/// chain of skipped runs, the first reason is kept.
pub(super) fn not_followed(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Skipped { why, reason: SkipReason::Unfollowed } => why.clone(),
        outcome => format!("the run before it ended as {outcome}"),
    }
}

/// Records the occurrences of the jobs that follow this job, in the same night if it is still open.
/// If this job did not succeed, a follower that requires success is recorded as skipped. All
/// followers are recorded as skipped if this job was skipped or deferred, or if it was cancelled or
/// lost before it began.
fn follow(
    tx: &Transaction<'_>,
    over: &EndedRun,
    run: &RunId,
    night: Option<NightId>,
    now: Timestamp,
) -> Result<(), Fault> {
    let followers: Vec<(JobId, Schedule)> = tx.all(
        "SELECT f.id, f.schedule FROM jobs j
         JOIN jobs f ON f.project = j.project AND f.after_job = j.name
         WHERE j.id = ?1 AND f.enabled",
        [over.job],
        |row| Ok((row.get(0)?, json(row, 1)?)),
    )?;
    let outcome = &over.outcome;
    let ended = match outcome {
        Outcome::Skipped { .. } | Outcome::Deferred { .. } => false,
        Outcome::Cancelled { .. } | Outcome::Lost { .. } => tx.exists(BEGAN, [&over.occurrence])?,
        _ => true,
    };
    for (follower, schedule) in followers {
        let Trigger::After(after) = schedule.trigger else {
            continue;
        };
        let new = NewOccurrence {
            night,
            origin: Origin::Event,
            ..NewOccurrence::manual(follower, format!("after {run}"), now)
        };
        if outcome.published() || (after.on == On::End && ended) {
            await_turn(tx, &new, now, now)?;
        } else {
            let why = format!("{} ended as {outcome}", after.job);
            skipped(tx, &new, Outcome::skipped(SkipReason::Unfollowed, why), now)?;
        }
    }
    Ok(())
}

/// Rejects a commit by a run that has been taken over or settled. Without a `fence`, nothing is
/// checked.
pub(super) fn check_fence(db: &Connection, run: &RunId, fence: Option<Fence>) -> Result<(), Fault> {
    let Some(fence) = fence else { return Ok(()) };
    let current: Option<Fence> = db.first(
        "SELECT j.fence FROM runs r JOIN jobs j ON j.id = r.job
         WHERE r.id = ?1 AND r.state = 'running' AND r.fence = ?2",
        params![run, fence],
        |row| row.get(0),
    )?;
    if current == Some(fence) {
        Ok(())
    } else {
        Err(Fault::Known(StoreError::StaleFence { run: run.to_string(), fence: fence.0 }))
    }
}

/// Records an occurrence as skipped. Returns `None` if it has already been recorded.
pub(super) fn skipped(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    outcome: Outcome,
    now: Timestamp,
) -> Result<Option<RunId>, Fault> {
    let run = line_up(tx, new, now, now)?;
    if let Some(run) = &run {
        settle_row(tx, run, &outcome, &RunSummary::default(), now)?;
    }
    Ok(run)
}

/// Queues an occurrence of a schedule or an event according to the job's overlap rule. The rule
/// ignores queued runs requested by a user or script. Returns `None` if the occurrence has already
/// been recorded.
pub(super) fn await_turn(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    ready_at: Timestamp,
    now: Timestamp,
) -> Result<Option<RunId>, Fault> {
    let policy = jobs::policy(tx, new.job)?;
    type Earlier = (RunId, String, Timestamp, bool);
    let ahead: Vec<Earlier> = tx.all(
        "SELECT r.id, r.state, o.due, o.origin IN ('clock', 'event')
         FROM runs r INDEXED BY runs_open_by_job JOIN occurrences o ON o.id = r.occurrence
         WHERE r.job = ?1 AND r.state <> 'settled'
           AND (r.state <> 'queued' OR o.origin IN ('clock', 'event')) ORDER BY r.rowid",
        [new.job],
        |row| Ok((row.get(0)?, row.get(1)?, time(row, 2)?, row.get(3)?)),
    )?;
    let Some((first, state, due, _)) = ahead.first() else {
        return line_up(tx, new, ready_at, now);
    };
    match policy.overlap {
        Overlap::Skip => {
            let why = format!("an earlier run has not ended: run {first}, due {due}, is {state}");
            skipped(tx, new, Outcome::skipped(SkipReason::Busy, why), now)
        }
        Overlap::Queue if ahead.len() >= QUEUE as usize => {
            let why =
                format!("the queue is full: {}", counted(ahead.len(), "earlier scheduled time"));
            skipped(tx, new, Outcome::skipped(SkipReason::Busy, why), now)
        }
        Overlap::Queue => line_up(tx, new, ready_at, now),
        Overlap::Replace => {
            let run = line_up(tx, new, ready_at, now)?;
            if run.is_some() {
                // A run requested by the user is not replaced, and the new run waits for it.
                for (earlier, ..) in ahead.iter().filter(|one| one.3) {
                    let why = format!("replaced by the run due {}", new.due);
                    ask(tx, earlier, &why, now)?;
                }
            }
            Ok(run)
        }
    }
}

/// Cancels a run that has not started, or requests the cancellation of a running run.
pub(super) fn ask(
    tx: &Transaction<'_>,
    run: &RunId,
    why: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let asked = tx.change(
        "UPDATE runs SET cancel = coalesce(cancel, ?2) WHERE id = ?1 AND state = 'running'",
        params![run, free(why)],
    )?;
    if asked == 0 {
        let outcome = Outcome::Cancelled { why: why.to_owned() };
        settle_row(tx, run, &outcome, &RunSummary::default(), now)?;
    }
    Ok(())
}
