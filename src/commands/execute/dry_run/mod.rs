//! Goes through a run without making it: `--dry-run`.
//!
//! ```text
//! copy of the database ──> looks at both locks ──> facts ──> Ledger::admit, in the copy
//!                                                            │ admitted              │ declined
//!                                                            └──> jobs::rehearse <───┘ as if let in
//! ```
//!
//! The same code decides as for a real run; only the database is a copy in memory. This module must
//! never write a file, take a lock, ask a backend or start a job's program.

mod result;

use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::Backend;
use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::ids::RunId;
use runner_engine::locks::{ContractLock, JobLock, LockError, job_lock_path};
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{
    Admission, Admitted, Budget, BudgetLevel, Enter, NewOccurrence, NightId, Recorded, RunRow,
    RunState, RunSummary, Store,
};
use runner_jobs::context::{Tools, Workplace};
use runner_jobs::kind::Works;
use runner_jobs::{Context, DryRunPlan, Silent};

use super::admitted::cancel_token;
use super::input::AdmissionInput;
use super::locks::{contract_lock_path, not_ours};
use super::resolved_run::Purpose;
use super::{NotAdmitted, ResolvedRun, refuse};
use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::Failure;
pub use result::{DryRun, DryRunOutcome, RemainingBudget, WriteScope};

/// The copy of the database in which dry runs are made, and the process that starts them.
pub struct DryRunStore<'h> {
    /// The copy of the database.
    pub store: Store,
    /// The wall time that applies to all steps.
    pub now: Timestamp,
    /// The time at which the last run ended in the copy.
    ended: Timestamp,
    home: &'h Env,
    me: ProcessIdentity,
}

/// The usage that a dry run is charged in the copy of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The maximum that the run may spend.
    AtMost,
    Nothing,
}

impl<'h> DryRunStore<'h> {
    /// Creates a copy of the database in which the project is registered in its present state.
    pub fn of(home: &'h Env, project: &LoadedProject) -> Result<Self, Failure> {
        let now = home.wall()?;
        let mut store = home.store_for_dry_run()?;
        project.register(&mut store, now)?;
        Ok(Self { store, now, ended: now, home, me: ProcessIdentity::me() })
    }

    /// Enters an occurrence in the copy, or returns `None` if its key is taken.
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

    /// Starts the runs that waited for another run that has ended by now, and returns their ids.
    pub fn ready(&mut self, night: NightId) -> Result<Vec<RunId>, Failure> {
        Ok(self.store.start_ready(Some(night), &self.me, self.ended)?)
    }

    /// Makes a dry run and settles it in the copy. With [`Charge::AtMost`], the run is charged all
    /// that it may spend. With [`Charge::Nothing`], it is charged nothing and gets no plan.
    pub fn dry_run(&mut self, run: &RunId, charge: Charge) -> Result<DryRun, Failure> {
        let row = self.store.run(run)?;
        let setting = ResolvedRun::of(self.home, &self.store, &row)?;
        let mut reported = DryRun {
            stands: DryRunOutcome::Declined(Outcome::Cancelled { why: String::new() }),
            backend: None,
            backend_name: setting.spec.backend.clone(),
            want: setting.want(""),
            levels: Vec::new(),
            writes: setting.writes_in_words(),
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
        let held = self.look_at_locks(setting);
        self.recover_stale_runs(setting, reported)?;
        let AdmissionInput { git, backends, sandbox_start, facts, want, levels, convened } =
            AdmissionInput::of(self.home, &self.store, setting, Purpose::DryRun)?;
        let backend = backends.first;
        let described = backend.describe();
        reported.backend_name = backend.name().to_owned();
        let passed = backends.passed.into_iter();
        reported.notes.extend(passed.map(|one| format!("is not asked: {one}")));
        let absent = convened.absent().iter();
        reported.notes.extend(absent.map(|it| format!("is not asked: {}: {}", it.runner, it.why)));
        reported.want = want;
        let works = setting.spec.kind.works_now();
        let own = matches!(works, Some(Works::Program(_)));
        let agent = matches!(works, Some(Works::Agent(_)))
            && matches!(described.kind.as_str(), "command" | "claude" | "codex");
        reported.program =
            (own || agent).then(|| WriteScope::of(&setting.here.root, &sandbox_start.sandbox));
        reported.backend = Some(described);
        for level in &levels {
            reported.levels.push(RemainingBudget {
                label: level.label.clone(),
                cap: level.cap,
                used: self.store.account(level.level, &level.key)?,
            });
        }
        if let Some(until) = facts.paused_until.filter(|until| *until > self.now) {
            reported
                .notes
                .push(format!("the job is paused until {until}: a manual request runs anyway"));
        }
        if held.is_err() {
            reported.plan = self.as_if(setting, reported.want, &git, &backend)?;
            return held;
        }
        let entered = self.admit(setting, &facts, reported.want, &levels)?;
        let admitted = match entered {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => {
                reported.stands = DryRunOutcome::Declined(setting.redacted(outcome));
                if charge == Charge::AtMost {
                    reported.plan = self.as_if(setting, reported.want, &git, &backend)?;
                }
                return Ok(());
            }
        };
        reported.stands = DryRunOutcome::Admitted(admitted.reserved());
        let (mut outcome, mut at) = (Outcome::Succeeded, self.now);
        // The reservation of each question is charged in full, because no usage is reported in a
        // dry run. The run's time is charged in full as well.
        if charge == Charge::AtMost {
            let plan = self.plan(setting, &admitted, &git, &backend)?;
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

    fn admit(
        &mut self,
        setting: &ResolvedRun<'_>,
        facts: &AdmissionFacts,
        want: Budget,
        levels: &[BudgetLevel],
    ) -> Result<Admission, NotAdmitted> {
        Ok(self.store.admit(&Enter {
            run: &setting.row.id,
            owner: &self.me,
            facts,
            want,
            levels,
            total: setting.spec.total,
            staging: &setting.staging(),
            now: self.home.now()?,
        })?)
    }

    /// Plans a run that is not admitted as if it were, in another copy of the database without
    /// budgets.
    fn as_if(
        &self,
        setting: &ResolvedRun<'_>,
        want: Budget,
        git: &Git,
        backend: &Arc<dyn Backend>,
    ) -> Result<Option<Result<DryRunPlan, Outcome>>, NotAdmitted> {
        let mut apart = DryRunStore::of(self.home, &setting.here)?;
        let key = format!("as if {}", setting.row.id);
        let Some(run) = apart.enter(
            &setting.here,
            &setting.row.job_name,
            &key,
            None,
            setting.row.settings.clone(),
        )?
        else {
            return Ok(None);
        };
        let row = apart.store.run(&run)?;
        let setting = ResolvedRun::of(self.home, &apart.store, &row)?;
        let facts =
            AdmissionFacts { manual: true, free_bytes: u64::MAX, ..AdmissionFacts::default() };
        match apart.admit(&setting, &facts, want, &[])? {
            Admission::Admitted(admitted) => {
                apart.plan(&setting, &admitted, git, backend).map(Some)
            }
            Admission::Declined(_) => Ok(None),
        }
    }

    fn plan(
        &mut self,
        setting: &ResolvedRun<'_>,
        admitted: &Admitted,
        git: &Git,
        backend: &Arc<dyn Backend>,
    ) -> Result<Result<DryRunPlan, Outcome>, NotAdmitted> {
        let scope = match setting.scope() {
            Ok(scope) => scope,
            Err(outcome) => return Ok(Err(outcome)),
        };
        let cache = self.home.cache_folder(&setting.here.id);
        let mut unwatched = Silent;
        let mut context = Context::new(
            admitted,
            Workplace { root: &setting.here.root, cache: &cache, run_dir: &setting.run_dir },
            scope,
            git.clone(),
            Tools {
                cancel: cancel_token()?,
                progress: &mut unwatched,
                redactor: setting.redactor.clone(),
                env: &setting.environment,
                // A dry run starts no program.
                sandbox_start: None,
                clock: &self.home.clock,
            },
            &mut self.store,
            backend.clone(),
        )
        .dry_running();
        match setting.spec.kind.dry_run(&mut context) {
            Ok(plan) => Ok(Ok(plan)),
            Err(runner_jobs::JobError::Ledger(error)) => Err(error.into()),
            Err(error) => Ok(Err(setting.redacted(error.outcome(self.now)))),
        }
    }

    /// Checks that both locks are free.
    fn look_at_locks(&self, setting: &ResolvedRun<'_>) -> Result<(), NotAdmitted> {
        if let Some(path) = contract_lock_path(setting)? {
            ContractLock::inspect(&path, self.now).map_err(|it| not_ours(setting, it))?;
        }
        self.job_lock(setting.row).map_err(|it| not_ours(setting, it))
    }

    fn job_lock(&self, row: &RunRow) -> Result<(), LockError> {
        JobLock::inspect(&job_lock_path(&self.home.state, &row.project, &row.job_name))
    }

    /// Settles the job's dead runs in the copy, as a real run does, so that their reservations are
    /// free.
    fn recover_stale_runs(
        &mut self,
        setting: &ResolvedRun<'_>,
        reported: &mut DryRun,
    ) -> Result<(), NotAdmitted> {
        for dead in self.store.live()? {
            let RunState::Running { execution, .. } = &dead.state else { continue };
            let dead_here = dead.job == setting.row.job && dead.id != setting.row.id;
            // A run whose lock is held is alive.
            if !dead_here || self.job_lock(setting.row).is_err() {
                continue;
            }
            reported
                .notes
                .push(format!("run {} of this job died; it would be settled first", dead.id));
            let outcome = Outcome::Lost { why: "its process is gone".to_owned() };
            self.store
                .settle(&dead.id, Some(execution.fence), &outcome, &RunSummary::default(), self.now)
                .map_err(|error| refuse(Class::Internal, error.to_string()))?;
        }
        Ok(())
    }
}
