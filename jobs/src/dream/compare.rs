//! Compares the candidates for an idea with the other notes of the project, if that may change the
//! rule's verdict. Notes that are no longer ideas count too: a commit that finished an archived
//! idea must not finish its sibling.
//!
//! The comparison is all or nothing: if one note cannot be read, the commit that belongs to it
//! could archive another idea. This module must never read a note unless a verdict depends on it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;

use runner_engine::recording::InputRecording;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::features::Features;
use super::inventory::Inventory;
use super::spec::DreamSpec;
use super::{rule, walk};
use crate::evidence::neighbours::MOST;
use crate::evidence::other_notes::NoteFits;
use crate::evidence::{Evidence, ProjectEvidence};

/// Maximum number of other notes to read for one pass.
pub const OTHERS: usize = 5000;
/// The recording key for the notes that are no longer ideas.
const SETTLED: &str = "settled notes";

/// The paths of all notes of a project.
#[derive(Clone, Debug, Default)]
pub struct NotePaths {
    /// The ideas and the archived ideas.
    pub asked: BTreeSet<String>,
    /// The files in the folder for promoted ideas, which may contain documents that were never
    /// ideas.
    pub promoted: BTreeSet<String>,
}

/// The notes of a project, which are read when the first comparison needs them.
pub struct OtherNotes<'a> {
    list: &'a dyn Fn() -> Option<NotePaths>,
    read: &'a dyn Fn(&str) -> Option<String>,
    fits: OnceCell<Option<NoteFits>>,
}

impl<'a> OtherNotes<'a> {
    /// Creates the comparison. `list` returns the paths of all notes, and `read` the text of one;
    /// either returns `None` if a note cannot be read.
    pub fn new(
        list: &'a dyn Fn() -> Option<NotePaths>,
        read: &'a dyn Fn(&str) -> Option<String>,
    ) -> Self {
        Self { list, read, fits: OnceCell::new() }
    }

    /// Compares the candidates for the idea at `path` with all other notes. Does nothing if that
    /// cannot change the verdict, if the project has too few or too many notes, or if a note cannot
    /// be read. All calls must pass the same `room`.
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
            fits.rate(room, path, evidence);
        }
    }

    /// Returns the fits of all notes, or `None` if a note cannot be read, if there are too few
    /// notes for a comparison, or if there are more than [`OTHERS`] notes or [`MOST`] bytes of
    /// text.
    fn gather(&self, room: &ProjectEvidence) -> Option<NoteFits> {
        let NotePaths { asked, promoted } = (self.list)()?;
        if asked.len() + promoted.len() > OTHERS || !room.is_covered_by(asked.len()) {
            return None;
        }
        let (mut fits, mut left) = (NoteFits::default(), MOST);
        for path in asked.union(&promoted) {
            let text = (self.read)(path)?;
            left = left.checked_sub(text.len())?;
            fits.add(room, path, &text);
        }
        Some(fits)
    }
}

/// The notes that are no longer ideas, as recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct SettledNotes {
    archived: BTreeSet<String>,
    promoted: BTreeSet<String>,
}

/// Returns all notes of the project at `root`, whose ideas are in `inventory`, or `None` if one of
/// them cannot be read. A replayed run takes the notes that are no longer ideas from its recording.
pub fn all_notes(
    root: &Path,
    spec: &DreamSpec,
    inventory: &Inventory,
    recording: &InputRecording,
) -> Option<NotePaths> {
    let settled: Option<SettledNotes> = match recording.replays() {
        // Earlier versions did not compare notes.
        true if !recording.has(SETTLED, "") => None,
        true => serde_json::from_value(recording.recall(SETTLED, "").ok()?.facts).ok()?,
        false => walk::notes_in(root, spec, &spec.done)
            .zip(walk::notes_in(root, spec, &spec.specs))
            .map(|(archived, promoted)| SettledNotes { archived, promoted }),
    };
    if recording.records() {
        recording.note(SETTLED, "", json!(settled), None);
    }
    let SettledNotes { archived: mut asked, promoted } =
        settled.filter(|_| inventory.troubles.is_empty())?;
    asked.extend(inventory.ideas.iter().map(|idea| idea.path.to_string()));
    Some(NotePaths { asked, promoted })
}
