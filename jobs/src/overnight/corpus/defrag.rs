//! Defragments a corpus: removes byte-identical copies, and finds the nodes that the user may want
//! to retire.
//!
//! Only a node with a byte-identical copy under another name is removed without asking.
//! Near-identical nodes, nodes past their time to live, nodes that misled their users and
//! oscillating files become suggestions ([`Suggestion`]) for the user to decide on.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_engine::digest::Digest;
use serde::{Deserialize, Serialize};

use super::node::stem_of;
use super::oscillation::FileHistory;
use super::uses::{UsedNode, Uses};
use super::{Changes, Corpus, Node};

/// The steps that a defragmentation performs, and the limit on its removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to suggest stale nodes and nodes that misled their users.
    pub prune: bool,
    /// Whether to remove byte-identical copies and to suggest near-identical ones.
    pub dedup: bool,
    /// Whether to suggest files that nightly runs alternately add and remove.
    pub oscillation_sweep: bool,
    /// Maximum number of files to remove at once. The next defragmentation removes the rest.
    pub most: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { prune: true, dedup: true, oscillation_sweep: true, most: super::MOST }
    }
}

impl Options {
    /// Returns whether the selected steps suggest nodes to retire for this reason.
    pub fn looks_for(self, reason: RetireReason) -> bool {
        match reason {
            RetireReason::Duplicate => self.dedup,
            RetireReason::Stale | RetireReason::Failed => self.prune,
            RetireReason::Oscillating => self.oscillation_sweep,
        }
    }
}

/// A node that duplicates another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeat {
    /// The node that is removed.
    pub path: String,
    /// The better node, which is kept.
    pub of: String,
}

/// Why a node may be retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetireReason {
    /// Another node has nearly the same text.
    Duplicate,
    /// The node is past its time to live, and nothing has used it since.
    Stale,
    /// The node misled its users at least as often as it helped.
    Failed,
    /// Nightly runs alternately add and remove the file.
    Oscillating,
}

/// A node that the user may want to retire.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    pub path: String,
    pub reason: RetireReason,
    /// The better node, for a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub why: String,
}

/// The report of a defragmentation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Defrag {
    pub schema_version: u32,
    /// True if the removals were applied or are being applied.
    pub applied: bool,
    /// Nodes removed because the same bytes exist under another name.
    pub removed: Vec<Repeat>,
    /// Nodes that the user may want to retire.
    pub suggested: Vec<Suggestion>,
    /// Number of removals beyond the limit.
    pub left_over: usize,
}

/// Removes byte-identical copies, except oscillating files. Returns the changes and a report, which
/// contains no suggestions yet.
pub fn defrag(corpus: &Corpus, history: &FileHistory, options: Options) -> (Defrag, Changes) {
    let mut report = Defrag { schema_version: 1, ..Defrag::default() };
    let mut changes = Changes::new();
    let frozen = history.oscillating();
    let repeated = if options.dedup { same_bytes(corpus) } else { BTreeMap::new() };
    for (path, of) in repeated {
        if frozen.contains(path.as_str()) {
            continue;
        }
        if changes.len() >= options.most {
            report.left_over += 1;
            continue;
        }
        changes.insert(path.clone(), None);
        report.removed.push(Repeat { path, of });
    }
    (report, changes)
}

/// Finds the nodes that the user may want to retire, ordered by path. Each node is suggested at
/// most once.
pub fn suggestions(
    corpus: &Corpus,
    uses: &Uses,
    history: &FileHistory,
    date: Date,
    options: Options,
) -> Vec<Suggestion> {
    let mut found: BTreeMap<String, Suggestion> = BTreeMap::new();
    let mut add = |path: &str, reason, of: Option<String>, why: String| {
        let path = path.to_owned();
        found.entry(path.clone()).or_insert(Suggestion { path, reason, of, why });
    };
    if options.prune {
        let by_node = uses.by_node(corpus);
        for (at, node) in corpus.nodes.iter().enumerate().filter(|(_, node)| node.is_active()) {
            let record = by_node.get(&UsedNode::Known(at));
            if let Some(record) = record.filter(|record| record.has_failed()) {
                let why = format!(
                    "it misled {} of its users and helped {}",
                    record.failed.len(),
                    record.helped.len()
                );
                add(&node.path, RetireReason::Failed, None, why);
            }
            let used = record.and_then(|record| record.helped.values().max()).copied();
            if let Some(end) = node.stale_after(used).filter(|end| *end < date) {
                let why = format!("its time to live ended on {end}, and nothing has used it since");
                add(&node.path, RetireReason::Stale, None, why);
            }
        }
    }
    if options.dedup {
        for (path, of) in corpus.repeats() {
            let why = format!("{of} has nearly the same text");
            add(path, RetireReason::Duplicate, Some(of.clone()), why);
        }
    }
    if options.oscillation_sweep {
        for path in history.oscillating() {
            if corpus.at(path).is_some() {
                let why = "nights alternately add and remove it".to_owned();
                add(path, RetireReason::Oscillating, None, why);
            }
        }
    }
    found.into_values().collect()
}

/// Returns the names of the removed nodes, each with the name of the node that is kept. A pair of
/// equal names is left out.
pub fn merged(report: &Defrag) -> impl Iterator<Item = (String, String)> + '_ {
    let names = |it: &Repeat| (stem_of(&it.path).to_owned(), stem_of(&it.of).to_owned());
    report.removed.iter().map(names).filter(|(gone, kept)| gone != kept)
}

/// Maps each copy to the best node of its kind that has the same bytes.
fn same_bytes(corpus: &Corpus) -> BTreeMap<String, String> {
    let mut by_digest: BTreeMap<(super::NodeKind, Digest), Vec<&Node>> = BTreeMap::new();
    for node in &corpus.nodes {
        let key = (node.kind, node.digest);
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
