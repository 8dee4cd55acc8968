//! Compares the candidates for an idea with the other notes of the project, if that may change the
//! rule's verdict. Notes that are no longer ideas are compared too: a commit that implemented an
//! archived idea must not cause a sibling of that idea to be archived.
//!
//! The comparison is all or nothing: if one note were left out, its commit could cause another idea
//! to be archived. This module must never read a note unless a verdict depends on it.

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

/// Maximum number of notes to compare in one pass.
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
    list: &'a dyn Fn() -> Result<NotePaths, String>,
    read: &'a dyn Fn(&str) -> Result<String, String>,
    fits: OnceCell<Result<Option<NoteFits>, String>>,
}

impl<'a> OtherNotes<'a> {
    /// Creates the comparison. `list` returns the paths of all notes, and `read` the text of one.
    /// An error of `list` names the note that cannot be read; an error of `read` only states why.
    pub fn new(
        list: &'a dyn Fn() -> Result<NotePaths, String>,
        read: &'a dyn Fn(&str) -> Result<String, String>,
    ) -> Self {
        Self { list, read, fits: OnceCell::new() }
    }

    /// Compares the candidates for the idea at `path` with all other notes. Does nothing if that
    /// cannot change the verdict, if the project has too few notes, or if there is a
    /// [`problem`](Self::problem). All calls must pass the same `room`.
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
        if let Ok(Some(fits)) = self.fits.get_or_init(|| self.gather(room)) {
            fits.rate(room, path, evidence);
        }
    }

    /// Returns why the notes could not be compared, if a verdict depended on the comparison.
    pub fn problem(&self) -> Option<String> {
        self.fits.get()?.as_ref().err().cloned()
    }

    /// Reads all notes and returns the commits' fits, or `None` if there are too few notes for a
    /// comparison.
    ///
    /// # Errors
    /// Returns why the notes cannot be compared: one of them cannot be read, or there are more than
    /// [`OTHERS`] notes or [`MOST`] bytes of text.
    fn gather(&self, room: &ProjectEvidence) -> Result<Option<NoteFits>, String> {
        let NotePaths { asked, promoted } = (self.list)()?;
        if !room.is_covered_by(asked.len()) {
            return Ok(None);
        }
        if asked.len() + promoted.len() > OTHERS {
            return Err(format!("there are more than {OTHERS} notes"));
        }
        let (mut fits, mut left) = (NoteFits::default(), MOST);
        for path in asked.union(&promoted) {
            let text = (self.read)(path).map_err(|why| format!("{path} {why}"))?;
            let too_large = || format!("the notes are larger than {} MiB", MOST >> 20);
            left = left.checked_sub(text.len()).ok_or_else(too_large)?;
            fits.add(room, path, &text);
        }
        Ok(Some(fits))
    }
}

/// The notes that are no longer ideas, as recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SettledNotes {
    archived: BTreeSet<String>,
    promoted: BTreeSet<String>,
}

/// Returns the paths of all notes of the project at `root`. The ideas come from `inventory`. A
/// replayed run reads the other paths from its recording.
///
/// # Errors
/// Returns a message if a note cannot be read or the recording is unusable.
pub fn all_notes(
    root: &Path,
    spec: &DreamSpec,
    inventory: &Inventory,
    recording: &InputRecording,
) -> Result<NotePaths, String> {
    let settled: Result<SettledNotes, String> = match recording.replays() {
        // An earlier version compared no notes.
        true if !recording.has(SETTLED, "") => return Ok(NotePaths::default()),
        true => {
            let recorded = recording.recall(SETTLED, "").map_err(|error| error.to_string())?;
            serde_json::from_value(recorded.facts).map_err(|error| error.to_string())?
        }
        false => settled_notes(root, spec),
    };
    if recording.records() {
        recording.note(SETTLED, "", json!(settled), None);
    }
    let SettledNotes { archived: mut asked, promoted } = settled?;
    if let Some(problem) = inventory.troubles.first() {
        return Err(problem.to_string());
    }
    asked.extend(inventory.ideas.iter().map(|idea| idea.path.to_string()));
    Ok(NotePaths { asked, promoted })
}

fn settled_notes(root: &Path, spec: &DreamSpec) -> Result<SettledNotes, String> {
    let notes =
        |folder: &str| walk::notes_in(root, spec, folder).map_err(|problem| problem.to_string());
    Ok(SettledNotes { archived: notes(&spec.done)?, promoted: notes(&spec.specs)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problem of a comparison of notes with these lengths in bytes.
    fn problem(lengths: &[usize]) -> Option<String> {
        let subjects = ["retry policy with jitter", "colour the output", "split the main module"];
        let room = ProjectEvidence::of_subjects(&subjects);
        let asked: BTreeSet<String> = (0..lengths.len()).map(|at| format!("{at:05}")).collect();
        let list = || Ok(NotePaths { asked: asked.clone(), ..NotePaths::default() });
        let read = |path: &str| match lengths[path.parse::<usize>().unwrap()] {
            0 => Err("is gone".to_owned()),
            length => Ok("x".repeat(length)),
        };
        let others = OtherNotes::new(&list, &read);
        others.gather(&room).err()
    }

    #[test]
    fn notes_are_compared_only_within_the_limits() {
        assert_eq!(problem(&[1; OTHERS]), None);
        assert_eq!(problem(&[1; OTHERS + 1]).unwrap(), "there are more than 5000 notes");
        let mut lengths = [1; 40];
        lengths[0] = MOST + 1;
        assert_eq!(problem(&lengths).unwrap(), "the notes are larger than 32 MiB");
        lengths[0] = 0;
        assert_eq!(problem(&lengths).unwrap(), "00000 is gone");
        assert_eq!(problem(&[0; 5]), None, "too few notes to read them");
    }
}
