//! Determines which files of a project are documents: notes, plans, lists, proposals and
//! documentation. A commit that changes only documents proves nothing about a note.
//!
//! Files with a common document extension are documents. Other files, such as figures and proposal
//! metadata, are documents because of their location: every file below a folder of notes, or below
//! a folder with mostly documents. `added` recognizes the remaining commits of documents by their
//! text. The instructions of an agent skill are not documents, because agents execute them. This
//! module uses paths only.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::commit::Commit;
use super::places;

/// Minimum number of files below a folder for the folder to count as a document folder.
const FILES: usize = 5;
/// Minimum share of documents, in percent, at which all files below a folder count as documents.
const MOSTLY: usize = 75;

/// The file that makes a folder an agent skill.
const SKILL: &str = "/SKILL.md";

/// A project's document folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Documents {
    folders: BTreeSet<String>,
    /// The folders of agent skills.
    skills: BTreeSet<String>,
}

impl Documents {
    /// Learns the document folders from all paths in the history. `notes` are the folders of the
    /// project's own notes.
    pub fn learn(commits: &[Commit], notes: &[&str]) -> Self {
        let own: Vec<&str> = notes.iter().map(|folder| folder.trim_end_matches('/')).collect();
        let is_own = |path: &str| {
            own.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')))
        };
        let paths = || commits.iter().flat_map(|commit| &commit.paths);
        let skills =
            paths().filter(|path| !is_own(path)).filter_map(|path| path.strip_suffix(SKILL));
        let mut learned =
            Self { folders: BTreeSet::new(), skills: skills.map(str::to_owned).collect() };
        let mut seen: HashSet<&str> = HashSet::new();
        let mut folders: HashMap<&str, (usize, usize)> = HashMap::new();
        for path in paths() {
            if !seen.insert(path) {
                continue;
            }
            let document = places::is_document(path) && !learned.is_skill(path);
            for (end, _) in path.match_indices('/') {
                let counts = folders.entry(&path[..end]).or_default();
                counts.0 += 1;
                counts.1 += usize::from(document);
            }
        }
        let mostly = folders
            .into_iter()
            .filter(|(_, (all, documents))| *all >= FILES && documents * 100 >= all * MOSTLY);
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
        !self.is_skill(path) && (places::is_document(path) || self.covers(path))
    }

    /// Returns whether the file at this path is part of an agent skill.
    pub fn is_skill(&self, path: &str) -> bool {
        is_below(path, &self.skills)
    }

    fn covers(&self, path: &str) -> bool {
        is_below(path, &self.folders)
    }
}

/// Returns whether one of these folders contains the path.
fn is_below(path: &str, folders: &BTreeSet<String>) -> bool {
    !folders.is_empty() && path.match_indices('/').any(|(end, _)| folders.contains(&path[..end]))
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
    fn agent_skills_are_not_documents() {
        let found = learned(&[
            ".claude/skills/review/SKILL.md",
            ".claude/skills/review/references/list.md",
            ".claude/skills/plan/SKILL.md",
            ".claude/skills/plan/steps.md",
            ".claude/skills/README.md",
            "ideas/skill/SKILL.md",
            "SKILL.md",
        ]);
        for work in [".claude/skills/review/SKILL.md", ".claude/skills/plan/steps.md"] {
            assert!(!found.contains(work) && found.is_skill(work), "{work}");
        }
        for document in ["ideas/skill/SKILL.md", "SKILL.md", ".claude/skills/README.md", "a.md"] {
            assert!(found.contains(document), "{document}");
        }
    }

    #[test]
    fn small_folder_is_not_a_document_folder() {
        let found = learned(&["lib/a.md", "lib/b.md", "lib/c.rs"]);
        assert!(!found.contains("lib/d.rs"));
    }
}
