//! Judges a reply: extracts its elements and checks that the evidence of each proposal exists.
//!
//! This module must never accept a statement of a reply as a fact: it looks up each reference.

use runner_backends::Reply;
use runner_engine::outcome::Class;
use runner_text::counted;
use runner_text::json_extract::extract_array;
use runner_text::redact::Redactor;
use serde_json::Value;

use super::classify::ClassifiedIdeas;
use super::proposal::{self, Action, Offer, Proposal, Refused};
use super::request;
use crate::JobError;
use crate::evidence::{ProjectEvidence, Reference, references};

/// Maximum length of a reply in bytes, unless the number of shown ideas allows more.
const LONGEST_REPLY: usize = 4 * 1024 * 1024;
/// Bytes allowed for each shown idea, if their sum is larger than [`LONGEST_REPLY`].
const PER_ANSWER: usize = 1024;
/// Maximum number of elements of a reply that are examined.
const ELEMENTS: usize = 5000;

/// Checks the length of a reply. The limit is [`LONGEST_REPLY`], or [`PER_ANSWER`] bytes for each
/// shown idea if that is more.
pub(super) fn fits(reply: &Reply, shown: usize) -> Result<(), JobError> {
    let most = LONGEST_REPLY.max(shown.saturating_mul(PER_ANSWER));
    let bytes = reply.text.len();
    if bytes <= most {
        return Ok(());
    }
    let why = format!("the reply is {bytes} bytes long; the limit is {most}");
    Err(JobError::failed(Class::Malformed, why))
}

/// Returns the elements of a reply: from an array, an array in an object, or an array in the text.
pub(super) fn elements(reply: &Reply) -> Vec<Result<Value, String>> {
    let given = match &reply.value {
        Some(Value::Array(elements)) => Some(elements),
        Some(Value::Object(object)) => object.get("proposals").and_then(Value::as_array),
        _ => None,
    };
    let mut elements: Vec<Result<Value, String>> = match given {
        Some(elements) => elements.iter().take(ELEMENTS + 1).cloned().map(Ok).collect(),
        None => match extract_array(&reply.text) {
            Ok(elements) => {
                let elements = elements.into_iter().take(ELEMENTS + 1);
                elements.map(|element| element.map_err(|error| error.to_string())).collect()
            }
            Err(error) => vec![Err(error.to_string())],
        },
    };
    if elements.len() > ELEMENTS {
        elements[ELEMENTS] = Err(format!("elements after the first {ELEMENTS} are ignored"));
    }
    elements
}

/// Returns the reason why no part of a reply can be used.
pub(super) fn none_good(refused: &[Refused]) -> String {
    if refused.is_empty() {
        return "the reply has no proposals".to_owned();
    }
    let first: Vec<&str> = refused.iter().take(3).map(|refused| refused.why.as_str()).collect();
    format!("none of {} can be used: {}", counted(refused.len(), "proposal"), first.join("; "))
}

/// Restores the rule's wording where the answer repeats the rule's hashes.
pub(super) fn worded(
    judged: &ClassifiedIdeas,
    proposal: Proposal,
    redactor: &Redactor,
) -> Proposal {
    let mut shown = judged.shown.iter();
    match shown.find(|one| one.path == proposal.targets[0]) {
        Some(one) => request::with_words(proposal, &one.verdict, redactor),
        None => proposal,
    }
}

/// Changes a proposal to archive into a proposal to keep, unless its evidence cites something that
/// exists and nothing that does not.
pub(super) fn grounded(
    room: &ProjectEvidence,
    offer: &Offer,
    proposal: Proposal,
    downgraded: &mut usize,
) -> Proposal {
    if proposal.action != Action::Archive {
        return proposal;
    }
    let note = |path: &str| offer.digests.contains_key(path);
    let checked = references::check(room, &proposal.evidence, note);
    if checked.resolves() {
        return proposal;
    }
    *downgraded += 1;
    let mut kept = proposal.with_action(Action::Keep);
    let why = match checked.missing.first() {
        Some(Reference::Commit(hash)) => format!("there is no commit {hash} in this repository"),
        Some(Reference::Path(path)) => format!("there is no {path} in this project or its history"),
        None => "it cites no commit and no path".to_owned(),
    };
    let why = format!("kept because the evidence does not resolve: {why}; {}", kept.rationale);
    kept.rationale = proposal::clean(&why, 2000);
    kept
}
