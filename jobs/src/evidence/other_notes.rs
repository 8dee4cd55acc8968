//! Rates how well the candidates for a note fit the other notes of the project.
//!
//! A sibling or a predecessor of the work that a note asks for often has a note of its own, and
//! fits that note better. This is evidence only if most work has a note. In a project with few
//! notes, a commit probably has no note, so nothing is rated. This module makes no
//! decisions, and it must never keep more than one note's terms in memory.

use std::collections::BTreeMap;

use super::candidates::{ComparedCommit, ComparedNote};
use super::{Evidence, NoteTerms, ProjectEvidence};

/// Minimum number of notes in a project.
const NOTES: usize = 30;
/// Minimum number of notes per commit that changes more than documents.
const PER_COMMIT: f64 = 0.1;

/// A note whose candidates are rated.
pub struct RatedNote<'a> {
    pub path: &'a str,
    pub evidence: &'a mut Evidence,
    /// Minimum strength of the candidates to rate.
    pub least: f64,
}

/// A commit, with the two notes that it fits best.
struct RatedCommit<'a> {
    commit: ComparedCommit<'a>,
    /// The number of a note and the commit's strength for it, best first.
    best: [Option<(usize, f64)>; 2],
}

impl RatedCommit<'_> {
    fn add(&mut self, note: usize, strength: f64) {
        let [first, second] = &mut self.best;
        if first.is_none_or(|(_, best)| strength > best) {
            *second = first.replace((note, strength));
        } else if second.is_none_or(|(_, best)| strength > best) {
            *second = Some((note, strength));
        }
    }

    /// Returns the strength for the note, other than `note`, that the commit fits best.
    fn without(&self, note: Option<usize>) -> f64 {
        let mut best = self.best.iter().flatten();
        best.find(|(at, _)| Some(*at) != note).map_or(0.0, |(_, strength)| *strength)
    }
}

impl ProjectEvidence {
    /// Returns whether a project with this number of notes has a note for most of its work.
    pub fn is_covered_by(&self, notes: usize) -> bool {
        let works = (0..self.history.len()).filter(|at| self.index.works(*at)).count();
        notes >= NOTES && notes as f64 >= PER_COMMIT * works as f64
    }

    /// Sets [`best_other_note`](super::Candidate::best_other_note) for the strong candidates in
    /// `found`. `notes` returns the path and the text of every note. A strength of less than 0.22
    /// may count as 0.
    pub fn rate_against_others<T: AsRef<str>>(
        &self,
        found: &mut [RatedNote<'_>],
        notes: impl Iterator<Item = (T, T)>,
    ) {
        let compared = self.compared();
        let mut rated = BTreeMap::new();
        for note in &*found {
            for candidate in &note.evidence.candidates {
                if candidate.strength >= note.least {
                    rated.entry(candidate.at).or_insert_with(|| RatedCommit {
                        commit: ComparedCommit::new(compared, candidate.at),
                        best: [None; 2],
                    });
                }
            }
        }
        if rated.is_empty() {
            return;
        }
        let mut numbers = BTreeMap::new();
        for (number, (path, text)) in notes.enumerate() {
            let (path, text) = (path.as_ref(), text.as_ref());
            let note = ComparedNote::new(compared, (path, text), &NoteTerms::of(path, text));
            for at in note.sharing_name(&self.index) {
                if let Some(one) = rated.get_mut(&at) {
                    one.add(number, note.strength(&one.commit));
                }
            }
            numbers.insert(path.to_owned(), number);
        }
        for note in found {
            let own = numbers.get(note.path).copied();
            for candidate in &mut note.evidence.candidates {
                if candidate.strength >= note.least {
                    let rating = rated.get(&candidate.at).map(|one| one.without(own));
                    candidate.best_other_note = rating;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Commit;

    fn room(subjects: &[&str]) -> ProjectEvidence {
        let commit = |(at, subject): (usize, &&str)| Commit {
            hash: format!("{at:040x}"),
            at: 1_700_000_000 - at as i64,
            subject: (*subject).to_owned(),
            paths: vec![format!("src/file{at}.rs")],
            touched: 1,
            ..Commit::default()
        };
        ProjectEvidence::of(subjects.iter().enumerate().map(commit).collect(), Vec::new())
    }

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

    fn rated(notes: &[(&str, &str)], least: f64) -> Vec<Evidence> {
        let room = room(&SUBJECTS);
        let mut found: Vec<Evidence> =
            notes.iter().map(|(path, text)| room.about(path, text, None)).collect();
        let paths = notes.iter().map(|(path, _)| *path);
        let rated = |(path, evidence)| RatedNote { path, evidence, least };
        let mut all: Vec<RatedNote<'_>> = paths.zip(&mut found).map(rated).collect();
        room.rate_against_others(&mut all, notes.iter().copied());
        found
    }

    #[test]
    fn sibling_learns_that_the_commit_fits_another_note_better() {
        let found = rated(&[OWN, SIBLING, OTHER], 0.3);
        let (own, sibling) = (&found[0].candidates[0], &found[1].candidates[0]);
        assert_eq!((own.at, sibling.at), (0, 0), "{found:?}");
        assert_eq!(own.best_other_note, Some(sibling.strength));
        assert_eq!(sibling.best_other_note, Some(own.strength));
        assert!(own.strength > sibling.strength + 0.1, "{found:?}");
        let alone = rated(&[OWN, OTHER], 0.3);
        assert_eq!(alone[0].candidates[0].best_other_note, Some(0.0), "no other note fits");
    }

    #[test]
    fn weak_candidates_are_not_rated() {
        let found = rated(&[SIBLING, OWN], 1.01);
        assert!(!found[0].candidates.is_empty());
        let rated = found.iter().flat_map(|one| &one.candidates);
        assert!(rated.map(|one| one.best_other_note).all(|rating| rating.is_none()));
    }

    #[test]
    fn note_that_a_commit_cites_is_its_best_note() {
        let mut history = room(&SUBJECTS).history().to_vec();
        history[0].body = format!("Closes: {}", OTHER.0);
        let room = ProjectEvidence::of(history, Vec::new());
        let mut evidence = room.about(OWN.0, OWN.1, None);
        let own = RatedNote { path: OWN.0, evidence: &mut evidence, least: 0.3 };
        room.rate_against_others(&mut [own], [OWN, OTHER].into_iter());
        let rating = evidence.candidates[0].best_other_note;
        assert!(rating.is_some_and(|rating| rating >= 0.9), "{rating:?}");
    }

    #[test]
    fn few_notes_do_not_cover_a_project() {
        let many = room(&["change a part"; 400]);
        assert!(!many.is_covered_by(39));
        assert!(many.is_covered_by(40), "one note per ten commits");
        let few = room(&["change a part"; 50]);
        assert!(!few.is_covered_by(29));
        assert!(few.is_covered_by(30));
    }
}
