//! What a run works with: the only doors for writing and for spending.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use runner_backends::{Backend, BackendError, Chain, Reply, Request};
use runner_engine::admission::Shortfall;
use runner_engine::git::Git;
use runner_engine::ledger::{Admitted, Amounts, Ledger, LedgerError, Spent};
use runner_engine::process::Cancel;
use runner_engine::scope::Scope;
use runner_engine::time::{Clock, Moment};
use runner_text::redact::Redactor;

use crate::telemetry::Telemetry;

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
    pub(crate) clock: &'a Clock,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) backend: Arc<dyn Backend>,
    /// Who is asked next when the backend cannot answer.
    fallbacks: Chain<Arc<dyn Backend>>,
    /// Who did not answer, and why.
    fell: Vec<String>,
    asked: bool,
}

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The run's budget has no room for it; nothing was asked.
    #[error("the budget of {} has {} {} left, this request may need {}", .0.level, .0.left, .0.unit, .0.wanted)]
    OverBudget(Shortfall),
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
            AskError::OverBudget(_) => Self::OverBudget(error.to_string()),
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
            clock: tools.clock,
            ledger,
            backend,
            fallbacks: Chain::new([]),
            fell: Vec::new(),
            asked: false,
        }
    }

    /// With others to ask, in order, when the backend cannot answer; `fell` are those that were passed
    /// over before, with the reason.
    #[must_use]
    pub fn with_fallbacks(mut self, others: Vec<Arc<dyn Backend>>, fell: Vec<String>) -> Self {
        self.fallbacks = Chain::new(others);
        self.fell = fell;
        self
    }

    /// Who did not answer so that another was asked, and why.
    pub fn fell(&self) -> &[String] {
        &self.fell
    }

    /// Whether the backend was asked anything.
    pub fn asked(&self) -> bool {
        self.asked
    }

    /// How long the run may still take.
    pub fn left(&self) -> std::time::Duration {
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
        loop {
            let error = match self.ask_one(request, ideas) {
                Err(AskError::Backend(error)) => error,
                done => return done,
            };
            let Some(next) = self.fallbacks.next(&error) else {
                return Err(error.into());
            };
            let why = self.redactor.redact(&error.to_string()).into_owned();
            tracing::warn!(
                from = self.backend.name(),
                to = next.name(),
                why,
                "falls back"
            );
            self.fell.push(format!("{}: {why}", self.backend.name()));
            self.backend = next;
        }
    }

    /// Asks the backend, inside the run's budget: reserve, ask, settle. `ideas` is how many of
    /// whatever the job counts its work in this request covers. Usage that the backend does not
    /// state is charged at what was reserved.
    ///
    /// # Errors
    /// [`AskError::OverBudget`] before anything is asked; [`AskError::Backend`] after.
    fn ask_one(&mut self, request: &Request, ideas: u64) -> Result<Reply, AskError> {
        let run = self.admitted.run().clone();
        let left = self.ledger.left_of(&run)?;
        let free = self.backend.describe().kind == "builtin";
        let want = most(request, left, ideas, free);
        let name = self.backend.name().to_owned();
        let reserved = self
            .ledger
            .reserve_request(&run, &name, want, self.wall())?;
        let request_id = reserved.map_err(AskError::OverBudget)?;
        self.asked = true;
        let answer = self.block_on(request);
        let (spent, note) = match &answer {
            Ok(Reply {
                usage: Some(usage), ..
            }) => {
                let known = Amounts {
                    calls: 1,
                    tokens: usage.input_tokens.saturating_add(usage.output_tokens),
                    // Money that was not stated is charged as it was reserved.
                    micros: usage.cost_micros.unwrap_or(want.micros),
                    seconds: 0,
                    ideas,
                };
                (Spent::Known(known), "answered".to_owned())
            }
            Ok(_) => (Spent::Unknown, "answered, usage unknown".to_owned()),
            // Nothing was asked of anyone: the program was not there to be started.
            Err(BackendError::NotInstalled { .. }) => {
                (Spent::Known(Amounts::default()), "not installed".to_owned())
            }
            Err(error) => (
                Spent::Unknown,
                self.redactor.redact(&error.to_string()).into_owned(),
            ),
        };
        let at = self.wall();
        self.ledger.settle_request(request_id, spent, &note, at)?;
        Ok(answer?)
    }

    /// The one place in the house where a future is waited for.
    fn block_on(&self, request: &Request) -> Result<Reply, BackendError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| BackendError::Unavailable {
                why: format!("cannot build a runtime: {error}"),
            })?;
        let (clock, begun) = (self.clock.clone(), self.now);
        let mut told = Telemetry::new(
            self.run_dir,
            &request.id,
            self.backend.name(),
            &self.redactor,
            move || clock.read().map_or(begun, |now| now.wall),
        );
        let answer = runtime.block_on(self.backend.run(request, &mut told, &self.cancel));
        told.ended(answer.as_ref().err().map(ToString::to_string).as_deref());
        answer
    }

    /// The wall clock as the run's own bookkeeping needs it; jobs use `now`.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock
            .read()
            .map(|Moment { wall, .. }| wall)
            .unwrap_or(self.now)
    }
}

/// The most that one request is charged, whatever comes of it: the call, its text and its longest
/// answer in tokens (four bytes a token), and an even share of the money that the run has left, which
/// is never nothing. A backend that is `free` asks nobody. Nothing is clamped to what is left: a
/// request that may need more is refused before it is made.
fn most(request: &Request, left: Amounts, ideas: u64, free: bool) -> Amounts {
    let written = serde_json::to_vec(request).map_or(0, |text| text.len() as u64);
    let tokens = (written / 4).saturating_add(request.limits.max_output_tokens);
    Amounts {
        calls: 1,
        tokens: if free { 0 } else { tokens },
        micros: if free {
            0
        } else {
            (left.micros / left.calls.max(1)).max(1)
        },
        seconds: 0,
        ideas,
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
    /// Both clocks.
    pub clock: &'a Clock,
}

/// A path below the project's root, for messages.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
