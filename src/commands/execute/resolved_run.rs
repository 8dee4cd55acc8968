//! Resolves a run's inputs from the configuration: its specification, paths, variables, budget, and
//! the facts for admission.

mod awake;
mod backends;
mod gates;
mod panel;
mod sandbox;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use runner_backends::{Backend, Chain};
use runner_engine::outcome::Outcome;
use runner_engine::policy::Overlap;
use runner_engine::process::Cancel;
use runner_engine::store::{
    Admitted, Budget, BudgetLevel, POOL_DAY, POOL_WEEK, RunRow, Store, WINDOW,
};
use runner_engine::tick::{REPORT_JOB, civil_date};
use runner_jobs::execute::redacted;
use runner_jobs::kind::{Asks, Targets};
use runner_jobs::recording::Recorder;
use runner_jobs::{
    AgentFolders, ContextParts, Folders, JobSpec, PaidBackend, Progress, RunBackends, RunMode,
    kinds,
};
use runner_text::redact::{self, Redactor};

use super::NotAdmitted;
use crate::budget;
use crate::config;
use crate::cycles;
use crate::env::{self, Env};
use crate::guard::reach;
use crate::keyring;
use crate::project::{FILE, LoadedProject};
use crate::ui::Failure;

use backends::chain;
pub(super) use backends::{Backends, with_passed};
pub(super) use panel::Convened;
pub(super) use sandbox::TEMP_FOLDER;

/// Whether the inputs are gathered for a real run or a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Purpose {
    /// A real run, which creates its folders.
    Run,
    /// A dry run, which creates nothing.
    DryRun,
}

/// A run, its project and its resolved settings.
pub(super) struct ResolvedRun<'a> {
    pub row: &'a RunRow,
    pub here: LoadedProject,
    pub spec: JobSpec,
    /// The run's private folder.
    pub run_dir: PathBuf,
    /// The environment of the run's children.
    pub environment: BTreeMap<String, String>,
    /// The folders of the agents' programs.
    agents: AgentFolders,
    /// The environment for the backends' children. Each backend passes on a part of it.
    around: BTreeMap<String, String>,
    /// The redactor for the secrets that the run's children receive.
    pub redactor: Redactor,
    /// The environment of this program.
    pub home: &'a Env,
    /// The folder for the project's caches.
    pub cache: PathBuf,
    /// The paths inside the project that the run may write to.
    writes: Vec<String>,
    /// The staging folder, inside the project so that renames stay on one file system.
    pub staging: String,
    /// The time at which the configuration was read.
    pub looked: Timestamp,
}

/// The delay before retrying a run of a job with unaccepted settings.
const UNTRUSTED_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// Returns the folder in which the concurrent requests of each login are counted.
pub(in crate::commands) fn slots_folder(home: &Env) -> PathBuf {
    home.state.join("locks").join("logins")
}

impl<'a> ResolvedRun<'a> {
    /// Reads the project's current configuration and resolves the run.
    ///
    /// # Errors
    /// Returns a deferral if the user has not accepted the job's settings. Nothing named in the
    /// settings is read or started before this check. Returns a failure if the database or the
    /// configuration cannot be read or used, or if the folder now contains a different project.
    pub fn of(home: &'a Env, store: &Store, row: &'a RunRow) -> Result<Self, NotAdmitted> {
        let project = store.project(&row.project)?.ok_or_else(|| -> Failure {
            Failure::internal(format!("the database has no project {}", row.project))
        })?;
        let mut here = LoadedProject::at(home, Some(store), &project.path)?;
        if row.kind != REPORT_JOB
            && let Some(why) = here.untrusted(&row.job_name)
        {
            let until = home.wall()?.saturating_add(UNTRUSTED_WAIT).unwrap_or(row.requested);
            return Err(NotAdmitted::Before(Outcome::Deferred { until, why }));
        }
        if !row.settings.is_empty() {
            let file = here.root.join(FILE);
            let stack = home.stack(Some(&file));
            let config = config::load_with(&stack, &row.job_name, &row.settings)?;
            if config.texts != here.config.texts {
                let what = format!(
                    "{}: the settings changed while they were being read",
                    here.root.display()
                );
                return Err(Failure::later(what).into());
            }
            here.config = config;
        }
        if here.id != row.project {
            return Err(Failure::configuration(format!(
                "{} is now a different project: its id is {}, but this run belongs to {}",
                here.root.display(),
                here.id,
                row.project
            ))
            .hint("run the job again there")
            .into());
        }
        let mut spec = here.spec(row)?;
        #[cfg(feature = "fleet")]
        crate::fleet::replace_kind(home, store, row, &mut spec)?;
        let date = match row.night {
            Some(night) => store.night(night)?.date().to_owned(),
            None => civil_date(home.wall()?, &here.config.night.zone),
        };
        spec.kind.set_date(&date);
        reach::check_targets(&here.root, &spec, &here.config)?;
        let texts = &here.trust.now.texts;
        cycles::resolve(&here.root, &mut here.config, &mut spec, texts)?;
        let mut environment = env::child_environment();
        let handed = env::named(spec.kind.variables().iter().map(String::as_str));
        let mut secrets: Vec<String> =
            handed.values().filter(|value| !value.is_empty()).cloned().collect();
        // Only the children of a backend get the backend's variables.
        let mut around = environment.clone();
        for backend in chain(&spec, &here).into_iter().chain(panel::panel_backends(&spec, &here)) {
            around.extend(keyring::resolve_secrets(backend));
            // An unusable `env_file` is reported when the backend is created.
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
            agents: env::agent_folders(),
            around,
            redactor: Redactor::new(secrets),
            looked: home.wall()?,
            home,
        })
    }

    pub fn overlap(&self) -> Overlap {
        let job = self.here.config.jobs.get(&self.row.job_name);
        job.map_or(Overlap::Skip, |job| job.policy.overlap)
    }

    /// Returns the budget levels that limit the run. An exempt kind, such as a report, has none.
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
        let levels = budgets.into_iter().map(|account| account.level);
        // A run claimed from a fleet is limited by the fleet's budget and by this host's pools. The
        // project's budgets apply only on its home host.
        let of_host = [POOL_DAY, POOL_WEEK, WINDOW];
        Ok(levels.filter(|level| !here.copy || of_host.contains(&level.level)).collect())
    }

    /// Returns the backends of an admitted run, each with its pool and its prices.
    pub fn paid(&self, backends: Backends, convened: Convened) -> RunBackends {
        RunBackends {
            first: self.paid_backend(backends.first),
            fallbacks: Chain::new(backends.others.into_iter().map(|one| self.paid_backend(one))),
            passed: backends.passed,
            own_window: backends.own_window,
            limited: backends.limited,
            panel: self.panel(convened),
        }
    }

    fn paid_backend(&self, backend: Arc<dyn Backend>) -> PaidBackend {
        let spending = budget::spending(self.home, &self.here, backend.name());
        PaidBackend { spending, backend }
    }

    /// Returns the run's maximum usage. A unit that the job's kind or the backend cannot use is 0.
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

    /// Returns the run's recorder, or `None` if the run is not recorded.
    pub fn recorder(&self) -> Option<Recorder> {
        if kinds::unrecorded(self.spec.kind.name()).is_some() {
            return None;
        }
        // Recordings are pruned according to the user's retention settings, so those settings also
        // apply here.
        let retention = crate::maintenance::retention(self.home).ok()?;
        retention.recordings?;
        Some(Recorder {
            path: self.home.recording(&self.row.id),
            project: self.row.project.clone(),
            writes: self.writes.clone(),
            staging: self.staging.clone(),
        })
    }

    /// Returns the paths to which the run may publish. Folders end with a slash.
    pub fn writable_paths(&self) -> Vec<String> {
        match self.spec.kind.publishes() {
            Targets::Files(files) => files,
            Targets::Folders(mut folders) => {
                folders.iter_mut().for_each(|folder| folder.push('/'));
                folders
            }
        }
    }

    /// Returns the context parts that a dry run needs. A real run adds the sandbox, the sleep
    /// inhibition and the mode.
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
                agents: &self.agents,
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

    /// Redacts the run's secrets in an outcome.
    pub fn redacted(&self, outcome: Outcome) -> Outcome {
        redacted(outcome, &self.redactor)
    }
}
