//! The result of a dry run.

use std::path::{Path, PathBuf};

use runner_backends::Description;
use runner_engine::outcome::Outcome;
use runner_engine::sandbox::Sandbox;
use runner_engine::store::{Amounts, Budget, RunRow};
use runner_jobs::DryRunPlan;
use runner_text::redact::Redactor;
use serde::Serialize;

pub struct DryRun {
    pub row: RunRow,
    pub stands: DryRunOutcome,
    /// The backend that would be called first; `None` if the run is declined before
    /// a backend is chosen.
    pub backend: Option<Description>,
    /// The name of that backend in the configuration.
    pub backend_name: String,
    /// The run's own budget.
    pub want: Budget,
    /// The budgets that limit the run, as they are before it.
    pub levels: Vec<RemainingBudget>,
    /// The paths inside the project to which the run may publish. Folders end with a slash.
    pub writes: Vec<String>,
    /// The paths that the run's program or agent may write to directly, or `None` if the run
    /// starts no program or agent in the project.
    pub program: Option<WriteScope>,
    /// The planned actions, or the outcome if the run would end before its first request. `None` if
    /// the run was not planned.
    pub plan: Option<Result<DryRunPlan, Outcome>>,
    /// The redactor for the output.
    pub redactor: Redactor,
    pub notes: Vec<String>,
}

impl DryRun {
    /// Creates the result for a run that is declined before its settings are resolved.
    pub fn declined(row: RunRow, outcome: Outcome) -> Self {
        Self {
            row,
            stands: DryRunOutcome::Declined(outcome),
            backend: None,
            backend_name: String::new(),
            want: Budget::default(),
            levels: Vec::new(),
            writes: Vec::new(),
            program: None,
            plan: None,
            redactor: Redactor::new(Vec::new()),
            notes: Vec::new(),
        }
    }
}

/// The parts of the project that a program may write to directly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WriteScope {
    /// Whether the program runs without a sandbox (`sandbox = "off"`).
    pub anything: bool,
    /// Files and folders inside the project that the program may write to. Folders end with a
    /// slash, and "./" is the whole project.
    pub writes: Vec<String>,
    /// The paths within `writes` that the program may not write to.
    pub never: Vec<String>,
}

impl WriteScope {
    /// Derives the scope from a sandbox. Paths outside the project belong to runner and are left
    /// out.
    pub(super) fn of(root: &Path, sandbox: &Sandbox) -> Self {
        let below = |paths: &[PathBuf]| {
            let below = paths.iter().filter_map(|path| {
                let rest = path.strip_prefix(root).ok()?;
                let name = match rest.as_os_str().is_empty() {
                    true => ".".to_owned(),
                    false => rest.display().to_string(),
                };
                Some(if path.is_dir() { name + "/" } else { name })
            });
            below.collect()
        };
        // A protected path is only listed if it is inside a writable path.
        let kept: Vec<PathBuf> = (sandbox.keep.iter())
            .filter(|path| sandbox.write.iter().any(|write| path.starts_with(write)))
            .cloned()
            .collect();
        Self { anything: sandbox.off, writes: below(&sandbox.write), never: below(&kept) }
    }
}

/// The simulated admission decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRunOutcome {
    /// The run would begin with these amounts reserved.
    Admitted(Amounts),
    /// The run would not begin, and would end with this outcome.
    Declined(Outcome),
}

pub struct RemainingBudget {
    pub label: String,
    /// The limit of each unit, including grants, or `None` if the unit has no limit.
    pub limit: [Option<u64>; 5],
    /// The amounts spent or reserved.
    pub used: Amounts,
}
