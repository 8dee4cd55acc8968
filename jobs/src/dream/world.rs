//! Selects unchanged ideas whose evidence changed: new commits may have done what an idea asks for.
//!
//! When `HEAD` has moved since the last pass, the rule judges the unchanged ideas again, without a
//! model. An idea is selected if the rule now finds that a commit has implemented it and did not
//! find that commit before. The record of the last pass is a cache: if it is missing, all unchanged
//! ideas are judged again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, read_host, write_atomic};
use serde::{Deserialize, Serialize};

use super::classify::{Born, ClassifiedIdea};
use super::compare::OtherNotes;
use super::decisions::Decisions;
use super::features::Features;
use super::inventory::{Idea, Reader};
use super::proposal::{self, Action, IdeaStatus};
use super::rule;
use super::spec::DreamSpec;
use crate::RunFiles;
use crate::evidence::{ProjectEvidence, places};

/// The evidence seen by earlier passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SeenEvidence {
    /// The commit that was checked out in the last pass over the changed ideas. `None` if ideas
    /// with new evidence still wait for a valid answer, or if there was no commit.
    pub(super) head: Option<String>,
    /// The backend and the model of the last pass.
    pub(super) backend: Option<String>,
    /// The ideas that, according to the rule, a commit has implemented: the digest of each idea's
    /// content and the commit's hash, by path.
    decided: BTreeMap<String, (Digest, String)>,
    /// The path of the proposals that a pass was about to publish, and the record that replaces
    /// this one if they were published.
    next: Option<(String, Box<SeenEvidence>)>,
}

impl SeenEvidence {
    /// Returns the path of the record. Dream jobs with different folders have different records.
    fn path(cache: &Path, spec: &DreamSpec) -> PathBuf {
        cache.join(format!("dream-evidence-{}.json", spec.folders_digest()))
    }

    /// Reads the record, or the record that replaces it if its proposals were published. A missing
    /// or damaged file yields an empty record.
    pub(super) fn load(files: &RunFiles<'_>, spec: &DreamSpec) -> Self {
        let bytes = read_host(Self::path(files.cache(), spec), DOCUMENT).unwrap_or_default();
        let mut seen: Self = serde_json::from_slice(&bytes).unwrap_or_default();
        match seen.next.take() {
            Some((proposals, next)) if files.is_file(&proposals) => {
                // Save the record now, because the proposals may be removed later.
                if files.keeps_caches() {
                    next.save(files.cache(), spec);
                }
                *next
            }
            _ => seen,
        }
    }

    /// Returns this record with `next`, which replaces it once the proposals at this path are
    /// published.
    pub(super) fn then(self, proposals: String, next: Self) -> Self {
        Self { next: Some((proposals, Box::new(next))), ..self }
    }

    /// Writes the record. A failure only costs time.
    pub(super) fn save(&self, cache: &Path, spec: &DreamSpec) {
        let bytes = serde_json::to_vec(self).expect("paths and hashes serialize to JSON");
        if let Err(error) = write_atomic(&Self::path(cache, spec), &bytes, 0o600) {
            tracing::warn!(%error, "the evidence that this pass saw could not be recorded");
        }
    }

    /// Records which commit, if any, has implemented an idea according to the rule.
    pub(super) fn note(&mut self, room: &ProjectEvidence, one: &ClassifiedIdea) {
        let archived = one.verdict.action == Action::Archive;
        let hash = one.verdict.commits.first().filter(|_| archived);
        match hash.and_then(|hash| room.commit_named(hash)) {
            Some(commit) => {
                self.decided.insert(one.path.clone(), (one.digest, commit.hash.clone()))
            }
            None => self.decided.remove(&one.path),
        };
    }

    fn knows(&self, path: &str, digest: Digest, commit: &str) -> bool {
        self.decided.get(path).is_some_and(|(known, by)| *known == digest && by == commit)
    }
}

/// The facts about the ideas that the rule judges again.
pub(super) struct Unchanged<'a> {
    pub(super) ideas: &'a [Idea],
    pub(super) decisions: &'a Decisions,
    pub(super) reader: &'a Reader,
    pub(super) room: &'a ProjectEvidence,
    pub(super) others: &'a OtherNotes<'a>,
}

impl Unchanged<'_> {
    /// Returns those of `indices` whose idea is implemented, according to the rule, by a commit
    /// that `seen` does not record for the idea.
    pub(super) fn newly_done(
        &self,
        indices: impl Iterator<Item = usize>,
        seen: &SeenEvidence,
        born: Born<'_>,
    ) -> Vec<usize> {
        let newly = |at: &usize| {
            let idea = &self.ideas[*at];
            if self.is_decided(idea) {
                return false;
            }
            let Ok((text, _, digest)) = self.reader.text(&idea.path) else { return false };
            let features = Features::of(&text, places::stem(&idea.path));
            let mut grounds = self.room.about(&idea.path, &text, born(&idea.path));
            self.others.compare(self.room, &idea.path, &features, &mut grounds);
            let done = rule::done_by(&features, &grounds);
            let by = done.first().map(|best| self.room.commit(best).hash.as_str());
            by.is_some_and(|commit| !seen.knows(&idea.path, digest, commit))
        };
        indices.filter(newly).collect()
    }

    /// Returns whether the user has already decided on a proposal to archive this content.
    fn is_decided(&self, idea: &Idea) -> bool {
        let targets = [idea.path.to_string()];
        let id = proposal::id(&targets, IdeaStatus::Implemented, Action::Archive);
        self.decisions.decided(&id, &proposal::hash_of([Some(&idea.digest)]))
    }
}
