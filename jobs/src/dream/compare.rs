//! Compares the candidates for an idea with the other notes of the project, if that may change the
//! rule's verdict. Notes that are no longer ideas count too: a commit that finished an archived idea
//! must not finish its sibling.
//!
//! This module must never read a note unless a verdict may depend on it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use runner_engine::recording::InputRecording;
use serde_json::json;

use super::classify::{Born, OTHERS};
use super::features::Features;
use super::inventory::Idea;
use super::spec::DreamSpec;
use super::{rule, walk};
use crate::evidence::other_notes::NoteFits;
use crate::evidence::{Evidence, ProjectEvidence};

/// The path of a note and a lower bound on its creation time, in seconds since the epoch.
pub type DatedNote = (String, Option<i64>);

/// The notes of a project, which are read when the first comparison needs them.
pub struct OtherNotes<'a> {
    list: &'a dyn Fn() -> Vec<DatedNote>,
    read: &'a dyn Fn(&str) -> Option<String>,
    fits: OnceCell<Option<NoteFits>>,
}

impl<'a> OtherNotes<'a> {
    /// Creates the comparison. `list` returns all notes, and `read` the text of the note at a path.
    pub fn new(
        list: &'a dyn Fn() -> Vec<DatedNote>,
        read: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self { list, read, fits: OnceCell::new() }
    }

    /// Compares the candidates for the idea at `path` with all other notes. Does nothing if that
    /// cannot change the verdict, or if the project has too few or too many notes. All calls must
    /// pass the same `room`.
    pub fn compare(
        &self,
        room: &ProjectEvidence,
        path: &str,
        features: &Features,
        evidence: &mut Evidence,
    ) {
        if !rule::to_compare(features, evidence) {
            return;
        }
        if let Some(fits) = self.fits.get_or_init(|| self.gather(room)) {
            fits.rate(path, evidence);
        }
    }

    fn gather(&self, room: &ProjectEvidence) -> Option<NoteFits> {
        let notes = (self.list)();
        if notes.len() > OTHERS || !room.is_covered_by(notes.len()) {
            return None;
        }
        let mut fits = NoteFits::default();
        for (path, born) in notes {
            if let Some(text) = (self.read)(&path) {
                fits.add(room, &path, &text, born);
            }
        }
        Some(fits)
    }
}

/// The recording key for the notes that are no longer ideas.
const SETTLED: &str = "settled notes";

/// Returns all notes of the project at `root`: its ideas, and the notes that are no longer ideas,
/// whose creation times are not known. A replayed run reads the latter from its recording.
pub fn all_notes(
    root: &Path,
    spec: &DreamSpec,
    (ideas, born): (&[Idea], Born<'_>),
    recording: &InputRecording,
) -> Vec<DatedNote> {
    let settled: BTreeSet<String> = match recording.replays() {
        true => {
            let facts = recording.recall(SETTLED, "").map(|answer| answer.facts);
            facts.ok().and_then(|facts| serde_json::from_value(facts).ok()).unwrap_or_default()
        }
        false => walk::settled(root, spec),
    };
    if recording.records() {
        recording.note(SETTLED, "", json!(settled), None);
    }
    let settled = settled.into_iter().map(|path| (path, None));
    let ideas = ideas.iter().map(|idea| (idea.path.to_string(), born(&idea.path)));
    settled.chain(ideas).collect::<BTreeMap<_, _>>().into_iter().collect()
}
