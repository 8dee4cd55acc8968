//! The checks that an entry must pass before it is accepted (contracts/lifecycle.md, "The entry").
//!
//! Every commit hash in the entry must occur in the sources that the sleeper saw. Every verdict
//! that names a task must resolve to exactly one task. The tale must not repeat the previous tale.
//! This module must never fix an entry.

use runner_text::near::{Sets, jaccard};
use runner_text::org::{Board, Resolved};

use super::super::entry::{Entry, Sections, VerdictMove, render};
use super::gather::{PreviousEntry, Slice};

/// Minimum similarity at which a tale counts as a repetition of the previous tale.
pub const PARROT: f64 = 0.8;

/// Returns the similarity of two tales, from 0 to 1.
pub fn likeness(tale: &str, previous: &str) -> f64 {
    jaccard(&Sets::of(tale), &Sets::of(previous))
}

/// Reports whether a tale repeats the previous one.
pub fn is_parrot(tale: &str, slice: &Slice) -> bool {
    let previous = slice.previous.as_ref();
    previous.is_some_and(|it| likeness(tale, &it.entry.sections.tale) >= PARROT)
}

/// Checks the verdicts and the commit hashes of an entry.
///
/// # Errors
/// Returns the first reason to refuse the entry.
pub fn check(sections: &Sections, slice: &Slice) -> Result<(), String> {
    if let Some(line) = sections.unread.first() {
        return Err(format!("{line:?} is listed below verdicts but is not a verdict"));
    }
    verdicts(sections, &slice.board)?;
    let entry = Entry { sections: sections.clone(), ..Entry::default() };
    let seen: Vec<String> =
        slice.sources(PreviousEntry::Shown).into_iter().map(|(_, text)| text).collect();
    let known: Vec<NamedHash<'_>> = seen.iter().flat_map(|text| named(text)).collect();
    let text = render(&entry);
    for hash in named(&text).filter(|it| it.certain) {
        let in_log = slice.commits.iter().any(|it| it.hash.starts_with(&hash.lower()));
        // The sources may name older commits, with full or abbreviated hashes.
        let in_text = known.iter().any(|it| it.lower().starts_with(&hash.lower()));
        if !in_log && !in_text {
            let what = hash.word;
            return Err(format!("commit {what} does not occur in the sources that were shown"));
        }
    }
    Ok(())
}

fn verdicts(sections: &Sections, board: &Board) -> Result<(), String> {
    for verdict in &sections.verdicts {
        if verdict.act == VerdictMove::KeepCourse {
            continue;
        }
        let said = &verdict.said;
        match board.resolve(said) {
            Resolved::One { .. } => {}
            Resolved::Ambiguous { heading, lines } => {
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "{:?} names {heading:?}, which occurs on lines {} of the board",
                    verdict.act.describe(),
                    lines.join(", ")
                ));
            }
            Resolved::Unknown => {
                let act = verdict.act.describe();
                return Err(format!("`{act}: {said}` names no task on the board"));
            }
        }
    }
    Ok(())
}

/// A word that may be a commit's hash.
#[derive(Clone, Copy, Debug)]
struct NamedHash<'t> {
    word: &'t str,
    /// Whether the word is certainly a hash: it has both letters and digits, or follows `commit`.
    certain: bool,
}

impl NamedHash<'_> {
    fn lower(&self) -> String {
        self.word.to_ascii_lowercase()
    }
}

/// Returns the words that may be hashes. `1048576` and `defaced` are certain hashes only after the
/// word `commit`.
fn named(text: &str) -> impl Iterator<Item = NamedHash<'_>> {
    let mut called = false;
    text.split(|c: char| !c.is_alphanumeric()).filter_map(move |word| {
        if word.is_empty() {
            return None;
        }
        let behind = std::mem::replace(
            &mut called,
            ["commit", "commits"].iter().any(|it| word.eq_ignore_ascii_case(it)),
        );
        let hex = (7..=40).contains(&word.len()) && word.bytes().all(|it| it.is_ascii_hexdigit());
        let digits = word.bytes().any(|it| it.is_ascii_digit());
        let letters = word.bytes().any(|it| it.is_ascii_alphabetic());
        hex.then_some(NamedHash { word, certain: behind || (digits && letters) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_distinguished_from_numbers_and_words() {
        let of = |text: &str| {
            named(text).filter(|it| it.certain).map(|it| it.word.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            of("in a3f91c2, (0123456789abcdef0123456789abcdef01234567)."),
            ["a3f91c2", "0123456789abcdef0123456789abcdef01234567"]
        );
        assert!(
            of("1048576 bytes on 20260610, defaced, 01K000000000, a3f91c, 2026-06-10").is_empty()
        );
        assert_eq!(of("commit 1048576 and commit `defaced`"), ["1048576", "defaced"]);
        assert!(of(&"a1".repeat(21)).is_empty());
    }
}
