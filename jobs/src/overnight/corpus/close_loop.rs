//! The close-loop step, which promotes learnings that have proved useful.
//!
//! ```text
//! provisional ──gate──> candidate ──cited by others, or helped──> established
//! ```
//!
//! The first gate requires only properties that a new learning can have: metadata, text, evidence
//! or utility, no harm, and a minimum age. Citations count only at the second gate, because only
//! promoted learnings are cited.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_text::front_matter::edit;
use runner_text::markdown;
use serde::Serialize;

use super::links::{Links, has_evidence};
use super::{Changes, Corpus, MOST, Maturity, Node, NodeKind};

/// Minimum number of words in a node's body.
const WORDS: usize = 20;
/// Minimum utility at which a node needs no evidence.
const USEFUL: f64 = 0.7;
/// Number of days that a node stays a candidate before it can be established.
const TRIAL_DAYS: i32 = 7;

/// A node that was promoted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promotion {
    /// The path of the node's file.
    pub path: String,
    pub from: Maturity,
    pub to: Maturity,
}

/// A node that was not promoted, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldBack {
    /// The path of the node's file.
    pub path: String,
    /// The requirement that the node does not meet yet.
    pub why: String,
}

/// The report of the close-loop step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CloseLoop {
    pub schema_version: u32,
    /// Minimum age of a node for its promotion to candidate, in hours.
    pub threshold_hours: u64,
    /// Number of nodes that were considered.
    pub considered: usize,
    pub promoted: Vec<Promotion>,
    /// Number of nodes that passed but exceed the limit of one step. The next iteration promotes
    /// them.
    pub left_over: usize,
    /// Number of nodes that were held back, by reason.
    pub held: BTreeMap<String, usize>,
    /// The first nodes that were held back, at most twenty.
    pub held_examples: Vec<HeldBack>,
}

/// Promotes the learnings that pass their gate.
pub fn close_loop(corpus: &Corpus, date: Date, threshold_hours: u64) -> (CloseLoop, Changes) {
    let links = Links::of(corpus);
    let mut report = CloseLoop { schema_version: 1, threshold_hours, ..CloseLoop::default() };
    let mut changes = Changes::new();
    for (at, node) in corpus.nodes.iter().enumerate() {
        if node.kind != NodeKind::Learning || !node.is_active() {
            continue;
        }
        let (to, verdict) = match node.maturity {
            Maturity::Provisional => (Maturity::Candidate, gate(node, date, threshold_hours)),
            Maturity::Candidate => {
                let known = links.is_cited(corpus, at) || node.helpful > node.harmful;
                (Maturity::Established, if known { trial(node, date) } else { Err(UNPROVEN) })
            }
            Maturity::Unknown | Maturity::Established => continue,
        };
        report.considered += 1;
        let done = verdict.and_then(|()| {
            edit::set(&node.text, "maturity", to.as_str())
                .and_then(|text| edit::set(&text, "promoted_at", &date.to_string()))
                .ok_or("its front matter cannot be edited")
        });
        match done {
            Ok(_) if report.promoted.len() >= MOST => report.left_over += 1,
            Ok(text) => {
                report.promoted.push(Promotion {
                    path: node.path.clone(),
                    from: node.maturity,
                    to,
                });
                changes.insert(node.path.clone(), Some(text.into_bytes()));
            }
            Err(why) => {
                *report.held.entry(why.to_owned()).or_default() += 1;
                if report.held_examples.len() < 20 {
                    report
                        .held_examples
                        .push(HeldBack { path: node.path.clone(), why: why.to_owned() });
                }
            }
        }
    }
    (report, changes)
}

/// Checks the first gate, from provisional to candidate.
fn gate(node: &Node, date: Date, threshold_hours: u64) -> Result<(), &'static str> {
    if markdown::word_count(node.body()) < WORDS {
        return Err("its text is too short to be useful");
    }
    if node.harmful > node.helpful {
        return Err("it misled more often than it helped");
    }
    let Some(from) = node.date else {
        return Err("it has no date");
    };
    let hours = i64::from((date - from).get_days()).saturating_mul(24);
    if hours < i64::try_from(threshold_hours).unwrap_or(i64::MAX) {
        return Err("it is younger than the threshold");
    }
    if !has_evidence(node) && node.utility.is_none_or(|it| it < USEFUL) {
        return Err("it names no evidence and has not proved useful");
    }
    Ok(())
}

/// The reason why a candidate does not reach the second gate.
const UNPROVEN: &str = "nothing cites it yet, and it has not helped";

/// Checks the second gate, from candidate to established.
fn trial(node: &Node, date: Date) -> Result<(), &'static str> {
    if node.harmful > node.helpful {
        return Err("it misled more often than it helped");
    }
    let since = node.value("promoted_at").and_then(super::node::day).or(node.date);
    if since.is_some_and(|since| (date - since).get_days() < TRIAL_DAYS) {
        return Err("it was promoted less than a week ago");
    }
    Ok(())
}
