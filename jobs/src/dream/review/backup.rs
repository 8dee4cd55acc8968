//! An act's backup: the content that the act replaced or removed, with a record of the act, in
//! `dreams/.undo/ID/RUN/`.
//!
//! ```text
//! act.json    the decision, and the digests of each file before and after
//! 0, 1, …     the contents before the act, byte for byte
//! ```
//!
//! The backup is published together with the act, so every change to an idea has a backup. Only
//! maintenance removes backups, after the retention period for finished records.

use std::collections::BTreeMap;
use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::publish::{PublishFs as _, RealFs, RelPath};
use runner_engine::scope::FileLook;
use serde::{Deserialize, Serialize};

use super::super::LONGEST;
use super::super::decisions::Decision;
use super::super::inventory::Reader;
use super::super::spec::DreamSpec;
use super::plan::{ActionPlan, FileChange, Source};

/// The content of a file before an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileContent {
    /// The digest of the content.
    pub sha256: Digest,
    /// The file in the backup that contains the content.
    pub file: String,
    /// The file's permission bits and modification time.
    #[serde(flatten)]
    pub looks: FileLook,
}

/// One file that an act changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedFile {
    /// The path of the file, relative to the project.
    pub path: String,
    /// The content before the act; `None` if there was no file.
    pub before: Option<FileContent>,
    /// The digest after the act; `None` if the act removed the file.
    pub after: Option<Digest>,
}

/// The state of an idea in `state.json` before an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdeaState {
    pub path: String,
    /// The idea's status; `None` if `state.json` had no entry or no status for the idea.
    pub status: Option<String>,
    /// The digest of the triaged content; `None` if none was recorded.
    pub hash: Option<Digest>,
}

/// The content of `act.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecisionRecord {
    /// The decision as written in the decisions file.
    pub decision: Decision,
    /// All changed files except runner's own files.
    pub changes: Vec<ChangedFile>,
    /// The affected ideas, as `state.json` recorded them before the act.
    pub state: Vec<IdeaState>,
}

/// The folder inside the dreams folder that contains the backups of all acts. It has a subfolder
/// for each proposal, which in turn has one for each run.
pub const BACKUPS: &str = ".undo";

/// Returns the folder containing the backups of all acts on a proposal.
pub(super) fn folder(spec: &DreamSpec, id: &str) -> String {
    format!("{}/{BACKUPS}/{id}", spec.dreams)
}

/// Returns the backup record of a plan, and the file contents that the record refers to.
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

/// Returns each path that an act changed, with the file's digest after the latest such act, or
/// `None` if that act removed the file. A backup that cannot be read is skipped, so changes
/// recorded only there are treated as someone else's.
pub fn own_edits(root: &Path, spec: &DreamSpec) -> BTreeMap<String, Option<Digest>> {
    let mut acts: Vec<(String, DecisionRecord)> = Vec::new();
    let (Ok(fs), Ok(reader)) = (RealFs::open(root), Reader::open(root, LONGEST)) else {
        return BTreeMap::new();
    };
    let list = |folder: &str| {
        let found = RelPath::new(folder).ok().and_then(|folder| fs.list(&folder).ok().flatten());
        found.unwrap_or_default()
    };
    let backups = format!("{}/{BACKUPS}", spec.dreams);
    for id in list(&backups) {
        for run in list(&format!("{backups}/{id}")) {
            let act = reader.read(&format!("{backups}/{id}/{run}/act.json")).ok();
            let act = act.and_then(|(bytes, _)| serde_json::from_slice(&bytes).ok());
            acts.extend(act.map(|act| (run, act)));
        }
    }
    // Run IDs sort chronologically.
    acts.sort_by(|a, b| a.0.cmp(&b.0));
    let changes = acts.into_iter().flat_map(|(_, act)| act.changes);
    changes.map(|change| (change.path, change.after)).collect()
}
