//! The lifecycle: what a project's agents do in turn, and the entry that each night's sleep leaves
//! (contracts/lifecycle.md).

pub mod audit;
pub mod daydream;
pub mod entry;
pub mod manifest;
pub mod publish;
pub mod rem;

/// What a project's own settings say of the lifecycle's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The board, below the project.
    pub board: String,
    /// The record of tools, below the project.
    pub steps: String,
    /// The daydreams, below the project.
    pub daydreams: String,
    /// Whether an entry is committed once it is placed.
    pub commit: bool,
    /// Whether that commit is pushed.
    pub push: bool,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            board: "plan.org".to_owned(),
            steps: crate::steps::FILE.to_owned(),
            daydreams: "daydreams.json".to_owned(),
            commit: false,
            push: false,
        }
    }
}
