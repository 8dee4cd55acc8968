//! Makes manual edits: immediate changes to a project that the user requests, or that a run makes
//! before its main work.
//!
//! ```text
//! the job's lock ──> recover stale runs ──> (caller reads and decides) ──> enter ──> admit ──> stage ──> publish
//! ```
//!
//! A manual edit is a run of a job that no file declares, with an empty budget. A tick completes
//! partly published edits. This module must never call a model, and never replace content
//! that was not read under the job's lock.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::admission::AdmissionFacts;
use runner_engine::error_chain::whole;
use runner_engine::ids::{OccurrenceId, ProjectId, RunId};
use runner_engine::locks::{JobLock, LockError, LockHolder, job_lock_path};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::publish::{LogError, PublishError, PublishLog as _};
use runner_engine::recover::{Driver, recover_stale, sweep};
use runner_engine::scope::{FinishedScope, Scope, ScopeError};
use runner_engine::store::{
    Admission, Admitted, Budget, BudgetLevel, Enter, NewOccurrence, Recorded, RunSummary, Store,
    StoreError,
};
use runner_engine::time::Clock;
use runner_text::redact::Redactor;

/// The kind of every manual edit's run.
pub const KIND: &str = crate::dream::review::KIND;
/// The default staging folder.
pub const STAGING: &str = ".runner/staging";
/// Time after which recovery considers a manual edit hung.
const TOTAL: Duration = Duration::from_secs(60);

/// Why a manual edit failed.
#[derive(Debug, thiserror::Error)]
pub enum ManualEditError {
    /// Another process holds the job's lock.
    #[error("{0}")]
    Busy(String),
    /// A file differs from the content that was read.
    #[error("{0}")]
    Changed(String),
    /// The scope refused the change.
    #[error("{0}")]
    Guard(String),
    /// Another program changed a target or a staged file during the publication. The content to
    /// publish is kept in staging.
    #[error("{0}")]
    Conflict(String),
    /// A file system or host operation failed, or the run was not admitted.
    #[error("{0}")]
    Disk(String),
    /// This edit or an earlier one is recorded but not completely published. Recovery completes the
    /// publication.
    #[error("run {run} is only partly published: {why}")]
    Unfinished { run: RunId, why: String },
    /// The database could not be used.
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

impl From<ScopeError> for ManualEditError {
    fn from(error: ScopeError) -> Self {
        let why = whole(&error);
        match error {
            ScopeError::Unexpected { .. } => Self::Changed(why),
            ScopeError::Fs(_) | ScopeError::OtherDevice { .. } | ScopeError::TooLong { .. } => {
                Self::Disk(why)
            }
            _ => Self::Guard(why),
        }
    }
}

/// The process making a manual edit, and the project being changed.
pub struct EditActor<'h> {
    /// The project's canonical root.
    pub root: &'h Path,
    pub project: &'h ProjectId,
    /// Runner's state folder, which contains the locks.
    pub state: &'h Path,
    /// The source of wall time and boot time.
    pub clock: &'h Clock,
    pub me: &'h ProcessIdentity,
    pub store: &'h mut Store,
    /// Free space on the project's file system, in bytes.
    pub free_bytes: u64,
}

/// A job's lock, held from the first read to the end of the manual edit.
pub struct HeldJobLock(JobLock);

/// A request to admit a run of a job that no file declares.
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) job: &'a str,
    /// The folder below which the run stages its files.
    pub(crate) staging: &'a str,
    /// The run's own budget.
    pub(crate) want: Budget,
    /// The budget levels that the run draws on.
    pub(crate) levels: &'a [BudgetLevel],
    /// Time after which recovery considers the run hung.
    pub(crate) total: Duration,
}

pub struct ManualEdit<'a> {
    pub job: &'a str,
    /// Path prefixes under which the edit may write.
    pub allowed: &'a [&'a str],
    /// The folder below which the edit stages its files, on the same file system as its targets.
    pub staging: &'a str,
    /// The one-line headline of the edit's report.
    pub headline: String,
    /// The remaining lines of the edit's report.
    pub lines: Vec<String>,
}

impl EditActor<'_> {
    /// Takes a job's lock, and settles the job's runs whose processes died.
    ///
    /// # Errors
    /// Returns [`ManualEditError::Busy`] if another process holds the lock, and
    /// [`ManualEditError::Unfinished`] if an earlier edit cannot be completed yet. Returns another
    /// error if the lock file, the clock or the database cannot be used.
    pub fn lock(&mut self, job: &str) -> Result<HeldJobLock, ManualEditError> {
        let held = self.take(job)?;
        self.recover_stale(job)?;
        Ok(held)
    }

    /// Takes a job's lock without settling earlier runs.
    pub(crate) fn take(&self, job: &str) -> Result<HeldJobLock, ManualEditError> {
        let path = job_lock_path(self.state, self.project, job);
        match JobLock::take_for_run(&path, |_| false) {
            Ok(lock) => Ok(HeldJobLock(lock)),
            Err(error @ (LockError::Held { .. } | LockError::Foreign { .. })) => {
                Err(ManualEditError::Busy(error.to_string()))
            }
            Err(error) => Err(ManualEditError::Disk(whole(&error))),
        }
    }

    /// Settles the job's runs whose processes died, and completes their publications. The caller
    /// must hold the job's lock.
    pub(crate) fn recover_stale(&mut self, job: &str) -> Result<(), ManualEditError> {
        let now = self.clock.read().map_err(|error| ManualEditError::Disk(error.to_string()))?;
        // A manual edit is not retried, because the user sees that nothing was decided and can
        // decide again.
        let driver = Driver::on_host(self.state, self.me);
        let stale = recover_stale(self.store, &driver, self.project, job, now)?;
        for row in &stale.settled {
            sweep(self.store, row, now.wall)?;
        }
        match stale.stuck {
            None => Ok(()),
            Some(run) => Err(ManualEditError::Unfinished {
                run,
                why: "an earlier manual edit cannot be completed yet".to_owned(),
            }),
        }
    }

    /// Records a run of a job that no file declares, and requests its admission. Returns the
    /// decision and the path of the run's staging folder, which is not created yet.
    pub(crate) fn admit(
        &mut self,
        held: &mut HeldJobLock,
        wanted: &AdmissionRequest<'_>,
    ) -> Result<(Admission, String), ManualEditError> {
        let reading =
            self.clock.read().map_err(|error| ManualEditError::Disk(error.to_string()))?;
        let now = reading.wall;
        let job = self.store.manual_job(self.project, wanted.job, KIND, now)?;
        let new = NewOccurrence::manual(job, OccurrenceId::new(now).to_string(), now);
        let Recorded::New(run) = self.store.enter(&new, self.me, now)? else {
            return Err(ManualEditError::Disk(
                "the new occurrence is already in the database".to_owned(),
            ));
        };
        let holder = LockHolder { owner: self.me.clone(), run: run.clone(), since: now };
        held.0.sign(&holder).map_err(|error| {
            ManualEditError::Disk(format!("cannot write the lock file: {error}"))
        })?;
        let staging = format!("{}/{run}", wanted.staging);
        let admission = self.store.admit(&Enter {
            run: &run,
            owner: self.me,
            facts: &AdmissionFacts {
                manual: true,
                free_bytes: self.free_bytes,
                ..AdmissionFacts::default()
            },
            want: wanted.want,
            levels: wanted.levels,
            total: wanted.total,
            staging: &staging,
            now: reading,
        })?;
        Ok((admission, staging))
    }

    /// Publishes the changes that `stage` stages.
    ///
    /// # Errors
    /// Returns a [`ManualEditError`]. Files may have been published only if the error is
    /// `Conflict`, `Unfinished` or `Ledger`.
    pub fn place(
        &mut self,
        held: &mut HeldJobLock,
        act: &ManualEdit<'_>,
        stage: &mut dyn FnMut(&mut Scope, &RunId, Timestamp) -> Result<(), ManualEditError>,
    ) -> Result<RunId, ManualEditError> {
        let wanted = AdmissionRequest {
            job: act.job,
            staging: act.staging,
            want: Budget {
                calls: Some(0),
                tokens: Some(0),
                micros: Some(0),
                ideas: Some(0),
                ..Budget::default()
            },
            levels: &[],
            total: TOTAL,
        };
        let (admitted, staging) = match self.admit(held, &wanted)? {
            (Admission::Admitted(admitted), staging) => (admitted, staging),
            (Admission::Declined(outcome), _) => {
                return Err(ManualEditError::Disk(outcome.why().unwrap_or_default().to_owned()));
            }
        };
        let (run, now) = (admitted.run().clone(), admitted.started());
        let redactor = Redactor::new(Vec::new());
        let clean = |line: &String| redactor.redact(line).into_owned();
        let mut summary = RunSummary {
            headline: clean(&act.headline),
            lines: act.lines.iter().map(clean).collect(),
            ..RunSummary::default()
        };
        let scope = Scope::open(self.root, act.allowed, &staging).map_err(ManualEditError::from);
        let staged = scope.and_then(|mut scope| {
            stage(&mut scope, &run, now)?;
            Ok(scope.finish(run.clone(), admitted.fence(), Outcome::Succeeded)?)
        });
        let done = match staged {
            Ok(ready) => self.carry_out(&admitted, &ready, &staging, &mut summary, now),
            Err(error) => Err(self.settle(&admitted, error, &mut summary, now)),
        };
        let row = self.store.run(&run)?;
        sweep(self.store, &row, now)?;
        done.map(|()| run)
    }

    fn carry_out(
        &mut self,
        admitted: &Admitted,
        ready: &FinishedScope,
        staging: &str,
        summary: &mut RunSummary,
        now: Timestamp,
    ) -> Result<(), ManualEditError> {
        let entries = ready.manifest.entries.iter();
        summary.artifacts = entries.map(|entry| entry.target.to_string()).collect();
        let published = ready.place(&mut self.store.publish_log(Some(summary), now));
        let Err(error) = published else {
            return Ok(());
        };
        summary.artifacts.clear();
        let why = whole(&error);
        match error {
            PublishError::Changed(_) => {
                Err(self.settle(admitted, ManualEditError::Changed(why), summary, now))
            }
            PublishError::Conflict(_) | PublishError::Staged { .. } => {
                let why = format!("{why}; the content to publish is kept in {staging}");
                let outcome = Outcome::Failed { class: Class::Guard, why: why.clone() };
                let (run, fence) = (admitted.run(), admitted.fence());
                self.store.settle_conflict(run, fence, &outcome, summary, now)?;
                Err(ManualEditError::Conflict(why))
            }
            PublishError::Log(LogError::StaleFence { .. }) => Err(ManualEditError::Unfinished {
                run: admitted.run().clone(),
                why: "another process took it over".to_owned(),
            }),
            _ => {
                let log = self.store.publish_log(None, now);
                if matches!(log.manifest(admitted.run()), Ok(None)) {
                    return Err(self.settle(admitted, ManualEditError::Disk(why), summary, now));
                }
                Err(ManualEditError::Unfinished { run: admitted.run().clone(), why })
            }
        }
    }

    /// Settles an admitted edit that published nothing. Returns `error`, or the database's error if
    /// settling fails.
    fn settle(
        &mut self,
        admitted: &Admitted,
        error: ManualEditError,
        summary: &mut RunSummary,
        now: Timestamp,
    ) -> ManualEditError {
        let why = error.to_string();
        let class = match &error {
            ManualEditError::Changed(_) => None,
            ManualEditError::Guard(_) => Some(Class::Guard),
            _ => Some(Class::Environment),
        };
        summary.headline.clone_from(&why);
        let outcome = match class {
            None => Outcome::skipped(SkipReason::Busy, why),
            Some(class) => Outcome::Failed { class, why },
        };
        let (run, fence) = (admitted.run(), Some(admitted.fence()));
        match self.store.settle(run, fence, &outcome, summary, now) {
            Ok(()) => error,
            Err(error) => error.into(),
        }
    }
}
