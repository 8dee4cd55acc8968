//! The figures of a measurement: the confusion matrix, the F1 scores, the figures on the past, and
//! the held-out result.
//!
//! This module contains only arithmetic.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use serde::Serialize;

use super::truth::Label;
use super::{Case, is_true, share};
use crate::dream::proposal::IdeaStatus;
use crate::dream::rule::{self, DoneThreshold};
use crate::evidence::ProjectEvidence;

/// The weight of a false archive relative to a true citation when a threshold is chosen.
const HARM: i64 = 2;

/// The classes of labelled ideas, compared with the verdicts on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Classes {
    /// The number of ideas by actual class (`open` if only that is known) and by verdict.
    pub confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    /// The F1 score of each class that has ideas.
    pub f1: BTreeMap<&'static str, f64>,
    /// The mean of the F1 scores; `None` without labels.
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

    /// Computes the F1 scores from the confusion matrix. An open idea with the verdict
    /// "implemented" counts against that class; other verdicts on open ideas have no effect.
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
            // The divisor is not zero, because a class without ideas has no row.
            self.f1.insert(class, 2.0 * right / (had + called) as f64);
        }
        let classes = self.f1.len();
        self.macro_f1 = (classes > 0).then(|| self.f1.values().sum::<f64>() / classes as f64);
    }
}

/// The ideas with known commits, judged on the history before the first commit of each idea.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Past {
    pub ideas: usize,
    /// The ideas that were proposed for archive although they were not done yet.
    pub archived: Vec<String>,
    /// The share of ideas that were proposed for archive.
    pub rate: Option<f64>,
}

/// The effect of one threshold for plain ideas; the other thresholds move along with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The threshold for a plain idea.
    pub threshold: f64,
    /// The number of ideas with the verdict "implemented" that cite a true commit among at most
    /// three commits.
    pub cited: usize,
    /// The number of open ideas, including those of the past, that were proposed for archive.
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

/// Returns the thresholds to try.
fn bars() -> impl Iterator<Item = f64> {
    (6..=16).map(|step| f64::from(step * 5) / 100.0)
}

/// The effect of a threshold that was chosen on the other half of the ideas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldOut {
    /// The thresholds for a plain idea that were chosen, one for each half.
    pub thresholds: Vec<f64>,
    /// The number of ideas whose commits are known.
    pub known: usize,
    /// The number of those ideas with the verdict "implemented" that cite a true commit among at
    /// most three commits.
    pub cited: usize,
    /// The number of open ideas, including those of the past.
    pub live: usize,
    /// The number of open ideas, including those of the past, that were proposed for archive.
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

/// Chooses a threshold on each half of the ideas and judges the other half with it. The hash of an
/// idea's name determines its half, so that nobody can choose the halves.
pub(super) fn held_out(room: &ProjectEvidence, cases: &[Case<'_>]) -> HeldOut {
    let half = |case: &&Case<'_>| Digest::of(case.label.idea.as_bytes()).to_string().as_str() < "8";
    let (one, other): (Vec<&Case<'_>>, Vec<&Case<'_>>) = cases.iter().partition(half);
    let mut all = HeldOut::default();
    for (seen, unseen) in [(&one, &other), (&other, &one)] {
        let worth = |plain: &f64| {
            let found = tried(room, seen, *plain);
            found.cited as i64 - HARM * found.archived as i64
        };
        // Among equally good thresholds the highest is chosen, so that an idea is kept when in
        // doubt.
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
