//! The inputs of a run, resolved from the configuration: its specification, the paths and variables
//! that it may use, its budget, and the facts that decide on its admission.

mod awake;
mod backends;
mod gates;
mod panel;
mod sandbox;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use runner_engine::error_chain::plain;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::policy::Overlap;
use runner_engine::scope::Scope;
use runner_engine::store::{Budget, BudgetLevel, RunRow, Store};
use runner_engine::tick::civil_date;
use runner_jobs::kind::{Asks, Targets};
use runner_jobs::recording::Recorder;
use runner_jobs::{JobSpec, Spending, kinds};
use runner_text::redact::{self, Redactor};

use super::NotAdmitted;
use crate::budget;
use crate::config;
use crate::config::price_file;
use crate::cycles;
use crate::env::{self, Env};
use crate::guard::reach;
use crate::keyring;
use crate::project::{FILE, LoadedProject};
use crate::ui::Failure;

pub(super) use backends::Backends;
use backends::chain;
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

    /// Opens the folders that the run may write, with its staging.
    ///
    /// # Errors
    /// Returns the outcome of the run if they cannot be opened.
    pub fn scope(&self) -> Result<Scope, Outcome> {
        let allowed = self.writes();
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        Scope::open(&self.here.root, &allowed, &self.staging())
            .map_err(|error| Outcome::Failed { class: Class::Environment, why: error.to_string() })
    }

    /// Returns the staging folder. It lies under the root of the targets, so that renames stay on
    /// one file system.
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
