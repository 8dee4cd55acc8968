//! Finds the commits that may have done the work that a note asks for, and rates how well each one
//! fits.
//!
//! The index proposes commits and this module compares them. Every figure is a share between 0 and
//! 1 (the fit may slightly exceed 1), so that the same thresholds apply to young and old
//! repositories. The module makes no decision, and it must never use anything but the words and
//! paths that it is given.

use std::collections::{BTreeSet, HashSet};

use runner_text::markdown;
use runner_text::terms::{terms, top_terms};

use super::history::Commit;
use super::index::{Index, IndexError};
use super::note_date::{self, CommitTiming};
use super::overlap::{NamedPaths, Overlap, TouchedPaths};
use super::places;

/// Number of terms of a note's text that are searched for, besides those of its name.
const KEYS: usize = 20;
/// Number of commits that the index proposes for comparison.
const LOOKED_AT: usize = 30;
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
/// Terms in a commit's subject which show that the commit plans work instead of doing it.
const PLANNING: &[&str] = &[
    "backlog", "brief", "design", "idea", "plan", "proposal", "propos", "rfc", "roadmap", "sketch",
    "spec", "task", "todo",
];
/// The factor for the strength of a commit that only plans.
const PLANNED: f64 = 0.4;
/// Terms that show, as the first word of a subject, that the commit ends something. Such a commit
/// does not plan, even if it is about a plan.
const ENDING: &[&str] = &["archiv", "clos", "complet", "conclud", "finish", "retir", "ship"];
/// Minimum share of the note's name at which a commit's message counts as containing the whole
/// name. At least two words of the name must match.
const WHOLE: f64 = 0.95;
/// If a commit's message contains the whole name, the note counts as mentioning at least this share
/// of the commit's subject.
const TOLD: f64 = 0.8;
/// The minimum strength of a commit that builds something and names the note's file in its message.
const NAMED: f64 = 0.95;

/// The terms of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteTerms {
    /// The terms of the note's title.
    pub title: Vec<String>,
    /// The terms of the file's stem.
    pub stem: Vec<String>,
    /// The terms to search for: title, stem, then the terms with the most weight in the text.
    pub keys: Vec<String>,
    pub all: HashSet<String>,
}

impl NoteTerms {
    /// Extracts the terms of a note.
    pub fn of(path: &str, text: &str) -> Self {
        let stem = places::stem(path);
        let named = |text: &str| {
            let terms = terms(text).into_iter().filter(|term| !KINDS.contains(&term.as_str()));
            distinct(terms)
        };
        let (title, stem_terms) = (named(&markdown::title(text, stem)), named(stem));
        let top = top_terms(text, KEYS).into_iter().map(|top| top.term);
        let keys = distinct(title.iter().chain(&stem_terms).cloned().chain(top));
        let all = terms(text).into_iter().chain(stem_terms.iter().cloned()).collect();
        Self { title, stem: stem_terms, keys, all }
    }
}

/// A commit that may have done the work of a note.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The index of the commit in the history.
    pub at: usize,
    /// How likely it is that the commit did the work, from 0 to 1. Candidates are ranked and judged
    /// by this value.
    pub strength: f64,
    /// The commit's BM25 score as a share of the maximum score for the searched terms.
    pub fit: f64,
    /// Share of the note's name that the commit's message contains, weighted by rarity. The name is
    /// the title, or the stem if that differs from the title and matches better.
    pub named: f64,
    /// Share of the commit's subject that the note mentions, weighted by rarity.
    pub about: f64,
    /// Whether the commit touches more than documents.
    pub built: bool,
    /// Whether the commit's message names the note's file and the commit touches more than
    /// documents.
    pub cited: bool,
    /// Whether the commit's subject describes a plan and the commit touches only documents.
    pub planning: bool,
    /// The extent to which the commit touched the places that the note names.
    pub overlap: Overlap,
    /// The commit's date relative to the date of the note.
    pub when: CommitTiming,
    /// The terms of the note's name that occur in the commit's message.
    pub matched: Vec<String>,
    /// Paths that the commit touched and that the note names, or that have a name like the note's.
    pub paths: Vec<String>,
}

/// Returns the commits that fit a note best, at most `limit`, best first.
///
/// # Errors
/// Returns an [`IndexError`] if the search fails.
pub fn candidates(
    (index, touched): (&Index, &TouchedPaths),
    history: &[Commit],
    (path, text): (&str, &str),
    words: &NoteTerms,
    limit: usize,
) -> Result<Vec<Candidate>, IndexError> {
    // Terms that occur in no commit are included: work that no commit mentions has probably not
    // been done.
    let possible: f64 = words.keys.iter().map(|term| index.rarity(term)).sum();
    let named = touched.named_in(text);
    let written = note_date::earliest(history, touched, path, text);
    let note = ComparedNote { index, path, words, places: &named };
    let look = |at: usize, fit: f64| {
        let when = note_date::when(written, history[at].at);
        note.compare(at, &history[at], when, fit)
    };
    let mut found = Vec::new();
    let mut looked_at = HashSet::new();
    for hit in index.search(&words.keys, LOOKED_AT)? {
        let fit = if possible > 0.0 { (hit.score / possible).max(0.0) } else { 0.0 };
        looked_at.insert(hit.at);
        found.push(look(hit.at, fit));
    }
    // A commit that names the file is evidence even if no other word matches, and so is a commit
    // that touched the places that the note names.
    let citing = index.citing(path).take(LOOKED_AT);
    for at in citing.chain(named.best(history)) {
        if looked_at.insert(at) {
            found.push(look(at, 0.0));
        }
    }
    found.sort_by(|a, b| b.strength.total_cmp(&a.strength).then(a.at.cmp(&b.at)));
    found.truncate(limit);
    for candidate in &mut found {
        candidate.paths = shared_paths(&history[candidate.at], path, text);
    }
    Ok(found)
}

/// Returns the first few paths of a commit that a note names or that have the note's stem.
fn shared_paths(commit: &Commit, path: &str, text: &str) -> Vec<String> {
    let shared = commit.paths.iter().filter(|touched| {
        places::names(text, touched) || places::stem(touched) == places::stem(path)
    });
    shared.take(3).cloned().collect()
}

/// A note that is compared with commits.
struct ComparedNote<'a> {
    index: &'a Index,
    path: &'a str,
    words: &'a NoteTerms,
    places: &'a NamedPaths,
}

impl ComparedNote<'_> {
    /// Compares a commit with the note and returns the candidate without its paths.
    fn compare(&self, at: usize, commit: &Commit, when: CommitTiming, fit: f64) -> Candidate {
        let Self { index, path, words, places } = *self;
        let subject = distinct(terms(&commit.subject));
        let message: BTreeSet<String> =
            subject.iter().cloned().chain(terms(&commit.body)).collect();
        let has = |term: &String| message.contains(term);
        let (by_title, by_stem) = (cover(index, &words.title, has), cover(index, &words.stem, has));
        // A stem that only shortens the title would hide the words of the title that do not match.
        let shortened = words.stem.iter().all(|term| words.title.contains(term));
        let named = if shortened { by_title } else { by_title.max(by_stem) };
        let about = cover(index, &subject, |term| words.all.contains(term));
        let matched =
            distinct(words.title.iter().chain(&words.stem).filter(|term| has(term)).cloned());
        // A commit that edits only documents may be the commit that added the note.
        let built = !commit.paths.iter().all(|path| places::is_document(path));
        let cited = built && index.citing(path).any(|citing| citing == at);
        let planning = !built && plans(&commit.subject);
        let overlap = places.by(at, commit);
        // A message that contains the whole name may also describe the commit's other changes.
        let whole = named >= WHOLE && matched.len() >= 2;
        let reported = if whole { about.max(TOLD) } else { about };
        let mut strength = likelihood(fit, named, reported, overlap, when);
        if cited {
            strength = strength.max(NAMED);
        }
        if planning {
            strength *= PLANNED;
        }
        Candidate {
            at,
            strength,
            fit,
            named,
            about,
            built,
            cited,
            planning,
            overlap,
            when,
            matched,
            paths: Vec::new(),
        }
    }
}

/// Returns the likelihood that a commit with these figures did the work that a note asks for, from
/// 0 to 1.
///
/// This is a logistic model. Its inputs are the matching words, the share of the commit's subject
/// that the note mentions, both combined, the share of the named places that the commit touched,
/// the extent of that overlap, and the time. The weights were fitted to the labelled notes of one
/// project and rounded; `runner dream bench` measures them on these or on any other notes. `when`
/// is evidence only against a commit, not for it.
fn likelihood(fit: f64, named: f64, about: f64, overlap: Overlap, when: CommitTiming) -> f64 {
    let words = fit * (0.3 + named) * (0.3 + about);
    let time = match when {
        CommitTiming::Unknown => 0.0,
        CommitTiming::Before => -4.0,
        CommitTiming::Soon => 0.8,
        CommitTiming::Later => -0.7,
    };
    let sum = -2.8
        + 1.1 * (0.05 + words).ln()
        + 3.0 * about
        + 2.0 * named * about
        + 1.6 * overlap.share
        + 0.3 * overlap.weight.ln_1p()
        + time;
    1.0 / (1.0 + (-sum).exp())
}

/// Checks whether a commit's subject describes a plan: in its prefix (`spec:`, `docs(plan):`), in
/// the first two words after the prefix ("add spec for…") or in the last word ("retry spec"). A
/// subject whose first word ends the plan ("archive the spec") does not count.
fn plans(subject: &str) -> bool {
    let is_plan = |term: &String| PLANNING.contains(&term.as_str());
    let (prefix, rest) = match subject.split_once(':') {
        Some((prefix, rest)) if !prefix.contains(' ') => (prefix, rest),
        _ => ("", subject),
    };
    let rest = terms(rest);
    if rest.first().is_some_and(|term| ENDING.contains(&term.as_str())) {
        return false;
    }
    terms(prefix).iter().any(is_plan)
        || rest.iter().take(2).any(is_plan)
        || rest.last().is_some_and(is_plan)
}

/// Returns the share of `terms` for which `has` holds, weighted by rarity.
fn cover(index: &Index, terms: &[String], has: impl Fn(&String) -> bool) -> f64 {
    let rarity = |term: &String| index.rarity(term);
    let all: f64 = terms.iter().map(rarity).sum();
    if all <= 0.0 {
        return 0.0;
    }
    terms.iter().filter(|term| has(term)).map(rarity).sum::<f64>() / all
}

fn distinct(terms: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    terms.into_iter().filter(|term| seen.insert(term.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(subject: &str, body: &str, paths: &[&str]) -> Commit {
        Commit {
            hash: "b".repeat(40),
            at: 0,
            subject: subject.into(),
            body: body.into(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            touched: paths.len(),
            created: Vec::new(),
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
        let index = Index::build(&history).unwrap();
        let touched = TouchedPaths::build(&history);
        candidates((&index, &touched), &history, (path, text), &NoteTerms::of(path, text), 3)
            .unwrap()
    }

    #[test]
    fn implementing_commit_ranks_above_planning_commit() {
        let found = found("ideas/retry-policy.md", NOTE);
        assert_eq!(found[0].at, 1);
        assert!(!found[0].planning && found[1].planning && found[1].at == 2, "{found:?}");
        assert!(found[0].strength > 2.0 * found[1].strength, "{found:?}");
        assert_eq!(found[0].paths, ["src/net/retry.rs"]);
        assert!(found[0].named > 0.9 && found[0].matched.len() == 3, "{found:?}");
    }

    #[test]
    fn planning_commits_are_distinguished_from_work() {
        for plan in [
            "spec: x y z",
            "docs(plan): x",
            "docs: add spec for retries",
            "Idea: x",
            "Add retry spec",
        ] {
            assert!(plans(plan), "{plan}");
        }
        for work in [
            "feat: x",
            "chore: remove experimental spec-kit skills",
            "docs: repair links: all of them",
            "docs(spec): close the retry plan",
            "Archive the retry spec",
        ] {
            assert!(!plans(work), "{work}");
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
