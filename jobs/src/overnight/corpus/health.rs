//! Measures the hygiene of a corpus, and reports it together with the fitness.
//!
//! Hygiene is a set of named metrics from 0 to 1, each with a minimum. It never affects the
//! fitness. A test checks that `docs/guide/corpus.md` contains the same definitions. This module
//! must never read a clock or anything outside the given corpus and its uses.

use std::collections::BTreeMap;

use jiff::civil::Date;
use runner_text::near::{Doc, neighbours};
use serde::Serialize;

use super::bench::{Bench, bench};
use super::fitness::{Fitness, MEASURES, fitness};
use super::links::{Links, has_evidence};
use super::uses::Uses;
use super::{Corpus, CorpusProblem, NodeKind, rounded};

/// Minimum similarity at which two nodes of the same kind are duplicates.
pub const SAME: f64 = 0.8;
/// Maximum number of paths in each list of the report.
const NAMED: usize = 50;

/// The metrics, each with its name, its weight in the hygiene, its minimum and its definition.
pub const METRICS: [(&str, f64, f64, &str); 9] = [
    (
        "maturity",
        0.15,
        0.5,
        "mean weight of active nodes: established 1, candidate 0.8, provisional 0.6, unstated 0",
    ),
    (
        "citation_coverage",
        0.10,
        0.1,
        "share of active nodes that cite another node, or are cited by a node or by open work",
    ),
    (
        "evidence_coverage",
        0.15,
        0.5,
        "share of active nodes that name a source, a path or a commit",
    ),
    (
        "uniqueness",
        0.15,
        0.9,
        "share of active nodes that do not repeat a better active node of their kind (similarity 0.8)",
    ),
    ("freshness", 0.10, 0.5, "share of active nodes that are not past their time to live"),
    (
        "connectedness",
        0.05,
        0.5,
        "share of active nodes that are not orphans: cited, citing, with evidence or with a subject",
    ),
    (
        "precision_at_3",
        0.10,
        0.5,
        "mean share of correct answers among the first three results of the retrieval bench",
    ),
    ("mrr", 0.10, 0.5, "mean reciprocal rank of the first correct answer in the retrieval bench"),
    (
        "metadata",
        0.10,
        0.6,
        "mean share of title, date, maturity, utility or confidence, subject or type, and source that are present",
    ),
];

/// A measure that contributes to the fitness.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    pub name: &'static str,
    /// The value, or `None` if no uses are known.
    pub value: Option<f64>,
    /// The weight of the measure in the composite.
    pub weight: f64,
    pub definition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    pub name: &'static str,
    /// The value, or `None` if there is nothing to measure.
    pub value: Option<f64>,
    /// The weight of the metric in the hygiene.
    pub weight: f64,
    /// The minimum. A lower value sets `below_floor`.
    pub floor: f64,
    pub below_floor: bool,
    pub definition: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct Health {
    pub schema_version: u32,
    /// The date against which staleness is measured.
    pub date: String,
    /// Number of active nodes by kind.
    pub nodes: BTreeMap<&'static str, usize>,
    /// Number of nodes that have been superseded or set aside.
    pub inactive: usize,
    /// Number of unclaimed work items.
    pub open_items: usize,
    /// The fitness, or `None` if no uses of any node are known.
    pub composite: Option<f64>,
    /// The fitness measures.
    pub fitness: Vec<Measure>,
    /// Number of known node uses.
    pub uses: usize,
    /// The weighted mean of the metrics, or 0 for an empty corpus.
    pub hygiene: f64,
    pub metrics: Vec<Metric>,
    /// Number of active nodes by maturity.
    pub maturity_mix: BTreeMap<&'static str, usize>,
    /// Nodes that duplicate a better node, each with that better node.
    pub duplicates: Vec<(String, String)>,
    /// Active nodes past their time to live.
    pub stale: Vec<String>,
    /// Active nodes without citations, evidence or a subject.
    pub orphans: Vec<String>,
    /// The problems found while the corpus was read.
    pub troubles: Vec<CorpusProblem>,
}

#[derive(Clone, Debug)]
pub struct Measured {
    pub health: Health,
    pub bench: Bench,
    pub fitness: Fitness,
}

/// Measures the fitness, hygiene and retrieval of a corpus as of a given date.
pub fn measure(corpus: &Corpus, uses: &Uses, date: Date) -> Measured {
    let bench = bench(corpus, date, None);
    let fitness = fitness(corpus, uses, date);
    let links = Links::of(corpus);
    let active: Vec<(usize, &super::Node)> =
        corpus.nodes.iter().enumerate().filter(|(_, node)| node.is_active()).collect();
    let repeated = corpus.repeats();
    let mut mix: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut kinds: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut cited, mut evident, mut connected) = (0, 0, 0);
    let (mut stale, mut orphans) = (Vec::new(), Vec::new());
    for (at, node) in &active {
        *mix.entry(node.maturity.as_str()).or_default() += 1;
        let kind = match node.kind {
            NodeKind::Learning => "learnings",
            NodeKind::Finding => "findings",
            NodeKind::Pattern => "patterns",
            NodeKind::Knowledge => "knowledge",
        };
        *kinds.entry(kind).or_default() += 1;
        let linked =
            links.in_work[*at] || !links.cites[*at].is_empty() || !links.cited_by[*at].is_empty();
        let rests = has_evidence(node);
        cited += usize::from(linked);
        evident += usize::from(rests);
        if linked || rests || !node.subjects.is_empty() {
            connected += 1;
        } else {
            orphans.push(node.path.clone());
        }
        if node.stale_after(None).is_some_and(|end| end < date) {
            stale.push(node.path.clone());
        }
    }
    let share = |part: usize| (!active.is_empty()).then(|| part as f64 / active.len() as f64);
    let mean = |sum: f64| (!active.is_empty()).then(|| sum / active.len() as f64);
    let maturity: f64 = active.iter().map(|(_, node)| node.maturity.weight()).sum();
    let complete: f64 = active.iter().map(|(_, node)| node.completeness()).sum();
    let value = |name: &str| match name {
        "maturity" => mean(maturity),
        "citation_coverage" => share(cited),
        "evidence_coverage" => share(evident),
        "uniqueness" => share(active.len() - repeated.len()),
        "freshness" => share(active.len() - stale.len()),
        "connectedness" => share(connected),
        "precision_at_3" => bench.precision_at_3,
        "mrr" => bench.mrr,
        _ => mean(complete),
    };
    let metrics: Vec<Metric> = METRICS
        .iter()
        .map(|(name, weight, floor, definition)| {
            let value = value(name).map(rounded);
            Metric {
                name,
                value,
                weight: *weight,
                floor: *floor,
                below_floor: value.is_some_and(|value| value < *floor),
                definition,
            }
        })
        .collect();
    let there = || metrics.iter().filter_map(|it| Some((it, it.value?)));
    let weights: f64 = there().map(|(it, _)| it.weight).sum();
    let sum: f64 = there().map(|(it, value)| it.weight * value).sum();
    let hygiene = if weights > 0.0 { rounded(sum / weights) } else { 0.0 };
    let measures = MEASURES.iter().map(|(name, weight, definition)| Measure {
        name,
        value: fitness.metrics.get(*name).copied(),
        weight: *weight,
        definition,
    });
    let inactive = corpus.nodes.len() - active.len();
    stale.truncate(NAMED);
    orphans.truncate(NAMED);
    let named = repeated.iter().take(NAMED);
    let duplicates = named.map(|(path, of)| (path.clone(), of.clone())).collect();
    let health = Health {
        schema_version: 1,
        date: date.to_string(),
        nodes: kinds,
        inactive,
        open_items: corpus.work.items.iter().filter(|item| item.is_free()).count(),
        composite: fitness.composite,
        fitness: measures.collect(),
        uses: uses.events.len(),
        hygiene,
        metrics,
        maturity_mix: mix,
        duplicates,
        stale,
        orphans,
        troubles: corpus.troubles.iter().take(NAMED).cloned().collect(),
    };
    Measured { health, bench, fitness }
}

/// Computes the map for [`Corpus::repeats`]. The running time is linear, except within groups of
/// similar nodes, whose size is limited.
pub(super) fn repeats(corpus: &Corpus) -> BTreeMap<String, String> {
    let mut repeated = BTreeMap::new();
    for kind in [NodeKind::Learning, NodeKind::Finding, NodeKind::Pattern, NodeKind::Knowledge] {
        let docs: Vec<Doc<'_>> = corpus
            .active()
            .filter(|node| node.kind == kind)
            .map(|node| Doc { key: &node.path, text: &node.text })
            .collect();
        for pair in neighbours(&docs, SAME) {
            let (Some(a), Some(b)) = (corpus.at(pair.a), corpus.at(pair.b)) else {
                continue;
            };
            let (better, worse) = if a.standing() <= b.standing() { (a, b) } else { (b, a) };
            // A node that is already known as a duplicate is not paired again.
            if repeated.contains_key(&better.path) || repeated.contains_key(&worse.path) {
                continue;
            }
            repeated.insert(worse.path.clone(), better.path.clone());
        }
    }
    repeated
}
