//! Finds the commits that may have done the work that a note asks for, and rates how well each one
//! fits.
//!
//! The index proposes commits and this module compares them. A commit's strength and the figures
//! that it is computed from lie between 0 and 1, so that the same thresholds apply to young and old
//! repositories. Commits that change only documents are never candidates. The module makes no
//! decisions, and it must never use anything but the words, paths and times that it is given.

use std::collections::{HashMap, HashSet};

use runner_text::markdown;
use runner_text::terms::terms;

use super::commit::Commit;
use super::criteria::{self, Criterion};
use super::index::{Index, Parts, term_id};
use super::note_date::{self, CommitTiming};
use super::overlap::{NamedPaths, Overlap, TouchedPaths};
use super::places;

/// Number of a note's terms to search for and compare. The terms with the highest weight are used.
const KEYS: usize = 40;
/// Number of commits that the index proposes for comparison.
const LOOKED_AT: usize = 80;
/// Terms that name a kind of document and do not describe its subject.
const KINDS: &[&str] = &[
    "brief",
    "design",
    "doc",
    "document",
    "draft",
    "follow",
    "followup",
    "idea",
    "note",
    "phase",
    "plan",
    "proposal",
    "rfc",
    "sketch",
    "spec",
    "specification",
    "todo",
    "v1",
    "v2",
];
/// The value of a term in the note's name, by the best part of the commit that contains the term.
const NAMED_IN: [(Parts, f64); 4] = [
    (Parts::SUBJECT.or(Parts::CREATED), 1.0),
    (Parts::BODY, 0.9),
    (Parts::PATH, 0.8),
    (Parts::ADDED, 0.6),
];
/// Added to two of the three figures of a commit, so that one missing figure does not outweigh the
/// others.
const FLOOR: f64 = 0.2;
/// Commits up to this strength are not candidates.
const WEAK: f64 = 0.12;
/// Added to [`Candidate::named`] in place of [`FLOOR`], because that figure has the most weight.
const NAMED_FLOOR: f64 = 0.05;
/// The share of the note's missing terms that counts as found if a commit touched all places that
/// the note mentions.
const PLACES: f64 = 0.4;
/// Minimum share of the note's title in the commit's subject, and of the subject in the note, at
/// which the title and the subject count as the same sentence. At least two words must match.
const SAME_NAME: (f64, f64) = (0.95, 0.9);
/// The lowest value of [`Candidate::content`] for a commit whose subject is the note's title, in a
/// history of fewer than [`YOUNG`] commits. Such a history contains few of the words in a note.
const TOLD_BY_NAME: f64 = 0.4;
const YOUNG: usize = 100;
/// Minimum number of terms in each part of a subject for the parts to count as separate changes.
const CHANGE: usize = 3;
/// The minimum strength of a commit whose message mentions the note's file.
pub(super) const NAMED: f64 = 0.9;
/// Minimum surprise of the terms shared by a note and a commit, beyond the surprise of the terms
/// that the best of all commits would share by chance. The unit is the nat; 1.5 nats correspond to
/// a probability between 1 in 5 and 1 in 4.
const SURPRISE: f64 = 1.5;
/// The factor applied to the strength of a commit whose shared terms are less surprising than
/// [`SURPRISE`] requires.
const BY_CHANCE: f64 = 0.8;

/// The terms of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteTerms {
    /// The terms of the note's title.
    pub title: Vec<String>,
    /// The terms of the file's stem.
    pub stem: Vec<String>,
    /// All terms of the note, with their number of occurrences.
    pub all: HashMap<String, u32>,
}

impl NoteTerms {
    /// Extracts the terms of a note.
    pub fn of(path: &str, text: &str) -> Self {
        let stem = places::stem(path);
        let named = |text: &str| {
            let terms = terms(text).into_iter().filter(|term| !KINDS.contains(&term.as_str()));
            distinct(terms)
        };
        let (title, stem) = (named(&markdown::title(text, stem)), named(stem));
        let mut all: HashMap<String, u32> = HashMap::new();
        for term in terms(text).into_iter().chain(stem.iter().cloned()) {
            *all.entry(term).or_default() += 1;
        }
        Self { title, stem, all }
    }
}

/// A commit that may have done the work that a note asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The index of the commit in the history.
    pub at: usize,
    /// How well the commit fits, from 0 to 1: the geometric mean of `named` (which counts twice),
    /// `about` and `content`, after a small constant has raised each. The value is reduced if the
    /// shared terms may be a coincidence, and is at least 0.9 if the commit is `cited`. Candidates
    /// are ranked and judged by this value.
    pub strength: f64,
    /// Share of the note's name that the commit contains, weighted by rarity and by the part of the
    /// commit. The name is the title, or the stem if that has terms that the title lacks and
    /// matches better.
    pub named: f64,
    /// Share of the commit's subject, or of one change that the subject lists, that the note
    /// mentions, weighted by rarity.
    pub about: f64,
    /// Share of the note's most distinctive terms that the commit contains, weighted by rarity and
    /// by frequency in the note. The share is raised if the commit touched places that the note
    /// mentions, or if, in a short history, the commit's subject is the note's title.
    pub content: f64,
    /// Whether the commit's message mentions the note's file.
    pub cited: bool,
    /// The extent to which the commit touched the places mentioned in the note.
    pub overlap: Overlap,
    /// The commit's highest strength for any other note; 0 if the commit fits no other note. `None`
    /// if the other notes were not compared (see `other_notes`).
    pub best_other_note: Option<f64>,
    /// The commit's date relative to the note's date.
    pub when: CommitTiming,
    /// The terms of the note's name that occur in the commit.
    pub matched: Vec<String>,
    /// At most three paths that the commit touched and that the note mentions or that have the
    /// note's stem.
    pub paths: Vec<String>,
    /// The note's items, compared with the commit. Empty if the commit's added lines are not known
    /// or contain hardly more than its message.
    pub criteria: Vec<Criterion>,
}

impl Candidate {
    /// Returns the items of the note that are missing from the commit.
    pub fn unmet(&self) -> impl Iterator<Item = &Criterion> {
        self.criteria.iter().filter(|one| !one.met)
    }
}

/// The indexed facts that notes are compared with.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    pub index: &'a Index,
    pub touched: &'a TouchedPaths,
    pub history: &'a [Commit],
}

/// Returns at most `limit` commits that fit a note, best first. `born` is a time at which the note
/// did not exist yet, in seconds since the epoch, if one is known.
pub fn candidates(
    compared: Compared<'_>,
    (path, text): (&str, &str),
    words: &NoteTerms,
    born: Option<i64>,
    limit: usize,
) -> Vec<Candidate> {
    let Compared { index, history, .. } = compared;
    let mut found = ranked(compared, (path, text), words, born);
    found.truncate(limit);
    let items = criteria::of(text);
    for candidate in &mut found {
        candidate.paths = shared_paths(&history[candidate.at], path, text);
        candidate.criteria = criteria::compare(&items, index, history, candidate.at);
    }
    found
}

/// Returns all proposed commits that fit a note, best first, without their paths and criteria.
pub(super) fn ranked(
    compared: Compared<'_>,
    (path, text): (&str, &str),
    words: &NoteTerms,
    born: Option<i64>,
) -> Vec<Candidate> {
    let Compared { index, touched, history } = compared;
    let named = touched.named_in(text);
    let written = note_date::earliest(history, touched, path, text).max(born);
    let note = ComparedNote::new(compared, path, words, &named);
    let mut found = Vec::new();
    let mut looked_at = HashSet::new();
    let query: Vec<(u32, f64)> =
        note.keys.iter().map(|key| (key.id, key.weight)).chain(note.name_query()).collect();
    let hits = index.search(&query, LOOKED_AT).into_iter().map(|hit| hit.at);
    // A commit that mentions the file is evidence even if no other word matches. So is a commit
    // that touched the places mentioned in the note.
    let others = index.citing(path).take(LOOKED_AT).chain(named.best(history));
    for at in hits.chain(others) {
        if index.works(at) && looked_at.insert(at) {
            found.push(note.compare(at, note_date::when(written, history[at].at)));
        }
    }
    found.retain(|one| one.strength > WEAK);
    found.sort_by(|a, b| b.strength.total_cmp(&a.strength).then(a.at.cmp(&b.at)));
    found
}

/// Returns the first three paths of a commit that the note mentions or that have the note's stem.
fn shared_paths(commit: &Commit, path: &str, text: &str) -> Vec<String> {
    let shared = commit.paths.iter().filter(|touched| {
        places::names(text, touched) || places::stem(touched) == places::stem(path)
    });
    shared.take(3).cloned().collect()
}

/// A term with its rarity.
struct Term {
    text: String,
    id: u32,
    /// How well the term distinguishes commits by their messages and paths.
    rarity: f64,
}

/// One of the most distinctive terms of a note.
struct Key {
    id: u32,
    /// The term's rarity anywhere in the history, times one plus the logarithm of the number of its
    /// occurrences in the note.
    weight: f64,
    rarity: f64,
}

/// A note that is compared with commits.
struct ComparedNote<'a> {
    compared: Compared<'a>,
    path: &'a str,
    words: &'a NoteTerms,
    places: &'a NamedPaths,
    title: Vec<Term>,
    stem: Vec<Term>,
    keys: Vec<Key>,
}

impl<'a> ComparedNote<'a> {
    fn new(
        compared: Compared<'a>,
        path: &'a str,
        words: &'a NoteTerms,
        places: &'a NamedPaths,
    ) -> Self {
        let index = compared.index;
        let mut keys: Vec<Key> = words
            .all
            .iter()
            .map(|(term, count)| {
                let id = term_id(term);
                let rarity = index.rarity(index.frequencies(id).1);
                Key { id, weight: (1.0 + f64::from(*count).ln()) * rarity, rarity }
            })
            .collect();
        keys.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id)));
        keys.truncate(KEYS);
        let name = |terms: &[String]| terms.iter().map(|term| rated(index, term)).collect();
        let (title, stem) = (name(&words.title), name(&words.stem));
        Self { compared, path, words, places, title, stem, keys }
    }

    /// Returns the terms of the note's name with their weights for a search.
    fn name_query(&self) -> impl Iterator<Item = (u32, f64)> {
        self.title.iter().chain(&self.stem).map(|term| (term.id, term.rarity))
    }

    /// Returns the share of a subject's terms that the note mentions, weighted by rarity. If the
    /// subject lists several changes, returns the highest share for the whole subject or one
    /// change.
    fn mentions(&self, subject: &str) -> f64 {
        let share = |terms: Vec<String>| {
            let rated: Vec<Term> =
                distinct(terms).iter().map(|term| rated(self.compared.index, term)).collect();
            cover(&rated, |term| f64::from(self.words.all.contains_key(&term.text)))
        };
        let whole = share(terms(subject));
        listed_changes(subject).into_iter().map(share).fold(whole, f64::max)
    }

    /// Compares a commit with the note and returns the candidate without its paths and criteria.
    fn compare(&self, at: usize, when: CommitTiming) -> Candidate {
        let Compared { index, history, .. } = self.compared;
        let commit = &history[at];
        let value = |term: &Term| {
            let parts = index.parts(term.id, at);
            let best = NAMED_IN.iter().find(|(among, _)| parts.intersects(*among));
            best.map_or(0.0, |(_, value)| *value)
        };
        let by_title = cover(&self.title, value);
        // A stem that only shortens the title would hide the words of the title that do not match.
        let shortened = self.words.stem.iter().all(|term| self.words.title.contains(term));
        let named = if shortened { by_title } else { by_title.max(cover(&self.stem, value)) };
        let name = self.title.iter().chain(&self.stem).filter(|term| value(term) > 0.0);
        let matched = distinct(name.map(|term| term.text.clone()));
        let about = self.mentions(without_type(&commit.subject));
        let (mut content, mut all, mut surprise) = (0.0, 0.0, 0.0);
        for key in &self.keys {
            all += key.weight;
            let parts = index.parts(key.id, at);
            if !parts.is_empty() && parts != Parts::DOCUMENT {
                content += key.weight;
                surprise += key.rarity;
            }
        }
        let overlap = self.places.by(at, commit);
        let content = if all > 0.0 { content / all } else { 0.0 };
        let content = 1.0 - (1.0 - content) * (1.0 - PLACES * overlap.share.clamp(0.0, 1.0));
        let in_subject =
            |term: &Term| f64::from(index.parts(term.id, at).intersects(Parts::SUBJECT));
        let same = cover(&self.title, in_subject) >= SAME_NAME.0 && about >= SAME_NAME.1;
        let same = same && matched.len() >= 2 && index.commits() < YOUNG;
        let content = if same { content.max(TOLD_BY_NAME) } else { content };
        let cited = index.citing(self.path).any(|citing| citing == at);
        let raised = |figure: f64| (FLOOR + figure) / (FLOOR + 1.0);
        let name = (NAMED_FLOOR + named) / (NAMED_FLOOR + 1.0);
        let mut strength = (name * name * raised(about) * raised(content)).sqrt().sqrt();
        if surprise < (index.commits() as f64 + 1.0).ln() + SURPRISE {
            strength *= BY_CHANCE;
        }
        if cited {
            strength = strength.max(NAMED);
        }
        let (best_other_note, paths, criteria) = (None, Vec::new(), Vec::new());
        Candidate {
            at,
            strength,
            named,
            about,
            content,
            cited,
            overlap,
            best_other_note,
            when,
            matched,
            paths,
            criteria,
        }
    }
}

/// Returns the terms of each change that a subject lists, as in
/// `clean up the parser; add a retry policy`. The list is empty if the subject describes one
/// change, enumerates single words, or names a document, because a plan that was written along with
/// other changes is not done.
fn listed_changes(subject: &str) -> Vec<Vec<String>> {
    // Most subjects describe one change, and need not be split into terms twice.
    if !subject.contains([';', ',', '+']) {
        return Vec::new();
    }
    let parts = subject.split([';', ',']).flat_map(|part| part.split(" + "));
    let changes: Vec<_> = parts.map(terms).collect();
    let is_change = |terms: &Vec<String>| {
        terms.len() >= CHANGE && !terms.iter().any(|term| KINDS.contains(&term.as_str()))
    };
    if changes.len() > 1 && changes.iter().all(is_change) { changes } else { Vec::new() }
}

/// Returns a subject without the type of a conventional commit: `feat(net)!: x` becomes
/// `(net)!: x`. The type does not describe what the work is about.
fn without_type(subject: &str) -> &str {
    let Some((prefix, _)) = subject.split_once(": ") else { return subject };
    let end = prefix.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(prefix.len());
    let rest = &prefix[end..];
    let conventional = rest.is_empty() || rest == "!" || rest.starts_with('(');
    if end > 0 && conventional { &subject[end..] } else { subject }
}

fn rated(index: &Index, term: &str) -> Term {
    let id = term_id(term);
    Term { text: term.to_owned(), id, rarity: index.rarity(index.frequencies(id).0) }
}

/// Returns the mean of `value` over the terms, weighted by rarity.
fn cover(terms: &[Term], value: impl Fn(&Term) -> f64) -> f64 {
    let all: f64 = terms.iter().map(|term| term.rarity).sum();
    if all <= 0.0 {
        return 0.0;
    }
    terms.iter().map(|term| term.rarity * value(term)).sum::<f64>() / all
}

fn distinct(terms: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    terms.into_iter().filter(|term| seen.insert(term.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::documents::Documents;

    fn commit(subject: &str, body: &str, paths: &[&str]) -> Commit {
        Commit {
            hash: "b".repeat(40),
            at: 0,
            subject: subject.into(),
            body: body.into(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            touched: paths.len(),
            ..Commit::default()
        }
    }

    fn history() -> Vec<Commit> {
        vec![
            commit("chore: newer tools", "", &["Cargo.toml"]),
            commit("feat(net): add a retry policy with jitter", "", &["src/net/retry.rs"]),
            commit("spec: retry policy with jitter", "", &["docs/retry.md"]),
            commit("fix: typing slip in readme", "", &["README.md"]),
            commit("feat: night report", "Implements: ideas/dawn.md", &["src/report.rs"]),
            commit("refactor: split main", "", &["src/main.rs"]),
        ]
    }

    const NOTE: &str = "# Spec: Retry policy with jitter\n\nThe client should add jitter in \
                        `src/net/retry.rs` when it retries, by a policy.\n";

    fn found(path: &str, text: &str) -> Vec<Candidate> {
        let history = history();
        let index = Index::build(&mut history.to_vec(), &Documents::default());
        let touched = TouchedPaths::build(&history);
        let compared = Compared { index: &index, touched: &touched, history: &history };
        candidates(compared, (path, text), &NoteTerms::of(path, text), None, 3)
    }

    #[test]
    fn commits_of_documents_are_not_candidates() {
        let found = found("ideas/retry-policy.md", NOTE);
        assert_eq!(found[0].at, 1);
        assert!(found.iter().all(|one| one.at != 2 && one.at != 3), "{found:?}");
        assert_eq!(found[0].paths, ["src/net/retry.rs"]);
        assert!(found[0].named > 0.9 && found[0].matched.len() == 3, "{found:?}");
        assert!(found[0].strength > 0.7, "{found:?}");
    }

    #[test]
    fn sibling_is_weaker_than_the_work_itself() {
        let sibling =
            "# Spec: Retry policy of the printer\n\nThe printer queue should try again.\n";
        let (of_sibling, own) = (found("ideas/x.md", sibling), found("ideas/retry.md", NOTE));
        assert!(of_sibling[0].strength < 0.8 * own[0].strength, "{of_sibling:?}");
    }

    #[test]
    fn subject_may_list_several_changes() {
        let listed = |subject| listed_changes(subject).len();
        assert_eq!(listed("chore: sweep old comments + harden push pattern"), 2);
        assert_eq!(listed("move the parser file; add retry policy jitter, split main module"), 3);
        for one in [
            "add a retry policy with jitter",
            "add show, list and validate",
            "clean up old parser, add retry policy spec",
            "clean up old parser, and more",
        ] {
            assert_eq!(listed(one), 0, "{one}");
        }
        let mut history = history();
        history[1].subject = "rewrite the night report; add retry policy jitter".into();
        let index = Index::build(&mut history.clone(), &Documents::default());
        let touched = TouchedPaths::build(&history);
        let compared = Compared { index: &index, touched: &touched, history: &history };
        let words = NoteTerms::of("ideas/x.md", NOTE);
        let found = candidates(compared, ("ideas/x.md", NOTE), &words, None, 1);
        assert_eq!((found[0].at, found[0].about), (1, 1.0));
    }

    #[test]
    fn type_of_a_conventional_commit_is_ignored() {
        for (subject, rest) in [
            ("feat: add x", ": add x"),
            ("fix(net)!: add x", "(net)!: add x"),
            ("Add x: y", "Add x: y"),
            ("retry policy: add x", "retry policy: add x"),
            ("no type", "no type"),
        ] {
            assert_eq!(without_type(subject), rest);
        }
    }

    #[test]
    fn citing_the_idea_file_gives_minimum_strength() {
        let found = found("ideas/dawn.md", "# Something in quite other words\n");
        assert!(found[0].cited && found[0].at == 4 && found[0].strength >= NAMED, "{found:?}");
    }

    #[test]
    fn unrelated_idea_has_no_candidates() {
        assert_eq!(found("ideas/x.md", "# Zebra crossing\n"), []);
        assert_eq!(found("ideas/x.md", ""), []);
    }
}
