//! Measures the fitness of a corpus by the known uses of its nodes.
//!
//! Links, freshness and utility do not affect the composite, and a maturity label can only lower
//! it. The hygiene metrics in `health.rs` cover all of them. If no node has a known use, the
//! fitness is unknown and only the values in [`Floors`] are compared. This module must never read a
//! clock or anything outside the given corpus and its uses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::bench::QUESTIONS;
use super::compile::FEWEST;
use super::index::Search;
use super::uses::{Resolver, UsedNode, Uses};
use super::{Corpus, Maturity, Node, NodeKind, rounded};

/// The largest drop in a measure or in a value of [`Floors`] that does not count as a regression.
pub const MAX_DROP: f64 = 0.05;
/// Number of search results to examine for each question.
const DEPTH: usize = 10;
/// Maximum number of questions to ask. The newest are asked first.
const ASKED: usize = 200;
/// Minimum share of a question's words that a node must contain to count as an answer.
const ANSWERS: f64 = 0.5;
/// Number of days during which a harvested learning that has not been used yet counts neither for
/// nor against the corpus.
const TRIAL_DAYS: i32 = 30;
/// Weight of an unproven active node, relative to a proven one, in the `in_use` measure.
const UNUSED: f64 = 0.25;

/// The measures, each with its name, its weight in the composite and its definition.
pub const MEASURES: [(&str, f64, &str); 5] = [
    (
        "found",
        0.35,
        "mean reciprocal rank of the proven nodes, each in a search for the task that used it",
    ),
    ("kept", 0.25, "share of proven nodes that are still active"),
    (
        "in_use",
        0.15,
        "proven active nodes, divided by the sum of those nodes and a quarter of the other active nodes, excluding compiled patterns and learnings harvested in the last 30 days",
    ),
    ("finished", 0.15, "share of finished work items among all finished and failed ones"),
    (
        "supported_claims",
        0.10,
        "share of proven nodes among active nodes that are proven or labelled candidate or established",
    ),
];

/// The values that are checked for a regression even if no uses are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Floors {
    /// Number of distinct texts among the active nodes.
    pub active: usize,
    /// Share of the fixed questions for which one of the three best nodes contains at least half of
    /// the words.
    pub answered: f64,
}

/// The fitness of a corpus, with the values of its measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fitness {
    /// The weighted mean of the measures, or `None` if no uses are known.
    pub composite: Option<f64>,
    /// The measured values, keyed by measure name. Empty if no uses are known.
    pub metrics: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floors: Option<Floors>,
}

/// Computes the fitness of a corpus on `date` from its recorded uses.
pub fn fitness(corpus: &Corpus, uses: &Uses, date: Date) -> Fitness {
    let search = Search::active(corpus, Date::ZERO);
    let floors = Some(floors(&search));
    if uses.is_empty() {
        return Fitness { floors, ..Fitness::default() };
    }
    let by_node = uses.by_node(corpus);
    let is_active = |node: &UsedNode| match node {
        UsedNode::Known(at) => corpus.nodes[*at].is_active(),
        UsedNode::Missing(_) => false,
    };
    let proven: BTreeSet<&UsedNode> =
        by_node.iter().filter(|(_, record)| record.is_proven()).map(|(node, _)| node).collect();
    let kept = proven.iter().filter(|node| is_active(node)).count();
    let active = corpus.active().count() - unjudged(corpus, &proven, date);
    let claims = corpus.nodes.iter().enumerate().filter(|(at, node)| {
        let claims = node.is_active() && node.maturity >= Maturity::Candidate;
        claims && !proven.contains(&UsedNode::Known(*at))
    });
    let share = |part: usize, whole: f64| if whole > 0.0 { part as f64 / whole } else { 0.0 };
    let values = [
        found(&search, uses, &proven),
        share(kept, proven.len() as f64),
        share(kept, kept as f64 + UNUSED * active.saturating_sub(kept) as f64),
        share(uses.consumed, (uses.consumed + uses.failed) as f64),
        share(kept, (kept + claims.count()) as f64),
    ];
    let composite: f64 = MEASURES.iter().zip(values).map(|((_, weight, _), it)| weight * it).sum();
    let metrics = MEASURES.iter().zip(values);
    Fitness {
        composite: Some(rounded(composite)),
        metrics: metrics.map(|((name, ..), it)| ((*name).to_owned(), rounded(it))).collect(),
        floors,
    }
}

/// Returns the number of active, unproven nodes that count neither for nor against the corpus:
/// patterns that runner compiled on subjects with at least [`FEWEST`] nodes by other authors, and
/// learnings that runner harvested in the last [`TRIAL_DAYS`] days.
fn unjudged(corpus: &Corpus, proven: &BTreeSet<&UsedNode>, date: Date) -> usize {
    let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
    for subject in corpus.active().filter(|node| !node.generated).flat_map(|it| &it.subjects) {
        *sources.entry(subject).or_default() += 1;
    }
    let compiled = |node: &Node| {
        let mut subjects = node.subjects.iter();
        node.kind == NodeKind::Pattern
            && subjects.any(|it| sources.get(it.as_str()).is_some_and(|count| *count >= FEWEST))
    };
    let young = |node: &Node| {
        let harvested = node.value("harvested_at").and_then(super::node::day);
        node.kind == NodeKind::Learning
            && harvested.is_some_and(|day| (0..TRIAL_DAYS).contains(&(date - day).get_days()))
    };
    let all = corpus.nodes.iter().enumerate();
    all.filter(|(at, node)| {
        node.is_active()
            && node.generated
            && (compiled(node) || young(node))
            && !proven.contains(&UsedNode::Known(*at))
    })
    .count()
}

/// Returns the mean reciprocal rank of the proven nodes, in searches for the questions they were
/// used for. Nodes used for the same question do not lower each other's rank.
fn found(search: &Search<'_>, uses: &Uses, proven: &BTreeSet<&UsedNode>) -> f64 {
    let resolver = Resolver::of(uses, search.corpus);
    let mut asked: BTreeMap<(std::cmp::Reverse<Date>, &str), BTreeSet<UsedNode>> = BTreeMap::new();
    for event in uses.events.iter().filter(|event| event.helped && !event.question.is_empty()) {
        let node = resolver.node(&event.name);
        if proven.contains(&node) {
            let key = (std::cmp::Reverse(event.date), event.question.as_str());
            asked.entry(key).or_default().insert(node);
        }
    }
    let (mut sum, mut count) = (0.0, 0);
    for ((_, question), wanted) in asked.iter().take(ASKED) {
        let mut others = 0;
        for at in search.by_relevance(question, DEPTH) {
            match wanted.contains(&UsedNode::Known(at)) {
                true => sum += 1.0 / f64::from(1 + others),
                false => others += 1,
            }
        }
        count += wanted.len();
    }
    if count > 0 { sum / count as f64 } else { 0.0 }
}

fn floors(search: &Search<'_>) -> Floors {
    let texts: BTreeSet<_> = search.corpus.active().map(|node| node.digest).collect();
    let mut answered = 0;
    for (question, _) in QUESTIONS {
        let best = search.hits(question, 3);
        answered += usize::from(best.iter().any(|hit| hit.covered >= ANSWERS));
    }
    let answered = rounded(answered as f64 / QUESTIONS.len() as f64);
    Floors { active: texts.len(), answered }
}

/// Returns the measures and [`Floors`] values that fell by more than `max_drop`, each with its name
/// and its drop. A measure that is missing from `after` is treated as 0, and the drop in the number
/// of active nodes is relative.
pub fn regressions(before: &Fitness, after: &Fitness, max_drop: f64) -> Vec<(String, f64)> {
    let mut fell: Vec<(String, f64)> = before
        .metrics
        .iter()
        .map(|(name, was)| {
            let now = after.metrics.get(name).copied().unwrap_or(0.0);
            (name.clone(), rounded(was - now))
        })
        .collect();
    if let (Some(was), Some(now)) = (&before.floors, &after.floors) {
        fell.push(("answered_questions".to_owned(), rounded(was.answered - now.answered)));
        let lost = was.active.saturating_sub(now.active) as f64 / was.active.max(1) as f64;
        fell.push(("active_nodes".to_owned(), rounded(lost)));
    }
    fell.retain(|(_, drop)| *drop > max_drop);
    fell
}
