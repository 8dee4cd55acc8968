//! Chooses a run's backends and computes their reservations.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::chain::moves_on;
use runner_backends::{Backend, BackendError, BackendSpec, Surroundings, WINDOW, build};
use runner_engine::admission::Shortfall;
use runner_engine::outcome::Class;
use runner_engine::policy::quota;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{FallbackReservation, Store};
use runner_jobs::JobSpec;
use runner_jobs::kind::Asks;

use super::super::{NotAdmitted, refuse};
use super::panel::describe_shortfall;
use super::{ResolvedRun, slots_folder};
use crate::budget;
use crate::project::LoadedProject;
use crate::ui::Failure;

pub(in super::super) struct Backends {
    /// The backend to try first.
    pub first: Arc<dyn Backend>,
    /// The fallback backends, in order.
    pub others: Vec<Arc<dyn Backend>>,
    /// The skipped backends, each with the reason.
    pub passed: Vec<String>,
    /// The context window of the job's own backend.
    pub own_window: Option<u64>,
    /// The end and the reason of the rate limit that ends first among the skipped backends.
    pub limited: Option<(Timestamp, String)>,
}

impl Backends {
    fn only(first: Arc<dyn Backend>, passed: Vec<String>) -> Self {
        let own_window = first.window();
        Self { first, others: Vec::new(), passed, own_window, limited: None }
    }
}

impl ResolvedRun<'_> {
    /// Returns the first backend that is ready, the remaining fallbacks, and the skipped backends
    /// with their reasons. If no backend is ready, returns one whose error or shortfall admission
    /// reports, or fails if that backend cannot be created.
    pub fn backends(
        &self,
        store: &Store,
        sandbox_start: &SandboxedStart,
    ) -> Result<Backends, NotAdmitted> {
        let slots = slots_folder(self.home);
        let around = self.surroundings(sandbox_start, &slots);
        let mut left: VecDeque<_> = chain(&self.spec, &self.here).into();
        let mut passed = Vec::new();
        // The first backend whose pool has too little budget left. If no later backend is ready,
        // admission reports the shortfall, which is only temporary.
        let mut short_of_budget = None;
        // The skipped backend whose rate limit ends first. If no later backend is ready, or the last
        // one's limit ends later, admission defers the run until this limit ends.
        let mut limited: Option<(Timestamp, String, Arc<dyn Backend>)> = None;
        let mut own_window = None;
        while let Some(spec) = left.pop_front() {
            let built = build(spec, &around);
            if spec.name == self.spec.backend {
                own_window = built.as_ref().map_or(Some(WINDOW), |backend| backend.window());
            }
            let ready = built.as_ref().map_err(Clone::clone);
            let ready = ready.and_then(|backend| backend.preflight());
            // Admission handles a rate limit of the last backend: it defers or declines the run.
            let ready = match (ready, left.is_empty() || spec.is_builtin()) {
                (Ok(()), false) => self.check_rate_limit(store, &spec.name)?,
                (ready, _) => ready,
            };
            if ready.is_ok()
                && !left.is_empty()
                && let Some(short) = self.pool_shortfall(store, spec)?
            {
                let why = describe_shortfall(&short);
                tracing::warn!(backend = spec.name, why, "the backend is skipped");
                passed.push(format!("{}: {why}", spec.name));
                short_of_budget = short_of_budget.or(built.ok());
                continue;
            }
            let limit = match &ready {
                Ok(()) if left.is_empty() && limited.is_some() && !spec.is_builtin() => {
                    self.check_rate_limit(store, &spec.name)?
                }
                ready => ready.clone(),
            };
            if let (Ok(backend), Err(BackendError::RateLimited { until: Some(until), why })) =
                (&built, &limit)
                && limited.as_ref().is_none_or(|(earliest, ..)| until < earliest)
            {
                limited = Some((*until, why.clone(), backend.clone()));
            }
            // A run can wait for the end of a limit, but not for a pool's budget.
            let limited_backend = limited.as_ref().map(|(.., backend)| backend);
            let waiting = limited_backend.or(short_of_budget.as_ref()).cloned();
            match (built, ready) {
                // Admission reports this preflight error, the shortfall or the rate limit.
                (Ok(first), Err(error)) if left.is_empty() || !moves_on(&error) => {
                    return Ok(Backends::only(waiting.unwrap_or(first), passed));
                }
                (Err(error), _) if left.is_empty() || !moves_on(&error) => {
                    if let Some(first) = waiting {
                        return Ok(Backends::only(first, passed));
                    }
                    return Err(refuse(error.class(), with_passed(error.to_string(), &passed)));
                }
                (_, Err(error)) => {
                    let why = self.redactor.redact(&error.to_string()).into_owned();
                    tracing::warn!(backend = spec.name, why, "the backend is skipped");
                    passed.push(format!("{}: {why}", spec.name));
                }
                (Ok(first), Ok(())) if limit.is_err() => {
                    return Ok(Backends::only(waiting.unwrap_or(first), passed));
                }
                (Ok(first), Ok(())) => {
                    let others = left.into_iter().map(|spec| build(spec, &around));
                    let others = others
                        .filter_map(|built| match built {
                            // A fallback is left out if another backend may still succeed after its
                            // error.
                            Err(error) if moves_on(&error) => None,
                            built => Some(built),
                        })
                        .collect::<Result<_, _>>()
                        .map_err(|error| refuse(error.class(), error.to_string()))?;
                    let limited = limited
                        .map(|(until, why, _)| (quota::spread(until, self.row.id.as_str()), why));
                    return Ok(Backends { first, others, passed, own_window, limited });
                }
                (Err(_), Ok(())) => unreachable!("a backend that was not built is not ready"),
            }
        }
        Err(refuse(Class::Environment, format!("there is no [backends.{}]", self.spec.backend)))
    }

    pub(super) fn surroundings<'s>(
        &'s self,
        sandbox_start: &'s SandboxedStart,
        slots: &'s Path,
    ) -> Surroundings<'s> {
        let (env, clock) = (&self.around, &self.home.clock);
        Surroundings { env, sandbox_start: Some(sandbox_start), slots: Some(slots), clock }
    }

    /// Checks that no rate limit is in effect for the backend's pool.
    pub(super) fn check_rate_limit(
        &self,
        store: &Store,
        backend: &str,
    ) -> Result<Result<(), BackendError>, NotAdmitted> {
        let pool = budget::pool(&self.here, backend);
        Ok(match store.limit(&pool, self.home.wall()?)? {
            Some(limit) => {
                Err(BackendError::RateLimited { until: Some(limit.until), why: limit.why })
            }
            None => Ok(()),
        })
    }

    /// Returns the shortfall in the budget of the backend's pool. Returns `None` if the pool has
    /// enough left for the run, if the backend has no pool, or if the kind is exempt from budgets.
    fn pool_shortfall(
        &self,
        store: &Store,
        spec: &BackendSpec,
    ) -> Result<Option<Shortfall>, Failure> {
        let config = &self.here.config;
        let pool = config.pool_of.get(&spec.name);
        let Some((name, pool)) = pool.and_then(|name| config.pools.get_key_value(name)) else {
            return Ok(None);
        };
        if self.spec.kind.is_exempt() {
            return Ok(None);
        }
        let now = self.home.wall()?;
        let accounts = budget::of_pool(name, pool, now);
        let levels: Vec<_> = accounts.into_iter().map(|account| account.level).collect();
        Ok(store.short_of(self.want(spec.kind.name()), self.spec.total, &levels, now)?)
    }

    /// Computes the reservations for the first backend and its fallbacks. A fallback whose budget
    /// is not sufficient is skipped and listed in `passed`.
    pub fn hold_chain(
        &self,
        store: &Store,
        backends: &mut Backends,
        now: Timestamp,
    ) -> Result<FallbackReservation, Failure> {
        let levels = |backend: &Arc<dyn Backend>| self.levels(store, backend.name(), now);
        let first = levels(&backends.first)?;
        let others = backends.others.iter().map(levels).collect::<Result<_, _>>()?;
        let want = self.want(&backends.first.describe().kind);
        let held = store.chained(want, self.spec.total, first, others, now)?;
        let others = std::mem::take(&mut backends.others);
        for (backend, short) in others.into_iter().zip(&held.short) {
            let Some(short) = short else {
                backends.others.push(backend);
                continue;
            };
            let why = describe_shortfall(short);
            tracing::warn!(backend = backend.name(), why, "the fallback is skipped");
            backends.passed.push(format!("{}: {why}", backend.name()));
        }
        Ok(held)
    }
}

/// Appends the reasons for skipping earlier backends to the reason why the last one is not ready.
pub(in super::super) fn with_passed(why: String, passed: &[String]) -> String {
    match passed {
        [] => why,
        passed => format!("{why}; skipped: {}", passed.join("; ")),
    }
}

/// Returns the job's backend and its fallbacks, in the order in which they are tried. For a kind
/// that asks no backend, returns only the built-in one.
pub(super) fn chain<'c>(spec: &JobSpec, here: &'c LoadedProject) -> Vec<&'c BackendSpec> {
    let backends = &here.config.backends;
    let builtin = || backends.values().find(|it| it.is_builtin());
    if spec.kind.asks() == Asks::Never
        && let Some(builtin) = builtin()
    {
        // No backend is asked, so the configured one need not be ready.
        return vec![builtin];
    }
    let Some(first) = backends.get(&spec.backend) else { return Vec::new() };
    let others = first.fallback.iter().filter_map(|name| backends.get(name));
    let mut chain: Vec<&BackendSpec> = std::iter::once(first).chain(others).collect();
    // The built-in backend can do a curator's rule-based work without a model. Work on an event has
    // no such fallback, because only the event's target may do it.
    if spec.kind.falls_back_to_rules() && chain.iter().all(|it| !it.is_builtin()) {
        chain.extend(builtin());
    }
    chain
}
