//! What a run works with, read out of the configuration: its specification, what it may see, write
//! and spend, and the facts that decide on its admission.

mod gates;
mod walls;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use runner_backends::Backend;
use runner_engine::admission::Facts;
use runner_engine::git::Git;
use runner_engine::ledger::{Budget, Ledger, Level, Origin, RunRow, Streak};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::policy::{Overlap, quota};
use runner_engine::tick::civil_date;
use runner_jobs::{JobSpec, KindSpec, Spending, dream};
use runner_text::redact::Redactor;

use super::{Stop, refuse};
use crate::budget;
use crate::cli::Failure;
use crate::config;
use crate::home::{self, Home};
use crate::project::{FILE, Here};

/// A run in its place.
pub(super) struct Setting<'a> {
    /// The run.
    pub row: &'a RunRow,
    /// Its project.
    pub here: Here,
    /// What it does.
    pub spec: JobSpec,
    /// Its private folder.
    pub run_dir: PathBuf,
    /// What its children may see.
    pub environment: BTreeMap<String, String>,
    /// Hides what was handed to them besides the ordinary.
    pub redactor: Redactor,
    /// For the time at which it is admitted.
    home: &'a Home,
    /// When this was read.
    pub looked: Timestamp,
}

impl<'a> Setting<'a> {
    /// Reads the project's configuration again, as it is now.
    pub fn of(home: &'a Home, ledger: &Ledger, row: &'a RunRow) -> Result<Self, Failure> {
        let project = ledger.project(&row.project)?.ok_or_else(|| {
            Failure::internal(format!("the ledger has no project {}", row.project))
        })?;
        let mut here = Here::at(home, &project.path)?;
        if !row.settings.is_empty() {
            here.config = config::load_with(
                &home.stack(Some(&here.root.join(FILE))),
                &row.job_name,
                &row.settings,
            )?;
        }
        if here.id != row.project {
            return Err(Failure::configuration(format!(
                "{} is another project now: its id is {}, this run belongs to {}",
                here.root.display(),
                here.id,
                row.project
            ))
            .mend("run the job again there"));
        }
        let mut spec = here.spec(row)?;
        if let KindSpec::Prompt(prompt) = &mut spec.kind {
            let date = match row.night {
                Some(night) => ledger.night(night)?.name,
                None => civil_date(home.wall()?, &here.config.night.zone),
            };
            prompt.to = prompt.to.replace("{date}", &date);
        }
        let mut environment = home::child_environment();
        let handed = home::named(asked_for(&spec, &here).into_iter());
        let secrets = handed
            .values()
            .filter(|value| !value.is_empty())
            .cloned()
            .collect();
        environment.extend(handed);
        Ok(Self {
            row,
            run_dir: home.run_folder(row.id.as_str()),
            here,
            spec,
            environment,
            redactor: Redactor::new(secrets),
            looked: home.wall()?,
            home,
        })
    }

    /// What becomes of two of its moments at once.
    pub fn overlap(&self) -> Overlap {
        let job = self.here.config.jobs.get(&self.row.job_name);
        job.map_or(Overlap::Skip, |job| job.policy.overlap)
    }

    /// What is known at admission.
    pub fn facts(&self, ledger: &Ledger, git: &Git, backend: &dyn Backend) -> Result<Facts, Stop> {
        let root = &self.here.root;
        let dirty = match &self.spec.kind {
            KindSpec::Dream(own) => {
                dream::dirty(git, own).map_err(|error| refuse(Class::Environment, error.whole()))?
            }
            _ => Vec::new(),
        };
        let free = rustix::fs::statvfs(root)
            .map_err(|error| refuse(Class::Environment, format!("{}: {error}", root.display())))?;
        // A report tells of failures: none may keep it from being made.
        let streak = match self.spec.kind {
            KindSpec::Report => Streak::default(),
            // Somebody wants exactly this run.
            _ if self.row.origin == Origin::Queue => Streak::default(),
            _ => ledger.streak(self.row.job)?,
        };
        let asks = matches!(self.spec.kind, KindSpec::Dream(_) | KindSpec::Prompt(_));
        let limited = match asks && backend.describe().kind != "builtin" {
            true => {
                let pool = budget::pool(&self.here, &self.spec.backend);
                ledger.limit(&pool, self.home.wall()?)?
            }
            false => None,
        };
        // Those who wait for one reset do not come back at one moment.
        let limited = limited.map(|limit| {
            let until = quota::spread(limit.until, self.row.id.as_str());
            let why = format!("rate-limited until {}: {}", limit.until, limit.why);
            (until, why)
        });
        let gates = match self.spec.kind {
            KindSpec::Report => Facts::default(),
            _ => {
                let job = self.here.config.job(&self.row.job_name)?;
                gates::gates(job, self.row, ledger, self.home.wall()?)?
            }
        };
        Ok(Facts {
            by_hand: self.row.by_hand,
            paused_until: match self.spec.kind {
                KindSpec::Report => None,
                _ => ledger.job_by_id(self.row.job)?.paused_until,
            },
            dirty,
            streak,
            limited,
            free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
            preflight: backend
                .preflight()
                .err()
                .map(|error| (error.class(), error.to_string())),
            nothing_to_do: None,
            ..gates
        })
    }

    /// The accounts that it spends from; a report costs nothing and is never refused.
    pub fn levels(&self, ledger: &Ledger, now: Timestamp) -> Result<Vec<Level>, Failure> {
        if matches!(self.spec.kind, KindSpec::Report) {
            return Ok(Vec::new());
        }
        let night = match self.row.night {
            Some(night) => Some(ledger.night(night)?),
            None => None,
        };
        let here = &self.here;
        let accounts = budget::of_run(
            here,
            &self.row.job_name,
            &self.spec.backend,
            night.as_ref(),
            now,
        );
        Ok(accounts.into_iter().map(|account| account.level).collect())
    }

    /// How it pays.
    pub fn spending(&self) -> Spending {
        let config = &self.here.config;
        Spending {
            pool: budget::pool(&self.here, &self.spec.backend),
            overage: config
                .pool_of
                .get(&self.spec.backend)
                .and_then(|pool| config.pools.get(pool))
                .is_some_and(|pool| pool.overage),
            prices: config.prices.clone(),
        }
    }

    /// The most that it may spend: nothing of what its kind or its backend cannot use.
    pub fn want(&self, backend: &str) -> Budget {
        let mut want = self.spec.budget;
        if matches!(self.spec.kind, KindSpec::Command(_) | KindSpec::Report) {
            (want.calls, want.ideas) = (Some(0), Some(0));
            (want.tokens, want.micros) = (Some(0), Some(0));
        } else if backend == "builtin" {
            (want.tokens, want.micros) = (Some(0), Some(0));
        }
        want
    }

    /// What it may write, below the project.
    pub fn writes(&self) -> Vec<String> {
        match &self.spec.kind {
            KindSpec::Dream(dream) => vec![dream.dreams.clone()],
            KindSpec::Command(command) => command
                .artifacts
                .iter()
                .map(|artifact| artifact.to.clone())
                .collect(),
            KindSpec::Prompt(prompt) => vec![prompt.to.clone()],
            KindSpec::Report => vec![runner_jobs::report::FOLDER.to_owned()],
        }
    }

    /// Where it stages: under the root of its targets, so that renames stay on one file system.
    pub fn staging(&self) -> String {
        match &self.spec.kind {
            KindSpec::Dream(dream) => format!("{}/.staging/{}", dream.dreams, self.row.id),
            _ => format!(".runner/staging/{}", self.row.id),
        }
    }

    /// An outcome without the secrets that were handed out.
    pub fn redacted(&self, outcome: Outcome) -> Outcome {
        let clean = |text: String| self.redactor.redact(&text).into_owned();
        match outcome {
            Outcome::Failed { class, why } => Outcome::Failed {
                class,
                why: clean(why),
            },
            Outcome::Skipped { why } => Outcome::Skipped { why: clean(why) },
            other => other,
        }
    }
}

/// The variables that a job and its backend name besides the ordinary ones.
fn asked_for<'c>(spec: &'c JobSpec, here: &'c Here) -> Vec<&'c str> {
    let own: &[String] = match &spec.kind {
        KindSpec::Command(command) => &command.env,
        _ => &[],
    };
    let backend = here
        .config
        .backends
        .get(&spec.backend)
        .map_or(&[][..], |backend| &backend.env);
    own.iter().chain(backend).map(String::as_str).collect()
}
