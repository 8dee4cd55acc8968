//! What a run works with: the only doors for writing and for spending.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::replay::Exchange;
use runner_backends::{Backend, Chain};
use runner_engine::awake::Inhibitor;
use runner_engine::git::Git;
use runner_engine::locks::JobLock;
use runner_engine::process::Cancel;
use runner_engine::recording::InputRecording;
use runner_engine::sandbox::{AppliedSandbox, SandboxedStart};
use runner_engine::scope::Scope;
use runner_engine::store::{Admitted, Store};
use runner_engine::time::{Clock, ClockReading};
use runner_text::redact::Redactor;

use crate::ask::panel::Panel;
use crate::lifecycle::publish::Publish;
use crate::prices::Prices;
use crate::recording;
use crate::steps::StepsFile;

/// The part of a run's folder in which children of backends work.
pub const CHILD_FOLDER: &str = "child";
/// The part in which a command leaves its artifacts.
pub const OUT_FOLDER: &str = "out";

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
    pub sandbox_start: Option<&'a SandboxedStart>,
    /// The folder of runner's own state, for the locks of what a run changes before its work.
    pub(crate) state: Option<&'a Path>,
    /// What held the last of them, in words, and what that did not cover.
    pub(crate) held: Option<(String, Vec<&'static str>)>,
    pub(crate) clock: &'a Clock,
    pub(crate) store: &'a mut Store,
    pub(crate) backend: Arc<dyn Backend>,
    /// Who is asked next when the backend cannot answer.
    pub(crate) fallbacks: Chain<(Arc<dyn Backend>, Spending)>,
    /// Who was not asked, and why.
    passed: Vec<String>,
    /// Who did not answer, and why.
    pub(crate) fell: Vec<String>,
    pub(crate) spending: Spending,
    pub(crate) asked: bool,
    /// Those who are each asked for a report of their own, by the jobs that ask for one.
    pub(crate) voices: Panel,
    /// How many uses of tools by who was asked failed.
    pub(crate) failed_tools: u64,
    /// Nothing may be kept, caches neither.
    pub(crate) rehearsal: bool,
    /// Where the steps of an agent that works here are recorded; nowhere for those that only answer.
    pub(crate) steps: Option<StepsFile>,
    /// Why there are no such records.
    pub(crate) unrecorded: Option<String>,
    /// What is committed once everything is placed.
    pub(crate) publish: Option<Publish>,
    /// What it reads and makes is put on this.
    pub(crate) recording: InputRecording,
    /// Where it is recorded.
    pub(crate) recorder: Option<recording::Recorder>,
    /// What was asked so far, of a run that is recorded.
    pub(crate) asked_for: Vec<Exchange>,
    /// Kept until the run is settled, and dropped with it.
    pub(crate) files: Option<JobLock>,
    /// Keeps the machine awake until the run is settled, where that was asked for.
    pub(crate) keeper: Option<Inhibitor>,
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

impl<'a> Context<'a> {
    /// Everything that an admitted run gets.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        admitted: &'a Admitted,
        place: Workplace<'a>,
        scope: Scope,
        git: Git,
        tools: Tools<'a>,
        store: &'a mut Store,
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
            sandbox_start: tools.sandbox_start,
            state: None,
            held: None,
            clock: tools.clock,
            store,
            backend,
            fallbacks: Chain::new([]),
            passed: Vec::new(),
            fell: Vec::new(),
            spending: Spending::default(),
            asked: false,
            voices: Panel::default(),
            failed_tools: 0,
            rehearsal: false,
            steps: None,
            unrecorded: None,
            publish: None,
            recording: InputRecording::off(),
            recorder: None,
            asked_for: Vec::new(),
            files: None,
            keeper: None,
        }
    }

    /// Holds a lock from now until the run is settled, if it is to be had within a few seconds: for
    /// what others do to the same files in between. Without it, what changed meanwhile is still
    /// never overwritten; it only costs the run.
    pub fn hold_lock(&mut self, lock: &Path) {
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

    /// With others who are each asked for a report of their own.
    #[must_use]
    pub fn hearing(mut self, voices: Panel) -> Self {
        self.voices = voices;
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
    pub fn kept_awake(mut self, keeper: Option<Inhibitor>) -> Self {
        self.keeper = keeper;
        self
    }

    /// The same, paying like this.
    #[must_use]
    pub fn paying(mut self, spending: Spending) -> Self {
        self.spending = spending;
        self
    }

    /// The same for a run that is only gone through: its database is a copy, and nothing may be asked
    /// or kept.
    #[must_use]
    pub fn dry_running(mut self) -> Self {
        self.rehearsal = true;
        self
    }

    /// Remembers what held a program of the job.
    pub(crate) fn contained(&mut self, containment: Option<&AppliedSandbox>) {
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

    /// How many uses of tools failed for those that were asked; what the sandbox refuses is among them.
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

    /// The wall clock as the run's own bookkeeping needs it; jobs use `now`.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock
            .read()
            .map(|ClockReading { wall, .. }| wall)
            .unwrap_or(self.now)
    }
}

/// Where a run works.
#[derive(Clone, Copy, Debug)]
pub struct Workplace<'a> {
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
    pub sandbox_start: Option<&'a SandboxedStart>,
    /// Both clocks.
    pub clock: &'a Clock,
}

/// A path below the project's root, for messages.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
