//! What a run works with: the only doors for writing and for spending.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use jiff::Timestamp;
use runner_backends::chain::moves_on;
use runner_backends::replay::Exchange;
use runner_backends::{Backend, BackendError, Chain, Phase, Reply, Request};
use runner_engine::admission::Shortfall;
use runner_engine::awake::Keeper;
use runner_engine::git::Git;
use runner_engine::ledger::{Admitted, Amounts, Ledger, LedgerError, RequestId};
use runner_engine::locks::JobLock;
use runner_engine::policy::quota;
use runner_engine::process::Cancel;
use runner_engine::scope::Scope;
use runner_engine::tape::Tape;
use runner_engine::time::{Clock, Moment};
use runner_engine::walls::{Confine, Containment};
use runner_text::redact::Redactor;

use crate::charge::{charge, most};
use crate::lifecycle::publish::Publish;
use crate::meter::{Breach, Heard, Meter};
use crate::prices::{Price, Prices};
use crate::recording;
use crate::steps::{Recorder, StepsFile};
use crate::telemetry::Telemetry;

/// The part of a run's folder in which children of backends work.
pub const CHILD_FOLDER: &str = "child";
/// The part in which a command leaves its artifacts.
pub const OUT_FOLDER: &str = "out";

/// How often a request is made again within one run, where nobody was paid for it.
const SHORT_RETRIES: usize = 2;
/// The wait before the first of these; the next is four times as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// A limit that ends this soon is waited for within the run.
const SHORT_LIMIT: Duration = Duration::from_secs(10);

/// Where a run tells how far it is.
pub trait Progress {
    /// `done` of `total` steps of `what` are over; a total of 0 is not known yet.
    fn step(&mut self, what: &str, done: u64, total: u64);
}

/// Progress that nobody watches.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _what: &str, _done: u64, _total: u64) {}
}

/// What an admitted run works with.
pub struct Context<'a> {
    /// Proof of admission, with fence, deadline and seed.
    pub admitted: &'a Admitted,
    /// The project's canonical root; read freely, write only through `scope`.
    pub root: &'a Path,
    /// A folder for caches of this project, outside of the tree; what lies there may vanish.
    pub cache: &'a Path,
    /// A private folder of this run, for a child's files.
    pub run_dir: &'a Path,
    /// The only door for writes.
    pub scope: Scope,
    /// Questions to git.
    pub git: Git,
    /// Wall time at admission: the one `now` of the whole run.
    pub now: Timestamp,
    /// Pulled when the run must end.
    pub cancel: Cancel,
    /// Where it tells how far it is.
    pub progress: &'a mut dyn Progress,
    /// Hides secrets at every sink.
    pub redactor: Redactor,
    /// The environment that children may have.
    pub env: &'a std::collections::BTreeMap<String, String>,
    /// What a program of the job itself starts behind.
    pub confine: Option<&'a Confine>,
    /// The folder of runner's own state, for the locks of what a run changes before its work.
    pub(crate) state: Option<&'a Path>,
    /// What held the last of them, in words, and what that did not cover.
    pub(crate) held: Option<(String, Vec<&'static str>)>,
    pub(crate) clock: &'a Clock,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) backend: Arc<dyn Backend>,
    /// Who is asked next when the backend cannot answer.
    fallbacks: Chain<(Arc<dyn Backend>, Spending)>,
    /// Who was not asked, and why.
    passed: Vec<String>,
    /// Who did not answer, and why.
    fell: Vec<String>,
    spending: Spending,
    asked: bool,
    /// How many uses of tools by who was asked failed.
    failed_tools: u64,
    /// Nothing may be kept, caches neither.
    pub(crate) rehearsal: bool,
    /// Where the steps of an agent that works here are recorded; nowhere for those that only answer.
    pub(crate) steps: Option<StepsFile>,
    /// Why there are no such records.
    pub(crate) unrecorded: Option<String>,
    /// What is committed once everything is placed.
    pub(crate) publish: Option<Publish>,
    /// What it reads and makes is put on this.
    pub(crate) tape: Tape,
    /// Where it is recorded.
    pub(crate) recorder: Option<recording::Recorder>,
    /// What was asked so far, of a run that is recorded.
    pub(crate) asked_for: Vec<Exchange>,
    /// Kept until the run is settled, and dropped with it.
    pub(crate) files: Option<JobLock>,
    /// Keeps the machine awake until the run is settled, where that was asked for.
    pub(crate) keeper: Option<Keeper>,
}

/// How a run pays.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    /// The pool whose limits are remembered; empty: nobody remembers them.
    pub pool: String,
    /// Whether it may be billed beyond a subscription.
    pub overage: bool,
    /// What tokens cost where nobody states it.
    pub prices: Prices,
}

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The run's budget has no room for it; nothing was asked.
    #[error("the budget of {} has {} {} left, this request may need {}", .0.level, .0.left, .0.unit, .0.wanted)]
    OverBudget(Shortfall),
    /// It had to be stopped: it cost more than was reserved, or what nobody wanted to pay.
    #[error("{0}")]
    Breach(Breach),
    /// The provider refuses for now; it is no attempt.
    #[error("rate-limited until {until}: {why}")]
    Limited {
        /// When this run may ask again.
        until: Timestamp,
        /// The provider's words.
        why: String,
    },
    /// It was asked and there is no answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The ledger could not be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<AskError> for crate::JobError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::OverBudget(_) | AskError::Breach(_) => Self::OverBudget(error.to_string()),
            AskError::Limited { until, .. } => Self::Wait {
                until,
                why: error.to_string(),
            },
            AskError::Backend(error) => Self::Backend(error),
            AskError::Ledger(error) => Self::Ledger(error),
        }
    }
}

impl<'a> Context<'a> {
    /// Everything that an admitted run gets.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        admitted: &'a Admitted,
        place: Place<'a>,
        scope: Scope,
        git: Git,
        tools: Tools<'a>,
        ledger: &'a mut Ledger,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self {
            admitted,
            root: place.root,
            cache: place.cache,
            run_dir: place.run_dir,
            scope,
            git,
            now: admitted.started(),
            cancel: tools.cancel,
            progress: tools.progress,
            redactor: tools.redactor,
            env: tools.env,
            confine: tools.confine,
            state: None,
            held: None,
            clock: tools.clock,
            ledger,
            backend,
            fallbacks: Chain::new([]),
            passed: Vec::new(),
            fell: Vec::new(),
            spending: Spending::default(),
            asked: false,
            failed_tools: 0,
            rehearsal: false,
            steps: None,
            unrecorded: None,
            publish: None,
            tape: Tape::off(),
            recorder: None,
            asked_for: Vec::new(),
            files: None,
            keeper: None,
        }
    }

    /// Holds a lock from now until the run is settled, if it is to be had within a few seconds: for
    /// what others do to the same files in between. Without it, what changed meanwhile is still
    /// never overwritten; it only costs the run.
    pub fn hold(&mut self, lock: &Path) {
        match JobLock::take_for_run(lock, |_| false) {
            Ok(lock) => self.files = Some(lock),
            Err(error) => tracing::warn!(%error, "goes on without the lock on its files"),
        }
    }

    /// With others to ask, in order, when the backend cannot answer; `passed` are those that were
    /// passed over and are never asked, with the reason.
    #[must_use]
    pub fn with_fallbacks(
        mut self,
        others: Vec<(Arc<dyn Backend>, Spending)>,
        passed: Vec<String>,
    ) -> Self {
        self.fallbacks = Chain::new(others);
        self.passed = passed;
        self
    }

    /// Who was asked nothing although the chain names it, and why.
    pub fn passed(&self) -> &[String] {
        &self.passed
    }

    /// The same, with the folder of runner's own state, where locks lie.
    #[must_use]
    pub fn in_state(mut self, state: &'a Path) -> Self {
        self.state = Some(state);
        self
    }

    /// Who did not answer so that another was asked, and why.
    pub fn fell(&self) -> &[String] {
        &self.fell
    }

    /// The same, on a machine that is kept awake until the run is settled.
    #[must_use]
    pub fn kept_awake(mut self, keeper: Option<Keeper>) -> Self {
        self.keeper = keeper;
        self
    }

    /// The same, paying like this.
    #[must_use]
    pub fn paying(mut self, spending: Spending) -> Self {
        self.spending = spending;
        self
    }

    /// The same for a run that is only gone through: its ledger is a copy, and nothing may be asked
    /// or kept.
    #[must_use]
    pub fn rehearsing(mut self) -> Self {
        self.rehearsal = true;
        self
    }

    /// Remembers what held a program of the job.
    pub(crate) fn contained(&mut self, containment: Option<&Containment>) {
        self.held = containment.map(|it| (it.to_string(), it.gaps()));
    }

    /// Where a child of a backend works: the only part of the run's folder that it may write.
    pub fn child_dir(&self) -> PathBuf {
        self.run_dir.join(CHILD_FOLDER)
    }

    /// Whether the backend was asked anything.
    pub fn asked(&self) -> bool {
        self.asked
    }

    /// How many uses of tools failed for those that were asked; what walls refuse is among them.
    pub fn failed_tools(&self) -> u64 {
        self.failed_tools
    }

    /// How long the run may still take.
    pub fn left(&self) -> Duration {
        self.admitted
            .deadline()
            .saturating_sub(runner_engine::time::boot_time())
    }

    /// The name of the backend that answers.
    pub fn backend_name(&self) -> &str {
        self.backend.name()
    }

    /// Whether the backend only gives back the answer by rule, so that evidence need not be worded
    /// for it.
    pub fn backend_kind(&self) -> String {
        self.backend.describe().kind
    }

    /// Asks the backend, and where it cannot answer the next of its chain; each attempt is reserved
    /// and settled by itself. The one that answers is asked first from then on.
    ///
    /// # Errors
    /// [`AskError::OverBudget`] before anything is asked; [`AskError::Backend`] after.
    pub fn ask(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        let done = self.ask_in_turn(request, ideas);
        self.note_asked(request, &done);
        done
    }

    fn ask_in_turn(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        loop {
            let done = self.ask_patiently(request, ideas);
            let why = match &done {
                Err(AskError::Backend(error)) if moves_on(error) => error.to_string(),
                Err(error @ (AskError::Limited { .. } | AskError::Breach(Breach::Overage))) => {
                    error.to_string()
                }
                _ => return done,
            };
            let Some((next, spending)) = self.fallbacks.next() else {
                return done;
            };
            let why = self.redactor.redact(&why).into_owned();
            tracing::warn!(
                from = self.backend.name(),
                to = next.name(),
                why,
                "falls back"
            );
            self.fell.push(format!("{}: {why}", self.backend.name()));
            (self.backend, self.spending) = (next, spending);
        }
    }

    /// Asks the backend, and again after a moment where it was turned away unpaid and said nothing:
    /// an API that is overloaded or not there for a blink, or that names a limit which ends at once. Each attempt is a request of the run's
    /// budget, reserved and settled by itself; a longer wait is the job's own to make.
    fn ask_patiently(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        // Seeded, so that a run can be followed.
        let mut waits = ExponentialBuilder::default()
            .with_min_delay(FIRST_WAIT)
            .with_factor(4.0)
            .with_max_times(SHORT_RETRIES)
            .with_jitter_seed(self.admitted.seed())
            .with_jitter()
            .build();
        loop {
            if let Some(why) = self.cancel.why() {
                return Err(BackendError::Cancelled { why }.into());
            }
            let mut asked = request.clone();
            asked.limits.total = asked.limits.total.min(self.left());
            let (done, unpaid) = self.ask_one(&asked, ideas)?;
            let wait = match (&done, waits.next()) {
                (Err(AskError::Backend(BackendError::Unavailable { .. })), Some(wait))
                    if unpaid =>
                {
                    wait
                }
                // A limit that ends in a moment is waited for here; a longer one is a deferral.
                (Err(AskError::Limited { until, .. }), Some(wait)) if unpaid => {
                    match Duration::try_from(until.duration_since(self.wall())) {
                        Ok(left) if left <= SHORT_LIMIT => wait.max(left),
                        _ => return done,
                    }
                }
                _ => return done,
            };
            if wait >= self.left() {
                return done;
            }
            tracing::info!(backend = self.backend.name(), ?wait, "is asked again");
            self.cancel.wait(Some(wait));
        }
    }

    /// Asks the backend, inside the run's budget: reserve, ask, settle. `ideas` is how many of
    /// whatever the job counts its work in this request covers. Usage that the backend does not
    /// state is charged at what was reserved; a request that goes beyond that is stopped. Says also
    /// whether it was turned away, so that nobody is paid.
    ///
    /// # Errors
    /// [`AskError::OverBudget`] before anything is asked; the others after.
    fn ask_one(
        &mut self,
        request: &Request,
        ideas: u64,
    ) -> Result<(Result<Reply, AskError>, bool), AskError> {
        let (request_id, want) = self.reserve(request, ideas)?;
        let described = self.backend.describe();
        self.asked = true;
        let asked = self.wall();
        let price = described
            .model
            .and_then(|model| self.spending.prices.of(&model));
        let (answer, heard) = self.metered(request, want, price);
        self.failed_tools += heard.failed_tools;
        let unpaid = heard.not_billed && !heard.spoke;
        let charge = charge(&answer, &heard, want, price);
        let note = self.redactor.redact(&charge.note).into_owned();
        let (at, spent) = (self.wall(), charge.spent);
        self.ledger
            .settle_request(request_id, spent, charge.money, &note, at)?;
        Ok((self.conclude(answer, heard, asked), unpaid))
    }

    /// Reserves what a request is charged at most, and says how much that is.
    ///
    /// # Errors
    /// [`AskError::OverBudget`], [`AskError::Ledger`].
    pub(crate) fn reserve(
        &mut self,
        request: &Request,
        ideas: u64,
    ) -> Result<(RequestId, Amounts), AskError> {
        let run = self.admitted.run().clone();
        let left = self.ledger.left_of(&run)?;
        let free = self.backend.describe().kind == "builtin";
        let want = most(request, left, ideas, free);
        let name = self.backend.name().to_owned();
        let reserved = self
            .ledger
            .reserve_request(&run, &name, want, self.wall())?;
        Ok((reserved.map_err(AskError::OverBudget)?, want))
    }

    /// Asks under a meter, and until the run's own time is over.
    fn metered(
        &self,
        request: &Request,
        want: Amounts,
        price: Option<Price>,
    ) -> (Result<Reply, BackendError>, Heard) {
        let cannot = |what: &str, error: std::io::Error| {
            let why = format!("cannot make {what}: {error}");
            (Err(BackendError::Unavailable { why }), Heard::default())
        };
        // The request's own: what stops it leaves the run, which then settles itself, alone.
        let cancel = match self.cancel.child() {
            Ok(cancel) => cancel,
            Err(error) => return cannot("a cancel token", error),
        };
        let (clock, begun) = (self.clock.clone(), self.now);
        let redactor = self.redactor.clone();
        let backend = self.backend.name().to_owned();
        let mut told = Telemetry::new(self.run_dir, &request.id, &backend, &redactor, move || {
            clock.read().map_or(begun, |now| now.wall)
        });
        if let Some(file) = &self.steps {
            told = told.with_steps(Recorder::new(file.clone(), self.redactor.clone()));
        }
        let overage = self.spending.overage;
        let mut meter = Meter::new(want, price, overage, cancel.clone(), &mut told);
        let answer = match self.block_on(request, &mut meter, &cancel) {
            Ok(answer) => answer,
            Err(error) => return cannot("a runtime", error),
        };
        let mut heard = meter.heard();
        told.ended(answer.as_ref().err().map(ToString::to_string).as_deref());
        let over = matches!(
            answer,
            Err(BackendError::Cancelled { .. }
                | BackendError::Silent {
                    phase: Phase::Total,
                    ..
                })
        ) && self.left().is_zero();
        if over && self.admitted.short_of_time() && heard.breach.is_none() {
            let reserved = self.admitted.reserved().seconds;
            heard.breach = Some(Breach::Over {
                unit: "seconds",
                used: reserved,
                reserved,
            });
        }
        (answer, heard)
    }

    /// The one place in the house where a future is waited for. The outer error is that there is no
    /// runtime.
    fn block_on(
        &self,
        request: &Request,
        meter: &mut Meter<'_>,
        cancel: &Cancel,
    ) -> std::io::Result<Result<Reply, BackendError>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (left, short) = (self.left(), self.admitted.short_of_time());
        Ok(runtime.block_on(async {
            let mut answer = std::pin::pin!(self.backend.run(request, meter, cancel));
            if short {
                tokio::select! {
                    answer = &mut answer => return answer,
                    () = tokio::time::sleep(left) => {
                        cancel.cancel_at_once("the time of the run's budget is over");
                    }
                }
            }
            // Polled to its end in any case: it stops what it began.
            answer.await
        }))
    }

    /// What an answer, or none, means for the run and for all others of its pool.
    fn conclude(
        &mut self,
        answer: Result<Reply, BackendError>,
        heard: Heard,
        asked: Timestamp,
    ) -> Result<Reply, AskError> {
        let limit = heard.limit.filter(|limit| limit.reached);
        match (answer, heard.breach) {
            // What was paid beyond the subscription is told even where an answer came of it.
            (_, Some(Breach::Overage)) => {
                let until = heard.limit.and_then(|limit| limit.until);
                self.note_limit(until, "its answers are billed beyond the subscription")?;
                Err(AskError::Breach(Breach::Overage))
            }
            // An answer that is whole is paid for: the next request finds nothing left.
            (Ok(reply), _) => {
                match limit {
                    Some(limit) => self.note_limit(limit.until, "the limit is reached")?,
                    None if self.spending.pool.is_empty() => {}
                    None => {
                        let now = self.wall();
                        self.ledger.clear_limit(&self.spending.pool, asked, now)?;
                    }
                }
                Ok(reply)
            }
            (Err(_), Some(breach)) => Err(AskError::Breach(breach)),
            (Err(BackendError::RateLimited { until, why }), None) => {
                let until = until.or(limit.and_then(|limit| limit.until));
                Err(self.refused(until, &why)?)
            }
            (Err(BackendError::Cancelled { .. }), None)
                if limit.is_some() && !self.cancel.is_cancelled() =>
            {
                let until = limit.and_then(|limit| limit.until);
                Err(self.refused(until, "the provider's limit is reached")?)
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// How a run goes on that was refused: it waits, and takes none of its attempts for that.
    fn refused(&mut self, said: Option<Timestamp>, why: &str) -> Result<AskError, LedgerError> {
        let why = self.redactor.redact(why).into_owned();
        let now = self.wall();
        let (until, streak, why) = if self.spending.pool.is_empty() {
            let wake = quota::wake(said, 1, now);
            (wake.until, 1, why)
        } else {
            let limit = self
                .ledger
                .note_limit(&self.spending.pool, said, &why, now)?;
            (limit.until, limit.streak, limit.why)
        };
        if streak > quota::MOST {
            let why = format!("refused {streak} times in a row, each after its wait: {why}");
            return Ok(AskError::Backend(BackendError::RateLimited {
                until: None,
                why,
            }));
        }
        // What ends in a moment is waited for, and so is not spread.
        let until = match Duration::try_from(until.duration_since(now)) {
            Ok(left) if left <= SHORT_LIMIT => until,
            _ => quota::spread(until, self.admitted.run().as_str()),
        };
        Ok(AskError::Limited { until, why })
    }

    fn note_limit(&mut self, said: Option<Timestamp>, why: &str) -> Result<(), LedgerError> {
        if !self.spending.pool.is_empty() {
            let now = self.wall();
            self.ledger
                .note_limit(&self.spending.pool, said, why, now)?;
        }
        Ok(())
    }

    /// The wall clock as the run's own bookkeeping needs it; jobs use `now`.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock
            .read()
            .map(|Moment { wall, .. }| wall)
            .unwrap_or(self.now)
    }
}

/// Where a run works.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The project's canonical root.
    pub root: &'a Path,
    /// A folder for caches.
    pub cache: &'a Path,
    /// A private folder of this run.
    pub run_dir: &'a Path,
}

/// What a run is lent by the program.
pub struct Tools<'a> {
    /// Pulled when the run must end.
    pub cancel: Cancel,
    /// Where it tells how far it is.
    pub progress: &'a mut dyn Progress,
    /// Hides secrets.
    pub redactor: Redactor,
    /// The environment that children may have.
    pub env: &'a std::collections::BTreeMap<String, String>,
    /// What a program of the job itself starts behind.
    pub confine: Option<&'a Confine>,
    /// Both clocks.
    pub clock: &'a Clock,
}

/// A path below the project's root, for messages.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
