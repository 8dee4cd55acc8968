//! The result of a dry run.

use std::path::{Path, PathBuf};

use runner_backends::Description;
use runner_engine::outcome::Outcome;
use runner_engine::sandbox::Sandbox;
use runner_engine::store::{Amounts, Budget, RunRow};
use runner_jobs::DryRunPlan;
use runner_text::redact::Redactor;
use serde::Serialize;

/// The result of a dry run.
pub struct DryRun {
    /// The row of the run in the copy of the database.
    pub row: RunRow,
    /// The outcome of the admission.
    pub stands: DryRunOutcome,
    /// The backend that would be asked.
    pub backend: Option<Description>,
    /// The name of that backend in the configuration.
    pub backend_name: String,
    /// The run's own budget. Default limits apply to the missing units.
    pub want: Budget,
    /// The budgets that the run spends from, in their state before the run.
    pub levels: Vec<RemainingBudget>,
    /// The path prefixes below the project that the run may write. Folders end with a slash.
    pub writes: Vec<String>,
    /// The paths that a program of the run may write by itself; `None` if the run starts no
    /// program.
    pub program: Option<WriteScope>,
    /// The actions of the run, or its outcome if it would end before its first request; `None` if
    /// that is unknown.
    pub plan: Option<Result<DryRunPlan, Outcome>>,
    /// The redactor that hides secrets in the output.
    pub redactor: Redactor,
    pub notes: Vec<String>,
}

/// The parts of the project that a program may write by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WriteScope {
    /// Whether the program runs without a sandbox: `sandbox = "off"`.
    pub anything: bool,
    /// Files and folders below the project that the program may write. Folders end with a slash,
    /// and "./" is the whole project.
    pub writes: Vec<String>,
    /// The paths within `writes` that the program may not write.
    pub never: Vec<String>,
}

impl WriteScope {
    /// Derives the scope from the sandbox of the program. Paths outside the project belong to
    /// runner and are left out.
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
        // A protected path outside all writable paths is not listed.
        let kept: Vec<PathBuf> = (sandbox.keep.iter())
            .filter(|path| sandbox.write.iter().any(|write| path.starts_with(write)))
            .cloned()
            .collect();
        Self { anything: sandbox.off, writes: below(&sandbox.write), never: below(&kept) }
    }
}

/// The outcome of the admission of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRunOutcome {
    /// The run would begin with these amounts reserved.
    Admitted(Amounts),
    /// The run would not begin, and would end with this outcome.
    Declined(Outcome),
}

/// A budget and its usage.
pub struct RemainingBudget {
    pub label: String,
    pub cap: Budget,
    /// The amounts that are spent or reserved.
    pub used: Amounts,
}
