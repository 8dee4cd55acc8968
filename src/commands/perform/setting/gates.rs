//! What a job's own policy makes of this moment: its quiet hours, its interval, its start deadline,
//! the host's battery and load. Each is looked at only where the policy asks.
//!
//! Must never decide: `admission` does.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::admission::Facts;
use runner_engine::host;
use runner_engine::ledger::{Filter, Ledger, LedgerError, RunRow};

use crate::cli::Failure;
use crate::config::Job;

/// How many runs are looked at first; more only where these do not tell.
const FIRST: u32 = 16;

/// The facts that come of the policy of `job`; all others are left at their defaults.
pub(super) fn gates(
    job: &Job,
    row: &RunRow,
    ledger: &Ledger,
    now: Timestamp,
) -> Result<Facts, Failure> {
    let policy = &job.policy;
    let mut facts = Facts {
        min_interval: policy.min_interval,
        min_battery: policy.min_battery,
        max_load: policy.max_load,
        ..Facts::default()
    };
    if row.by_hand {
        return Ok(facts);
    }
    if let Some(quiet) = &policy.quiet {
        let zone = TimeZone::get(&job.zone).map_err(|error| {
            Failure::environment(format!("the time zone {} is gone: {error}", job.zone))
        })?;
        facts.quiet_until = quiet.until(now, &zone);
    }
    if let Some(within) = policy.start_within
        && !begun_before(ledger, row)?
    {
        facts.start_by = row.due.saturating_add(within).ok();
    }
    if let Some(interval) = policy.min_interval {
        let since = now.saturating_sub(interval).unwrap_or(Timestamp::MIN);
        facts.last_began = last_began(ledger, row, since)?;
    }
    if policy.min_battery > 0 {
        facts.battery = host::battery(Path::new(host::POWER));
    }
    if policy.max_load.is_some() {
        facts.load_per_core = host::load_per_core();
    }
    Ok(facts)
}

/// When the last run of this job for another occurrence began, unless that was long before `since`.
/// Another attempt at the same occurrence is not a new start.
fn last_began(
    ledger: &Ledger,
    row: &RunRow,
    since: Timestamp,
) -> Result<Option<Timestamp>, LedgerError> {
    let found = newest(ledger, row, |runs| {
        let others = runs.iter().filter(|run| run.occurrence != row.occurrence);
        let began = others.filter_map(|run| run.started).max();
        let far = runs.last().is_some_and(|oldest| oldest.requested < since);
        (began.is_some() || far).then_some(began)
    })?;
    Ok(found.flatten())
}

/// Whether an earlier attempt at the same occurrence was admitted.
fn begun_before(ledger: &Ledger, row: &RunRow) -> Result<bool, LedgerError> {
    if row.attempt <= 1 {
        return Ok(false);
    }
    let found = newest(ledger, row, |runs| {
        let mut earlier = runs
            .iter()
            .filter(|run| run.occurrence == row.occurrence && run.id != row.id);
        if earlier.any(|run| run.started.is_some()) {
            return Some(true);
        }
        let first = |run: &RunRow| run.occurrence == row.occurrence && run.attempt == 1;
        runs.iter().any(first).then_some(false)
    })?;
    Ok(found.unwrap_or(false))
}

/// Shows `look` the newest runs of the job, more and more of them, until it has its answer or there
/// are no more.
fn newest<T>(
    ledger: &Ledger,
    row: &RunRow,
    look: impl Fn(&[RunRow]) -> Option<T>,
) -> Result<Option<T>, LedgerError> {
    let mut limit = FIRST;
    loop {
        let runs = ledger.runs(&Filter {
            job: Some(row.job),
            limit,
            ..Filter::default()
        })?;
        let answer = look(&runs);
        if answer.is_some() || runs.len() < limit as usize {
            return Ok(answer);
        }
        limit = limit.saturating_mul(8);
    }
}
