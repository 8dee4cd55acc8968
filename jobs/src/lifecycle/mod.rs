//! The lifecycle: what a project's agents do in turn, and the entry that each night's sleep leaves
//! (contracts/lifecycle.md).

pub mod audit;
pub mod board;
pub mod cycle;
pub mod daydream;
pub mod entry;
pub mod manifest;
pub mod newest;
pub mod orient;
pub mod position;
pub mod publish;
pub mod rem;
pub mod spec;
pub mod step;
pub mod work;

use serde::{Deserialize, Serialize};

/// The board that a project has when it names none of its own.
pub const BOARD: &str = "plan.org";

/// A project's settings for the lifecycle's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The record of tools, below the project.
    pub steps: String,
    /// The daydreams, below the project.
    pub daydreams: String,
    /// Whether an entry is committed once it is published.
    pub commit: bool,
    /// Whether that commit is pushed.
    pub push: bool,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            steps: crate::steps::FILE.to_owned(),
            daydreams: "daydreams.json".to_owned(),
            commit: false,
            push: false,
        }
    }
}
