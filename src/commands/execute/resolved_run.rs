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
use runner_backends::{Backend, BackendError, BackendSpec, Chain, Surroundings, build};
use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::policy::{Overlap, quota};
use runner_engine::process::Cancel;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::store::{
    Admitted, Budget, BudgetLevel, FallbackReservation, Origin, RunRow, Store, Streak,
};
use runner_engine::tick::civil_date;
use runner_jobs::execute::redacted;
use runner_jobs::kind::{Asks, Targets};
use runner_jobs::recording::Recorder;
use runner_jobs::{
    ContextParts, Folders, JobSpec, PaidBackend, Progress, RunBackends, RunMode, Spending, kinds,
};
use runner_text::redact::{self, Redactor};

use super::{NotAdmitted, refuse};
use crate::budget;
use crate::config;
use crate::config::price_file;
use crate::cycles;
use crate::env::{self, Env};
use crate::guard::reach;
use crate::keyring;
use crate::project::{FILE, LoadedProject};
use crate::ui::Failure;

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
    pub home: &'a Env,
    /// The folder for the project's caches.
    pub cache: PathBuf,
    /// The paths below the project that the run may write.
    writes: Vec<String>,
    /// The staging folder. It lies under the root of the targets, so that renames stay on one file
    /// system.
    pub staging: String,
    /// The time at which the configuration was read.
    pub looked: Timestamp,
}

/// The backends of a run.
pub(super) struct Backends {
    /// The backend that is asked first.
    pub first: Arc<dyn Backend>,
    /// The fallback backends, in order.
    pub others: Vec<Arc<dyn Backend>>,
    /// The backends that were passed over and are never asked, each with the reason.
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
        redact::learn(secrets.iter().cloned());
        Ok(Self {
            row,
            run_dir: home.run_folder(row.id.as_str()),
            cache: home.cache_folder(&here.id),
            writes: spec.kind.publishes().paths(),
            staging: format!("{}/{}", spec.kind.staging(), row.id),
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

    /// Returns the first backend that is ready, the fallbacks behind it, and the reasons why others
    /// were passed over.
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
    /// noted.
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

    /// Returns the backends of an admitted run, and how each is paid for.
    pub fn paid(&self, backends: Backends, convened: Convened) -> RunBackends {
        RunBackends {
            first: self.paid_backend(backends.first),
            fallbacks: Chain::new(backends.others.into_iter().map(|one| self.paid_backend(one))),
            passed: backends.passed,
            panel: self.panel(convened),
        }
    }

    fn paid_backend(&self, backend: Arc<dyn Backend>) -> PaidBackend {
        PaidBackend { spending: self.spending(backend.name()), backend }
    }

    /// Returns how requests to the named backend are paid for.
    fn spending(&self, backend: &str) -> Spending {
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
                    // The built-in prices still apply. A model that only the file lists is charged
                    // the reserved amount.
                    tracing::warn!(%error, "continuing without the price file");
                    config.prices.clone()
                }
            },
        }
    }

    /// Returns the most that the run may spend. Units that its kind or its backend cannot use are
    /// 0.
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
    pub fn recorder(&self) -> Option<Recorder> {
        if kinds::unrecorded(self.spec.kind.name()).is_some() {
            return None;
        }
        // The retention settings apply per user, like the pruning that removes recordings.
        let retention = crate::maintenance::retention(self.home).ok()?;
        retention.recordings?;
        Some(Recorder {
            path: self.home.recording(&self.row.id),
            project: self.row.project.clone(),
            writes: self.writes.clone(),
            staging: self.staging.clone(),
        })
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

    /// Returns the parts of a context that plans the run. A real run adds a sandbox for the job's
    /// program, and the mode.
    pub fn parts<'c>(
        &'c self,
        admitted: &'c Admitted,
        store: &'c mut Store,
        progress: &'c mut dyn Progress,
        cancel: Cancel,
        backends: RunBackends,
    ) -> ContextParts<'c> {
        let state = Some(self.home.state.as_path());
        ContextParts {
            admitted,
            folders: Folders {
                root: &self.here.root,
                cache: &self.cache,
                run_dir: &self.run_dir,
                state,
            },
            writes: &self.writes,
            staging: &self.staging,
            env: &self.environment,
            sandbox: None,
            clock: &self.home.clock,
            cancel,
            progress,
            redactor: self.redactor.clone(),
            store,
            backends,
            keeper: None,
            mode: RunMode::DryRun,
        }
    }

    /// Removes the secrets that the run received from an outcome.
    pub fn redacted(&self, outcome: Outcome) -> Outcome {
        redacted(outcome, &self.redactor)
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
    // The findings of a curator's rules need no model, so the built-in backend can handle them. An
    // event is for its target alone.
    if spec.kind.falls_back_to_rules() && chain.iter().all(|it| it.kind != "builtin") {
        chain.extend(backends.values().find(|it| it.kind == "builtin"));
    }
    chain
}
