//! The context that a job receives for a run.
//!
//! ```text
//! ContextParts ──Context::new──> files    the only way to write
//!                                spender  the only way to ask a model
//!                                git, programs, clock, cancel, progress, redactor, recording
//! ```
//!
//! A run, a dry run and a replay all use [`Context`]. They differ in [`RunMode`] and in the parts
//! passed in. A function that needs only one part takes that part as its argument.

mod files;
mod programs;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_engine::awake::Inhibitor;
use runner_engine::git::Git;
use runner_engine::process::Cancel;
use runner_engine::recording::InputRecording;
use runner_engine::sandbox::SandboxedStart;
use runner_engine::scope::{Scope, ScopeError};
use runner_engine::store::{Admitted, Store};
use runner_engine::time::Clock;
use runner_text::redact::Redactor;
use serde_json::{Map, Value};

use crate::clock::RunClock;
use crate::lifecycle::publish::Publish;
use crate::overnight::lock::RunLock;
use crate::recording::{LARGEST, Recorder};
use crate::spender::{RunBackends, Spender, SpenderTools};

use files::Caches;
pub use files::{CHILD_FOLDER, Folders, OUT_FOLDER, RunFiles};
pub use programs::Programs;
use work::ChildWork;

/// A receiver for a run's progress.
pub trait Progress {
    /// Reports that `done` of `total` steps of `what` are complete. A `total` of 0 means that the
    /// total is unknown.
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
    /// The proof of admission, with the fence, the deadline and the seed.
    pub admitted: &'a Admitted,
    /// The only way to write files.
    pub files: RunFiles<'a>,
    /// The only way to call a model.
    pub spender: Spender<'a>,
    pub git: Git,
    /// The environment and the sandbox of the programs that the job itself starts.
    pub programs: Programs<'a>,
    /// The changes that children make to the project.
    pub(crate) work: ChildWork<'a>,
    pub clock: RunClock<'a>,
    /// The token that is cancelled when the run must end.
    pub cancel: Cancel,
    /// The receiver for the run's progress.
    pub progress: &'a mut dyn Progress,
    /// Redacts secrets in all output.
    pub redactor: Redactor,
    /// The recording of the run's reads and artifacts.
    pub(crate) recording: InputRecording,
    /// The destination of the recording.
    pub(crate) recorder: Option<Recorder>,
    /// Facts about the run that are included in its summary even if the run fails.
    pub(crate) facts: Map<String, Value>,
    /// The commit to make once everything is published.
    pub(crate) publish: Option<Publish>,
    /// The corpus's lock, if the run writes to the corpus. It is held until the run is settled.
    pub(crate) corpus: Option<RunLock>,
    /// The inhibitor that keeps the machine awake until the run is settled, if that was requested.
    pub(crate) keeper: Option<Inhibitor>,
}

/// How a run's work is done.
pub enum RunMode {
    /// The work is done, and recorded if a recorder is given.
    Run(Option<Recorder>),
    /// The work is only planned, on a copy of the database. No model is called, and no cache is
    /// kept.
    DryRun,
    /// The work is replayed from a recording.
    Replay(InputRecording),
}

pub struct ContextParts<'a> {
    pub admitted: &'a Admitted,
    pub folders: Folders<'a>,
    /// Path prefixes inside the project that the run may write to.
    pub writes: &'a [String],
    /// The folder where the run stages its files.
    pub staging: &'a str,
    /// The environment for children.
    pub env: &'a BTreeMap<String, String>,
    /// The sandbox for a program that the job itself starts, or `None` if it starts none.
    pub sandbox: Option<&'a SandboxedStart>,
    pub clock: &'a Clock,
    pub cancel: Cancel,
    pub progress: &'a mut dyn Progress,
    pub redactor: Redactor,
    pub store: &'a mut Store,
    pub backends: RunBackends,
    pub keeper: Option<Inhibitor>,
    pub mode: RunMode,
}

impl<'a> Context<'a> {
    /// Creates the context of an admitted run.
    ///
    /// # Errors
    /// Returns an error if the project's root cannot be opened, or if a path in `writes` or the
    /// staging path is not a path beneath it.
    pub fn new(parts: ContextParts<'a>) -> Result<Self, ScopeError> {
        let ContextParts { admitted, folders, cancel, redactor, .. } = parts;
        let caches = match parts.mode {
            RunMode::DryRun => Caches::Discarded,
            RunMode::Run(_) | RunMode::Replay(_) => Caches::Kept,
        };
        let (recording, recorder) = match parts.mode {
            RunMode::Run(Some(recorder)) => (InputRecording::recording(LARGEST), Some(recorder)),
            RunMode::Run(None) | RunMode::DryRun => (InputRecording::off(), None),
            RunMode::Replay(inputs) => (inputs, None),
        };
        let writes: Vec<&str> = parts.writes.iter().map(String::as_str).collect();
        let mut scope = Scope::open(folders.root, &writes, parts.staging)?;
        scope.start_recording(recording.clone());
        let clock = RunClock::new(parts.clock, admitted);
        let git = Git::new(folders.root, parts.env, admitted.run().as_str());
        let tools = SpenderTools {
            clock,
            cancel: cancel.clone(),
            run_dir: folders.run_dir,
            redactor: redactor.clone(),
            recording: recording.clone(),
        };
        let sandbox = parts.sandbox.map(|it| &it.sandbox);
        let work = ChildWork::new(sandbox, folders.run_dir, git.clone(), recording.clone());
        Ok(Self {
            admitted,
            work,
            files: RunFiles::new(folders, scope, caches),
            spender: Spender::new(admitted, parts.store, parts.backends, tools),
            git: git.with_recording(recording.clone()),
            programs: Programs::new(parts.env, parts.sandbox),
            clock,
            cancel,
            progress: parts.progress,
            redactor,
            recording,
            recorder,
            facts: Map::new(),
            publish: None,
            corpus: None,
            keeper: parts.keeper,
        })
    }
}

/// Returns `path` relative to the project's root, or unchanged if it is outside the project.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}
