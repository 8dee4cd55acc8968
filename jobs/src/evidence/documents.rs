//! Determines which files of a project are documents: notes, plans, lists, proposals and
//! documentation. A commit that changes only documents decides nothing about a note.
//!
//! The common endings of documents are the starting point. The layout completes them: in a folder
//! in which almost all files are documents, the others (figures, metadata of proposals) belong to
//! them. `added` recognizes the remaining documents by their text. This module looks at paths only.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::commit::Commit;
use super::places;

/// Minimum number of files in a folder whose kind is learned.
const FILES: usize = 5;
/// Minimum share of documents, in percent, at which a folder holds documents only.
const MOSTLY: usize = 75;

/// The folders of a project that hold documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Documents {
    folders: BTreeSet<String>,
}

impl Documents {
    /// Learns the folders of documents from all paths in the history. `notes` are the folders of
    /// the project's own notes.
    pub fn learn(commits: &[Commit], notes: &[&str]) -> Self {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut folders: HashMap<&str, (usize, usize)> = HashMap::new();
        for path in commits.iter().flat_map(|commit| &commit.paths) {
            if !seen.insert(path) {
                continue;
            }
            let document = places::is_document(path);
            for (end, _) in path.match_indices('/') {
                let counts = folders.entry(&path[..end]).or_default();
                counts.0 += 1;
                counts.1 += usize::from(document);
            }
        }
        let mostly = folders
            .into_iter()
            .filter(|(_, (all, documents))| *all >= FILES && documents * 100 >= all * MOSTLY);
        let own = notes.iter().map(|folder| folder.trim_end_matches('/'));
        let mut learned = Self::default();
        for folder in mostly.map(|(folder, _)| folder).chain(own).collect::<BTreeSet<_>>() {
            // A folder sorts before the folders below it, which it covers.
            if !learned.covers(folder) {
                learned.folders.insert(folder.to_owned());
            }
        }
        learned
    }

    /// Returns whether the file at this path is a document.
    pub fn contains(&self, path: &str) -> bool {
        places::is_document(path) || self.covers(path)
    }

    fn covers(&self, path: &str) -> bool {
        path.match_indices('/').any(|(end, _)| self.folders.contains(&path[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(paths: &[&str]) -> Documents {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Documents::learn(&[Commit { paths, ..Commit::default() }], &["ideas"])
    }

    #[test]
    fn documents_are_learned_from_the_layout() {
        let found = learned(&[
            "plans/a/proposal.md",
            "plans/a/tasks.md",
            "plans/b/proposal.md",
            "plans/b/tasks.md",
            "plans/b/meta.yaml",
            "src/a.rs",
            "src/b.rs",
            "src/c.rs",
            "src/d.rs",
            "src/README.md",
            "ci/a.yaml",
        ]);
        for document in ["plans/c/meta.yaml", "README.md", "src/README.md", "ideas/x.canvas"] {
            assert!(found.contains(document), "{document}");
        }
        for work in ["src/e.rs", "ci/b.yaml", "plans.yaml", "Cargo.toml"] {
            assert!(!found.contains(work), "{work}");
        }
    }

    #[test]
    fn few_files_teach_nothing() {
        let found = learned(&["lib/a.md", "lib/b.md", "lib/c.rs"]);
        assert!(!found.contains("lib/d.rs"));
    }
}
