//! A pass whose answer comes from a program that runner does not start.
//!
//! ```text
//! runner dream delta ──> request, and a record of what it offered ──> the program
//!                                          │                             │ its answer
//!                                          └────> runner dream submit <──┘
//!                                                          │ the submission: record and answer
//!                                                          └──> a run of the job
//! ```
//!
//! This module must never let an answer apply to contents, destinations or commits that its request
//! did not offer, or to ideas that have been answered since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_backends::{Reply, Stop};
use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, RECORD, WriteError, read_host, write_atomic};
use runner_engine::outcome::Class;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::classify::{ClassifiedIdea, ClassifiedIdeas};
use super::inventory::{Idea, Reader};
use super::proposal::Offer;
use super::recalled;
use super::review::{ProposalItem, Proposals, ProposalsError};
use super::spec::DreamSpec;
use super::state::DreamState;
use crate::evidence::{Neighbour, ProjectEvidence};
use crate::{Context, JobError};

/// The key of the content digests in the offer of an external request.
const DIGESTS: &str = "digests";
/// The recording key for a submission.
const SUBMISSION: &str = "submission";
/// Maximum number of requests that await an answer.
const WAITING: usize = 8;
/// Maximum number of candidates for each idea when an answer is checked. New commits must not
/// displace those of the request.
const CANDIDATES: usize = 20;

/// The choices that an external request offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// The ideas that were shown.
    pub sources: Vec<String>,
    /// The ideas that another idea may be merged into.
    destinations: BTreeSet<String>,
    /// The offered destinations of each idea, best first.
    neighbours: BTreeMap<String, Vec<String>>,
    /// The abbreviated hashes of each idea's candidates.
    candidates: BTreeMap<String, Vec<String>>,
    /// The digests of the contents of all these ideas.
    pub digests: BTreeMap<String, Digest>,
}

/// A request that awaits an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalRequest {
    /// Identifies the request. Two requests with the same offer have the same id.
    pub id: String,
    /// The time of the request.
    at: Timestamp,
    offered: Offered,
}

/// The requests that await an answer, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExternalRequests(Vec<ExternalRequest>);

impl ExternalRequests {
    /// Returns the path of the record. Dream jobs with different folders have different records.
    fn path(cache: &Path, spec: &DreamSpec) -> PathBuf {
        cache.join(format!("dream-requests-{}.json", spec.folders_digest()))
    }

    /// Reads the record. A missing or damaged file yields no requests.
    pub fn load(cache: &Path, spec: &DreamSpec) -> Self {
        let bytes = read_host(Self::path(cache, spec), DOCUMENT).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Writes the record.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&self, cache: &Path, spec: &DreamSpec) -> Result<(), WriteError> {
        let bytes = serde_json::to_vec(self).expect("paths and hashes serialize to JSON");
        write_atomic(&Self::path(cache, spec), &bytes, 0o600)
    }

    /// Adds a request, which replaces a request with the same id. Drops the oldest requests beyond
    /// `WAITING`.
    pub fn add(&mut self, request: ExternalRequest) {
        self.remove(&request.id);
        self.0.push(request);
        let over = self.0.len().saturating_sub(WAITING);
        self.0.drain(..over);
    }

    fn remove(&mut self, id: &str) {
        self.0.retain(|request| request.id != id);
    }

    /// Drops each request whose ideas have all been settled, changed or removed since the request.
    /// If the state or the proposals cannot be read, all requests are kept.
    pub fn prune(&mut self, root: &Path, spec: &DreamSpec) {
        let bytes = read_host(root.join(spec.state_path()), RECORD).unwrap_or_default();
        let (Ok(state), Ok(reader), Ok(proposals)) = (
            DreamState::parse(&bytes),
            Reader::open(root, spec.max_idea_bytes),
            Proposals::read(root, spec),
        ) else {
            return;
        };
        self.0.retain(|request| {
            let decided = request.decided_in(&proposals);
            request.ideas().into_iter().any(|(path, shown)| {
                let now = reader.digest(path).ok().filter(|now| *now == shown);
                now.is_some_and(|now| !request.is_settled((path, now), &state, &decided))
            })
        });
    }

    /// Returns the requests, oldest first.
    pub fn all(&self) -> &[ExternalRequest] {
        &self.0
    }
}

impl ExternalRequest {
    /// Creates the record of a request, or returns `None` if `offer` lacks a part, such as the
    /// content digests.
    pub fn new(offer: &Value, at: Timestamp) -> Option<Self> {
        let mut offered: Offered = serde_json::from_value(offer.clone()).ok()?;
        // The order depends on when the ideas were last shown, which must not affect the id.
        offered.sources.sort();
        let bytes = serde_json::to_vec(&offered).expect("paths and hashes serialize to JSON");
        Some(Self { id: Digest::of(&bytes).short(), at, offered })
    }

    /// Returns the ideas that were shown, with the digests of their contents.
    pub fn ideas(&self) -> BTreeMap<&str, Digest> {
        let digest = |path: &String| self.offered.digests.get(path).copied();
        let sources = self.offered.sources.iter();
        sources.filter_map(|path| Some((path.as_str(), digest(path)?))).collect()
    }

    /// Returns the ideas that the user has decided on since the request.
    fn decided_in(&self, proposals: &Proposals) -> BTreeSet<String> {
        let since = |it: &&ProposalItem| {
            let at =
                it.decision.as_ref().and_then(|decision| decision.at.parse::<Timestamp>().ok());
            at.is_some_and(|at| at > self.at)
        };
        let decided = proposals.items.iter().filter(since);
        decided.map(|it| it.proposal.targets[0].clone()).collect()
    }

    /// Returns whether an idea with this content no longer needs an answer, because a later pass
    /// examined it or the user decided on it.
    fn is_settled(
        &self,
        (path, digest): (&str, Digest),
        state: &DreamState<'_>,
        decided: &BTreeSet<String>,
    ) -> bool {
        let triaged = state.triaged(path, &mut 0) == Some(digest);
        let examined = triaged && state.surfaced(path).is_some_and(|then| then > self.at);
        examined || decided.contains(path)
    }
}

impl Offered {
    /// Adds the content digests of `offer` to the offer in its request.
    pub(super) fn note(offer: &Offer, request: &mut Value) {
        request[DIGESTS] = json!(offer.digests);
    }
}

/// An answer to an external request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submission {
    request: ExternalRequest,
    /// The ideas that the user has decided on since the request.
    decided: BTreeSet<String>,
    answer: String,
}

impl Submission {
    /// Pairs an answer with its request and with the decisions made since the request.
    ///
    /// # Errors
    /// Returns an error if the proposals in the project cannot be read.
    pub fn new(
        request: ExternalRequest,
        answer: String,
        (root, spec): (&Path, &DreamSpec),
    ) -> Result<Self, ProposalsError> {
        let decided = request.decided_in(&Proposals::read(root, spec)?);
        Ok(Self { request, decided, answer })
    }

    /// Writes the submission for the run that will check it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), WriteError> {
        let bytes = serde_json::to_vec(self).expect("a submission serializes to JSON");
        write_atomic(file, &bytes, 0o600)
    }

    /// Reads the submission for this run, or returns `None` if a backend answers.
    ///
    /// # Errors
    /// Returns a failure of class `environment` if the submission cannot be read, and of class
    /// `internal` if the recording that is replayed does not contain it.
    pub(super) fn read(ctx: &Context<'_>, spec: &DreamSpec) -> Result<Option<Self>, JobError> {
        let Some(file) = &spec.submission else { return Ok(None) };
        if ctx.recording.replays() {
            return recalled(&ctx.recording, SUBMISSION).map(Some);
        }
        let unusable = |why: String| {
            let why = format!("the submission {file}: {why}; `runner dream submit` writes it");
            JobError::failed(Class::Environment, why)
        };
        let bytes = read_host(file, DOCUMENT).map_err(|error| unusable(error.to_string()))?;
        let submission: Self =
            serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?;
        ctx.recording.note(SUBMISSION, "", json!(submission), None);
        Ok(Some(submission))
    }

    /// Returns the indices of the request's ideas that still need an answer.
    pub(super) fn select(&self, ideas: &[Idea], state: &DreamState<'_>) -> Vec<usize> {
        let shown: BTreeSet<&str> = self.sources().iter().map(String::as_str).collect();
        let is_open = |idea: &Idea| {
            let it = (&*idea.path, idea.digest);
            shown.contains(it.0) && !self.request.is_settled(it, state, &self.decided)
        };
        (0..ideas.len()).filter(|at| is_open(&ideas[*at])).collect()
    }

    /// Returns the ideas that the request showed.
    pub(super) fn sources(&self) -> &[String] {
        &self.request.offered.sources
    }

    /// Raises the limit on candidates, so that the evidence contains all candidates of the request.
    pub(super) fn widen(room: &mut ProjectEvidence) {
        room.most_candidates = CANDIDATES;
    }

    /// Replaces the current offer with the offer of the request. An idea whose content differs from
    /// the content that the request showed is then treated as changed.
    pub(super) fn restore(&self, room: &ProjectEvidence, judged: &mut ClassifiedIdeas) {
        let offered = &self.request.offered;
        judged.offer.destinations.clone_from(&offered.destinations);
        judged.offer.digests.clone_from(&offered.digests);
        for one in &mut judged.shown {
            self.restore_idea(room, one);
        }
    }

    fn restore_idea(&self, room: &ProjectEvidence, one: &mut ClassifiedIdea) {
        let offered = &self.request.offered;
        let of = |all: &BTreeMap<String, Vec<String>>| all.get(&one.path).cloned();
        let (hashes, near) = (of(&offered.candidates), of(&offered.neighbours));
        let hashes = hashes.unwrap_or_default();
        one.grounds
            .candidates
            .retain(|it| hashes.iter().any(|hash| hash == room.commit(it).short()));
        let now = std::mem::take(&mut one.near);
        let named = near.unwrap_or_default().into_iter();
        one.near = named
            .map(|path| match now.iter().find(|near| near.path == path) {
                Some(near) => near.clone(),
                None => Neighbour::unlike(path),
            })
            .collect();
        // A newer commit was not offered, so a later pass must find it.
        let was_offered = |cited: &String| hashes.iter().any(|hash| cited.starts_with(hash));
        one.verdict.commits.retain(was_offered);
        one.verdict.into =
            one.verdict.into.take().filter(|into| one.near.iter().any(|near| near.path == *into));
    }

    /// Returns whether the request showed this content of an idea.
    pub(super) fn showed(&self, one: &ClassifiedIdea) -> bool {
        self.request.offered.digests.get(&one.path) == Some(&one.digest)
    }

    /// Returns the answer in the form of a backend's reply.
    pub(super) fn reply(&self) -> Reply {
        Reply {
            text: self.answer.clone(),
            value: serde_json::from_str(&self.answer).ok(),
            usage: None,
            stop: Stop::End,
            notes: Vec::new(),
        }
    }

    /// Describes who answered, for the report.
    pub(super) fn described(&self) -> String {
        let id = &self.request.id;
        format!("`runner dream submit` answered request {id}; no backend was asked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(content: &str) -> ExternalRequest {
        let digest = Digest::of(content.as_bytes());
        let offer = json!({"sources": ["ideas/a.md"], "destinations": ["ideas/a.md", "ideas/b.md"],
                           "neighbours": {"ideas/a.md": ["ideas/b.md"]}, "candidates": {}, "statuses": ["sidenote"],
                           "digests": {"ideas/a.md": digest}});
        ExternalRequest::new(&offer, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn equal_offers_have_the_same_id() {
        let mut all = ExternalRequests::default();
        for content in ["a", "b", "a"] {
            all.add(request(content));
        }
        let ids: Vec<&str> = all.all().iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, [request("b").id, request("a").id]);
        for number in 0..20 {
            all.add(request(&number.to_string()));
        }
        assert_eq!(all.all().len(), WAITING);
        all.remove(&request("19").id);
        assert_eq!(all.all().last().unwrap().id, request("18").id);
        let backend = json!({"sources": ["ideas/a.md"], "destinations": [], "neighbours": {}, "candidates": {}});
        assert!(
            ExternalRequest::new(&backend, Timestamp::UNIX_EPOCH).is_none(),
            "an offer without content digests is not recorded"
        );
    }
}
