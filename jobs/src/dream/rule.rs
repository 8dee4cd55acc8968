//! Determines an idea's status and action by rules, without a model.
//!
//! ```text
//! a form, or part of another document ──────────────────────> sidenote, keep
//! already marked, or a text to publish ─────────────────────> blog-candidate
//! a commit fits very well ──────────────────────────────────> implemented, archive
//! another idea has nearly the same words ───────────────────> duplicate, merge
//! a commit fits well ───────────────────────────────────────> implemented, keep ("perhaps done")
//! another idea is very similar ─────────────────────────────> duplicate, keep
//! it asks for something ────────────────────────────────────> meritorious, promote
//! else ─────────────────────────────────────────────────────> sidenote, keep
//! ```
//!
//! The first line that applies decides. No threshold depends on the size of the repository. The
//! thresholds were chosen using the notes of one project and evaluated on another (figures in
//! docs/guide/evidence.md). The harmful error is archiving a live idea, so an archive or a merge
//! requires high confidence; below that, the idea is kept and the candidate is named. This module
//! must never use anything but its arguments.

use crate::evidence::{Candidate, CommitTiming, Evidence, Neighbour, ProjectEvidence, places};
use runner_text::counted;

use super::features::{Declared, Features};
use super::proposal::{Action, Confidence, IdeaStatus};

/// Minimum strength at which a commit is taken, with high confidence, to have implemented an idea
/// (see [`Candidate::strength`]).
pub const DONE: f64 = 0.745;
/// Minimum strength at which a commit is taken to have implemented an idea even though another
/// commit is weaker by less than [`RIVAL`]. If two commits fit almost equally well, both may be
/// siblings of work that is not done yet.
pub const RIVALLED: f64 = 0.8;
/// See [`RIVALLED`].
pub const RIVAL: f64 = 0.1;
/// Minimum strength of a commit that may have implemented an idea.
pub const PERHAPS: f64 = 0.63;
/// Minimum figures for a commit that is not a perfect fit but stands out from all others. Such a
/// commit is also taken, with high confidence, to have implemented the idea. Siblings and
/// predecessors rarely stand out, because several commits resemble them.
pub const STANDS_OUT: StandsOut = StandsOut { strength: 0.66, lead: 0.2, about: 0.7, content: 0.3 };
/// Minimum figures for a commit whose subject is a paraphrase of the idea's title: the commit
/// contains most of the title, and the idea contains nearly the whole subject. Such a commit needs
/// fewer of the idea's other terms, because the lines that it added may be few, generated or
/// unreadable.
pub const SAME_SUBJECT: SameSubject =
    SameSubject { named: 0.75, about: 0.95, words: 3, lead: 0.15 };
/// Minimum figures for a commit that changed the places mentioned in an idea and whose subject is
/// mentioned almost completely in the idea. Such a commit may describe part of the idea's title in
/// other words. It is taken, with high confidence, to have implemented the idea unless another
/// commit is weaker by less than [`RIVAL`]. A sibling of the work often changes the same places, so
/// the commit must contain part of the title and most items of the idea.
pub const SAME_PLACES: SamePlaces =
    SamePlaces { strength: 0.55, named: 0.4, about: 0.95, share: 0.7, places: 2, unmet: 1.0 / 3.0 };
/// Minimum figures for a commit that fits an idea clearly better than it fits any other note of the
/// project. Such a commit is taken, with high confidence, to have implemented the idea even at a
/// lower strength, unless another commit fits the idea nearly as well. Siblings and predecessors of
/// the work often have a note of their own, which their commits fit better.
pub const ONLY_HERE: OnlyHere =
    OnlyHere { strength: 0.45, named: 0.3, about: 0.65, content: 0.1, lead: 0.12, notes: 0.16 };
/// Added to [`DONE`] for an idea that declares itself open, for example as a draft. An idea that
/// declares itself done gets no lower threshold, because anyone can write that.
pub const DECLARED: f64 = 0.03;
/// Minimum strength for a commit to be named as the nearest one.
pub const SHOWN: f64 = 0.3;
/// Minimum strength of another commit to be cited as well, as a share of the best commit's
/// strength. The other commit's strength must also be at least [`PERHAPS`].
pub const ALSO: f64 = 0.85;
/// Maximum number of cited commits.
pub const CITED: usize = 3;
/// Minimum number of compared items in an idea for unmet items to prevent archiving.
pub const ITEMS: usize = 3;
/// Number of points at which an idea is worth promoting even if nothing else shows that it asks for
/// something (see [`Features::actionable`]).
pub const MERIT: usize = 4;
/// Maximum number of words per request in an idea that asks for something merely because it
/// contains many requests.
pub const WORDS_PER_REQUEST: usize = 40;
/// Minimum share of first-person words in a story.
pub const TELLING: f64 = 0.025;
/// Minimum number of words in a story.
pub const STORY: usize = 200;

/// The minimum figures for a commit to stand out.
#[derive(Clone, Copy, Debug)]
pub struct StandsOut {
    pub strength: f64,
    /// How much stronger the commit is than the next one.
    pub lead: f64,
    /// See [`Candidate::about`].
    pub about: f64,
    /// See [`Candidate::content`].
    pub content: f64,
}

/// The minimum figures for a commit to have the same subject as an idea.
#[derive(Clone, Copy, Debug)]
pub struct SameSubject {
    /// See [`Candidate::named`].
    pub named: f64,
    /// See [`Candidate::about`].
    pub about: f64,
    /// Number of words from the idea's name that the commit contains.
    pub words: usize,
    /// How much stronger the commit is than the next one.
    pub lead: f64,
}

/// The minimum figures for a commit to have changed the places mentioned in an idea.
#[derive(Clone, Copy, Debug)]
pub struct SamePlaces {
    pub strength: f64,
    /// See [`Candidate::named`].
    pub named: f64,
    /// See [`Candidate::about`].
    pub about: f64,
    /// Share of the mentioned places that the commit touched, weighted by rarity.
    pub share: f64,
    /// Number of the mentioned places that the commit touched.
    pub places: usize,
    /// Maximum share of the idea's items that are missing from the commit.
    pub unmet: f64,
}

/// The minimum figures for a commit that fits an idea clearly better than it fits any other note.
#[derive(Clone, Copy, Debug)]
pub struct OnlyHere {
    pub strength: f64,
    /// See [`Candidate::named`].
    pub named: f64,
    /// See [`Candidate::about`].
    pub about: f64,
    /// See [`Candidate::content`].
    pub content: f64,
    /// How much stronger the commit is than the next one.
    pub lead: f64,
    /// How much stronger the commit is for the idea than for any other note.
    pub notes: f64,
}

/// The rule's verdict on one idea.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleVerdict {
    /// The status determined by the rule.
    pub status: IdeaStatus,
    /// The action that the rule proposes.
    pub action: Action,
    /// The destination of a merge; `None` for any other action.
    pub into: Option<String>,
    /// The evidence for the verdict, in a form that anyone can verify.
    pub evidence: String,
    /// The same evidence as hashes, paths and figures only, without text from a commit or an idea.
    pub bare: String,
    /// The abbreviated hashes of the commits that support the verdict; empty unless the status is
    /// `implemented`.
    pub commits: Vec<String>,
    pub confidence: Confidence,
    /// The reason for the verdict, in one line, without text from a commit or an idea.
    pub rationale: String,
    /// The items of the idea that are missing from the deciding commit.
    pub unmet: Vec<String>,
}

impl RuleVerdict {
    fn new(status: IdeaStatus, action: Action, confidence: Confidence, why: &str) -> Self {
        Self {
            status,
            action,
            into: None,
            evidence: String::new(),
            bare: String::new(),
            commits: Vec::new(),
            confidence,
            rationale: why.to_owned(),
            unmet: Vec::new(),
        }
    }

    fn resting_on(mut self, evidence: String, bare: String) -> Self {
        (self.evidence, self.bare) = (evidence, bare);
        self
    }
}

/// Judges one idea. `near` is the neighbour that it may be merged into, if any.
pub fn judge(
    room: &ProjectEvidence,
    features: &Features,
    grounds: &Evidence,
    near: Option<&Neighbour>,
) -> RuleVerdict {
    if let Some(verdict) = by_form(features) {
        return verdict;
    }
    let done = implemented(features, grounds);
    if let Some((best, fit @ (Fit::Well | Fit::OnlyHere))) = done {
        return finished(room, grounds, best, fit);
    }
    if let Some(near) = near.filter(|near| near.same) {
        return duplicate(near, Confidence::High);
    }
    if let Some((best, fit)) = done {
        return finished(room, grounds, best, fit);
    }
    if let Some(near) = near {
        return duplicate(near, Confidence::Med);
    }
    let own = own_features(features);
    let nearest = |say: &dyn Fn(&Candidate) -> String| format!("{own}; {}", nearest(grounds, say));
    let evidence = nearest(&|one| commit(room, one));
    let bare = nearest(&|one| room.commit(one).short().to_owned());
    let verdict = match asks(features) {
        Some(confidence) => RuleVerdict::new(
            IdeaStatus::Meritorious,
            Action::Promote,
            confidence,
            "it asks for something that no commit has done",
        ),
        None => RuleVerdict::new(
            IdeaStatus::Sidenote,
            Action::Keep,
            Confidence::Low,
            "it asks for nothing specific",
        ),
    };
    verdict.resting_on(evidence, bare)
}

/// Returns the verdict if the idea's form alone decides it.
fn by_form(features: &Features) -> Option<RuleVerdict> {
    use IdeaStatus::{BlogCandidate, Sidenote};
    let own = own_features(features);
    let verdict = |status, action, confidence, why| {
        let verdict = RuleVerdict::new(status, action, confidence, why);
        Some(verdict.resting_on(own.clone(), own.clone()))
    };
    if features.template {
        let why = "a template to fill in, not an idea";
        return verdict(Sidenote, Action::Keep, Confidence::High, why);
    }
    if let Some(parent) = &features.parent {
        let why = "part of another document, and kept or archived with it";
        let part = RuleVerdict::new(Sidenote, Action::Keep, Confidence::Med, why);
        return Some(part.resting_on(
            format!("it declares itself part of {parent}; {own}"),
            format!("it declares itself part of another document; {own}"),
        ));
    }
    if features.marked {
        let why = "already marked to be published";
        return verdict(BlogCandidate, Action::Keep, Confidence::High, why);
    }
    let confidence = publishable(features)?;
    verdict(BlogCandidate, Action::MarkBlog, confidence, "a text to be published")
}

/// Returns the verdict on an idea that a commit implemented or may have implemented.
fn finished(room: &ProjectEvidence, grounds: &Evidence, best: &Candidate, fit: Fit) -> RuleVerdict {
    let (action, confidence, why) = match fit {
        Fit::Well => (Action::Archive, Confidence::High, "commits implemented what it asks for"),
        Fit::OnlyHere => (
            Action::Archive,
            Confidence::High,
            "a commit fits it, and fits no other note of the project as well",
        ),
        Fit::Perhaps => (
            Action::Keep,
            Confidence::Med,
            "perhaps done: a commit fits, but not well enough to archive the idea",
        ),
    };
    let commits = carrying(grounds, best).map(|one| room.commit(one).short().to_owned());
    RuleVerdict {
        commits: commits.collect(),
        unmet: best.unmet().map(|one| one.text.clone()).collect(),
        ..RuleVerdict::new(IdeaStatus::Implemented, action, confidence, why)
    }
    .resting_on(
        cite(grounds, best, |one| commit(room, one)),
        cite(grounds, best, |one| room.commit(one).short().to_owned()),
    )
}

/// Returns the verdict on an idea that duplicates or may duplicate another idea.
fn duplicate(near: &Neighbour, confidence: Confidence) -> RuleVerdict {
    let evidence = format!(
        "near {}: similarity {:.2}, {:.0} % of the shorter text is in the longer one",
        near.path,
        near.similarity,
        100.0 * near.containment
    );
    let (action, into, why) = match confidence {
        Confidence::High => {
            (Action::Merge, Some(near.path.clone()), "another idea has the same text")
        }
        _ => (Action::Keep, None, "perhaps a duplicate: another idea is very similar"),
    };
    let verdict = RuleVerdict::new(IdeaStatus::Duplicate, action, confidence, why);
    RuleVerdict { into, ..verdict }.resting_on(evidence.clone(), evidence)
}

/// Returns the confidence that an idea asks for something, or `None` if it does not.
fn asks(features: &Features) -> Option<Confidence> {
    let dense =
        features.requests > 0 && features.requests * WORDS_PER_REQUEST >= features.words.max(1);
    match features.actionable() {
        points if points > MERIT + 1 => Some(Confidence::High),
        points if points > MERIT || points == MERIT && dense => Some(Confidence::Med),
        points if points == MERIT || dense || features.asking >= 2 => Some(Confidence::Low),
        _ => None,
    }
}

/// Returns how substantial an idea is, from 0 to 1. The value is used only for ranking and is never
/// a reason to act.
pub fn merit(features: &Features) -> f64 {
    let points = features.actionable() as f64 / Features::POINTS as f64;
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

/// Returns whether comparing an idea's candidates with the other notes may change its verdict.
pub fn to_compare(features: &Features, grounds: &Evidence) -> bool {
    let Some(best) = best(grounds).filter(|_| by_form(features).is_none()) else { return false };
    let alone = Candidate { best_other_note: Some(0.0), ..best.clone() };
    fit(features, grounds, best) != fit(features, grounds, &alone)
}

/// Returns the strongest commit that may have implemented the idea. A commit that is older than the
/// idea did not implement it, unless its message mentions the idea's file.
fn best(grounds: &Evidence) -> Option<&Candidate> {
    grounds.candidates.iter().find(|one| one.when != CommitTiming::Before || one.cited)
}

/// How well a commit fits an idea, if it may have implemented the idea.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The commit implemented the idea.
    Well,
    /// The commit fits less well, but it fits no other note as well, so it implemented the idea.
    OnlyHere,
    /// The commit may have implemented the idea.
    Perhaps,
}

/// Returns the commit that may have implemented the idea, and how well the commit fits. Returns
/// `None` if no commit fits well enough.
fn implemented<'a>(features: &Features, grounds: &'a Evidence) -> Option<(&'a Candidate, Fit)> {
    let best = best(grounds)?;
    Some((best, fit(features, grounds, best)?))
}

/// Returns how well the best commit fits, or `None` if it does not fit well enough to have
/// implemented the idea.
fn fit(features: &Features, grounds: &Evidence, best: &Candidate) -> Option<Fit> {
    let rivalled = lead(grounds, best).is_some_and(|lead| lead < RIVAL);
    let least = if rivalled { RIVALLED } else { DONE };
    let draft = features.declared == Some(Declared::Open);
    let well = match draft {
        true => best.strength >= least.max(DONE + DECLARED),
        false => {
            best.strength >= least
                || stands_out(grounds, best)
                || has_same_subject(grounds, best)
                || has_same_places(grounds, best)
        }
    };
    // A single commit rarely completes an idea in phases, and an idea with ticked and open boxes is
    // not done.
    let partly = features.phased() || features.half_ticked();
    let missing = best.criteria.len() >= ITEMS && best.unmet().count() * 2 > best.criteria.len();
    let complete = !partly && !missing;
    match best.strength {
        _ if well && complete => Some(Fit::Well),
        _ if !draft && complete && fits_only_here(grounds, best) => Some(Fit::OnlyHere),
        strength if strength >= PERHAPS => Some(Fit::Perhaps),
        _ => None,
    }
}

/// Returns whether a commit fits well and no other commit fits nearly as well. A commit does not
/// stand out if there is no other commit to compare it with.
fn stands_out(grounds: &Evidence, best: &Candidate) -> bool {
    best.strength >= STANDS_OUT.strength
        && best.about >= STANDS_OUT.about
        && best.content >= STANDS_OUT.content
        && lead(grounds, best).is_some_and(|lead| lead >= STANDS_OUT.lead)
}

/// Returns whether a commit's subject is a paraphrase of the idea's title, and no other commit fits
/// nearly as well. Returns false if there is no other commit to compare it with.
fn has_same_subject(grounds: &Evidence, best: &Candidate) -> bool {
    best.strength >= PERHAPS
        && best.named >= SAME_SUBJECT.named
        && best.about >= SAME_SUBJECT.about
        && best.matched.len() >= SAME_SUBJECT.words
        && lead(grounds, best).is_some_and(|lead| lead >= SAME_SUBJECT.lead)
}

/// Returns whether a commit changed the places mentioned in the idea, the idea mentions nearly the
/// whole subject of the commit, and no other commit fits nearly as well. Returns false if there is
/// no other commit to compare it with.
fn has_same_places(grounds: &Evidence, best: &Candidate) -> bool {
    let unmet = best.unmet().count() as f64;
    best.strength >= SAME_PLACES.strength
        && best.named >= SAME_PLACES.named
        && best.about >= SAME_PLACES.about
        && best.overlap.share >= SAME_PLACES.share
        && best.overlap.places >= SAME_PLACES.places
        && unmet <= SAME_PLACES.unmet * best.criteria.len() as f64
        && lead(grounds, best).is_some_and(|lead| lead >= RIVAL)
}

/// Returns whether a commit fits the idea clearly better than it fits any other note, and no other
/// commit fits the idea nearly as well. Returns false if there is no other commit to compare it
/// with.
fn fits_only_here(grounds: &Evidence, best: &Candidate) -> bool {
    best.strength >= ONLY_HERE.strength
        && best.named >= ONLY_HERE.named
        && best.about >= ONLY_HERE.about
        && best.content >= ONLY_HERE.content
        && lead(grounds, best).is_some_and(|lead| lead >= ONLY_HERE.lead)
        && best.best_other_note.is_some_and(|other| best.strength - other >= ONLY_HERE.notes)
}

/// Returns how much stronger a commit is than the strongest other candidate, or `None` if there is
/// no other candidate. The result is negative if the other candidate is stronger.
fn lead(grounds: &Evidence, best: &Candidate) -> Option<f64> {
    let others = grounds.candidates.iter().filter(|one| one.at != best.at);
    let next = others.map(|one| one.strength).max_by(f64::total_cmp)?;
    Some(best.strength - next)
}

/// Returns the commits that, with high confidence, implemented the idea, the deciding one first.
/// The list is empty if there is no such commit, or if the idea's form alone decides.
pub fn done_by<'a>(features: &Features, grounds: &'a Evidence) -> Vec<&'a Candidate> {
    match implemented(features, grounds).filter(|_| by_form(features).is_none()) {
        Some((best, Fit::Well | Fit::OnlyHere)) => carrying(grounds, best).collect(),
        _ => Vec::new(),
    }
}

/// Returns at most [`CITED`] commits that support a verdict, the deciding one first.
fn carrying<'a>(grounds: &'a Evidence, best: &'a Candidate) -> impl Iterator<Item = &'a Candidate> {
    let others = grounds.candidates.iter().filter(|one| {
        let fits = one.strength >= PERHAPS && one.strength >= ALSO * best.strength;
        one.at != best.at && fits && (one.when != CommitTiming::Before || one.cited)
    });
    std::iter::once(best).chain(others).take(CITED)
}

/// Lists the commits that support a verdict, each formatted by `say`, and a file with a name like
/// the idea's.
fn cite(grounds: &Evidence, best: &Candidate, say: impl Fn(&Candidate) -> String) -> String {
    let cited = carrying(grounds, best);
    let mut text = cited.map(say).collect::<Vec<_>>().join("; ");
    // A path that would not be recognized in the evidence as one complete path is left out.
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

/// Describes the best candidate for an idea that no commit implemented, so that a reader can judge
/// the candidate.
fn nearest(grounds: &Evidence, say: &dyn Fn(&Candidate) -> String) -> String {
    match grounds.candidates.first().filter(|best| best.strength >= SHOWN) {
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

/// Describes the idea's formal features. The text serves as evidence.
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
