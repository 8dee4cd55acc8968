//! The figures of a measurement: confusion, F1, the past, and what holds on ideas that were not
//! looked at.
//!
//! Arithmetic only.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use serde::Serialize;

use super::truth::Label;
use super::{Case, is_true, share};
use crate::dream::proposal::IdeaStatus;
use crate::dream::rule::{self, DoneThreshold};
use crate::evidence::ProjectEvidence;

/// The weight of a false archive against a true citation, for the choice of a threshold.
const HARM: i64 = 2;

/// The classes of labelled ideas, compared with the verdicts on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Classes {
    /// How many ideas of a class (`open` where only that is known) were called what.
    pub confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    /// F1 of each class that has ideas.
    pub f1: BTreeMap<&'static str, f64>,
    /// Their mean; none without labels.
    pub macro_f1: Option<f64>,
}

impl Classes {
    /// Counts one verdict.
    pub(super) fn note(&mut self, label: &Label, said: IdeaStatus) {
        let truth = match label.class() {
            Some(class) => class.as_str(),
            None if label.is_live() => "open",
            None => return,
        };
        *self.confusion.entry(truth).or_default().entry(said.as_str()).or_default() += 1;
    }

    /// Works out the rest. An open idea that is called implemented counts against that class; what
    /// else it is called counts for and against nothing.
    pub(super) fn close(&mut self) {
        for class in IdeaStatus::ALL.map(IdeaStatus::as_str) {
            let Some(row) = self.confusion.get(class) else {
                continue;
            };
            let right = row.get(class).copied().unwrap_or(0) as f64;
            let had: usize = row.values().sum();
            let called: usize = (self.confusion.iter())
                .filter(|(truth, _)| **truth != "open" || class == IdeaStatus::Implemented.as_str())
                .filter_map(|(_, row)| row.get(class))
                .sum();
            // Both are there: a class without ideas has no row.
            self.f1.insert(class, 2.0 * right / (had + called) as f64);
        }
        let classes = self.f1.len();
        self.macro_f1 = (classes > 0).then(|| self.f1.values().sum::<f64>() / classes as f64);
    }
}

/// Ideas whose commits are known, judged on the history before the first of those.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Past {
    /// How many.
    pub ideas: usize,
    /// Those that were proposed for archive all the same.
    pub archived: Vec<String>,
    /// Their share.
    pub rate: Option<f64>,
}

/// The effect of one threshold for a plain idea; the other thresholds move along with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The threshold.
    pub threshold: f64,
    /// Ideas called implemented with a true commit among at most three.
    pub cited: usize,
    /// Open ideas, those of the past included, that were proposed for archive.
    pub archived: usize,
}

/// Measures the effect of each threshold.
pub(super) fn curve(room: &ProjectEvidence, cases: &[Case<'_>]) -> Vec<Point> {
    let all: Vec<&Case<'_>> = cases.iter().collect();
    let point = |threshold: f64| {
        let found = tried(room, &all, threshold);
        Point { threshold, cited: found.cited, archived: found.archived }
    };
    bars().map(point).collect()
}

/// Returns the thresholds that are tried.
fn bars() -> impl Iterator<Item = f64> {
    (6..=16).map(|step| f64::from(step * 5) / 100.0)
}

/// The effect of a threshold that was chosen on the other half of the ideas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldOut {
    /// The threshold for a plain idea that was chosen for each half.
    pub thresholds: Vec<f64>,
    /// Ideas whose commits are known.
    pub known: usize,
    /// Those called implemented with a true commit among at most three.
    pub cited: usize,
    /// The open ideas and those of the past.
    pub live: usize,
    /// Those of them that were proposed for archive.
    pub archived: usize,
}

/// Judges the ideas on the history before they were done, with the thresholds of `bar`.
pub(super) fn past(cases: &[Case<'_>], bar: &DoneThreshold) -> Past {
    let mut past = Past::default();
    for case in cases {
        let Some(before) = &case.before else { continue };
        past.ideas += 1;
        if !rule::done_by(&case.features, before, bar).is_empty() {
            past.archived.push(case.label.idea.clone());
        }
    }
    past.rate = share(past.archived.len(), past.ideas);
    past
}

/// Chooses a threshold on each half and judges the other half by it. The halves are by the hash of
/// a name: nobody has chosen them.
pub(super) fn held_out(room: &ProjectEvidence, cases: &[Case<'_>]) -> HeldOut {
    let half = |case: &&Case<'_>| Digest::of(case.label.idea.as_bytes()).to_string().as_str() < "8";
    let (one, other): (Vec<&Case<'_>>, Vec<&Case<'_>>) = cases.iter().partition(half);
    let mut all = HeldOut::default();
    for (seen, unseen) in [(&one, &other), (&other, &one)] {
        let worth = |plain: &f64| {
            let found = tried(room, seen, *plain);
            found.cited as i64 - HARM * found.archived as i64
        };
        // The highest of equals: whoever doubts keeps.
        let Some(plain) = bars().max_by_key(worth) else {
            continue;
        };
        let found = tried(room, unseen, plain);
        all.thresholds.push(plain);
        all.known += found.known;
        all.cited += found.cited;
        all.live += found.live;
        all.archived += found.archived;
    }
    all
}

/// Measures the effect of a threshold for plain ideas on these cases. The other thresholds keep
/// their distance from it.
fn tried(room: &ProjectEvidence, cases: &[&Case<'_>], plain: f64) -> HeldOut {
    let usual = DoneThreshold::default();
    let moved = |bar: f64| (bar + plain - usual.plain).clamp(0.0, 0.99);
    let bar = DoneThreshold {
        plain,
        declared: moved(usual.declared),
        open: moved(usual.open),
        phased: moved(usual.phased),
        described: moved(usual.described),
    };
    let mut found = HeldOut::default();
    for case in cases {
        let done = rule::done_by(&case.features, case.grounds, &bar);
        if case.label.commits().next().is_some() {
            found.known += 1;
            let cited = done.iter().any(|it| is_true(case.label, &room.commit(it).hash));
            found.cited += usize::from(cited);
        }
        if case.label.is_live() {
            found.live += 1;
            found.archived += usize::from(!done.is_empty());
        }
        if let Some(before) = &case.before {
            found.live += 1;
            let archived = !rule::done_by(&case.features, before, &bar).is_empty();
            found.archived += usize::from(archived);
        }
    }
    found
}
