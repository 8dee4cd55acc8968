//! Tests a backend by asking one question, as a run requested by the user.
//!
//! ```text
//! the tests' lock ──> enter ──> admit ──> (caller builds the backend) ──> ask ──> settle
//! ```
//!
//! A test is a run of a job that is not declared in any file. Its usage counts against the budgets
//! that limit all of the project's runs with this backend. This module must never ask more than one
//! question, and never leave an admitted run unsettled unless the process dies.

use std::path::Path;
use std::time::Duration;

use runner_backends::{Reply, Request};
use runner_engine::ids::RunId;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process::Cancel;
use runner_engine::recording::InputRecording;
use runner_engine::recover::sweep;
use runner_engine::store::{Admission, Admitted, Amounts, Budget, BudgetLevel, RunSummary};
use runner_text::redact::Redactor;

use crate::clock::RunClock;
use crate::manual_edit::{AdmissionRequest, EditActor, HeldJobLock, ManualEditError, STAGING};
use crate::spender::SpenderTools;
use crate::{AskError, JobError, PaidBackend, RunBackends, Spender};

/// The job name that all tests share.
pub const JOB: &str = "backend-test";
/// Maximum duration of a test.
pub const TOTAL: Duration = Duration::from_secs(120);
/// Tokens that a test reserves. The number is high because agents begin every request with their
/// own long prompt.
const TOKENS: u64 = 100_000;
/// Millionths of a dollar that a test reserves.
const MICROS: u64 = 500_000;

/// A test that is admitted but not yet settled.
pub struct AdmittedTest {
    admitted: Admitted,
    /// The lock of the tests' job, held until the test is settled.
    _lock: HeldJobLock,
}

/// A settled test.
pub struct SettledTest {
    pub outcome: Outcome,
    /// The usage charged to the budgets.
    pub charged: Amounts,
    /// False if the backend did not report the question's usage. The reservation is then charged.
    pub reported: bool,
}

impl AdmittedTest {
    /// Reserves the budget for a test of a backend of this kind. Returns the outcome as the inner
    /// error if the test is not admitted, for example because the budget is insufficient.
    ///
    /// # Errors
    /// Returns [`ManualEditError::Busy`] while another test of the project is in progress, and
    /// other errors if the clock, a lock file or the database cannot be used.
    pub fn admit(
        actor: &mut EditActor<'_>,
        levels: &[BudgetLevel],
        kind: &str,
    ) -> Result<Result<Self, Outcome>, ManualEditError> {
        let mut lock = actor.lock(JOB)?;
        let (tokens, micros) = if kind == "builtin" { (0, 0) } else { (TOKENS, MICROS) };
        let want = Budget {
            calls: Some(1),
            tokens: Some(tokens),
            micros: Some(micros),
            seconds: Some(TOTAL.as_secs()),
            ideas: Some(0),
        };
        let wanted = AdmissionRequest { job: JOB, staging: STAGING, want, levels, total: TOTAL };
        Ok(match actor.admit(&mut lock, &wanted)? {
            (Admission::Admitted(admitted), _) => Ok(Self { admitted, _lock: lock }),
            (Admission::Declined(outcome), _) => Err(outcome),
        })
    }

    /// Returns the id of the test's run.
    pub fn run(&self) -> &RunId {
        self.admitted.run()
    }

    /// Asks the question, without a retry or a fallback. `run_dir` is the folder for the telemetry.
    ///
    /// # Errors
    /// Returns an [`AskError`] if there is no answer.
    pub fn ask(
        &self,
        actor: &mut EditActor<'_>,
        paid: PaidBackend,
        run_dir: &Path,
        request: &Request,
    ) -> Result<Reply, AskError> {
        paid.backend.preflight()?;
        let cancel = Cancel::new().map_err(|error| {
            let why = format!("cannot create a cancel token: {error}");
            runner_backends::BackendError::Unavailable { why }
        })?;
        let only = RunBackends::only(paid.backend.clone());
        let backends = RunBackends { first: paid, ..only };
        let tools = SpenderTools {
            clock: RunClock::new(actor.clock, &self.admitted),
            cancel,
            run_dir,
            redactor: Redactor::new(Vec::new()),
            recording: InputRecording::off(),
        };
        let mut spender = Spender::new(&self.admitted, actor.store, backends, tools);
        spender.ask_once(request)
    }

    /// Settles the test.
    ///
    /// # Errors
    /// Returns a [`ManualEditError`] if the clock cannot be read or the database cannot be used.
    pub fn settle(
        self,
        actor: &mut EditActor<'_>,
        failed: Option<JobError>,
    ) -> Result<SettledTest, ManualEditError> {
        let now = actor.clock.read().map_err(|error| ManualEditError::Disk(error.to_string()))?;
        let outcome = match failed.map(|error| error.outcome(now.wall)) {
            None => Outcome::Succeeded,
            // The user is waiting for the answer, so a test is never deferred.
            Some(Outcome::Deferred { why, .. }) => {
                Outcome::Failed { class: Class::RateLimited, why }
            }
            Some(outcome) => outcome,
        };
        let redactor = Redactor::new(Vec::new());
        let outcome = outcome.map_why(|why| redactor.redact(why).into_owned());
        let headline = match outcome.why() {
            None => "the backend answered a test question".to_owned(),
            Some(why) => why.to_owned(),
        };
        let (run, fence) = (self.admitted.run(), Some(self.admitted.fence()));
        let charged = actor.store.spent_by(run)?;
        let reported = actor.store.unstated_calls(run)? == 0;
        let summary = RunSummary { headline, ..RunSummary::default() };
        actor.store.settle(run, fence, &outcome, &summary, now.wall)?;
        let row = actor.store.run(run)?;
        sweep(actor.store, &row, now.wall)?;
        Ok(SettledTest { outcome, charged, reported })
    }
}
