//! Measures the quality of the rule-based answers on labelled ideas.
//!
//! ```text
//! labels ─┬─> verdicts on all ideas ──────────> confusion, F1, false archives, true citations
//!         └─> the same ideas on the history ──> what was archived before it was done
//!             as it was before they were done
//! ```
//!
//! The second measurement treats every implemented idea as an open idea. It is needed because an
//! honest count of false archives requires more live ideas than people label. This module must
//! never pass a label to the rule.

mod figures;
pub mod truth;

use std::collections::HashMap;

use serde::Serialize;

use super::classify::ClassifiedIdea;
use super::features::Features;
use super::proposal::Action;
use super::rule::{self, DoneThreshold};
use crate::evidence::{Evidence, IndexError, ProjectEvidence, places};
pub use figures::{Classes, HeldOut, Past, Point};
use truth::Label;

/// The result of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Number of ideas that were judged.
    pub ideas: usize,
    /// Judged ideas that have a label.
    pub labelled: usize,
    /// Labels whose idea was not found.
    pub missing: Vec<String>,
    /// Number of labelled commits that are not in the history.
    pub unknown_commits: usize,
    /// The labels, compared with the verdicts.
    pub classes: Classes,
    /// Number of ideas that are known to be alive.
    pub live: usize,
    /// Live ideas that were proposed for archive, which is the harmful error.
    pub false_archives: Vec<String>,
    /// The share of false archives among the live ideas; `None` without live ideas.
    pub false_archive_rate: Option<f64>,
    /// Number of ideas whose commits are known.
    pub known: usize,
    /// Number of known ideas with a true commit among the three best candidates.
    pub found: usize,
    /// Number of known ideas that are called implemented.
    pub implemented: usize,
    /// Number of known ideas that are called implemented and cite a true commit among at most
    /// three.
    pub cited: usize,
    /// `cited` as a share of `known`: the evidence hit rate at three.
    pub hit_rate: Option<f64>,
    /// Known ideas that are not counted in `cited`.
    pub missed: Vec<String>,
    /// Ideas that are called implemented and have no label that states their class or that they are
    /// open. A person has to read them.
    pub unlabelled_implemented: Vec<String>,
    /// The figures on the history before the first known commit of each idea.
    pub past: Option<Past>,
    /// The figures with a threshold that was chosen on other ideas.
    pub held_out: Option<HeldOut>,
    /// The effect of other thresholds; empty without the past.
    pub curve: Vec<Point>,
}

/// A labelled idea with the input for the rule.
struct Case<'a> {
    label: &'a Label,
    features: Features,
    grounds: &'a Evidence,
    /// The evidence on the history before the idea's first known commit.
    before: Option<Evidence>,
}

/// Measures the verdicts. With `past`, every idea whose commits are known is judged a second time,
/// on the history before the first of these commits.
///
/// # Errors
/// Returns an error if an earlier history cannot be indexed.
pub fn measure(
    room: &ProjectEvidence,
    shown: &[ClassifiedIdea],
    labels: &[Label],
    past: bool,
) -> Result<Figures, IndexError> {
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
        cases.push(Case {
            label,
            features: Features::of(&one.text, places::stem(&one.path)),
            grounds: &one.grounds,
            before: if past { before(room, label, one)? } else { None },
        });
    }
    figures.classes.close();
    figures.false_archive_rate = share(figures.false_archives.len(), figures.live);
    figures.hit_rate = share(figures.cited, figures.known);
    if past {
        figures.past = Some(figures::past(&cases, &DoneThreshold::default()));
        figures.held_out = Some(figures::held_out(room, &cases));
        figures.curve = figures::curve(room, &cases);
    }
    Ok(figures)
}

impl Figures {
    fn one(&mut self, room: &ProjectEvidence, label: &Label, one: &ClassifiedIdea) {
        let archived = one.verdict.action == Action::Archive;
        self.classes.note(label, one.verdict.status);
        if label.is_live() {
            self.live += 1;
            if archived {
                self.false_archives.push(one.path.clone());
            }
        }
        if label.commits().next().is_some() {
            self.known += 1;
            let mut top = one.grounds.candidates.iter().take(rule::CITED);
            self.found += usize::from(top.any(|it| is_true(label, &room.commit(it).hash)));
            let features = Features::of(&one.text, places::stem(&one.path));
            let done = rule::done_by(&features, &one.grounds, &DoneThreshold::default());
            let cited = archived && done.iter().any(|it| is_true(label, &room.commit(it).hash));
            self.implemented += usize::from(archived);
            if cited {
                self.cited += 1;
            } else {
                self.missed.push(one.path.clone());
            }
        } else if label.class().is_none() && !label.is_live() && archived {
            self.unlabelled_implemented.push(one.path.clone());
        }
    }
}

/// Checks whether this commit is known to have implemented the idea.
fn is_true(label: &Label, hash: &str) -> bool {
    label.commits().any(|known| hash.starts_with(&known.to_ascii_lowercase()))
}

/// Returns the evidence about an idea before its first known commit.
fn before(
    room: &ProjectEvidence,
    label: &Label,
    one: &ClassifiedIdea,
) -> Result<Option<Evidence>, IndexError> {
    let history = room.history();
    let Some(first) = history.iter().rposition(|commit| is_true(label, &commit.hash)) else {
        return Ok(None);
    };
    let earlier = ProjectEvidence::of(history[first + 1..].to_vec(), Vec::new())?;
    earlier.about(&one.path, &one.text).map(Some)
}

fn share(part: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

#[cfg(test)]
mod tests;
