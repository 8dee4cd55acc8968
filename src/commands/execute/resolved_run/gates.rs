//! Collects the facts for admitting a run. Conditions such as the host's battery and load are read
//! only if the job's policy uses them.
//!
//! This module must never make the admission decision.

use std::path::Path;

use jiff::Timestamp;
use runner_backends::Backend;
use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::host;
use runner_engine::outcome::Class;
use runner_engine::policy::quota;
use runner_engine::store::{Origin, RunRow, Store, Streak};
use runner_engine::zones;
use runner_jobs::kind::Asks;

use super::super::{NotAdmitted, refuse};
use super::ResolvedRun;
use crate::budget;
use crate::config::Job;
use crate::filesystem;
use crate::ui::Failure;

/// Collects the facts for the policy of `job`, and leaves all other facts at their defaults. For a
/// manual run, reads nothing.
fn gates(
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
    if let Some(quiet) = &policy.quiet {
        let zone = zones::get(&job.zone).map_err(|error| {
            let what = format!("the time zone {} is no longer available: {error}", job.zone);
            Failure::environment(what)
        })?;
        facts.quiet_until = quiet.until(now, &zone);
    }
    // A queued run runs when its turn comes, even if it is late.
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

impl ResolvedRun<'_> {
    pub fn facts(
        &self,
        store: &Store,
        git: &Git,
        backend: &dyn Backend,
    ) -> Result<AdmissionFacts, NotAdmitted> {
        let root = &self.here.root;
        let kind = &self.spec.kind;
        let dirty =
            (kind.uncommitted(git)).map_err(|error| refuse(Class::Environment, error.whole()))?;
        let free_bytes = filesystem::free_bytes(root)
            .map_err(|failure| refuse(Class::Environment, failure.to_string()))?;
        // The circuit breaker does not apply to a queued run, because the user requested it.
        let streak = match kind.opens_breaker() && self.row.origin != Origin::Queue {
            true => store.streak_before(self.row.job, &self.row.occurrence)?,
            false => Streak::default(),
        };
        let asks = kind.asks() == Asks::Always;
        let limited = match asks && backend.describe().kind != "builtin" {
            true => {
                let pool = budget::pool(&self.here, backend.name());
                store.limit(&pool, self.home.wall()?)?
            }
            false => None,
        };
        // Spread the start times of runs waiting for the same reset.
        let limited = limited.map(|limit| {
            let until = quota::spread(limit.until, self.row.id.as_str());
            let why = format!("rate-limited until {}: {}", limit.until, limit.why);
            (until, why)
        });
        let refused = kind.refusal(root);
        let gates = match kind.is_exempt() {
            true => AdmissionFacts::default(),
            false => {
                let job = self.here.config.job(&self.row.job_name)?;
                gates(job, self.row, store, self.home.wall()?)?
            }
        };
        let paused_until = match kind.is_exempt() {
            true => None,
            false => store.job_by_id(self.row.job)?.paused_until,
        };
        // By starting a night, the user also requested the jobs that follow the night's jobs.
        let ignores_pause = paused_until.is_some()
            && !self.row.manual()
            && store.ignores_pauses(&self.row.occurrence)?;
        Ok(AdmissionFacts {
            manual: self.row.manual(),
            paused_until: paused_until.filter(|_| !ignores_pause),
            dirty,
            streak,
            limited,
            free_bytes,
            preflight: refused.or_else(|| {
                let error = backend.preflight().err()?;
                Some((error.class(), error.to_string()))
            }),
            nothing_to_do: None,
            ..gates
        })
    }
}
