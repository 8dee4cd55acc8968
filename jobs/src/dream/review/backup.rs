//! The backup of an act: the content that it replaced or removed, next to its own record, in
//! `dreams/.undo/ID/RUN/`.
//!
//! ```text
//! act.json    which act this was, and what each file held before and after
//! 0, 1, …     those contents, byte for byte
//! ```
//!
//! The backup is part of the act's own publication, so no act exists without one. It is never
//! removed.

use runner_engine::digest::Digest;
use runner_engine::scope::FileLook;
use serde::{Deserialize, Serialize};

use super::super::decisions::Decision;
use super::super::spec::DreamSpec;
use super::plan::{ActionPlan, FileChange, Source};

/// The content of a file before an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileContent {
    /// Its content.
    pub sha256: Digest,
    /// Where that lies in the backup.
    pub file: String,
    /// Its looks.
    #[serde(flatten)]
    pub looks: FileLook,
}

/// One file that an act changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedFile {
    /// Relative to the project.
    pub path: String,
    /// Before; absent where there was nothing.
    pub before: Option<FileContent>,
    /// After; absent where it was removed.
    pub after: Option<Digest>,
}

/// The state of an idea in `state.json` before an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdeaState {
    /// The idea.
    pub path: String,
    /// Its status; absent where it was not known.
    pub status: Option<String>,
    /// The triaged content; absent where there was none.
    pub hash: Option<Digest>,
}

/// `act.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecisionRecord {
    /// The decision's own line.
    pub decision: Decision,
    /// Every file but the decisions and the state.
    pub changes: Vec<ChangedFile>,
    /// The ideas that the state knew.
    pub state: Vec<IdeaState>,
}

/// Where the backups of all acts lie, below the folder of the dreams, by proposal and run.
pub const BACKUPS: &str = ".undo";

/// Returns the folder with the backups of all acts on a proposal.
pub(super) fn folder(spec: &DreamSpec, id: &str) -> String {
    format!("{}/{BACKUPS}/{id}", spec.dreams)
}

/// Returns the backup record of a plan, and the contents that belong to it.
pub(super) fn of<'p>(
    plan: &'p ActionPlan,
    decision: &Decision,
    state: Vec<IdeaState>,
) -> (DecisionRecord, Vec<&'p Source>) {
    let mut kept: Vec<&Source> = Vec::new();
    let mut hold = |source: &'p Source| {
        let file = kept.len().to_string();
        kept.push(source);
        FileContent { sha256: source.digest(), file, looks: source.looks }
    };
    let changes = plan
        .changes
        .iter()
        .map(|change| match change {
            FileChange::Put { path, bytes, over, .. } => ChangedFile {
                path: path.clone(),
                before: over.as_ref().map(&mut hold),
                after: Some(Digest::of(bytes)),
            },
            FileChange::Remove(source) => {
                ChangedFile { path: source.path.clone(), before: Some(hold(source)), after: None }
            }
        })
        .collect();
    let act = DecisionRecord { decision: decision.clone(), changes, state };
    (act, kept)
}
