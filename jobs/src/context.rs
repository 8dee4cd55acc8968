//! The context of a run: its only means of writing and of spending.

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

use crate::lifecycle::publish::Publish;
use crate::panel::Panel;
use crate::recording;
use crate::spending::Spending;
use crate::steps::StepsFile;

/// The subfolder of a run's folder in which the children of backends work.
pub const CHILD_FOLDER: &str = "child";
/// The subfolder of a run's folder in which a command leaves its artifacts.
pub const OUT_FOLDER: &str = "out";

/// A receiver for a run's progress.
pub trait Progress {
    /// Reports that `done` of `total` steps of `what` are over; a total of 0 is not known yet.
    fn step(&mut self, what: &str, done: u64, total: u64);
}

/// A receiver that ignores progress.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _what: &str, _done: u64, _total: u64) {}
}

/// The context of an admitted run.
pub struct Context<'a> {
    /// The proof of admission, with fence, deadline and seed.
    pub admitted: &'a Admitted,
    /// The project's canonical root. It may be read freely and written only through `scope`.
    pub root: &'a Path,
    /// A folder for this project's caches, outside the project. Its content may vanish at any time.
    pub cache: &'a Path,
    /// A private folder of this run for the files of children.
    pub run_dir: &'a Path,
    /// The only way to write files.
    pub scope: Scope,
    pub git: Git,
    /// The wall-clock time at admission, which is the only `now` of the whole run.
    pub now: Timestamp,
    /// The token that is cancelled when the run must end.
    pub cancel: Cancel,
    /// The receiver for the run's progress.
    pub progress: &'a mut dyn Progress,
    /// Redacts secrets in all output.
    pub redactor: Redactor,
    /// The environment for children.
    pub env: &'a std::collections::BTreeMap<String, String>,
    /// The sandbox for a program that the job itself starts.
    pub sandbox_start: Option<&'a SandboxedStart>,
    /// The folder of runner's own state, for the locks on files that a run changes before its work.
    pub(crate) state: Option<&'a Path>,
    /// The sandbox of the last such program.
    pub(crate) held: Option<AppliedSandbox>,
    pub(crate) clock: &'a Clock,
    pub(crate) store: &'a mut Store,
    pub(crate) backend: Arc<dyn Backend>,
    /// The backends that are asked next when the current one cannot answer.
    pub(crate) fallbacks: Chain<(Arc<dyn Backend>, Spending)>,
    /// Backends that were not asked, each with the reason.
    passed: Vec<String>,
    /// Backends that did not answer, each with the reason.
    pub(crate) fell: Vec<String>,
    pub(crate) spending: Spending,
    pub(crate) asked: bool,
    /// The councillors, each of which is asked for a report of its own by the jobs that want one.
    pub(crate) voices: Panel,
    /// The number of failed tool uses by the backends that were asked.
    pub(crate) failed_tools: u64,
    /// Whether nothing may be kept, not even caches.
    pub(crate) is_dry_run: bool,
    /// The file that records the steps of an agent that works here; `None` for one that only
    /// answers.
    pub(crate) steps: Option<StepsFile>,
    /// The reason why no steps are recorded.
    pub(crate) unrecorded: Option<String>,
    /// The commit to make once everything is published.
    pub(crate) publish: Option<Publish>,
    /// The recording of everything that the run reads and makes.
    pub(crate) recording: InputRecording,
    /// The destination of the recording.
    pub(crate) recorder: Option<recording::Recorder>,
    /// The exchanges so far of a run that is recorded.
    pub(crate) asked_for: Vec<Exchange>,
    /// The lock that is held until the run is settled, and dropped with the context.
    pub(crate) files: Option<JobLock>,
    /// The inhibitor that keeps the machine awake until the run is settled, if that was requested.
    pub(crate) keeper: Option<Inhibitor>,
}

impl<'a> Context<'a> {
    /// Creates the context of an admitted run.
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
            is_dry_run: false,
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

    /// Holds a lock from now until the run is settled, if it can be taken within a few seconds. The
    /// lock keeps others from changing the same files in the meantime. Without it, a file that
    /// changed is still never overwritten, but it costs the run its result.
    pub fn hold_lock(&mut self, lock: &Path) {
        match JobLock::take_for_run(lock, |_| false) {
            Ok(lock) => self.files = Some(lock),
            Err(error) => tracing::warn!(%error, "continuing without the lock on its files"),
        }
    }

    /// Sets the fallback backends, which are asked in order when the backend cannot answer.
    /// `passed` lists backends that were passed over and are never asked, with the reason.
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

    /// Sets the panel of councillors, each of which is asked for a report of its own.
    #[must_use]
    pub fn hearing(mut self, voices: Panel) -> Self {
        self.voices = voices;
        self
    }

    /// Returns the backends in the chain that were not asked, each with the reason.
    pub fn passed(&self) -> &[String] {
        &self.passed
    }

    /// Sets the folder of runner's own state, which contains the locks.
    #[must_use]
    pub fn in_state(mut self, state: &'a Path) -> Self {
        self.state = Some(state);
        self
    }

    /// Returns the backends that did not answer, so that another was asked, each with the reason.
    pub fn fell(&self) -> &[String] {
        &self.fell
    }

    /// Sets the inhibitor that keeps the machine awake until the run is settled.
    #[must_use]
    pub fn kept_awake(mut self, keeper: Option<Inhibitor>) -> Self {
        self.keeper = keeper;
        self
    }

    /// Sets how the run pays.
    #[must_use]
    pub fn paying(mut self, spending: Spending) -> Self {
        self.spending = spending;
        self
    }

    /// Marks the run as a dry run: its database is a copy, and nothing may be asked or kept.
    #[must_use]
    pub fn dry_running(mut self) -> Self {
        self.is_dry_run = true;
        self
    }

    /// Remembers the sandbox of a program of the job.
    pub(crate) fn contained(&mut self, containment: Option<&AppliedSandbox>) {
        self.held = containment.cloned();
    }

    /// Returns the folder in which a child of a backend works, the only part of the run's folder
    /// that the child may write.
    pub fn child_dir(&self) -> PathBuf {
        self.run_dir.join(CHILD_FOLDER)
    }

    /// Returns whether the backend was asked anything.
    pub fn asked(&self) -> bool {
        self.asked
    }

    /// Counts the tool uses that failed for the backends that were asked, including those that the
    /// sandbox refused.
    pub fn failed_tools(&self) -> u64 {
        self.failed_tools
    }

    /// Returns the time that the run has left.
    pub fn left(&self) -> Duration {
        self.admitted.deadline().saturating_sub(runner_engine::time::boot_time())
    }

    /// Returns the name of the backend that answers.
    pub fn backend_name(&self) -> &str {
        self.backend.name()
    }

    /// Returns the backend's kind. A backend may only return the rule-based answer, so that
    /// evidence need not be worded for it.
    pub fn backend_kind(&self) -> String {
        self.backend.describe().kind
    }

    /// Reads the wall clock for the run's own bookkeeping; jobs use `now`.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.read().map(|ClockReading { wall, .. }| wall).unwrap_or(self.now)
    }
}

/// The folders in which a run works.
#[derive(Clone, Copy, Debug)]
pub struct Workplace<'a> {
    pub root: &'a Path,
    /// A folder for this project's caches.
    pub cache: &'a Path,
    /// A private folder of this run.
    pub run_dir: &'a Path,
}

/// The tools that the program lends to a run.
pub struct Tools<'a> {
    /// The token that is cancelled when the run must end.
    pub cancel: Cancel,
    /// The receiver for the run's progress.
    pub progress: &'a mut dyn Progress,
    pub redactor: Redactor,
    /// The environment for children.
    pub env: &'a std::collections::BTreeMap<String, String>,
    /// The sandbox for a program that the job itself starts.
    pub sandbox_start: Option<&'a SandboxedStart>,
    pub clock: &'a Clock,
}

/// Returns the path relative to the project's root, for messages.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
