//! Compares what a note asks for, item by item, with what a commit changed.
//!
//! An item is an acceptance criterion, a task or another list item of the note. This module
//! compares words only: a commit that contains an item's words does not prove that the item is
//! done, but a commit without them is a reason for doubt.

use std::collections::HashSet;

use runner_text::terms::terms;

use super::commit::Commit;
use super::index::{Index, Parts, term_id};

/// Maximum number of items to compare.
const ITEMS: usize = 60;
/// Minimum number of different terms for an item to be compared.
const TERMS: usize = 3;
/// Minimum share of an item's terms, weighted by rarity, that a commit must contain to meet the
/// item.
const MET: f64 = 0.3;
/// Minimum number of terms that a commit's added lines must contain beyond the commit's message for
/// a comparison with an item to be meaningful.
const TELLING: usize = 10;
/// Maximum length of an item's text in characters.
const LONGEST: usize = 120;

/// An item of a note, compared with a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    /// The first characters of the item.
    pub text: String,
    /// Whether the commit contains enough of the item's terms.
    pub met: bool,
}

/// An item of a note.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteItem {
    text: String,
    terms: Vec<u32>,
}

/// Returns at most `ITEMS` items of a note: its list items outside code, with or without check
/// boxes. Items with fewer than `TERMS` different terms are left out.
pub fn of(text: &str) -> Vec<NoteItem> {
    let mut items = Vec::new();
    let mut in_code = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") || line.starts_with("~~~") {
            in_code = !in_code;
        }
        let Some(item) = list_item(line).filter(|_| !in_code) else { continue };
        let mut seen = HashSet::new();
        let mut terms: Vec<u32> = terms(item).iter().map(|term| term_id(term)).collect();
        terms.retain(|term| seen.insert(*term));
        if terms.len() >= TERMS {
            items.push(NoteItem { text: item.chars().take(LONGEST).collect(), terms });
        }
        if items.len() == ITEMS {
            break;
        }
    }
    items
}

/// Returns the text of a list item without its bullet and its check box, or `None` if the line is
/// not a list item.
pub fn list_item(line: &str) -> Option<&str> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = if digits > 0 {
        line[digits..].strip_prefix(['.', ')'])?
    } else {
        line.strip_prefix(['-', '*', '+'])?
    };
    let rest = rest.strip_prefix(' ')?.trim_start();
    let boxed = ["[ ]", "[x]", "[X]"].iter().find_map(|mark| rest.strip_prefix(mark));
    Some(boxed.unwrap_or(rest).trim_start())
}

/// Compares the items with a commit. The result is empty if the commit's added lines are not known,
/// or contain hardly more than its message.
pub fn compare(items: &[NoteItem], index: &Index, history: &[Commit], at: usize) -> Vec<Criterion> {
    let message: HashSet<u32> = [&history[at].subject, &history[at].body]
        .iter()
        .flat_map(|text| terms(text))
        .map(|term| term_id(&term))
        .collect();
    let added = |term: &&u32| index.parts(**term, at).intersects(Parts::ADDED);
    if index.added(at) - message.iter().filter(added).count() < TELLING {
        return Vec::new();
    }
    let compared = items.iter().map(|item| {
        let rarity = |term: &u32| index.rarity(index.frequencies(*term).1);
        let all: f64 = item.terms.iter().map(rarity).sum();
        let found = item.terms.iter().filter(|term| !index.parts(**term, at).is_empty());
        let found: f64 = found.map(rarity).sum();
        Criterion { text: item.text.clone(), met: all <= 0.0 || found / all >= MET }
    });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::commit::AddedText;
    use crate::evidence::documents::Documents;

    const NOTE: &str = "# Retry\n\n- [ ] cap the wait at an hour\n- paint the zebra crossing white\n\
                        - two words\n```\n- not this item here\n```\n1. jitter spreads all waits\n";

    fn compared(code: &str) -> Vec<(String, bool)> {
        let added = terms(code).iter().map(|term| term_id(term)).collect();
        let history = [
            Commit {
                subject: "feat: retry".into(),
                paths: vec!["src/retry.rs".into()],
                added: Some(AddedText { terms: added, whole: true, prose: false }),
                ..Commit::default()
            },
            Commit::default(),
            Commit::default(),
        ];
        let index = Index::build(&mut history.to_vec(), &Documents::default());
        let found = compare(&of(NOTE), &index, &history, 0);
        found.into_iter().map(|one| (one.text, one.met)).collect()
    }

    #[test]
    fn items_are_compared_with_added_lines() {
        let code = "cap wait hour jitter spread alpha beta gamma delta epsilon eta theta iota";
        let found = compared(code);
        let met: Vec<bool> = found.iter().map(|(_, met)| *met).collect();
        assert_eq!(met, [true, false, true], "{found:?}");
        assert_eq!(found[1].0, "paint the zebra crossing white");
    }

    #[test]
    fn commit_with_few_added_terms_is_not_compared() {
        assert_eq!(compared("retry"), []);
    }
}
