//! The settings for `[curator]` and for a job of this kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::CuratorJobKind;

/// The folders that a curator works on, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CuratorSpec {
    /// The worker's folder, which contains the queue, relative to the project's root.
    #[serde(skip)]
    pub worker_dir: String,
    /// The notes folder: relative to the root, or an absolute path that is only read.
    #[serde(skip)]
    pub vault_dir: String,
    /// The folder for idea drafts.
    #[serde(skip)]
    pub ideas: String,
    /// The folder for learnings.
    #[serde(skip)]
    pub learnings: String,
    /// Maximum number of job files that are started within any 60 minutes.
    #[serde(skip)]
    pub hourly_cap: u32,
    /// The kinds of jobs that are handled.
    #[serde(skip)]
    pub kinds: Vec<CuratorJobKind>,
    /// The maximum number of job files in one run.
    #[schemars(range(min = 1))]
    pub batch: u32,
    /// The kinds of job files that a run adds to the queue, unless a job of the same kind is
    /// already waiting there: "lint-wiki" and "dream-seed". A job with a nightly trigger then
    /// drafts ideas each night.
    pub enqueue: Vec<CuratorJobKind>,
    /// The event to process instead of the queue. `runner curator events escalate` sets it.
    pub event: Option<String>,
}

impl Default for CuratorSpec {
    fn default() -> Self {
        Self {
            worker_dir: ".runner/curator".to_owned(),
            vault_dir: "docs".to_owned(),
            ideas: "ideas".to_owned(),
            learnings: ".agents/learnings".to_owned(),
            hourly_cap: 20,
            kinds: CuratorJobKind::ALL.to_vec(),
            batch: 5,
            enqueue: Vec::new(),
            event: None,
        }
    }
}
