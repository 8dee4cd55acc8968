//! Measures the quality of the rule-based answers on labelled ideas.
//!
//! ```text
//! labels ─┬─> verdicts on all ideas ──────────> confusion, F1, false archives, true citations
//!         └─> the same ideas on the history ──> ideas archived before they were done
//!             as it was before they were done
//! ```
//!
//! The second measurement treats every implemented idea as an open idea. It is needed because users
//! label too few live ideas for a reliable count of false archives. This module must never
//! pass a label to the rule.

mod figures;
pub mod truth;

use std::collections::HashMap;

use serde::Serialize;

use super::classify::ClassifiedIdea;
use super::compare::OtherNotes;
use super::features::Features;
use super::proposal::{Action, IdeaStatus};
use super::rule;
use crate::evidence::neighbours::RANKED;
use crate::evidence::{Evidence, ProjectEvidence, places};
pub use figures::{Classes, Past};
use truth::Label;

/// The result of a measurement. A share of no ideas is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Number of ideas that were judged.
    pub ideas: usize,
    /// Number of judged ideas that have a label.
    pub labelled: usize,
    /// Labelled ideas that were not found.
    pub missing: Vec<String>,
    /// Number of labelled commits that are not in the history.
    pub unknown_commits: usize,
    /// The labels, compared with the verdicts.
    pub classes: Classes,
    /// Number of ideas that are known to be alive.
    pub live: usize,
    /// Live ideas that were proposed for archiving, which is the harmful error.
    pub false_archives: Vec<String>,
    /// The share of false archives among the live ideas; `None` without live ideas.
    pub false_archive_rate: Option<f64>,
    /// The figures for the implemented ideas.
    pub done: Done,
    /// The figures for the ideas whose commits are known.
    pub hits: Hits,
    /// The figures for ideas with known duplicates.
    pub duplicates: Duplicates,
    /// Labelled ideas that were proposed for archiving and whose label neither gives a class nor
    /// marks them as open. Only the user can judge these proposals.
    pub unlabelled_archived: Vec<String>,
    /// The figures for the history before the first known commit of each idea, if the caller
    /// requested them.
    pub past: Option<Past>,
}

/// The verdicts on ideas that are known to be implemented.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Done {
    pub ideas: usize,
    /// Number of ideas that were proposed for archiving.
    pub archived: usize,
    /// `archived` as a share of `ideas`.
    pub recall: Option<f64>,
    /// Ideas that were kept even though a commit was named: the rule abstained.
    pub perhaps: Vec<String>,
    /// The share of ideas on which the rule abstained.
    pub abstention: Option<f64>,
    /// Ideas for which no commit was named.
    pub missed: Vec<String>,
}

/// The candidates and citations of ideas whose commits are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hits {
    /// Number of ideas whose commits are known.
    pub known: usize,
    /// Number of these ideas whose best candidate is one of the known commits.
    pub at_1: usize,
    /// Number of these ideas with a known commit among the three best candidates.
    pub at_3: usize,
    /// Number of these ideas that were proposed for archiving.
    pub archived: usize,
    /// Number of archived ideas whose first cited commit is one of the known commits.
    pub right: usize,
    /// `right` as a share of `archived`.
    pub precision: Option<f64>,
    /// Archived ideas whose first cited commit is not one of the known commits.
    pub wrong: Vec<String>,
}

/// Ideas with known duplicates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Duplicates {
    /// Number of ideas with a known duplicate.
    pub known: usize,
    /// Number of these ideas with a duplicate among the ten nearest neighbours.
    pub at_10: usize,
    /// `at_10` as a share of `known`.
    pub recall: Option<f64>,
    /// Labelled ideas that were proposed for merging even though their labels name no duplicate.
    pub false_merges: Vec<String>,
}

/// A labelled idea with the rule's input for the second measurement.
struct Case<'a> {
    label: &'a Label,
    features: Features,
    /// The evidence from the history before the idea's first known commit.
    before: Option<Evidence>,
}

/// Measures the verdicts. With `past`, every idea whose commits are known is judged a second time,
/// on the history before the first of these commits. `past` creates a comparison with all notes.
pub fn measure<'a>(
    room: &ProjectEvidence,
    shown: &[ClassifiedIdea],
    labels: &[Label],
    past: Option<&dyn Fn() -> OtherNotes<'a>>,
) -> Figures {
    let by_path: HashMap<&str, &ClassifiedIdea> =
        shown.iter().map(|one| (one.path.as_str(), one)).collect();
    let mut figures = Figures { ideas: shown.len(), ..Figures::default() };
    let mut cases = Vec::new();
    for label in labels {
        let Some(one) = by_path.get(label.idea.as_str()) else {
            figures.missing.push(label.idea.clone());
            continue;
        };
        figures.labelled += 1;
        let truth = label.commits().filter(|hash| room.commit_named(hash).is_none());
        figures.unknown_commits += truth.count();
        figures.one(room, label, one);
        let features = Features::of(&one.text, places::stem(&one.path));
        let before = past.and_then(|others| before(room, label, (one, &features), &others()));
        cases.push(Case { label, features, before });
    }
    figures.classes.close();
    figures.false_archive_rate = share(figures.false_archives.len(), figures.live);
    let Figures { done, hits, duplicates, .. } = &mut figures;
    done.recall = share(done.archived, done.ideas);
    done.abstention = share(done.perhaps.len(), done.ideas);
    hits.precision = share(hits.right, hits.archived);
    duplicates.recall = share(duplicates.at_10, duplicates.known);
    figures.past = past.map(|_| figures::past(&cases));
    figures
}

impl Figures {
    fn one(&mut self, room: &ProjectEvidence, label: &Label, one: &ClassifiedIdea) {
        let archived = one.verdict.action == Action::Archive;
        self.classes.note(label, &one.verdict);
        let path = || one.path.clone();
        if label.is_live() {
            self.live += 1;
            if archived {
                self.false_archives.push(path());
            }
        }
        match label.class() {
            Some(IdeaStatus::Implemented) => {
                self.done.ideas += 1;
                match (one.verdict.status, archived) {
                    (_, true) => self.done.archived += 1,
                    (IdeaStatus::Implemented, false) => self.done.perhaps.push(path()),
                    _ => self.done.missed.push(path()),
                }
            }
            None if !label.is_live() && archived => self.unlabelled_archived.push(path()),
            _ => {}
        }
        if label.commits().next().is_some() {
            self.hits.note(room, label, one, archived);
        }
        self.duplicates.note(label, one);
    }
}

impl Hits {
    fn note(
        &mut self,
        room: &ProjectEvidence,
        label: &Label,
        one: &ClassifiedIdea,
        archived: bool,
    ) {
        self.known += 1;
        let top = one.grounds.candidates.iter().take(rule::CITED);
        let place = top.map(|it| room.commit(it)).position(|it| is_true(label, &it.hash));
        self.at_1 += usize::from(place == Some(0));
        self.at_3 += usize::from(place.is_some());
        if archived {
            self.archived += 1;
            let first = one.verdict.commits.first().and_then(|hash| room.commit_named(hash));
            match first.is_some_and(|commit| is_true(label, &commit.hash)) {
                true => self.right += 1,
                false => self.wrong.push(one.path.clone()),
            }
        }
    }
}

impl Duplicates {
    fn note(&mut self, label: &Label, one: &ClassifiedIdea) {
        if label.duplicates.is_empty() {
            if one.verdict.action == Action::Merge {
                self.false_merges.push(one.path.clone());
            }
            return;
        }
        self.known += 1;
        let mut near = one.near.iter().take(RANKED);
        self.at_10 += usize::from(near.any(|near| label.duplicates.contains(&near.path)));
    }
}

/// Returns whether this commit is known to have implemented the idea.
fn is_true(label: &Label, hash: &str) -> bool {
    label.commits().any(|known| hash.starts_with(&known.to_ascii_lowercase()))
}

/// Returns the evidence about an idea from the history before the idea's first known commit, or
/// `None` if no known commit is in the history. The `others` are compared as they are now.
fn before(
    room: &ProjectEvidence,
    label: &Label,
    (one, features): (&ClassifiedIdea, &Features),
    others: &OtherNotes<'_>,
) -> Option<Evidence> {
    let first = room.history().iter().rposition(|commit| is_true(label, &commit.hash))?;
    let room = room.before(first);
    let mut evidence = room.about(&one.path, &one.text, None);
    others.compare(&room, &one.path, features, &mut evidence);
    Some(evidence)
}

fn share(part: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

#[cfg(test)]
mod tests;
