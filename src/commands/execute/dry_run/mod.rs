//! Simulates runs for `--dry-run` and `runner dream delta`.
//!
//! ```text
//! copy of the database ──> check the locks ──> facts ──> Store::admit, in the copy
//!                                                        │ admitted               │ declined
//!                                                        └───> Kind::dry_run <────┘ as if admitted
//! ```
//!
//! The same code as in a real run makes the decisions, on an in-memory copy of the database. This
//! module must never write a file, keep a lock, call a backend or start a job's program.

mod result;

use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::Backend;
use runner_engine::admission::AdmissionFacts;
use runner_engine::ids::RunId;
use runner_engine::locks::{ContractLock, JobLock, LockError, job_lock_path};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::recover::running_of;
use runner_engine::store::{
    Admission, Admitted, Enter, NewOccurrence, NightId, Recorded, RunRow, RunState, RunSummary,
    Store,
};
use runner_jobs::kind::Works;
use runner_jobs::{Context, DryRunPlan, JobError, RunBackends, Silent};

use super::admitted::cancel_token;
use super::input::AdmissionInput;
use super::locks::{contract_lock_path, not_ours};
use super::resolved_run::Purpose;
use super::{NotAdmitted, ResolvedRun, refuse};
use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::Failure;
pub use result::{DryRun, DryRunOutcome, RemainingBudget, WriteScope};

/// An in-memory copy of the database, in which runs are simulated.
pub struct DryRunStore<'h> {
    pub store: Store,
    /// The wall-clock time at which the copy was made.
    pub now: Timestamp,
    /// The simulated time at which the last run ended.
    ended: Timestamp,
    home: &'h Env,
    me: ProcessIdentity,
}

/// The usage to charge to a simulated run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The maximum that the run may spend.
    AtMost,
    Nothing,
}

impl<'h> DryRunStore<'h> {
    /// Copies the database and registers the project's current state in the copy.
    pub fn of(home: &'h Env, project: &LoadedProject) -> Result<Self, Failure> {
        let now = home.wall()?;
        let mut store = home.store_for_dry_run()?;
        project.register(&mut store, now)?;
        Ok(Self { store, now, ended: now, home, me: ProcessIdentity::me() })
    }

    /// Records a manual occurrence in the copy and returns its run, or returns `None` if the key
    /// already exists.
    pub fn enter(
        &mut self,
        project: &LoadedProject,
        job: &str,
        key: &str,
        night: Option<NightId>,
        settings: Vec<(String, String)>,
    ) -> Result<Option<RunId>, Failure> {
        let job = self.store.job(&project.id, job)?.id;
        let new = NewOccurrence {
            night,
            settings,
            ..NewOccurrence::manual(job, key.to_owned(), self.now)
        };
        match self.store.enter(&new, &self.me, self.now)? {
            Recorded::New(run) => Ok(Some(run)),
            Recorded::Known(_) => Ok(None),
        }
    }

    /// Requests the night's runs that became ready when another run ended, and returns their ids.
    pub fn ready(&mut self, night: NightId) -> Result<Vec<RunId>, Failure> {
        Ok(self.store.start_ready(Some(night), &self.me, self.ended)?)
    }

    /// Simulates a run and settles it in the copy. With [`Charge::AtMost`], the run is charged its
    /// maximum. With [`Charge::Nothing`], the run is charged nothing, and it gets a plan only if
    /// one of its locks is held.
    pub fn dry_run(&mut self, run: &RunId, charge: Charge) -> Result<DryRun, Failure> {
        let row = self.store.run(run)?;
        let setting = match ResolvedRun::of(self.home, &self.store, &row) {
            Ok(setting) => setting,
            Err(NotAdmitted::Hard(failure)) => return Err(failure),
            Err(NotAdmitted::Before(outcome)) => {
                self.store.decline(run, &outcome, self.now)?;
                return Ok(DryRun::declined(row, outcome));
            }
        };
        let mut reported = DryRun {
            stands: DryRunOutcome::Declined(Outcome::Cancelled { why: String::new() }),
            backend: None,
            backend_name: setting.spec.backend.clone(),
            want: setting.want(""),
            levels: Vec::new(),
            writes: setting.writable_paths(),
            program: None,
            plan: None,
            redactor: setting.redactor.clone(),
            notes: Vec::new(),
            row: row.clone(),
        };
        if let Err(stop) = self.go_through(&setting, charge, &mut reported) {
            let outcome = match stop {
                NotAdmitted::Before(outcome) => setting.redacted(outcome),
                NotAdmitted::Hard(failure) => return Err(failure),
            };
            self.store.decline(run, &outcome, self.now)?;
            reported.stands = DryRunOutcome::Declined(outcome);
        }
        Ok(reported)
    }

    fn go_through(
        &mut self,
        setting: &ResolvedRun<'_>,
        charge: Charge,
        reported: &mut DryRun,
    ) -> Result<(), NotAdmitted> {
        let held = self.check_locks(setting);
        self.settle_stale_runs(setting, reported)?;
        let input = AdmissionInput::of(&self.store, setting, Purpose::DryRun)?;
        let backend = &input.backends.first;
        let described = backend.describe();
        reported.backend_name = backend.name().to_owned();
        let passed = input.backends.passed.iter();
        reported.notes.extend(passed.map(|one| format!("not asked: {one}")));
        let absent = input.convened.absent().iter();
        reported.notes.extend(absent.map(|it| format!("not asked: {}: {}", it.runner, it.why)));
        reported.want = input.want;
        let works = setting.spec.kind.works_now();
        let own = matches!(works, Some(Works::Program(_)));
        let agent = matches!(works, Some(Works::Agent(_)))
            && matches!(described.kind.as_str(), "command" | "claude" | "codex");
        reported.program = (own || agent)
            .then(|| WriteScope::of(&setting.here.root, &input.sandbox_start.sandbox));
        reported.backend = Some(described);
        for level in &input.levels {
            let standing = self.store.standing(level, self.now)?;
            reported.levels.push(RemainingBudget {
                label: level.label.clone(),
                limit: standing.limit(),
                used: standing.used.plus(standing.reserved),
            });
        }
        if let Some(until) = input.facts.paused_until.filter(|until| *until > self.now) {
            reported
                .notes
                .push(format!("the job is paused until {until}: a manual request runs anyway"));
        }
        if held.is_err() {
            reported.plan = self.as_if(setting, &input)?;
            return held;
        }
        let entered = self.store.admit(&input.enter(setting, &self.me)?)?;
        let admitted = match entered {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => {
                reported.stands = DryRunOutcome::Declined(setting.redacted(outcome));
                if charge == Charge::AtMost {
                    reported.plan = self.as_if(setting, &input)?;
                }
                return Ok(());
            }
        };
        reported.stands = DryRunOutcome::Admitted(admitted.reserved());
        let (mut outcome, mut at) = (Outcome::Succeeded, self.now);
        // A dry run reports no usage, so each request is charged its full reservation. The run is
        // also charged its full time limit.
        if charge == Charge::AtMost {
            let plan = self.plan(setting, &admitted, backend)?;
            if let Err(other) = &plan {
                outcome = other.clone();
            }
            reported.plan = Some(plan);
            let total = jiff::SignedDuration::try_from(setting.spec.total).unwrap_or_default();
            at = at.saturating_add(total).unwrap_or(at);
        }
        self.ended = self.ended.max(at);
        let (run, fence) = (admitted.run(), Some(admitted.fence()));
        self.store.settle(run, fence, &outcome, &RunSummary::default(), at)?;
        Ok(())
    }

    /// Plans a run that was not admitted as if it had been. Uses another copy of the database, and
    /// ignores the budget levels and the other admission conditions. Returns `None` if the run is
    /// not admitted even so.
    fn as_if(
        &self,
        setting: &ResolvedRun<'_>,
        input: &AdmissionInput,
    ) -> Result<Option<Result<DryRunPlan, Outcome>>, NotAdmitted> {
        let mut apart = DryRunStore::of(self.home, &setting.here)?;
        let (row, key) = (setting.row, format!("as if {}", setting.row.id));
        let settings = row.settings.clone();
        let Some(run) = apart.enter(&setting.here, &row.job_name, &key, None, settings)? else {
            return Ok(None);
        };
        let row = apart.store.run(&run)?;
        let setting = ResolvedRun::of(self.home, &apart.store, &row)?;
        let facts =
            AdmissionFacts { manual: true, free_bytes: u64::MAX, ..AdmissionFacts::default() };
        let enter = input.enter(&setting, &apart.me)?;
        match apart.store.admit(&Enter { facts: &facts, levels: &[], ..enter })? {
            Admission::Admitted(admitted) => {
                apart.plan(&setting, &admitted, &input.backends.first).map(Some)
            }
            Admission::Declined(_) => Ok(None),
        }
    }

    fn plan(
        &mut self,
        setting: &ResolvedRun<'_>,
        admitted: &Admitted,
        backend: &Arc<dyn Backend>,
    ) -> Result<Result<DryRunPlan, Outcome>, NotAdmitted> {
        let (mut unwatched, backends) = (Silent, RunBackends::only(backend.clone()));
        let store = &mut self.store;
        let parts = setting.parts(admitted, store, &mut unwatched, cancel_token()?, backends);
        let mut context = match Context::new(parts) {
            Ok(context) => context,
            Err(error) => {
                let class = Class::Environment;
                return Ok(Err(Outcome::Failed { class, why: error.to_string() }));
            }
        };
        match setting.spec.kind.dry_run(&mut context) {
            Ok(plan) => Ok(Ok(plan)),
            Err(JobError::Ledger(error)) => Err(error.into()),
            Err(error) => Ok(Err(setting.redacted(error.outcome(self.now)))),
        }
    }

    /// Checks that a run could take its locks.
    fn check_locks(&self, setting: &ResolvedRun<'_>) -> Result<(), NotAdmitted> {
        if let Some(path) = contract_lock_path(setting)? {
            ContractLock::inspect(&path, self.now).map_err(|it| not_ours(setting, it))?;
        }
        self.job_lock(setting.row).map_err(|it| not_ours(setting, it))
    }

    fn job_lock(&self, row: &RunRow) -> Result<(), LockError> {
        JobLock::inspect(&job_lock_path(&self.home.state, &row.project, &row.job_name))
    }

    /// Settles the job's dead runs in the copy, as a real run does, to release their reservations.
    fn settle_stale_runs(
        &mut self,
        setting: &ResolvedRun<'_>,
        reported: &mut DryRun,
    ) -> Result<(), NotAdmitted> {
        // A run whose lock is held is alive.
        if self.job_lock(setting.row).is_err() {
            return Ok(());
        }
        for dead in running_of(&self.store, &setting.row.project, &setting.row.job_name)? {
            let RunState::Running { execution, .. } = &dead.state else { continue };
            reported
                .notes
                .push(format!("run {} of this job died and would be settled first", dead.id));
            let outcome = Outcome::Lost { why: "the process is gone".to_owned() };
            self.store
                .settle(&dead.id, Some(execution.fence), &outcome, &RunSummary::default(), self.now)
                .map_err(|error| refuse(Class::Internal, error.to_string()))?;
        }
        Ok(())
    }
}
