//! Publishes, in a run on the home host, the result of the run that worked on a claim.
//!
//! A special kind replaces the job's own. It calls no model and starts no program. It stages the
//! delivered files through the run's scope, which allows only paths that the job may write. A file
//! is written only if its contents on the home host are still those that the claim's run started
//! from.

use std::path::PathBuf;

use runner_engine::outcome::{Class, Outcome};
use runner_engine::scope::Expect;
use runner_engine::store::{FleetNote, RunRow, Store};
use runner_fleet::Postgres;
use runner_jobs::kind::{Asks, Targets};
use runner_jobs::{Context, DryRunPlan, Finished, JobError, JobSpec, Kind};
use serde::ser::{Error as _, Serialize, Serializer};

use super::membership;
use super::notes::ApplyNote;
use crate::env::Env;
use crate::ui::Failure;

/// Replaces the kind of a run that applies a result. Other runs keep their kind.
pub fn replace_kind(
    home: &Env,
    store: &Store,
    row: &RunRow,
    spec: &mut JobSpec,
) -> Result<(), Failure> {
    let Some(text) = store.fleet_note(&row.id, FleetNote::Applies)? else { return Ok(()) };
    let note: ApplyNote = serde_json::from_str(&text)
        .map_err(|error| Failure::internal(format!("the result of run {}: {error}", row.id)))?;
    let home = home.clone();
    spec.kind = Box::new(AppliedResult { inner: spec.kind.clone(), note, home });
    spec.backend = "builtin".to_owned();
    Ok(())
}

/// A kind that publishes a claim's result instead of doing the job's work.
#[derive(Clone, Debug)]
struct AppliedResult {
    inner: Box<dyn Kind>,
    note: ApplyNote,
    home: Env,
}

impl Serialize for AppliedResult {
    /// Serializes the job's settings, which are part of a recording.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.inner.settings().map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl AppliedResult {
    fn database(&self) -> Result<Postgres, JobError> {
        membership::settings(&self.home, &self.note.fleet)
            .and_then(|settings| membership::database(&settings))
            .map_err(|failure| JobError::failed(Class::Environment, failure.to_string()))
    }
}

impl Kind for AppliedResult {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        let mut database = self.database()?;
        for file in &self.note.files {
            match file.after {
                Some(after) => {
                    let content = database.blob(after).map_err(|error| {
                        JobError::failed(Class::Environment, format!("{}: {error}", file.path))
                    })?;
                    let expect = file.before.map_or(Expect::Absent, Expect::Digest);
                    ctx.files.stage(&file.path, &content, expect)?;
                }
                None => {
                    if let Some(before) = file.before {
                        ctx.files.remove(&file.path, before)?;
                    }
                }
            }
        }
        let summary = self.note.summary.clone();
        Ok(Finished {
            degraded: match &self.note.outcome {
                Outcome::Degraded { why } => Some(why.clone()),
                _ => None,
            },
            idle: match &self.note.outcome {
                Outcome::Skipped { why, .. } => Some(why.clone()),
                _ => None,
            },
            headline: summary.headline,
            lines: summary.lines,
            refused: summary.refused,
            facts: summary.facts,
        })
    }

    fn dry_run(&self, _ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        Err(JobError::Nothing("a fleet result has no plan".to_owned()))
    }

    fn publishes(&self) -> Targets {
        self.inner.publishes()
    }

    fn asks(&self) -> Asks {
        Asks::Never
    }

    /// Returns true, because the host that did the work has already recorded its budget usage and
    /// checked the gates.
    fn is_exempt(&self) -> bool {
        true
    }

    fn staging(&self) -> String {
        self.inner.staging()
    }

    fn lock_file(&self) -> Option<PathBuf> {
        self.inner.lock_file()
    }

    fn failure_marker(&self) -> Option<PathBuf> {
        self.inner.failure_marker()
    }
}
