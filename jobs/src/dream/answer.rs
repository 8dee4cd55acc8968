//! Judges a reply: extracts its elements, and checks each proposal against what was offered for its
//! idea.
//!
//! This module must never accept a reply's statement as a fact: it looks up each reference and each
//! quotation. A proposal whose claim does not hold is replaced by one that keeps the idea.

use std::collections::{BTreeMap, BTreeSet};

use runner_backends::Reply;
use runner_engine::error_chain::whole;
use runner_engine::outcome::Class;
use runner_text::counted;
use runner_text::json_extract::extract_arrays;
use runner_text::redact::Redactor;
use serde_json::{Value, json};

use super::classify::OFFERED_NEIGHBOURS;
use super::classify::{ClassifiedIdea, ClassifiedIdeas};
use super::excerpt::Excerpts;
use super::proposal::{self, Action, Confidence, IdeaStatus, Offer, Proposal, Refused};
use super::recalled;
use super::request;
use super::review::Proposals;
use super::rule;
use super::spec::DreamSpec;
use crate::evidence::{Candidate, ProjectEvidence, Reference, references};
use crate::{Context, JobError};

/// Maximum length of a reply in bytes, unless the number of shown ideas allows more.
const LONGEST_REPLY: usize = 4 * 1024 * 1024;
/// Bytes allowed for each shown idea, if the sum is larger than [`LONGEST_REPLY`].
const PER_ANSWER: usize = 1024;
/// The recording key for the open archives and merges of earlier passes.
const OPEN: &str = "open-moves";
/// Maximum number of a reply's elements to examine.
const ELEMENTS: usize = 5000;

/// Checks the length of a reply. The limit is [`LONGEST_REPLY`], or [`PER_ANSWER`] bytes for each
/// shown idea if that is more.
pub(super) fn fits(reply: &Reply, shown: usize) -> Result<(), String> {
    let most = LONGEST_REPLY.max(shown.saturating_mul(PER_ANSWER));
    let bytes = reply.text.len();
    if bytes <= most {
        return Ok(());
    }
    Err(format!("the reply is {bytes} bytes long; the limit is {most}"))
}

/// Returns the elements of a reply. A reply is a JSON array, a JSON object with an array
/// `proposals`, or text that contains arrays. The elements of a later array in the text come first,
/// so that a final answer has priority over a draft.
pub(super) fn elements(reply: &Reply) -> Vec<Result<Value, String>> {
    let given = match &reply.value {
        Some(Value::Array(elements)) => Some(elements),
        Some(Value::Object(object)) => object.get("proposals").and_then(Value::as_array),
        _ => None,
    };
    let mut elements: Vec<Result<Value, String>> = match given {
        Some(elements) => elements.iter().take(ELEMENTS + 1).cloned().map(Ok).collect(),
        None => match extract_arrays(&reply.text) {
            Ok(arrays) => {
                let count = arrays.len();
                let several = (count > 1).then(|| Err(several(count)));
                let elements = arrays.into_iter().rev().flatten();
                let elements = elements.map(|element| element.map_err(|error| error.to_string()));
                several.into_iter().chain(elements).take(ELEMENTS + 1).collect()
            }
            Err(error) => vec![Err(error.to_string())],
        },
    };
    if elements.len() > ELEMENTS {
        elements[ELEMENTS] = Err(format!("elements after the first {ELEMENTS} are ignored"));
    }
    elements
}

/// Describes a reply with several arrays.
fn several(count: usize) -> String {
    format!("{count} JSON arrays where one was expected; the last answer about each idea counts")
}

/// Returns the error for replies that contain nothing usable. Its message ends with `advice`.
pub(super) fn none_good(refused: &[Refused], advice: &str) -> JobError {
    if refused.is_empty() {
        let why = format!("the reply has no proposals{advice}");
        return JobError::failed(Class::Malformed, why);
    }
    let first: Vec<&str> = refused.iter().take(3).map(|refused| refused.why.as_str()).collect();
    let all = counted(refused.len(), "proposal");
    JobError::failed(
        Class::Malformed,
        format!("none of {all} can be used: {}{advice}", first.join("; ")),
    )
}

/// Restores the rule's full evidence if the answer repeats the rule's shortened evidence.
pub(super) fn worded(
    judged: &ClassifiedIdeas,
    proposal: Proposal,
    redactor: &Redactor,
) -> Proposal {
    match judged.of(&proposal.targets[0]) {
        Some(one) => request::with_words(proposal, &one.verdict, redactor),
        None => proposal,
    }
}

/// The checks on the proposals of a pass.
pub(super) struct Checks<'a> {
    pub(super) room: &'a ProjectEvidence,
    pub(super) judged: &'a ClassifiedIdeas,
    pub(super) excerpts: &'a Excerpts,
    /// The quotations of the reply, by idea.
    pub(super) quotes: &'a BTreeMap<String, String>,
    /// The targets of the archives and merges from earlier passes that are awaiting a decision.
    pub(super) open: Vec<Vec<String>>,
}

/// Returns the targets of the archives and merges from earlier passes that are awaiting a decision.
///
/// # Errors
/// Returns a failure of class `environment` if the proposals cannot be read.
pub(super) fn open_moves(
    ctx: &Context<'_>,
    spec: &DreamSpec,
) -> Result<Vec<Vec<String>>, JobError> {
    if ctx.recording.replays() {
        // Older recordings do not contain this input.
        return match ctx.recording.has(OPEN, "") {
            true => recalled(&ctx.recording, OPEN),
            false => Ok(Vec::new()),
        };
    }
    let proposals = Proposals::read(ctx.files.root(), spec)
        .map_err(|error| JobError::failed(Class::Environment, whole(&error)))?;
    let open = proposals.moves();
    ctx.recording.note(OPEN, "", json!(open), None);
    Ok(open)
}

impl Checks<'_> {
    /// Checks the proposals one after another. A claim that does not hold is struck: the idea is
    /// kept as a sidenote, and the rationale states the reason. An uncertain archive or merge
    /// becomes a proposal that keeps the idea and names the candidate. Returns the proposals and
    /// the number of struck claims.
    pub(super) fn apply(&self, proposals: Vec<Proposal>) -> (Vec<Proposal>, usize) {
        let mut struck = 0;
        // An idea that is merged or archived cannot be the destination of a merge. A new answer
        // about an idea replaces the open proposal about the same idea.
        let answered: BTreeSet<&String> = proposals.iter().map(|it| &it.targets[0]).collect();
        let open = self.open.iter().filter(|targets| !answered.contains(&targets[0]));
        let (mut moving, mut receiving) = (BTreeSet::new(), BTreeSet::new());
        let mut awaited = BTreeSet::new();
        for targets in open {
            moving.insert(targets[0].clone());
            awaited.extend(targets.get(1).cloned());
        }
        let checked = proposals.into_iter().map(|proposal| {
            let Some(one) = self.judged.of(&proposal.targets[0]) else { return proposal };
            let held = self.holds(one, &proposal).and_then(|()| match proposal.action {
                Action::Merge if moving.contains(&proposal.targets[1]) => {
                    Err(format!("{} is itself merged or archived", proposal.targets[1]))
                }
                Action::Merge if awaited.contains(&proposal.targets[0]) => {
                    Err("another idea is merged into it".to_owned())
                }
                Action::Merge | Action::Archive if receiving.contains(&proposal.targets[0]) => {
                    Err("another idea is merged into it".to_owned())
                }
                _ => Ok(()),
            });
            if let Err(why) = held {
                struck += 1;
                return strike(proposal, &why, &self.judged.offer);
            }
            // The user may still reject the open merge, so an archive of its destination waits.
            let waits =
                proposal.action == Action::Archive && awaited.contains(&proposal.targets[0]);
            let proposal = match proposal.confidence {
                Confidence::High if !waits => proposal,
                _ => perhaps(proposal, &self.judged.offer),
            };
            if matches!(proposal.action, Action::Merge | Action::Archive) {
                moving.insert(proposal.targets[0].clone());
                receiving.extend(proposal.targets.get(1).cloned());
            }
            proposal
        });
        let checked = checked.collect();
        (checked, struck)
    }

    /// Checks what a proposal claims about an idea.
    fn holds(&self, one: &ClassifiedIdea, proposal: &Proposal) -> Result<(), String> {
        let own = |path: &str| self.judged.offer.digests.contains_key(path);
        let cited = references::check(self.room, &proposal.evidence, own);
        let why = references::check(self.room, &proposal.rationale, own);
        let invented = why.missing.iter().filter(|it| matches!(it, Reference::Commit(_)));
        match cited.missing.iter().chain(invented).next() {
            Some(Reference::Commit(hash)) => {
                return Err(format!("there is no commit {hash} in this repository"));
            }
            Some(Reference::Path(path)) => {
                return Err(format!("there is no {path} in this project or its history"));
            }
            None => {}
        }
        match (proposal.status, proposal.action) {
            (_, Action::Archive) => self.carries(one, proposal, &cited.found),
            (_, Action::Merge) => {
                let into = &proposal.targets[1];
                let mut near = one.near.iter().take(OFFERED_NEIGHBOURS);
                let fixed = one.verdict.into.as_ref() == Some(into);
                match fixed || near.any(|near| near.path == *into) {
                    true => Ok(()),
                    false => Err(format!("{into} was not offered as a neighbour of this idea")),
                }
            }
            _ => Ok(()),
        }
    }

    /// Checks that an archive cites an offered commit, or a path that an offered commit changed,
    /// and that the evidence supports it: by the rule's own figures, or by a line that the reply
    /// quotes from the commit's changes.
    fn carries(
        &self,
        one: &ClassifiedIdea,
        proposal: &Proposal,
        cited: &[Reference],
    ) -> Result<(), String> {
        if cited.is_empty() {
            return Err("it cites no commit and no path".to_owned());
        }
        let offered: Vec<_> = one
            .grounds
            .candidates
            .iter()
            .filter(|candidate| {
                let commit = self.room.commit(candidate);
                cited.iter().any(|reference| match reference {
                    Reference::Commit(hash) => commit.hash.starts_with(&hash.to_ascii_lowercase()),
                    Reference::Path(path) => {
                        commit.paths.contains(path) && !self.room.is_document(path)
                    }
                })
            })
            .collect();
        if offered.is_empty() {
            return Err("it cites no commit and no path that was offered for this idea".to_owned());
        }
        let quote = self.quotes.get(&proposal.targets[0]).map_or("", String::as_str);
        if !quote.is_empty() {
            let commits = offered.iter().map(|it| self.room.commit(it).hash.as_str());
            return match self.excerpts.contain(quote, commits) {
                true => Ok(()),
                false => Err("the line that it quotes is not in the commit's changes".to_owned()),
            };
        }
        let decided = |it: &Candidate| {
            let commit = self.room.commit(it).short();
            one.verdict.action == Action::Archive
                && one.verdict.commits.iter().any(|decisive| decisive == commit)
        };
        match offered.iter().any(|it| it.cited || it.strength >= rule::PERHAPS || decided(it)) {
            true => Ok(()),
            false => {
                Err("the commit has little in common with the idea, and no line is quoted"
                    .to_owned())
            }
        }
    }
}

/// Replaces a proposal whose claim does not hold with one that keeps the idea as a sidenote.
fn strike(proposal: Proposal, why: &str, offer: &Offer) -> Proposal {
    let rationale = format!("kept because the claim does not hold: {why}");
    Proposal {
        evidence: "none: the answer's claim was struck".to_owned(),
        rationale: proposal::clean(&rationale, proposal::LONGEST),
        confidence: Confidence::Low,
        ..proposal.retargeted(IdeaStatus::Sidenote, Action::Keep, offer)
    }
}

/// Changes an uncertain archive or merge to a proposal that keeps the idea. The evidence names the
/// candidate.
fn perhaps(mut proposal: Proposal, offer: &Offer) -> Proposal {
    if !matches!(proposal.action, Action::Archive | Action::Merge) {
        return proposal;
    }
    if let Some(into) = proposal.targets.get(1)
        && !proposal.evidence.contains(into.as_str())
    {
        proposal.evidence =
            proposal::clean(&format!("near {into}; {}", proposal.evidence), proposal::LONGEST);
    }
    let status = proposal.status;
    proposal.retargeted(status, Action::Keep, offer)
}
