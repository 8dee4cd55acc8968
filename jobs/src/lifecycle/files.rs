//! `[lifecycle]`: where a project keeps the files of its lifecycle, and whether entries are committed.

use serde::{Deserialize, Serialize};

/// The lifecycle's files and commits in a project.
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
