//! The settings of `[curator]`, and of a job of this kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::CuratorJobKind;

/// The folders that a curator works on, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CuratorSpec {
    /// Its folder with the queue, below the project's root.
    #[serde(skip)]
    pub worker_dir: String,
    /// Where the notes are: below the root, or an absolute path that is only read.
    #[serde(skip)]
    pub vault_dir: String,
    /// Where drafts of ideas go.
    #[serde(skip)]
    pub ideas: String,
    /// Where learnings go.
    #[serde(skip)]
    pub learnings: String,
    /// The most job files begun in any 60 minutes.
    #[serde(skip)]
    pub hourly_cap: u32,
    /// The kinds that are handled.
    #[serde(skip)]
    pub kinds: Vec<CuratorJobKind>,
    /// The most job files of one run.
    #[schemars(range(min = 1))]
    pub batch: u32,
    /// The one event to handle instead of the queue; `runner curator events escalate` sets it.
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
            event: None,
        }
    }
}
