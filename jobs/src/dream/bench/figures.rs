//! The figures from a measurement: the confusion matrix, the F1 scores, and the figures for the
//! history before each idea was done.

use std::collections::BTreeMap;

use serde::Serialize;

use super::truth::Label;
use super::{Case, share};
use crate::dream::proposal::{Action, IdeaStatus};
use crate::dream::rule::{self, RuleVerdict};

/// The column for verdicts that name a candidate without proposing anything.
const PERHAPS: &str = "perhaps";

/// The known classes of labelled ideas, compared with the verdicts on these ideas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Classes {
    /// The number of ideas by actual class (`open` if only that is known) and by verdict.
    pub confusion: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    /// The F1 score of each class that has ideas.
    pub f1: BTreeMap<&'static str, f64>,
    /// The mean of the F1 scores; `None` if no idea has a known class.
    pub macro_f1: Option<f64>,
}

impl Classes {
    /// Counts one verdict. An idea that is kept even though it may be done or a duplicate counts as
    /// neither.
    pub(super) fn note(&mut self, label: &Label, verdict: &RuleVerdict) {
        let truth = match label.class() {
            Some(class) => class.as_str(),
            None if label.is_live() => "open",
            None => return,
        };
        let said = match (verdict.status, verdict.action) {
            (IdeaStatus::Implemented | IdeaStatus::Duplicate, Action::Keep) => PERHAPS,
            (status, _) => status.as_str(),
        };
        *self.confusion.entry(truth).or_default().entry(said).or_default() += 1;
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

/// The ideas with known commits, judged on the history before each idea's first known commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Past {
    pub ideas: usize,
    /// The ideas that were proposed for archiving even though they were not yet done.
    pub archived: Vec<String>,
    /// The share of ideas that were proposed for archiving; `None` without ideas.
    pub rate: Option<f64>,
}

/// Judges the ideas on the history before they were done.
pub(super) fn past(cases: &[Case<'_>]) -> Past {
    let mut past = Past::default();
    for case in cases {
        let Some(before) = &case.before else { continue };
        past.ideas += 1;
        if !rule::done_by(&case.features, before).is_empty() {
            past.archived.push(case.label.idea.clone());
        }
    }
    past.rate = share(past.archived.len(), past.ideas);
    past
}
