//! Defragments a corpus: removes repetitions, sets stale nodes aside and reports oscillating files.
//!
//! - *Dedup* removes a node whose bytes equal those of a better node, and marks a node with nearly
//!   the same text as superseded.
//! - *Prune* marks a node past its time to live as stale.
//! - *Oscillation sweep* reports files that nights alternately add and remove.
//!
//! An oscillating file is never changed. A node stays unchanged if its front matter cannot be
//! edited safely. Nothing is removed unless the same bytes exist under another name.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_text::front_matter::edit;
use serde::Serialize;

use super::health::repeats;
use super::oscillation::FileHistory;
use super::{Changes, Corpus, Node};

/// The steps that a defragmentation runs, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to set stale nodes aside.
    pub prune: bool,
    /// Whether to remove or supersede repetitions.
    pub dedup: bool,
    /// Whether to report files that nights alternately add and remove.
    pub oscillation_sweep: bool,
    /// Maximum number of files that are changed in one step. The next iteration changes the rest.
    pub most: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { prune: true, dedup: true, oscillation_sweep: true, most: super::MOST }
    }
}

/// A node that repeats another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeat {
    /// The node that is removed or superseded.
    pub path: String,
    /// The better node, which stays.
    pub of: String,
}

/// The report of a defragmentation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Defrag {
    pub schema_version: u32,
    /// True if the changes were applied or are being applied.
    pub applied: bool,
    /// Nodes that are removed because the same bytes exist under another name.
    pub removed: Vec<Repeat>,
    /// Nodes that are superseded by a node with nearly the same text.
    pub superseded: Vec<Repeat>,
    /// Nodes that are marked as stale because they are past their time to live.
    pub stale: Vec<String>,
    /// Files that stay unchanged because nights alternately add and remove them.
    pub oscillating: Vec<String>,
    /// Nodes that stay unchanged because their front matter cannot be edited safely.
    pub uneditable: Vec<String>,
    /// Number of changes beyond the limit of one step.
    pub left_over: usize,
}

/// Finds repetitions, stale nodes and oscillating files, and returns the report and the changes.
pub fn defrag(
    corpus: &Corpus,
    history: &FileHistory,
    date: Date,
    options: Options,
) -> (Defrag, Changes) {
    let mut report = Defrag { schema_version: 1, ..Defrag::default() };
    let mut changes = Changes::new();
    let frozen = history.oscillating();
    if options.oscillation_sweep {
        let there = |path: &&&str| corpus.at(path).is_some();
        report.oscillating = frozen.iter().filter(there).map(|it| (*it).to_owned()).collect();
    }
    if options.dedup {
        let repeated = same_bytes(corpus);
        for (path, of) in &repeated {
            if frozen.contains(path.as_str()) {
                continue;
            }
            if changes.len() >= options.most {
                report.left_over += 1;
                continue;
            }
            report.removed.push(Repeat { path: path.clone(), of: of.clone() });
            changes.insert(path.clone(), None);
        }
        for (path, of) in repeats(corpus) {
            if repeated.contains_key(&path)
                || repeated.contains_key(&of)
                || frozen.contains(path.as_str())
            {
                continue;
            }
            let (Some(node), Some(better)) = (corpus.at(&path), corpus.at(&of)) else {
                continue;
            };
            // Readers of the superseded node can find the better node by its id.
            let text = edit::set(&node.text, "superseded_by", &better.id);
            if change(&mut changes, &mut report, node, text, options.most) {
                report.superseded.push(Repeat { path, of });
            }
        }
    }
    if options.prune {
        for node in corpus.active() {
            let past = node.stale_after().is_some_and(|end| end < date);
            if !past || changes.contains_key(&node.path) || frozen.contains(node.path.as_str()) {
                continue;
            }
            let text = edit::set(&node.text, "status", "stale");
            if change(&mut changes, &mut report, node, text, options.most) {
                report.stale.push(node.path.clone());
            }
        }
    }
    (report, changes)
}

fn change(
    changes: &mut Changes,
    report: &mut Defrag,
    node: &Node,
    text: Option<String>,
    most: usize,
) -> bool {
    let Some(text) = text else {
        report.uneditable.push(node.path.clone());
        return false;
    };
    if changes.len() >= most {
        report.left_over += 1;
        return false;
    }
    changes.insert(node.path.clone(), Some(text.into_bytes()));
    true
}

/// Maps each node to a better node of its kind with the same bytes.
fn same_bytes(corpus: &Corpus) -> BTreeMap<String, String> {
    let mut by_digest: BTreeMap<(super::NodeKind, String), Vec<&Node>> = BTreeMap::new();
    for node in &corpus.nodes {
        let key = (node.kind, node.digest.to_string());
        by_digest.entry(key).or_default().push(node);
    }
    let mut found = BTreeMap::new();
    for group in by_digest.values_mut().filter(|group| group.len() > 1) {
        group.sort_by_key(|node| node.standing());
        for node in &group[1..] {
            found.insert(node.path.clone(), group[0].path.clone());
        }
    }
    found
}
