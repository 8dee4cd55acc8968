//! The corpus: the knowledge and the work items that a project's agents have collected, stored as
//! files in `.agents/`.
//!
//! ```text
//! read ──> Corpus ──> close_loop | defrag | compile | harvest ──> Changes ──> staging, or a commit
//!            └──────> health, bench, brief                       (data only: nothing here writes)
//! ```
//!
//! Every step is a pure function, so the same input yields the same bytes. No step may write a
//! file. A node that cannot be read is reported and left unchanged.

pub mod bench;
pub mod brief;
pub mod close_loop;
pub mod compile;
pub mod defrag;
pub mod fitness;
pub mod harvest;
pub mod health;
pub mod index;
pub mod links;
pub mod node;
pub mod oscillation;
pub mod read;
pub mod teaches;
pub mod uses;
pub mod work;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use index::Index;
use runner_engine::digest::Digest;
use serde::Serialize;

pub use node::{Maturity, Node, NodeKind};
pub use read::read;

/// The folder in a project that contains its corpus.
pub const FOLDER: &str = ".agents";

/// The only paths inside [`FOLDER`] that a step may change.
pub const SUBPATHS: [&str; 5] =
    ["learnings", "findings", "patterns", "knowledge", "rpi/next-work.jsonl"];

/// The work items file, relative to [`FOLDER`].
pub const NEXT_WORK: &str = "rpi/next-work.jsonl";

/// Maximum number of files that one defragmentation removes. The number is limited because a commit
/// moves the files one by one.
pub const MOST: usize = 2_000;

/// Changes to files inside [`FOLDER`]: a file's new content, or `None` to remove it.
pub type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// A problem with a file or an entry, which is left unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CorpusProblem {
    /// The file's path, relative to [`FOLDER`].
    pub path: String,
    pub what: String,
}

#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// The nodes, ordered by path.
    pub nodes: Vec<Node>,
    pub work: work::WorkFile,
    /// The problems found while reading, ordered by path.
    pub troubles: Vec<CorpusProblem>,
    /// Number of files within the five paths that are neither nodes nor the work file. They are
    /// kept unchanged.
    pub others: usize,
    /// Combined size in bytes of all files within the five paths.
    pub bytes: u64,
    index: OnceLock<Index>,
    repeats: OnceLock<BTreeMap<String, String>>,
}

impl Corpus {
    /// Returns the index of the nodes, which is built on first use.
    pub fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self))
    }

    /// Moves the index out of the corpus, if it was built.
    pub fn take_index(&mut self) -> Option<Index> {
        self.index.take()
    }

    /// Reuses an index built from another read of the corpus if the nodes had the same contents.
    pub fn adopt(&mut self, index: Option<Index>) {
        if let Some(index) = index.filter(|index| index.is_of(&self.key())) {
            self.index = index.into();
        }
    }

    /// Maps the path of each active node that duplicates a better node of its kind to the better
    /// node's path. The map is computed on first use.
    pub fn repeats(&self) -> &BTreeMap<String, String> {
        self.repeats.get_or_init(|| health::repeats(self))
    }

    /// Returns a digest of the paths and the contents of the nodes.
    pub fn key(&self) -> Digest {
        let lines = self.nodes.iter().map(|node| format!("{} {}\n", node.path, node.digest));
        Digest::of(lines.collect::<String>().as_bytes())
    }

    /// Returns the active nodes: those that are neither superseded nor set aside.
    pub fn active(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_active())
    }

    pub fn at(&self, path: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.path.as_str().cmp(path));
        at.ok().map(|at| &self.nodes[at])
    }

    /// Applies changes to the nodes and the work items, and discards the index and the repeats. The
    /// other fields are not updated.
    pub fn apply(&mut self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        (self.index, self.repeats) = Default::default();
        self.nodes.retain(|node| !changes.contains_key(&node.path));
        for (path, content) in changes {
            let Some(bytes) = content else { continue };
            if path == NEXT_WORK {
                self.work = work::WorkFile::parse(bytes);
            } else if let (Some(kind), Ok(text)) = (NodeKind::of(path), std::str::from_utf8(bytes))
            {
                self.nodes.push(Node::parse(path, kind, text.to_owned()));
            }
        }
        self.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// Rounds a number to six decimal places, so it prints the same everywhere.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
