//! The corpus: what a project's agents have learned, as files below `.agents/`.
//!
//! ```text
//! read ──> Corpus ──> close_loop | defrag | compile | harvest ──> Changes ──> staging, or a publication
//!            └──────> health, bench, brief                       (data only: nothing here writes)
//! ```
//!
//! Every step is a pure function of a corpus, a date and what it is told; the same three give the
//! same bytes. Must never write a file, never follow a link, never believe what a node says of
//! itself further than its front matter, and never lose a node that it cannot read: that one is
//! told of and left alone.

pub mod bench;
pub mod brief;
pub mod close_loop;
pub mod compile;
pub mod defrag;
pub mod harvest;
pub mod health;
pub mod index;
pub mod links;
pub mod node;
pub mod oscillation;
pub mod read;
pub mod work;

use std::collections::BTreeMap;

use serde::Serialize;

pub use node::{Maturity, Node, NodeKind};
pub use read::read;

/// Where a corpus lies in its project.
pub const FOLDER: &str = ".agents";

/// The only paths below [`FOLDER`] that a step may change.
pub const SUBPATHS: [&str; 5] = [
    "learnings",
    "findings",
    "patterns",
    "knowledge",
    "rpi/next-work.jsonl",
];

/// The file of work to do, below [`FOLDER`].
pub const NEXT_WORK: &str = "rpi/next-work.jsonl";

/// The most files that one step changes at once: a commit moves them one by one.
pub const MOST: usize = 2_000;

/// What becomes of files below [`FOLDER`]: new content, or `None` for a removal.
pub type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// Something that could not be read, or not be understood; it was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CorpusProblem {
    /// The file, below [`FOLDER`].
    pub path: String,
    /// What is wrong with it.
    pub what: String,
}

/// All that was read.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    /// The nodes, by path.
    pub nodes: Vec<Node>,
    /// The work to do, as the file has it.
    pub work: work::WorkFile,
    /// What was left out, by path.
    pub troubles: Vec<CorpusProblem>,
    /// Files below the five paths that are no nodes and are only kept.
    pub others: usize,
    /// Bytes of all files below the five paths.
    pub bytes: u64,
}

impl Corpus {
    /// The nodes that count: neither superseded nor set aside.
    pub fn active(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.is_active())
    }

    /// The node at a path.
    pub fn at(&self, path: &str) -> Option<&Node> {
        let at = self
            .nodes
            .binary_search_by(|node| node.path.as_str().cmp(path));
        at.ok().map(|at| &self.nodes[at])
    }

    /// The same corpus after some changes, as if it were read again.
    pub fn apply(&mut self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
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

/// A number that prints the same everywhere: six digits.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
