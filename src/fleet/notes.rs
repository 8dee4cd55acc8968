//! The facts of a claim or a result that this host's database keeps with a run.

use runner_engine::digest::Digest;
use runner_engine::outcome::Outcome;
use runner_engine::store::RunSummary;
use serde::{Deserialize, Serialize};

/// A claim of this host, kept with the run that works on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimNote {
    pub fleet: String,
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    /// The length of the lease in milliseconds.
    pub lease: u64,
    /// The boot time in milliseconds at which the lease ends unless it is renewed.
    pub until: u64,
}

/// A result that a run of its home host applies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApplyNote {
    pub fleet: String,
    pub occurrence: String,
    pub fence: i64,
    /// The host that publishes.
    pub home: String,
    /// The host that did the work. `None` if no host finished it.
    pub host: Option<String>,
    pub outcome: Outcome,
    pub summary: RunSummary,
    pub files: Vec<ResultFile>,
}

/// A file that a run published in its copy of the project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The path below the project.
    pub path: String,
    /// The content that the home host must still have. `None` if there must be no file.
    pub before: Option<Digest>,
    /// The new content. `None` removes the file.
    pub after: Option<Digest>,
}
