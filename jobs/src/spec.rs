//! A job's specification, the result of its run, and the reasons why a run does not finish its
//! work.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::BackendError;
use runner_engine::error_chain::whole;
use runner_engine::git::GitError;
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_engine::recording::UnrecordedInput;
use runner_engine::scope::ScopeError;
use runner_engine::store::Budget;
use serde_json::{Map, Value};

use crate::evidence::EvidenceError;
use crate::kind::Kind;
use crate::manual_edit::ManualEditError;

/// A job, resolved from the configuration.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The job's name within the project.
    pub name: String,
    pub kind: Box<dyn Kind>,
    /// The backend that answers the job's requests.
    pub backend: String,
    /// The maximum amounts that one run may spend.
    pub budget: Budget,
    /// The total time limit of one run.
    pub total: Duration,
}

/// The result of a run. Its artifacts are the files that the run staged through its scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// Why the run achieved less than requested, or `None` if it achieved everything.
    pub degraded: Option<String>,
    /// Why there was nothing to do, or `None` if the run did its work. An idle run's outcome is
    /// `skipped`, but its staged files are still published.
    pub idle: Option<String>,
    /// A one-line human-readable summary.
    pub headline: String,
    /// The remaining human-readable lines.
    pub lines: Vec<String>,
    /// The reply elements rejected by a check, each with the reason. They are repeated in `lines`.
    pub refused: Vec<String>,
    /// Named metrics, for use by scripts.
    pub facts: Map<String, Value>,
}

/// The reason why a run did not finish its work. Its staged files are discarded.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A backend returned an error instead of an answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Git(#[from] GitError),
    /// There was nothing to do.
    #[error("{0}")]
    Nothing(String),
    /// The run cannot continue now, and is deferred until `until`.
    #[error("{why}")]
    Wait { until: Timestamp, why: String },
    /// The user or a shutdown ended the run.
    #[error("{why}")]
    Cancelled { why: String },
    /// The run exceeded its total time limit.
    #[error("{why}")]
    TimedOut { why: String },
    /// Any other failure. Its class determines who must act.
    #[error("{why}")]
    Failed { class: Class, why: String },
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation that failed, such as `read` or `create`.
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The scope refused a write, or the file system failed.
    #[error("{}", if disk(.0) { "cannot stage" } else { "write refused" })]
    Scope(#[from] ScopeError),
    /// The run's budget or subscription does not cover a request.
    #[error("{0}")]
    OverBudget(String),
    /// The database could not be used.
    #[error(transparent)]
    Ledger(#[from] runner_engine::store::StoreError),
}

impl JobError {
    /// Creates a failure of the given class.
    pub fn failed(class: Class, why: impl Into<String>) -> Self {
        Self::Failed { class, why: why.into() }
    }

    /// Returns the outcome of a run that ends with this error.
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        let why = self.whole();
        match self {
            Self::Backend(error) => error.outcome(now),
            Self::Nothing(_) => Outcome::skipped(SkipReason::Idle, why),
            Self::Wait { until, .. } => Outcome::Deferred { until: *until, why },
            Self::Cancelled { .. } => Outcome::Cancelled { why },
            Self::TimedOut { .. } => Outcome::TimedOut { why },
            Self::Failed { class, .. } => Outcome::Failed { class: *class, why },
            Self::Git(_) | Self::Io { .. } => Outcome::Failed { class: Class::Environment, why },
            Self::Scope(error) if disk(error) => Outcome::Failed { class: Class::Environment, why },
            Self::Scope(_) => Outcome::Failed { class: Class::Guard, why },
            Self::OverBudget(_) => Outcome::Failed { class: Class::OverBudget, why },
            Self::Ledger(_) => Outcome::Failed { class: Class::Internal, why },
        }
    }

    /// Returns the error and all its causes on one line.
    pub fn whole(&self) -> String {
        whole(self)
    }
}

impl From<EvidenceError> for JobError {
    fn from(error: EvidenceError) -> Self {
        match error {
            EvidenceError::Git(error) => Self::Git(error),
            EvidenceError::Recorded(_) => Self::failed(Class::Internal, whole(&error)),
        }
    }
}

impl From<ManualEditError> for JobError {
    fn from(error: ManualEditError) -> Self {
        match error {
            ManualEditError::Ledger(error) => Self::Ledger(error),
            ManualEditError::Guard(why) | ManualEditError::Conflict(why) => {
                Self::failed(Class::Guard, why)
            }
            other => Self::failed(Class::Environment, other.to_string()),
        }
    }
}

impl From<UnrecordedInput> for JobError {
    fn from(error: UnrecordedInput) -> Self {
        Self::failed(Class::Internal, error.to_string())
    }
}

/// Returns whether the file system, rather than a rule of the scope, caused the error.
fn disk(error: &ScopeError) -> bool {
    matches!(error, ScopeError::Fs(_))
}
