//! Facts about a claim or a result that this host's database stores with a run.

use runner_engine::digest::Digest;
use runner_engine::outcome::Outcome;
use runner_engine::store::RunSummary;
use serde::{Deserialize, Serialize};

/// A claim held by this host, stored with the run that works on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimNote {
    pub fleet: String,
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    /// The length of the lease in milliseconds.
    pub lease: u64,
    /// The boot time in milliseconds at which the lease expires unless renewed.
    pub until: u64,
}

/// A result that is applied by a run on its home host.
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
    /// The path relative to the project.
    pub path: String,
    /// The content that the home host must still have. `None` if the file must not exist.
    pub before: Option<Digest>,
    /// The new content. `None` removes the file.
    pub after: Option<Digest>,
}
