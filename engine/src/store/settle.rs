//! How a run ends, and what follows from it in the same transaction.
//!
//! ```text
//! outcome of a run ──deferred{until}─────────────> its occurrence stays open: queued again at until
//!                  ├─a failure worth a retry─────> queued again after its backoff
//!                  └─anything else──> outcome of the occurrence
//!                                        ├─> runs that wait for it: ready, or skipped with it
//!                                        └─> jobs that are due after its job: recorded
//! ```
//!
//! [`settle_row`] is the one place where a run or an occurrence gets its outcome.

use runner_text::counted;
use std::collections::VecDeque;

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::columns::{Query as _, free, free_json, json, millis, time, time_opt};
use super::rows::{NewOccurrence, Origin, line_up, queue};
use super::{Fault, JobId, NightId, Result, RunSummary, StoreError, alerts, jobs, nights, reserve};
use crate::ids::{Fence, OccurrenceId, RunId};
use crate::outcome::Outcome;
use crate::policy::{Overlap, Policy, QUEUE, retryable};
use crate::schedule::{On, Schedule, Trigger};

/// Gives a run its outcome, and its occurrence what follows from it.
pub(super) fn settle_row(
    tx: &Transaction<'_>,
    run: &RunId,
    outcome: &Outcome,
    summary: &RunSummary,
    now: Timestamp,
) -> Result<(), Fault> {
    let over = close(tx, run, outcome, summary, now)?;
    // Those that were to follow what did not succeed are skipped with it, and those behind them.
    let mut ended = VecDeque::from([(run.clone(), over)]);
    while let Some((run, over)) = ended.pop_front() {
        match again_at(tx, &over, now)? {
            Some(again) => {
                queue(tx, &over.occurrence, again, None, now)?;
            }
            None => ended.extend(settle_occurrence(tx, &over, &run, now)?),
        }
    }
    Ok(())
}

/// A run that just ended.
pub(super) struct EndedRun {
    pub occurrence: OccurrenceId,
    job: JobId,
    seed: u64,
    /// Somebody asked for its end: it is not tried again, however it ended.
    unwanted: bool,
    outcome: Outcome,
}

/// Gives a run, and nothing else, its outcome.
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
    // The run knows only of a signal; the database knows who wanted it and why.
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
    if matches!(outcome, Outcome::Succeeded) {
        nights::reported(tx, &occurrence, summary)?;
    }
    if let Some(started) = started {
        let elapsed = (millis(now) - millis(started)).max(0).cast_unsigned();
        reserve::settle(tx, run, elapsed.div_ceil(1000))?;
    }
    Ok(EndedRun { occurrence, job, seed: seed.cast_unsigned(), unwanted, outcome })
}

/// Returns when the occurrence is to be tried again, if it is.
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
        // A person who asked for one run has already been informed, and nothing else waits for it.
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

/// Settles a run that never began as skipped.
pub(super) fn skip(
    tx: &Transaction<'_>,
    run: &RunId,
    why: String,
    now: Timestamp,
) -> Result<(), Fault> {
    settle_row(tx, run, &Outcome::Skipped { why }, &RunSummary::default(), now)
}

/// Gives an occurrence its outcome, by its last run; the runs that ended with it are returned, and
/// their occurrences are still to be settled.
fn settle_occurrence(
    tx: &Transaction<'_>,
    over: &EndedRun,
    run: &RunId,
    now: Timestamp,
) -> Result<Vec<(RunId, EndedRun)>, Fault> {
    let (occurrence, outcome) = (&over.occurrence, &over.outcome);
    let night: Option<NightId> = tx.value(
        "UPDATE occurrences SET outcome = ?2, settled = ?3 WHERE id = ?1
         RETURNING (SELECT id FROM nights WHERE id = night AND closed IS NULL)",
        params![occurrence, free_json(outcome), millis(now)],
    )?;
    alerts::note(tx, occurrence, Some(run), outcome)?;
    follow(tx, over.job, run, outcome, night, now)?;
    release(tx, occurrence, outcome, now)
}

/// Lets those go that were queued behind this occurrence, or ends them as skipped and returns them.
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
            let skipped = Outcome::Skipped { why: not_followed(outcome) };
            let over = close(tx, &waiting, &skipped, &RunSummary::default(), now)?;
            ended.push((waiting, over));
        }
    }
    Ok(ended)
}

/// Returns the reason why a follower of a success is skipped. If the predecessor was skipped for
/// the same reason, its own text is used, so that a long chain reports its beginning.
pub(super) fn not_followed(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Skipped { why } if why.starts_with(NOT_FOLLOWED) => why.clone(),
        outcome => format!("{NOT_FOLLOWED} {outcome}"),
    }
}
const NOT_FOLLOWED: &str = "what it was to follow ended as";

/// Records the jobs that are due after this one, in the night that it belonged to while that is
/// open: one that wants a success and got none is recorded as skipped.
fn follow(
    tx: &Transaction<'_>,
    job: JobId,
    run: &RunId,
    outcome: &Outcome,
    night: Option<NightId>,
    now: Timestamp,
) -> Result<(), Fault> {
    let followers: Vec<(JobId, Schedule)> = tx.all(
        "SELECT f.id, f.schedule FROM jobs j
         JOIN jobs f ON f.project = j.project AND f.after_job = j.name
         WHERE j.id = ?1 AND f.enabled",
        [job],
        |row| Ok((row.get(0)?, json(row, 1)?)),
    )?;
    for (follower, schedule) in followers {
        let Trigger::After(after) = schedule.trigger else {
            continue;
        };
        let new = NewOccurrence {
            night,
            origin: Origin::Event,
            ..NewOccurrence::manual(follower, format!("after {run}"), now)
        };
        // A run that was skipped, or deferred for a person to try again, did no work, so it has not
        // ended.
        let ended = !matches!(outcome, Outcome::Skipped { .. } | Outcome::Deferred { .. });
        if outcome.published() || (after.on == On::End && ended) {
            await_turn(tx, &new, now, now)?;
        } else {
            let why = format!("{} ended as {outcome}", after.job);
            skipped(tx, &new, why, now)?;
        }
    }
    Ok(())
}

/// Refuses a run that another one has overtaken.
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

/// Records an occurrence that nobody starts, with the reason; `None` when it is known.
pub(super) fn skipped(
    tx: &Transaction<'_>,
    new: &NewOccurrence,
    why: String,
    now: Timestamp,
) -> Result<Option<RunId>, Fault> {
    let run = line_up(tx, new, now, now)?;
    if let Some(run) = &run {
        skip(tx, run, why, now)?;
    }
    Ok(run)
}

/// Queues an occurrence of a clock or an event, by its job's rule for overlap: what a person or a
/// script put into the queue is in nobody's way.
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
            let why = format!("an earlier one is not over: run {first}, due {due}, is {state}");
            skipped(tx, new, why, now)
        }
        Overlap::Queue if ahead.len() >= QUEUE as usize => {
            let why =
                format!("as many wait as may: {}", counted(ahead.len(), "earlier scheduled time"));
            skipped(tx, new, why, now)
        }
        Overlap::Queue => line_up(tx, new, ready_at, now),
        Overlap::Replace => {
            let run = line_up(tx, new, ready_at, now)?;
            if run.is_some() {
                // A run that a person asked for is not replaced; the new one waits for it.
                for (earlier, ..) in ahead.iter().filter(|one| one.3) {
                    let why = format!("replaced by the one due {}", new.due);
                    ask(tx, earlier, &why, now)?;
                }
            }
            Ok(run)
        }
    }
}

/// Ends a run that has not begun, or notes that a running one is to end.
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
