//! The history of files that nights add and remove in turns; such files are left alone.
//!
//! The history lies beside the corpus, in `.agents/overnight/oscillation.json`. A damaged history
//! is started anew, because its only use is to hold changes back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// From so many changes of direction on, a file oscillates.
pub const TURNS: usize = 3;
/// How many acts are remembered of one file.
const KEPT: usize = 8;

/// One addition or removal of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEvent {
    /// In which iteration.
    pub iteration: String,
    /// Whether it was added; else it was removed.
    pub added: bool,
}

/// The acts by file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHistory {
    /// The form of this document.
    #[serde(default)]
    pub schema_version: u32,
    /// The newest last.
    #[serde(default)]
    pub acts: BTreeMap<String, Vec<FileEvent>>,
}

impl FileHistory {
    /// Reads a history; of a damaged one nothing.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Notes what an iteration adds and removes.
    pub fn note<'p>(&mut self, iteration: &str, changes: impl Iterator<Item = (&'p str, bool)>) {
        self.schema_version = 1;
        for (path, added) in changes {
            let acts = self.acts.entry(path.to_owned()).or_default();
            acts.push(FileEvent { iteration: iteration.to_owned(), added });
            let over = acts.len().saturating_sub(KEPT);
            acts.drain(..over);
        }
    }

    /// Returns the files that were added and removed in turns.
    pub fn oscillating(&self) -> BTreeSet<&str> {
        let turns =
            |acts: &[FileEvent]| acts.windows(2).filter(|it| it[0].added != it[1].added).count();
        let all = self.acts.iter();
        all.filter(|(_, acts)| turns(acts) >= TURNS).map(|(path, _)| path.as_str()).collect()
    }
}
