//! Sends a run's requests to backends, within the run's budget.
//!
//! Each request is reserved, sent under a usage meter and settled. A request that the backend
//! refused without charge is retried. A request that the backend cannot answer is sent to the next
//! backend in the chain. A panel's requests are sent to several backends at the same time.
//!
//! ```text
//! Request ──reserve──> metered ──answer──> charge ──> settled ──conclude──> Reply
//!              └── OverBudget    └── exceeding a limit stops the request, not the run
//! ```
//!
//! This module must never send a request that has not been reserved, and never leave a request
//! unsettled unless the process dies or the database fails.

mod ask;
mod panel;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::replay::{Exchange, ReplayQuestion};
use runner_backends::{Backend, BackendError, Chain, Description, Limit, Reply, Request};
use runner_engine::admission::Shortfall;
use runner_engine::process::Cancel;
use runner_engine::recording::{InputRecording, UnrecordedInput};
use runner_engine::store::{Admitted, Amounts, Store, StoreError};
use runner_text::redact::Redactor;

use crate::JobError;
use crate::clock::RunClock;
use crate::denied::DeniedAccess;
use crate::prices::Prices;
use crate::steps::StepsFile;
use crate::usage_meter::LimitExceeded;

pub use panel::{AbsentPanelist, Panel, Panelist};

/// The recording key for whether a steps file can be written.
const HOLD: &str = "steps are recorded";

/// The payment settings of a backend's requests.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    /// The pool whose limits are stored. Empty if no limits are stored.
    pub pool: String,
    /// Whether usage beyond a subscription may be billed.
    pub overage: bool,
    /// The share of the subscription's window left for other uses, in thousandths.
    pub leave: u16,
    /// Token prices, for backends that do not report a cost.
    pub prices: Prices,
}

impl Spending {
    /// Returns the end of the subscription's window and the reason, if runs may not use more of the
    /// window.
    fn left(&self, fullest: Option<Limit>) -> Option<(Option<Timestamp>, String)> {
        let limit = fullest?;
        let used = limit.used.filter(|used| *used >= 1000_u16.saturating_sub(self.leave))?;
        let percent = |thousandths: u16| f64::from(thousandths) / 10.0;
        let why = format!(
            "{} % of the subscription's window is used, and the pool reserves {} % for other uses",
            percent(used),
            percent(self.leave)
        );
        (self.leave > 0).then_some((limit.until, why))
    }
}

/// A backend with its payment settings.
#[derive(Clone)]
pub struct PaidBackend {
    pub backend: Arc<dyn Backend>,
    pub spending: Spending,
}

/// The backends that a run may call.
pub struct RunBackends {
    pub first: PaidBackend,
    /// The backends to try next when the current one cannot answer.
    pub fallbacks: Chain<PaidBackend>,
    /// Backends that were passed over and are never called, each with the reason.
    pub passed: Vec<String>,
    /// The window of the job's own backend, even if that backend was passed over.
    pub own_window: Option<u64>,
    /// The end and the reason of the rate limit that ends first among the backends that were passed
    /// over or tried.
    pub limited: Option<(Timestamp, String)>,
    /// The councillors, who each write a separate report.
    pub panel: Panel,
}

impl RunBackends {
    /// Creates a set that contains only this backend, without costs, fallbacks or a panel.
    pub fn only(backend: Arc<dyn Backend>) -> Self {
        Self {
            own_window: backend.window(),
            first: PaidBackend { backend, spending: Spending::default() },
            fallbacks: Chain::new([]),
            passed: Vec::new(),
            limited: None,
            panel: Panel::default(),
        }
    }
}

/// The only way for a run to call a model.
pub struct Spender<'a> {
    admitted: &'a Admitted,
    store: &'a mut Store,
    backends: RunBackends,
    /// Backends that did not answer, each with the reason.
    fell: Vec<String>,
    /// The notes of the backends that answered, without duplicates.
    remarks: Vec<String>,
    asked: bool,
    failed_tools: u64,
    denied: Option<DeniedAccess>,
    /// The file that records the steps of a working agent. `None` for an agent that only answers.
    steps: Option<StepsFile>,
    /// The reason why no steps are recorded.
    unrecorded: Option<String>,
    /// The exchanges so far, if the run is recorded.
    exchanges: Vec<Exchange>,
    tools: SpenderTools<'a>,
}

/// The parts of a run's context that its spender shares.
pub(crate) struct SpenderTools<'a> {
    pub(crate) clock: RunClock<'a>,
    pub(crate) cancel: Cancel,
    /// The run's folder, which contains the telemetry.
    pub(crate) run_dir: &'a Path,
    pub(crate) redactor: Redactor,
    pub(crate) recording: InputRecording,
}

/// The reason why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The run's budget does not cover the request. Nothing was sent.
    #[error("the budget of {} has {} {} left, but this request may need {}", .0.level, .0.left, .0.unit, .0.wanted)]
    OverBudget(Shortfall),
    /// The request was stopped because it used more than it reserved, or because it would incur
    /// charges beyond the subscription.
    #[error("{0}")]
    Breach(LimitExceeded),
    /// The provider is temporarily refusing requests. The refusal does not count as an attempt.
    #[error("rate-limited until {until}: {why}")]
    Limited {
        /// The earliest time at which the next request may be sent.
        until: Timestamp,
        /// The provider's message.
        why: String,
    },
    /// The backend did not answer, or the run was cancelled before the call.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The database could not be used.
    #[error(transparent)]
    Ledger(#[from] StoreError),
}

impl From<AskError> for JobError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::OverBudget(_) | AskError::Breach(_) => Self::OverBudget(error.to_string()),
            AskError::Limited { until, .. } => Self::Wait { until, why: error.to_string() },
            AskError::Backend(error) => Self::Backend(error),
            AskError::Ledger(error) => Self::Ledger(error),
        }
    }
}

impl<'a> Spender<'a> {
    pub(crate) fn new(
        admitted: &'a Admitted,
        store: &'a mut Store,
        backends: RunBackends,
        tools: SpenderTools<'a>,
    ) -> Self {
        Self {
            admitted,
            store,
            backends,
            fell: Vec::new(),
            asked: false,
            remarks: Vec::new(),
            failed_tools: 0,
            denied: None,
            steps: None,
            unrecorded: None,
            exchanges: Vec::new(),
            tools,
        }
    }

    /// Returns the database that contains the budgets.
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Returns the database for a manual edit within the run.
    pub(crate) fn store_mut(&mut self) -> &mut Store {
        self.store
    }

    /// Returns the database for settling the run.
    pub(crate) fn into_store(self) -> &'a mut Store {
        self.store
    }

    pub fn backend(&self) -> Description {
        self.backends.first.backend.describe()
    }

    pub fn backend_name(&self) -> &str {
        self.backends.first.backend.name()
    }

    /// Returns the maximum combined number of tokens in a request and its answer, or `None` if
    /// there is no limit.
    pub fn window(&self) -> Option<u64> {
        self.backends.first.backend.window()
    }

    /// Returns whether the backend only returns the rule-based answer. If so, a request needs no
    /// formatted evidence.
    pub fn answers_by_rule(&self) -> bool {
        self.backend().kind == "builtin"
    }

    pub fn panel(&self) -> &Panel {
        &self.backends.panel
    }

    /// Returns whether any backend was called.
    pub(crate) fn asked(&self) -> bool {
        self.asked
    }

    /// Returns the number of tool uses that failed.
    pub(crate) fn failed_tools(&self) -> u64 {
        self.failed_tools
    }

    /// Returns the first path to which a failed agent tool was denied access.
    pub(crate) fn denied(&self) -> Option<&DeniedAccess> {
        self.denied.as_ref()
    }

    /// Returns the backends that were passed over and are never called, each with the reason.
    pub(crate) fn passed(&self) -> &[String] {
        &self.backends.passed
    }

    /// Returns the backends that did not answer and were replaced by a fallback, each with the
    /// reason.
    pub(crate) fn fell(&self) -> &[String] {
        &self.fell
    }

    /// Returns notes on skipped backends, on backends that did not answer, and on failed tool uses,
    /// and the notes of the backends that answered.
    pub(crate) fn notes(&self) -> Vec<String> {
        let passed = self.passed().iter().map(|one| format!("was not asked: {one}"));
        let fell = self.fell.iter().map(|one| format!("did not answer: {one}"));
        let uses = if self.failed_tools == 1 { "use of a tool" } else { "uses of tools" };
        let failed =
            (self.failed_tools > 0).then(|| format!("{} {uses} failed", self.failed_tools));
        passed.chain(fell).chain(failed).chain(self.remarks.iter().cloned()).collect()
    }

    /// Starts recording each tool use by the backend's agent as a row in this file.
    pub fn record_steps(&mut self, file: StepsFile) {
        let held = self.tools.recording.through(HOLD, &file.path, || {
            let held = file.hold_lock().map_err(|error| error.to_string());
            Ok::<_, UnrecordedInput>(held.map(drop))
        });
        if let Ok(Err(error)) = held {
            let why = format!("{} cannot be written: {error}", file.path);
            tracing::warn!(why, "the tool uses of the agent are not recorded");
            self.unrecorded = Some(why);
        }
        // A replayed run has no agent.
        if !self.tools.recording.replays() {
            self.steps = Some(file);
        }
    }

    /// Takes the reason why the agent's actions are not recorded, if any.
    pub(crate) fn unrecorded(&mut self) -> Option<String> {
        self.unrecorded.take()
    }

    pub(crate) fn take_exchanges(&mut self) -> Vec<Exchange> {
        std::mem::take(&mut self.exchanges)
    }

    /// Adds a request and its result to the exchanges, if the run is recorded.
    fn note_asked(&mut self, request: &Request, done: &Result<Reply, AskError>) {
        if !self.tools.recording.records() {
            return;
        }
        let answer = match done {
            Ok(reply) => Ok(reply),
            Err(AskError::Backend(error)) => Err(error.clone()),
            Err(error @ (AskError::OverBudget(_) | AskError::Breach(_))) => {
                Err(BackendError::OverBudget { why: error.to_string() })
            }
            // The run waits or cannot use its database, so there is nothing to replay.
            Err(AskError::Limited { .. } | AskError::Ledger(_)) => return,
        };
        let question = ReplayQuestion::of(request, &self.tools.redactor);
        let exchange = Exchange::of(question, self.backend_name(), answer, &self.tools.redactor);
        self.exchanges.push(exchange);
    }

    /// Reserves the maximum charge for a question of a dry run in its copy of the database. Returns
    /// the charge, or the reason why the run's budget does not allow the question.
    ///
    /// # Errors
    /// Returns an error if the database cannot be used.
    pub(crate) fn price(
        &mut self,
        request: &Request,
        ideas: u64,
    ) -> Result<Result<Amounts, String>, JobError> {
        let asked = self.backends.first.clone();
        match self.reserve(&*asked.backend, request, ideas) {
            Ok((_, reserved)) => Ok(Ok(reserved)),
            Err(error) => match JobError::from(error) {
                JobError::OverBudget(why) => Ok(Err(why)),
                other => Err(other),
            },
        }
    }
}
