//! Determines the status of an idea and the action for it by rules, without a model.
//!
//! ```text
//! a form, or part of another document ──────────────────────> sidenote, keep
//! already marked, or a text to publish ─────────────────────> blog-candidate
//! a commit fits well enough ────────────────────────────────> implemented, archive
//! another idea has nearly the same words ───────────────────> duplicate, merge
//! it has enough signs of a requirement ─────────────────────> meritorious, promote
//! else ─────────────────────────────────────────────────────> sidenote, keep
//! ```
//!
//! The first line that applies decides. Every threshold is a share, so that it does not depend on
//! the size of a repository. The thresholds were chosen on the notes of one project; each half of
//! the notes was judged with thresholds that were chosen on the other half (`runner dream bench
//! --past`; figures in docs/guide/evidence.md). The harmful error is to archive a live idea, so the
//! rule keeps an idea when in doubt. This module must never use anything but its arguments.

use crate::evidence::{Candidate, CommitTiming, Evidence, Neighbour, ProjectEvidence, places};
use runner_text::counted;

use super::features::{Declared, Features};
use super::proposal::{Action, Confidence, IdeaStatus};

/// The minimum strength with which a commit counts as the implementation of an idea (see
/// [`Candidate::strength`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoneThreshold {
    /// For an idea without further information.
    pub plain: f64,
    /// For an idea that calls itself done or has all of its boxes ticked.
    pub declared: f64,
    /// For an idea that calls itself a draft or a proposal.
    pub open: f64,
    /// For an idea in phases, which a single commit rarely completes.
    pub phased: f64,
    /// For any idea, if the commit touches only documents.
    pub described: f64,
}

impl Default for DoneThreshold {
    fn default() -> Self {
        Self { plain: 0.45, declared: 0.40, open: 0.60, phased: 0.80, described: 0.60 }
    }
}

/// Minimum share of the idea's name that a commit's message must contain, together with
/// [`MATCHED`].
pub const NAMED: f64 = 0.25;
/// Minimum number of words of the idea's name that a commit's message must contain, together with
/// [`NAMED`].
pub const MATCHED: usize = 2;
/// Share of the idea's name, weighted by rarity, that suffices without [`MATCHED`].
pub const MOSTLY: f64 = 0.5;
/// Minimum share of the places named by the idea that a commit must touch if its message does not
/// name the idea; applies together with [`WEIGHT`].
pub const THERE: f64 = 0.20;
/// Minimum weight of those places, together with [`THERE`].
pub const WEIGHT: f64 = 1.0;
/// Minimum strength for [`Confidence::High`].
pub const CERTAIN: f64 = 0.90;
/// Minimum strength for [`Confidence::Med`].
pub const LIKELY: f64 = 0.70;
/// A further commit is cited if its strength is at least this share of the best commit's strength.
pub const ALSO: f64 = 0.25;
/// Maximum number of cited commits.
pub const CITED: usize = 3;
/// Minimum similarity at which two ideas are nearly identical.
pub const SAME: f64 = 0.75;
/// Number of points that make an idea worth promoting (see [`Features::actionable`]).
pub const MERIT: usize = 4;
/// An idea with fewer words than this is a note.
pub const NOTE: usize = 30;
/// Minimum share of first-person words at which a long text without a request is a story.
pub const TELLING: f64 = 0.025;
/// Minimum number of words in a story.
pub const STORY: usize = 200;

/// The rule's verdict on one idea.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleVerdict {
    /// The status that the rule found.
    pub status: IdeaStatus,
    /// The action that the rule proposes.
    pub action: Action,
    /// The destination of a merge.
    pub into: Option<String>,
    /// The evidence for the verdict, in a form that anyone can verify.
    pub evidence: String,
    /// The same evidence as hashes, paths and figures only, without the text of a commit or an
    /// idea.
    pub bare: String,
    /// The abbreviated hashes of the commits that support the verdict; empty unless the status is
    /// `implemented`.
    pub commits: Vec<String>,
    pub confidence: Confidence,
    /// The reason for the verdict, in one line.
    pub rationale: String,
}

/// Judges one idea. `into` is the neighbour that it may be merged into, if any.
pub fn judge(
    room: &ProjectEvidence,
    features: &Features,
    grounds: &Evidence,
    into: Option<&Neighbour>,
) -> RuleVerdict {
    let own = own_features(features);
    let worded = |status, action, confidence, (evidence, bare): (String, String), why: &str| {
        let rationale = why.to_owned();
        RuleVerdict {
            status,
            action,
            into: None,
            evidence,
            bare,
            commits: Vec::new(),
            confidence,
            rationale,
        }
    };
    let verdict = |status, action, confidence, evidence: String, why: &str| {
        worded(status, action, confidence, (evidence.clone(), evidence), why)
    };
    if features.template {
        return verdict(
            IdeaStatus::Sidenote,
            Action::Keep,
            Confidence::High,
            own,
            "a template to fill in, not an idea",
        );
    }
    if let Some(parent) = &features.parent {
        let evidence = format!("it says that it belongs to {parent}; {own}");
        let bare = format!("it says that it belongs to another document; {own}");
        let why = "part of another document, with which it stays or goes";
        return worded(IdeaStatus::Sidenote, Action::Keep, Confidence::Med, (evidence, bare), why);
    }
    if features.marked {
        return verdict(
            IdeaStatus::BlogCandidate,
            Action::Keep,
            Confidence::High,
            own,
            "already marked to be published",
        );
    }
    if let Some(confidence) = publishable(features) {
        return verdict(
            IdeaStatus::BlogCandidate,
            Action::MarkBlog,
            confidence,
            own,
            "a text to be published",
        );
    }
    if let Some((best, confidence)) = implemented(features, grounds, &DoneThreshold::default()) {
        let evidence = cite(grounds, best, |one| commit(room, one));
        let bare = cite(grounds, best, |one| room.commit(one).short().to_owned());
        let why = "commits implemented what it asks for";
        let cited = carrying(grounds, best).map(|one| room.commit(one).short().to_owned());
        return RuleVerdict {
            commits: cited.collect(),
            ..worded(IdeaStatus::Implemented, Action::Archive, confidence, (evidence, bare), why)
        };
    }
    if let Some(near) = into {
        let confidence = if near.similarity >= SAME { Confidence::High } else { Confidence::Med };
        let evidence = format!(
            "near {}: similarity {:.2}, {:.0} % of the shorter one is in the longer",
            near.path,
            near.similarity,
            100.0 * near.containment
        );
        let why = "another idea has the same text";
        return RuleVerdict {
            into: Some(near.path.clone()),
            ..verdict(IdeaStatus::Duplicate, Action::Merge, confidence, evidence, why)
        };
    }
    let points = features.actionable();
    let nearest = |say: &dyn Fn(&Candidate) -> String| format!("{own}; {}", nearest(grounds, say));
    let evidence = nearest(&|one| commit(room, one));
    let bare = nearest(&|one| room.commit(one).short().to_owned());
    if points >= MERIT && features.words >= NOTE {
        let confidence = match points - MERIT {
            0 => Confidence::Low,
            1 => Confidence::Med,
            _ => Confidence::High,
        };
        let why = "it asks for something that no commit has done";
        return worded(IdeaStatus::Meritorious, Action::Promote, confidence, (evidence, bare), why);
    }
    let (confidence, why) = if features.words < NOTE {
        (Confidence::High, "a short note")
    } else {
        (Confidence::Low, "it asks for nothing specific")
    };
    let evidence = (evidence, bare);
    worded(IdeaStatus::Sidenote, Action::Keep, confidence, evidence, why)
}

/// Returns how substantial an idea is, from 0 to 1. The value is for ranking only and never a
/// reason to act.
pub fn merit(features: &Features) -> f64 {
    let points = features.actionable() as f64 / 8.0;
    // More decimals would suggest a precision that the points do not have.
    (points * 100.0).round() / 100.0
}

fn publishable(features: &Features) -> Option<Confidence> {
    if features.post {
        return Some(Confidence::High);
    }
    if features.publishing >= 2 {
        return Some(Confidence::Med);
    }
    let story = features.words >= STORY
        && features.telling >= TELLING
        && features.asking == 0
        && features.boxes == (0, 0)
        && features.items * 40 <= features.words;
    story.then_some(Confidence::Low)
}

/// Returns the commit that implemented the idea, and the confidence that it did.
fn implemented<'a>(
    features: &Features,
    grounds: &'a Evidence,
    bar: &DoneThreshold,
) -> Option<(&'a Candidate, Confidence)> {
    // A commit that only plans is shown but has no effect on the decision.
    let mut working = grounds.candidates.iter().filter(|one| !one.planning);
    working.find_map(|one| Some((one, did(features, one, bar)?)))
}

/// Returns the confidence that this commit implemented the idea, or `None` if it did not.
fn did(features: &Features, best: &Candidate, bar: &DoneThreshold) -> Option<Confidence> {
    // An idea with some open boxes among ticked ones is not done. A commit from before the idea was
    // written did not implement it, unless its message names the idea's file.
    if features.half_ticked() || best.when == CommitTiming::Before && !best.cited {
        return None;
    }
    let threshold = match features.declared {
        _ if features.phased() => bar.phased,
        Some(Declared::Open) => bar.open,
        Some(Declared::Done) => bar.declared,
        None if features.all_ticked() => bar.declared,
        None => bar.plain,
    };
    let threshold = if best.built { threshold } else { threshold.max(bar.described) };
    let named = best.named >= MOSTLY || best.named >= NAMED && best.matched.len() >= MATCHED;
    let there = best.overlap.share >= THERE && best.overlap.weight >= WEIGHT;
    if !(best.cited || named || there) || best.strength < threshold {
        return None;
    }
    Some(if best.strength >= CERTAIN || best.cited {
        Confidence::High
    } else if best.strength >= LIKELY {
        Confidence::Med
    } else {
        Confidence::Low
    })
}

/// Returns the commits that implemented the idea, the deciding one first. The list is empty if the
/// idea is not done, or if the rule looks up no commits for this kind of text. `bar` may differ
/// from the threshold that [`judge`] uses.
pub fn done_by<'a>(
    features: &Features,
    grounds: &'a Evidence,
    bar: &DoneThreshold,
) -> Vec<&'a Candidate> {
    if never_archived(features) {
        return Vec::new();
    }
    match implemented(features, grounds, bar) {
        Some((best, _)) => carrying(grounds, best).collect(),
        None => Vec::new(),
    }
}

/// Checks whether the text is of a kind for which no commit is looked up.
fn never_archived(features: &Features) -> bool {
    let part = features.parent.is_some();
    features.template || part || features.marked || publishable(features).is_some()
}

/// Returns the commits that support a verdict, the deciding one first.
fn carrying<'a>(grounds: &'a Evidence, best: &'a Candidate) -> impl Iterator<Item = &'a Candidate> {
    let others = grounds.candidates.iter();
    let others = others.filter(|one| one.at != best.at && one.strength >= ALSO * best.strength);
    std::iter::once(best).chain(others).take(CITED)
}

/// Describes the commits that support a verdict, each formatted by `say`.
fn cite(grounds: &Evidence, best: &Candidate, say: impl Fn(&Candidate) -> String) -> String {
    let cited = carrying(grounds, best);
    let mut text = cited.map(say).collect::<Vec<_>>().join("; ");
    // A path that a reader of the evidence would not recognize as one complete path is left out.
    let found = |path: &&String| places::mentioned(path).eq([path.as_str()]);
    if let Some(namesake) = grounds.namesakes.iter().find(found) {
        text.push_str(&format!("; {namesake} has a similar name"));
    }
    text
}

fn commit(room: &ProjectEvidence, candidate: &Candidate) -> String {
    let commit = room.commit(candidate);
    let date = jiff::Timestamp::from_second(commit.at)
        .map(|at| at.strftime("%Y-%m-%d").to_string())
        .unwrap_or_default();
    format!("{} {date} {}", commit.short(), commit.subject)
}

/// Describes the best candidate of an idea that was not done, so that a reader can judge it.
fn nearest(grounds: &Evidence, say: &dyn Fn(&Candidate) -> String) -> String {
    match grounds.candidates.first().filter(|best| best.strength >= 0.1) {
        Some(best) => {
            format!(
                "the nearest commit, {}, does not match well enough ({:.2})",
                say(best),
                best.strength
            )
        }
        None => "no commit matches it".to_owned(),
    }
}

/// Describes the idea's formal features, as evidence.
fn own_features(features: &Features) -> String {
    let mut parts = vec![counted(features.words, "word")];
    let mut count = |count: usize, one: &str, many: &str| match count {
        0 => {}
        1 => parts.push(format!("1 {one}")),
        more => parts.push(format!("{more} {many}")),
    };
    count(features.asking, "heading that asks for something", "headings that ask for something");
    count(features.publishing, "heading of a post", "headings of a post");
    count(features.items, "list item", "list items");
    count(features.boxes.0, "box ticked", "boxes ticked");
    count(features.boxes.1, "box open", "boxes open");
    count(
        features.verbs,
        "sentence or item that begins with a verb",
        "sentences or items that begin with a verb",
    );
    parts.join(", ")
}

#[cfg(test)]
mod tests;
