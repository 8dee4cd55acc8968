//! Rates how well a commit fits the other notes of the project.
//!
//! A sibling or a predecessor of the work that a note asks for often has a note of its own, and its
//! commit fits that note better. The comparison is evidence only if many commits have a note: in a
//! project with few notes, the note that a commit fits best is usually not the note that asked for
//! the work. This module makes no decisions, and it must never keep the text of a note.

use std::collections::HashMap;
use std::sync::Arc;

use super::candidates::{NAMED, ranked};
use super::{Evidence, NoteTerms, ProjectEvidence};

/// Minimum number of notes in a project for the comparison.
const NOTES: usize = 30;
/// Minimum number of notes per commit that changes more than documents.
const PER_COMMIT: f64 = 0.1;

/// The two notes that each commit fits best.
#[derive(Debug, Default)]
pub struct NoteFits {
    by_commit: HashMap<usize, Vec<(Arc<str>, f64)>>,
}

impl NoteFits {
    /// Adds a note. The note's age is ignored, because the date of a note that was moved, or that
    /// is no longer an idea, is not known.
    pub fn add(&mut self, room: &ProjectEvidence, path: &str, text: &str) {
        let words = NoteTerms::of(path, text);
        let path: Arc<str> = path.into();
        for one in ranked(room.compared(), (&path, text), &words, None) {
            let best = self.by_commit.entry(one.at).or_default();
            best.push((Arc::clone(&path), one.strength));
            best.sort_by(|a, b| b.1.total_cmp(&a.1));
            best.truncate(2);
        }
    }

    /// Sets [`best_other_note`](super::Candidate::best_other_note) for the candidates of the note
    /// at `path`. A commit whose message mentions any other markdown file fits another note with at
    /// least the strength `NAMED`, because that file may be a note that was moved or deleted.
    pub fn rate(&self, room: &ProjectEvidence, path: &str, evidence: &mut Evidence) {
        for candidate in &mut evidence.candidates {
            let fits = self.by_commit.get(&candidate.at).into_iter().flatten();
            let other = fits.filter(|(other, _)| **other != *path).map(|(_, strength)| *strength);
            let cites = room.index.cites_another(path, candidate.at);
            let least = if cites { NAMED } else { 0.0 };
            candidate.best_other_note = Some(other.fold(least, f64::max));
        }
    }
}

impl ProjectEvidence {
    /// Returns whether a project with this number of notes has enough notes for a comparison.
    pub fn is_covered_by(&self, notes: usize) -> bool {
        let works = (0..self.history.len()).filter(|at| self.index.works(*at)).count();
        notes >= NOTES && notes as f64 >= PER_COMMIT * works as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Commit;

    const SUBJECTS: [&str; 5] = [
        "add a printer retry policy with jitter",
        "colour the output of the table",
        "split the main module",
        "measure the parser by its lines",
        "rename the old settings",
    ];
    const OWN: (&str, &str) =
        ("ideas/printer.md", "# Printer retry policy with jitter\n\nAdd it to the printer.\n");
    const SIBLING: (&str, &str) =
        ("ideas/client.md", "# Client retry policy with jitter\n\nAdd it to the client.\n");
    const OTHER: (&str, &str) = ("ideas/zebra.md", "# Zebra crossing\n\nPaint it again.\n");

    /// Returns the evidence about each note, compared with the others.
    fn rated(subjects: &[&str], notes: &[(&str, &str)]) -> Vec<Evidence> {
        let room = ProjectEvidence::of_subjects(subjects);
        let mut fits = NoteFits::default();
        notes.iter().for_each(|(path, text)| fits.add(&room, path, text));
        let rate = |(path, text): &(&str, &str)| {
            let mut evidence = room.about(path, text, None);
            fits.rate(&room, path, &mut evidence);
            evidence
        };
        notes.iter().map(rate).collect()
    }

    #[test]
    fn commit_is_rated_for_the_other_notes() {
        let found = rated(&SUBJECTS, &[OWN, SIBLING, OTHER]);
        let (own, sibling) = (&found[0].candidates[0], &found[1].candidates[0]);
        assert_eq!((own.at, sibling.at), (0, 0), "{found:?}");
        assert_eq!(own.best_other_note, Some(sibling.strength));
        assert_eq!(sibling.best_other_note, Some(own.strength));
        assert!(own.strength > sibling.strength + 0.1, "{found:?}");
        let alone = rated(&SUBJECTS, &[OWN, OTHER]);
        assert_eq!(alone[0].candidates[0].best_other_note, Some(0.0), "no other note fits");
    }

    #[test]
    fn age_of_the_other_note_does_not_matter() {
        let moved = "Done on 2023-12-24.";
        let text = format!("{}\n{moved}\n", SIBLING.1);
        let mut history = ProjectEvidence::of_subjects(&SUBJECTS).history().to_vec();
        history.insert(
            0,
            Commit {
                hash: "f".repeat(40),
                at: 1_710_000_000,
                subject: "docs: archive an idea".to_owned(),
                paths: vec!["ideas/done/client.md".to_owned()],
                created: vec![0],
                touched: 1,
                ..Commit::default()
            },
        );
        let room = ProjectEvidence::of(history, Vec::new());
        let mut fits = NoteFits::default();
        fits.add(&room, "ideas/done/client.md", &text);
        let mut evidence = room.about(OWN.0, OWN.1, None);
        fits.rate(&room, OWN.0, &mut evidence);
        assert!(evidence.candidates[0].best_other_note > Some(0.3), "{evidence:?}");
    }

    #[test]
    fn commit_fits_the_note_that_it_mentions() {
        let rating = |path: &str| {
            let first = format!("{}, see {path}", SUBJECTS[0]);
            let mut subjects = SUBJECTS;
            subjects[0] = &first;
            rated(&subjects, &[OWN, OTHER])[0].candidates[0].best_other_note
        };
        assert_eq!(rating("ideas/moved.md"), Some(NAMED));
        assert_eq!(rating(OWN.0), Some(0.0), "the note itself");
        assert_eq!(rating("src/retry.rs"), Some(0.0), "a file that is not a note");
    }

    #[test]
    fn comparison_requires_many_notes() {
        let subjects: Vec<String> =
            (0..400).map(|at| format!("measure part {at} of the parser")).collect();
        let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
        let (large, small) =
            (ProjectEvidence::of_subjects(&subjects), ProjectEvidence::of_subjects(&SUBJECTS));
        assert_eq!((large.is_covered_by(39), large.is_covered_by(40)), (false, true));
        assert_eq!((small.is_covered_by(29), small.is_covered_by(30)), (false, true));
    }
}
