//! The inputs of a run, resolved from the configuration: its specification, the paths and variables
//! that it may use, its budget, and the facts that decide on its admission.

mod awake;
mod gates;
mod panel;
mod sandbox;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::chain::moves_on;
use runner_backends::{Backend, BackendError, BackendSpec, Surroundings, build};
use runner_engine::admission::AdmissionFacts;
use runner_engine::error_chain::plain;
use runner_engine::git::Git;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::policy::{Overlap, quota};
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{
    Budget, BudgetLevel, FallbackReservation, Origin, RunRow, Store, Streak,
};
use runner_engine::tick::civil_date;
use runner_jobs::kind::{Asks, Targets};
use runner_jobs::recording::Recorder;
use runner_jobs::{JobSpec, Spending, kinds};
use runner_text::redact::Redactor;

use super::{NotAdmitted, refuse};
use crate::budget;
use crate::cli::Failure;
use crate::config;
use crate::config::price_file;
use crate::cycles;
use crate::env::{self, Env};
use crate::guard::reach;
use crate::keyring;
use crate::project::{FILE, LoadedProject};

pub(super) use panel::Convened;

/// The purpose for which the inputs of an admission are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Purpose {
    /// A real run, whose folders are created.
    Run,
    /// A dry run, which creates nothing.
    DryRun,
}

/// A run with its project and its resolved settings.
pub(super) struct ResolvedRun<'a> {
    pub row: &'a RunRow,
    /// The project of the run.
    pub here: LoadedProject,
    pub spec: JobSpec,
    /// The private folder of the run.
    pub run_dir: PathBuf,
    /// The environment of its children.
    pub environment: BTreeMap<String, String>,
    /// The environment for its backends' children; each backend passes on its own part.
    around: BTreeMap<String, String>,
    /// The redactor that hides the values handed to the run's children besides the ordinary
    /// environment.
    pub redactor: Redactor,
    /// The environment of this program, which provides the time of admission.
    home: &'a Env,
    /// The time at which the configuration was read.
    pub looked: Timestamp,
}

/// The backends of a run.
pub(super) struct Backends {
    /// The backend that is asked first.
    pub first: Arc<dyn Backend>,
    /// The fallback backends, in order.
    pub others: Vec<Arc<dyn Backend>>,
    /// The skipped backends, which are never asked, each with the reason.
    pub passed: Vec<String>,
}

impl Backends {
    fn only(first: Arc<dyn Backend>, passed: Vec<String>) -> Self {
        Self { first, others: Vec::new(), passed }
    }
}

/// Returns the folder where the concurrent requests of each login are counted.
pub(in crate::commands) fn slots_folder(home: &Env) -> PathBuf {
    home.state.join("locks").join("logins")
}

impl<'a> ResolvedRun<'a> {
    /// Reads the project's current configuration and resolves the run with it.
    pub fn of(home: &'a Env, store: &Store, row: &'a RunRow) -> Result<Self, Failure> {
        let project = store.project(&row.project)?.ok_or_else(|| {
            Failure::internal(format!("the database has no project {}", row.project))
        })?;
        let mut here = LoadedProject::at(home, Some(store), &project.path)?;
        if !row.settings.is_empty() {
            here.config = config::load_with(
                &home.stack(Some(&here.root.join(FILE))),
                &row.job_name,
                &row.settings,
            )?;
        }
        if here.id != row.project {
            return Err(Failure::configuration(format!(
                "{} is a different project now: its id is {}, but this run belongs to {}",
                here.root.display(),
                here.id,
                row.project
            ))
            .hint("run the job again there"));
        }
        let mut spec = here.spec(row)?;
        let date = match row.night {
            Some(night) => store.night(night)?.name,
            None => civil_date(home.wall()?, &here.config.night.zone),
        };
        spec.kind.set_date(&date);
        reach::check_targets(&here.root, &spec, &here.config)?;
        cycles::stand(&here.root, &mut here.config, &mut spec)?;
        let mut environment = env::child_environment();
        let handed = env::named(spec.kind.variables().iter().map(String::as_str));
        let mut secrets: Vec<String> =
            handed.values().filter(|value| !value.is_empty()).cloned().collect();
        // Only a backend's own children see the backend's variables.
        let mut around = environment.clone();
        for backend in chain(&spec, &here).into_iter().chain(panel::panel_backends(&spec, &here)) {
            around.extend(keyring::resolve_secrets(backend));
            // An unusable file is reported when the backend is created.
            secrets.extend(backend.secrets(&around).unwrap_or_default());
        }
        environment.extend(handed);
        Ok(Self {
            row,
            run_dir: home.run_folder(row.id.as_str()),
            here,
            spec,
            environment,
            around,
            redactor: Redactor::new(secrets),
            looked: home.wall()?,
            home,
        })
    }

    /// Returns the job's policy for overlapping scheduled times.
    pub fn overlap(&self) -> Overlap {
        let job = self.here.config.jobs.get(&self.row.job_name);
        job.map_or(Overlap::Skip, |job| job.policy.overlap)
    }

    /// Returns the first backend that is ready, the remaining fallbacks, and the skipped backends
    /// with their reasons.
    pub fn backends(
        &self,
        store: &Store,
        sandbox_start: &SandboxedStart,
    ) -> Result<Backends, NotAdmitted> {
        let slots = slots_folder(self.home);
        let around = Surroundings {
            env: &self.around,
            sandbox_start: Some(sandbox_start),
            slots: Some(&slots),
            clock: &self.home.clock,
        };
        let mut left: VecDeque<_> = chain(&self.spec, &self.here).into();
        let mut passed = Vec::new();
        while let Some(spec) = left.pop_front() {
            let built = build(spec, &around);
            let ready = built.as_ref().map_err(Clone::clone);
            let ready = ready.and_then(|backend| backend.preflight());
            // A limit of the last backend leads to a deferral, which the admission decides.
            let ready = match (ready, left.is_empty() || spec.kind == "builtin") {
                (Ok(()), false) => self.room(store, &spec.name)?,
                (ready, _) => ready,
            };
            match (built, ready) {
                // The preflight error of the last backend is reported at admission.
                (Ok(first), Err(error)) if left.is_empty() || !moves_on(&error) => {
                    return Ok(Backends::only(first, passed));
                }
                (Err(error), _) if left.is_empty() || !moves_on(&error) => {
                    return Err(refuse(error.class(), error.to_string()));
                }
                (_, Err(error)) => {
                    let why = self.redactor.redact(&error.to_string()).into_owned();
                    tracing::warn!(backend = spec.name, why, "is passed over");
                    passed.push(format!("{}: {why}", spec.name));
                }
                (Ok(first), Ok(())) => {
                    let others = left.into_iter().map(|spec| build(spec, &around));
                    let others = others
                        .filter_map(|built| match built {
                            // This fallback may never be asked; if it is, the error is reported
                            // then.
                            Err(error) if moves_on(&error) => None,
                            built => Some(built),
                        })
                        .collect::<Result<_, _>>()
                        .map_err(|error| refuse(error.class(), error.to_string()))?;
                    return Ok(Backends { first, others, passed });
                }
                (Err(_), Ok(())) => unreachable!("what was not made is not ready"),
            }
        }
        Err(refuse(Class::Environment, format!("there is no [backends.{}]", self.spec.backend)))
    }

    /// Checks that the provider has not reported a limit on the pool that a backend spends from.
    fn room(&self, store: &Store, backend: &str) -> Result<Result<(), BackendError>, NotAdmitted> {
        let pool = budget::pool(&self.here, backend);
        Ok(match store.limit(&pool, self.home.wall()?)? {
            Some(limit) => {
                Err(BackendError::RateLimited { until: Some(limit.until), why: limit.why })
            }
            None => Ok(()),
        })
    }

    /// Collects the facts that are known at admission.
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
        let free = rustix::fs::statvfs(root)
            .map_err(|error| refuse(Class::Environment, format!("{}: {error}", root.display())))?;
        // The circuit breaker does not apply to a queued run, because a person requested exactly
        // this run.
        let streak = match kind.opens_breaker() && self.row.origin != Origin::Queue {
            true => store.streak(self.row.job)?,
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
        // Runs that wait for the same reset are spread, so that they do not all start at once.
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
                gates::gates(job, self.row, store, self.home.wall()?)?
            }
        };
        Ok(AdmissionFacts {
            manual: self.row.manual(),
            paused_until: match kind.is_exempt() {
                true => None,
                false => store.job_by_id(self.row.job)?.paused_until,
            },
            dirty,
            streak,
            limited,
            free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
            preflight: refused.or_else(|| {
                let error = backend.preflight().err()?;
                Some((error.class(), error.to_string()))
            }),
            nothing_to_do: None,
            ..gates
        })
    }

    /// Returns the budget levels that the run spends from. A report costs nothing and has none.
    pub fn levels(
        &self,
        store: &Store,
        backend: &str,
        now: Timestamp,
    ) -> Result<Vec<BudgetLevel>, Failure> {
        if self.spec.kind.is_exempt() {
            return Ok(Vec::new());
        }
        let night = match self.row.night {
            Some(night) => Some(store.night(night)?),
            None => None,
        };
        let here = &self.here;
        let budgets = budget::of_run(here, &self.row.job_name, backend, night.as_ref(), now);
        Ok(budgets.into_iter().map(|account| account.level).collect())
    }

    /// Computes the reservation for the first backend of the chain and for its fallbacks. A
    /// fallback whose budgets have too little left is removed from the chain, and the removal is
    /// recorded.
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
            let why = format!(
                "{} has {} {} left, and this run may need {}",
                short.level, short.left, short.unit, short.wanted
            );
            tracing::warn!(backend = backend.name(), why, "is left out");
            backends.passed.push(format!("{}: {why}", backend.name()));
        }
        Ok(held)
    }

    /// Returns how requests to the named backend are paid for.
    pub fn spending(&self, backend: &str) -> Spending {
        let config = &self.here.config;
        Spending {
            pool: budget::pool(&self.here, backend),
            overage: config
                .pool_of
                .get(backend)
                .and_then(|pool| config.pools.get(pool))
                .is_some_and(|pool| pool.overage),
            prices: match price_file::over(&self.home.config_folder(), config) {
                Ok(listed) => listed.prices,
                Err(error) => {
                    // The built-in prices still apply. For a model that only the file lists, the
                    // reserved amount is charged.
                    tracing::warn!(%error, "continuing without the price file");
                    config.prices.clone()
                }
            },
        }
    }

    /// Returns the run's maximum usage. Units that its kind or its backend cannot use are 0.
    pub fn want(&self, backend: &str) -> Budget {
        let mut want = self.spec.budget;
        if self.spec.kind.asks() == Asks::Never {
            (want.calls, want.ideas) = (Some(0), Some(0));
            (want.tokens, want.micros) = (Some(0), Some(0));
        } else if backend == "builtin" {
            (want.tokens, want.micros) = (Some(0), Some(0));
        }
        want
    }

    /// Returns the recorder of the run, or `None` if the run is not recorded.
    pub fn recorder(&self, staging: &str) -> Option<Recorder> {
        if kinds::unrecorded(self.spec.kind.name()).is_some() {
            return None;
        }
        // The retention settings apply per user, like the pruning that removes recordings.
        let retention = crate::maintenance::retention(self.home).ok()?;
        retention.recordings?;
        Some(Recorder {
            path: self.home.recording(&self.row.id),
            project: self.row.project.clone(),
            writes: self.writes(),
            staging: staging.to_owned(),
        })
    }

    /// Returns the paths below the project that the run may write.
    pub fn writes(&self) -> Vec<String> {
        self.spec.kind.publishes().paths()
    }

    /// Returns the writable paths for people: folders end with a slash.
    pub fn writes_in_words(&self) -> Vec<String> {
        match self.spec.kind.publishes() {
            Targets::Files(files) => files,
            Targets::Folders(mut folders) => {
                folders.iter_mut().for_each(|folder| folder.push('/'));
                folders
            }
        }
    }

    /// Returns the staging folder. It is below the root of the targets, so that renames stay on one
    /// file system.
    pub fn staging(&self) -> String {
        format!("{}/{}", self.spec.kind.staging(), self.row.id)
    }

    /// Removes the secrets that the run received from an outcome.
    pub fn redacted(&self, outcome: Outcome) -> Outcome {
        let clean = |text: String| plain(&self.redactor.redact(&text));
        match outcome {
            Outcome::Failed { class, why } => Outcome::Failed { class, why: clean(why) },
            Outcome::Skipped { why } => Outcome::Skipped { why: clean(why) },
            other => other,
        }
    }
}

/// Returns the job's backend and its fallbacks, in the order in which they are asked.
fn chain<'c>(spec: &JobSpec, here: &'c LoadedProject) -> Vec<&'c BackendSpec> {
    let backends = &here.config.backends;
    let Some(first) = backends.get(&spec.backend) else {
        return Vec::new();
    };
    let others = first.fallback.iter().filter_map(|name| backends.get(name));
    let mut chain: Vec<&BackendSpec> = std::iter::once(first).chain(others).collect();
    // A curator's rule-based findings need no model, so the built-in backend can handle them. An
    // event has no fallback, because only its target may handle it.
    if spec.kind.falls_back_to_rules() && chain.iter().all(|it| it.kind != "builtin") {
        chain.extend(backends.values().find(|it| it.kind == "builtin"));
    }
    chain
}
