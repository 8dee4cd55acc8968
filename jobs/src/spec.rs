//! The interface of a job: its specification, its end and its failure.

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
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lifecycle::cycle::CycleSpec;
use crate::lifecycle::work::WorkSpec;
use crate::lifecycle::{daydream::DaydreamSpec, rem::RemSpec};
use crate::overnight::OvernightSpec;
use crate::{command::CommandSpec, curator::CuratorSpec, dream::DreamSpec, prompt::PromptSpec};

/// A job, resolved from the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its name within the project.
    pub name: String,
    pub kind: KindSpec,
    /// The backend that answers it.
    pub backend: String,
    /// The most that one run may spend.
    pub budget: Budget,
    /// How long one run may take in all.
    pub total: Duration,
}

/// The kind of a job, with that kind's own settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindSpec {
    /// The dream pass over changed ideas.
    Dream(DreamSpec),
    /// A program with declared artifacts.
    Command(CommandSpec),
    /// One question to a model, one file as the answer.
    Prompt(PromptSpec),
    /// A night over the corpus.
    #[serde(skip)]
    Overnight(OvernightSpec),
    /// The report of a night.
    Report,
    /// The sleep between the runs: one entry of the journal.
    Rem(RemSpec),
    /// A line of mood after a run.
    Daydream(DaydreamSpec),
    /// One tick of an agent's cycle.
    Cycle(CycleSpec),
    /// An agent at work: wake, audit or plan.
    Work(WorkSpec),
    /// The curator's queue.
    #[serde(skip)]
    Curator(CuratorSpec),
}

impl KindSpec {
    /// Returns the name in the configuration and in listings.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Dream(_) => "dream",
            Self::Command(_) => "command",
            Self::Prompt(_) => "prompt",
            Self::Overnight(_) => crate::overnight::KIND,
            Self::Report => "report",
            Self::Rem(_) => "rem",
            Self::Daydream(_) => "daydream",
            Self::Cycle(_) => "lifecycle",
            Self::Work(work) => work.kind.as_str(),
            Self::Curator(_) => crate::curator::KIND,
        }
    }

    /// Returns the work of the job's agent, if the job is of that kind or is a cycle whose current
    /// state is work.
    pub fn work(&self) -> Option<WorkSpec> {
        match self {
            Self::Work(work) => Some(work.clone()),
            Self::Cycle(cycle) => {
                let now = cycle.now.as_ref()?;
                let works = now.state().kind != crate::lifecycle::spec::StateKind::Rem;
                works.then(|| cycle.work(now))
            }
            _ => None,
        }
    }

    /// Returns why runs of a kind are not recorded and therefore cannot be replayed. It is `None`
    /// for most kinds.
    pub fn unrecorded(word: &str) -> Option<&'static str> {
        match word {
            crate::overnight::KIND => Some(
                "each of its iterations is published while it runs, and decides on a corpus of any size: \
                 what it did stands in its own artifacts",
            ),
            "curator" => Some(
                "each file of its queue is a piece of work of its own, begun and finished while it runs: \
                 its events tell each",
            ),
            _ => None,
        }
    }

    /// Returns true if a run whose process died without any model call is tried once more. A
    /// command may have done half of something that must not be done twice.
    pub fn retries_lost(word: &str) -> bool {
        // An act was a person's: they see that it is not decided, and decide again.
        !matches!(word, "command" | crate::dream::review::KIND)
    }
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

/// The reason why a run published nothing.
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
        /// The person or event that cancelled the run.
        why: String,
    },
    /// Its total deadline passed.
    #[error("{why}")]
    TimedOut {
        /// The work that was in progress.
        why: String,
    },
    /// Any other failure, with the class that states who must act.
    #[error("{why}")]
    Failed {
        class: Class,
        /// The failed action, its place and its cause.
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
    /// Makes a failure of a class.
    pub fn failed(class: Class, why: impl Into<String>) -> Self {
        Self::Failed {
            class,
            why: why.into(),
        }
    }

    /// Returns the outcome of a run that met this error.
    pub fn outcome(&self, now: Timestamp) -> Outcome {
        let why = self.whole();
        match self {
            Self::Backend(error) => error.outcome(now),
            Self::Nothing(_) => Outcome::Skipped { why },
            Self::Wait { until, .. } => Outcome::Deferred { until: *until, why },
            Self::Cancelled { .. } => Outcome::Cancelled { why },
            Self::TimedOut { .. } => Outcome::TimedOut { why },
            Self::Failed { class, .. } => Outcome::Failed { class: *class, why },
            Self::Git(_) | Self::Io { .. } => Outcome::Failed {
                class: Class::Environment,
                why,
            },
            Self::Scope(error) if disk(error) => Outcome::Failed {
                class: Class::Environment,
                why,
            },
            Self::Scope(_) => Outcome::Failed {
                class: Class::Guard,
                why,
            },
            Self::OverBudget(_) => Outcome::Failed {
                class: Class::OverBudget,
                why,
            },
            Self::Ledger(_) => Outcome::Failed {
                class: Class::Internal,
                why,
            },
        }
    }

    /// Returns the error and all its causes in one line.
    pub fn whole(&self) -> String {
        whole(self)
    }
}

impl From<UnrecordedInput> for JobError {
    fn from(error: UnrecordedInput) -> Self {
        Self::failed(Class::Internal, error.to_string())
    }
}

/// Returns true if the disk refused the write, and not the guard.
fn disk(error: &ScopeError) -> bool {
    matches!(error, ScopeError::Fs(_))
}
