//! Decides which answers of a pass are kept, and computes the updates to the state.
//!
//! This module must never keep an answer about content that has changed since it was shown. It is
//! pure, except that it reads the ideas again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::classify::{ClassifiedIdea, ClassifiedIdeas};
use super::decisions::Decisions;
use super::inventory::{Idea, Reader};
use super::pass_summary::PassSummary;
use super::proposal::{Offer, Proposal};
use super::state::{DreamState, IdeaUpdate, Triaged};

/// Returns the shown ideas and used destinations whose content has changed since it was offered, or
/// can no longer be read.
pub(super) fn changed_meanwhile<'a>(
    reader: &Reader,
    offer: &'a Offer,
    proposals: &[Proposal],
) -> BTreeSet<&'a str> {
    let used = |path: &str| {
        proposals.iter().any(|proposal| proposal.targets.iter().any(|target| target == path))
    };
    offer
        .digests
        .iter()
        .filter(|(path, _)| offer.sources.contains(path) || used(path))
        .filter(|(path, digest)| reader.digest(path).as_ref() != Ok(*digest))
        .map(|(path, _)| path.as_str())
        .collect()
}

/// Returns the proposals to publish: the undecided ones about unchanged content. Counts the others
/// in `reported`.
pub(super) fn undecided(
    proposals: Vec<Proposal>,
    changed: &BTreeSet<&str>,
    decisions: &Decisions,
    reported: &mut PassSummary,
) -> Vec<Proposal> {
    let mut kept = Vec::with_capacity(proposals.len());
    for proposal in proposals {
        let gone = |target: &String| changed.contains(target.as_str());
        if proposal.targets.iter().any(gone) {
            reported.dropped += 1;
        } else if decisions.decided(&proposal.id, &proposal.targets_hash) {
            reported.decided += 1;
        } else {
            kept.push(proposal);
        }
    }
    kept
}

/// Returns the ideas with a valid answer. An answer is ignored if the content of the idea or of its
/// destination has changed.
pub(super) fn valid_answers(proposals: &[Proposal], changed: &BTreeSet<&str>) -> BTreeSet<String> {
    let is_valid =
        |it: &&Proposal| !it.targets.iter().any(|target| changed.contains(target.as_str()));
    proposals.iter().filter(is_valid).map(|it| it.targets[0].clone()).collect()
}

/// Returns the updates to the state. Every new idea is recorded as seen, and every shown idea as
/// shown; an idea with a valid answer and unchanged content is recorded as triaged.
pub(super) fn changes<'a>(
    judged: &'a ClassifiedIdeas,
    ideas: &'a [Idea],
    state: &DreamState<'_>,
    valid: &BTreeSet<String>,
    now: Timestamp,
) -> BTreeMap<&'a str, IdeaUpdate> {
    let change = |one: &'a ClassifiedIdea| {
        let triaged = valid.contains(&one.path).then(|| Triaged {
            hash: one.digest,
            modified: Timestamp::from_nanosecond(i128::from(one.stat.mtime)).unwrap_or(now),
            merit: one.merit,
        });
        (one.path.as_str(), IdeaUpdate { at: now, shown: true, triaged })
    };
    let new = ideas.iter().map(|idea| &*idea.path).filter(|path| !state.knows(path));
    let new = new.map(|path| (path, IdeaUpdate { at: now, shown: false, triaged: None }));
    new.chain(judged.shown.iter().map(change)).collect()
}
