//! A job as the configuration resolves it, what a run of it achieved, and why a run failed.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use runner_backends::BackendError;
use runner_engine::error_chain::whole;
use runner_engine::git::GitError;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::recording::UnrecordedInput;
use runner_engine::scope::ScopeError;
use runner_engine::store::Budget;
use serde_json::{Map, Value};

use crate::kind::Kind;

/// A job, resolved from the configuration.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The name within the project.
    pub name: String,
    /// The kind, with its settings.
    pub kind: Box<dyn Kind>,
    /// The backend that answers.
    pub backend: String,
    /// The most that one run may spend.
    pub budget: Budget,
    /// How long one run may take in all.
    pub total: Duration,
}

/// The result of a run. Its artifacts are the files that the run staged through its scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// Why this is less than what was asked for; none means that it is all.
    pub degraded: Option<String>,
    /// One line for people.
    pub headline: String,
    /// More lines for people.
    pub lines: Vec<String>,
    /// Figures by name, for scripts.
    pub facts: Map<String, Value>,
}

/// The reason for which a run publishes nothing.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A backend gave no answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Git gave no answer.
    #[error(transparent)]
    Git(#[from] GitError),
    /// There was nothing to do.
    #[error("{0}")]
    Nothing(String),
    /// It must wait.
    #[error("{why}")]
    Wait {
        /// Until then.
        until: Timestamp,
        /// For this.
        why: String,
    },
    /// A person or a shutdown ended it.
    #[error("{why}")]
    Cancelled {
        /// The person or event that ended it.
        why: String,
    },
    /// Its total deadline passed.
    #[error("{why}")]
    TimedOut {
        /// The step that was under way.
        why: String,
    },
    /// Any other failure, with the class that names who must act.
    #[error("{why}")]
    Failed {
        class: Class,
        /// The failure, its place and its cause.
        why: String,
    },
    /// A file could not be read or staged.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// `read`, `stage`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A write was refused by the scope.
    #[error("{}", if disk(.0) { "cannot stage" } else { "write refused" })]
    Scope(#[from] ScopeError),
    /// The budget of the run has no room for another request.
    #[error("{0}")]
    OverBudget(String),
    /// The database could not be used; the run cannot be settled either.
    #[error(transparent)]
    Ledger(#[from] runner_engine::store::StoreError),
}

impl JobError {
    /// A failure of a class.
    pub fn failed(class: Class, why: impl Into<String>) -> Self {
        Self::Failed { class, why: why.into() }
    }

    /// How a run that met this ends.
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        let why = self.whole();
        match self {
            Self::Backend(error) => error.outcome(now),
            Self::Nothing(_) => Outcome::Skipped { why },
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

    /// The error and all its causes in one line.
    pub fn whole(&self) -> String {
        whole(self)
    }
}

impl From<UnrecordedInput> for JobError {
    fn from(error: UnrecordedInput) -> Self {
        Self::failed(Class::Internal, error.to_string())
    }
}

/// Whether the disk refused, and not the guard.
fn disk(error: &ScopeError) -> bool {
    matches!(error, ScopeError::Fs(_))
}
