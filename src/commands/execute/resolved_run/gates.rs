//! Reads the current conditions for a job's policy: its quiet hours, its interval, its start
//! deadline, and the host's battery and load. Each is read only if the policy uses it.
//!
//! This module must never decide: `admission` does.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::admission::AdmissionFacts;
use runner_engine::host;
use runner_engine::store::{Origin, RunRow, Store};

use crate::cli::Failure;
use crate::config::Job;

/// Collects the facts for the policy of `job`, and leaves all others at their defaults.
pub(super) fn gates(
    job: &Job,
    row: &RunRow,
    store: &Store,
    now: Timestamp,
) -> Result<AdmissionFacts, Failure> {
    let policy = &job.policy;
    let mut facts = AdmissionFacts {
        min_interval: policy.min_interval,
        min_battery: policy.min_battery,
        max_load: policy.max_load,
        ..AdmissionFacts::default()
    };
    if row.manual() {
        return Ok(facts);
    }
    if let Some(ui) = &policy.quiet {
        let zone = TimeZone::get(&job.zone).map_err(|error| {
            Failure::environment(format!(
                "the time zone {} is no longer available: {error}",
                job.zone
            ))
        })?;
        facts.quiet_until = ui.until(now, &zone);
    }
    // A queued run must run when its turn comes, even if it is late.
    if row.origin != Origin::Queue {
        if let Some(within) = policy.start_within
            && !store.began(&row.occurrence)?
        {
            facts.start_by = row.due.saturating_add(within).ok();
        }
        if policy.min_interval.is_some() {
            facts.last_began = store.last_began(row.job, &row.occurrence)?;
        }
    }
    if policy.min_battery > 0 {
        facts.battery = host::battery(Path::new(host::POWER));
    }
    if policy.max_load.is_some() {
        facts.load_per_core = host::load_per_core();
    }
    Ok(facts)
}
