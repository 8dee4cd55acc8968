//! The close-loop step, which promotes learnings that have proved useful.
//!
//! ```text
//! provisional ──teaches; later use or checked commit──> candidate ──two later uses──> established
//! ```
//!
//! Proof comes from outside the corpus's nodes. Either a session, commit or finished work item used
//! the learning after the day it was written or harvested, or a commit mentioned in the learning
//! changed a path that is also mentioned there. Labels and links written by runner are not proof.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_text::counted;
use runner_text::front_matter::edit;
use serde::Serialize;

use super::links::{commits, paths};
use super::teaches::teaches;
use super::uses::{UseRecord, UsedNode, Uses};
use super::{Changes, Corpus, Maturity, Node, NodeKind};

/// Minimum number of days a node must remain a candidate before it can be established.
const TRIAL_DAYS: i32 = 7;
/// Number of later uses needed to establish a candidate.
const ESTABLISHED: usize = 2;

/// A node that was promoted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promotion {
    /// The path of the node's file.
    pub path: String,
    pub from: Maturity,
    pub to: Maturity,
    /// The proof that justified the promotion.
    pub proof: String,
}

/// A node that was not promoted, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldBack {
    /// The path of the node's file.
    pub path: String,
    /// The requirement that the node does not yet meet.
    pub why: String,
}

/// The report of the close-loop step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CloseLoop {
    pub schema_version: u32,
    /// Minimum age, in hours, at which a node can be promoted to candidate. At least one day is
    /// always required.
    pub threshold_hours: u64,
    /// Number of learnings that were checked against a gate.
    pub considered: usize,
    pub promoted: Vec<Promotion>,
    /// Number of nodes that were held back, by reason.
    pub held: BTreeMap<String, usize>,
    /// The first nodes that were held back, at most twenty.
    pub held_examples: Vec<HeldBack>,
}

/// Promotes every learning that passes its gate.
pub fn close_loop(
    corpus: &Corpus,
    uses: &Uses,
    date: Date,
    threshold_hours: u64,
) -> (CloseLoop, Changes) {
    let by_node = uses.by_node(corpus);
    let unused = UseRecord::default();
    let mut report = CloseLoop { schema_version: 1, threshold_hours, ..CloseLoop::default() };
    let mut changes = Changes::new();
    for (at, node) in corpus.nodes.iter().enumerate() {
        if node.kind != NodeKind::Learning || !node.is_active() {
            continue;
        }
        let record = by_node.get(&UsedNode::Known(at)).unwrap_or(&unused);
        let (to, proof) = match node.maturity {
            _ if is_new(node) => {
                let old = old_enough(node, date, threshold_hours);
                (Maturity::Candidate, old.and_then(|from| first_gate(node, record, uses, from)))
            }
            Maturity::Candidate => (Maturity::Established, second_gate(node, record, date)),
            _ => continue,
        };
        report.considered += 1;
        let done = proof.and_then(|proof| {
            edit::set(&node.text, "maturity", to.as_str())
                .and_then(|text| edit::set(&text, "promoted_at", &date.to_string()))
                .map(|text| (proof, text))
                .ok_or("its front matter cannot be edited")
        });
        match done {
            Ok((proof, text)) => {
                let (path, from) = (node.path.clone(), node.maturity);
                report.promoted.push(Promotion { path, from, to, proof });
                changes.insert(node.path.clone(), Some(text.into_bytes()));
            }
            Err(why) => {
                *report.held.entry(why.to_owned()).or_default() += 1;
                if report.held_examples.len() < 20 {
                    let (path, why) = (node.path.clone(), why.to_owned());
                    report.held_examples.push(HeldBack { path, why });
                }
            }
        }
    }
    (report, changes)
}

/// Returns whether the node is provisional or is marked `unclassified` in its front matter.
fn is_new(node: &Node) -> bool {
    node.maturity == Maturity::Provisional || node.value("maturity") == Some("unclassified")
}

/// Returns the day on which the node was written or harvested, whichever is later, if that day is
/// over and the threshold has passed.
fn old_enough(node: &Node, date: Date, threshold_hours: u64) -> Result<Date, &'static str> {
    let from = node.date.ok_or("it has no date")?;
    let harvested = node.value("harvested_at").and_then(super::node::day);
    let from = harvested.map_or(from, |it| it.max(from));
    let hours = i64::from((date - from).get_days()).saturating_mul(24);
    let least = i64::try_from(threshold_hours).unwrap_or(i64::MAX).max(1);
    if hours < least { Err("it is younger than the threshold") } else { Ok(from) }
}

/// Checks the first gate, from provisional to candidate, and returns the proof.
fn first_gate(
    node: &Node,
    record: &UseRecord,
    uses: &Uses,
    from: Date,
) -> Result<String, &'static str> {
    teaches(&format!("{}.\n{}", node.title, node.body())).map_err(|missing| missing.describe())?;
    if record.has_failed() {
        return Err("it misled at least as often as it helped");
    }
    match record.helped_after(from) {
        0 => checked_commit(node, uses).ok_or("nothing has used it yet, and no commit confirms it"),
        count => Ok(format!("used {} after {from}", counted(count, "time"))),
    }
}

/// Describes a commit that the node mentions and that changed a path the node also mentions.
/// Returns `None` if there is no such commit or if runner wrote the node. The commit that the node
/// was taken from does not count, because it is not independent proof.
fn checked_commit(node: &Node, uses: &Uses) -> Option<String> {
    if node.generated {
        return None;
    }
    let body = node.body();
    let named: Vec<&str> = paths(body).collect();
    let source = node.value("source_commit").unwrap_or_default();
    let mut independent = commits(&node.text).filter(|it| source.get(..7) != it.get(..7));
    independent.find_map(|commit| {
        let changed = uses.commits.get(commit.get(..7)?)?;
        let fits =
            |path: &&str| changed.iter().any(|it| it == path || it.ends_with(&format!("/{path}")));
        let path = named.iter().find(|path| fits(path))?;
        Some(format!("commit {} changed {path}", &commit[..7]))
    })
}

/// Checks the second gate, from candidate to established, and returns the proof.
fn second_gate(node: &Node, record: &UseRecord, date: Date) -> Result<String, &'static str> {
    if record.has_failed() {
        return Err("it misled at least as often as it helped");
    }
    let since = node.value("promoted_at").and_then(super::node::day).or(node.date);
    let since = since.ok_or("it has no date")?;
    if (date - since).get_days() < TRIAL_DAYS {
        return Err("it was promoted less than a week ago");
    }
    match record.helped_after(since) {
        count if count >= ESTABLISHED => {
            Ok(format!("used {} after {since}", counted(count, "time")))
        }
        _ => Err("it was used fewer than two times since its promotion"),
    }
}
