//! Records the files that nightly runs add and remove, to detect files that oscillate.
//!
//! The history is stored next to the corpus, in `.agents/overnight/oscillation.json`. A damaged
//! history is treated as empty, because the history is used only to hold back changes and to
//! attribute the uses of removed nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Minimum number of direction changes at which a file is considered oscillating.
pub const TURNS: usize = 3;
/// Maximum number of events to keep for each file.
const KEPT: usize = 8;

/// One addition or removal of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEvent {
    pub iteration: String,
    /// True if the file was added, false if it was removed.
    pub added: bool,
}

/// The additions and removals of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHistory {
    #[serde(default)]
    pub schema_version: u32,
    /// The events by file, newest last.
    #[serde(default)]
    pub acts: BTreeMap<String, Vec<FileEvent>>,
    /// The names of removed nodes, each with the name of the node that had the same bytes. Uses of
    /// a removed node count towards the node that replaced it.
    #[serde(default)]
    pub merged: BTreeMap<String, String>,
}

impl FileHistory {
    /// Parses a history, or returns an empty history if it is damaged.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Records the files that an iteration adds and removes.
    pub fn note<'p>(&mut self, iteration: &str, changes: impl Iterator<Item = (&'p str, bool)>) {
        self.schema_version = 1;
        for (path, added) in changes {
            let acts = self.acts.entry(path.to_owned()).or_default();
            acts.push(FileEvent { iteration: iteration.to_owned(), added });
            let over = acts.len().saturating_sub(KEPT);
            acts.drain(..over);
        }
    }

    /// Returns the files with at least [`TURNS`] direction changes.
    pub fn oscillating(&self) -> BTreeSet<&str> {
        let turns =
            |acts: &[FileEvent]| acts.windows(2).filter(|it| it[0].added != it[1].added).count();
        let all = self.acts.iter();
        all.filter(|(_, acts)| turns(acts) >= TURNS).map(|(path, _)| path.as_str()).collect()
    }
}
