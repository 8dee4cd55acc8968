//! A full-text index of the corpus, which finds the nodes that match a question.
//!
//! For each term, the index stores the nodes that contain it, with the number of occurrences in the
//! title, the body and the subjects. An SQLite FTS5 table is not used, because building one took
//! most of a night. Searches rank nodes by BM25, with the formula and the parameters of FTS5.
//! [`Search::hits`] then ranks the most relevant nodes by a composite of relevance, freshness and
//! utility. Equal scores are ordered by path. The index uses the same terms as the index of the git
//! history, and must never outlive the process.

use std::cmp::Ordering;
use std::collections::HashMap;

use jiff::civil::Date;
use runner_engine::digest::Digest;
use runner_text::front_matter;
use runner_text::terms::{each_term, terms};

use super::{Corpus, Node, NodeKind, rounded};

/// The weights of a match in the title, in the body and in the subjects.
const WEIGHTS: Counts<f64> = [4.0, 1.0, 2.0];
/// The parameters of BM25: term frequency saturation and length normalization.
const BM25: (f64, f64) = (1.2, 0.75);
/// The weight of a term that at least half of the nodes contain.
const COMMON: f64 = 1e-6;
/// Maximum number of terms in a question.
const QUERY: usize = 48;
/// Number of the most relevant nodes to re-rank by composite score.
const POOL: usize = 64;
/// The shares of relevance, freshness and utility in the composite score.
pub const SHARES: (f64, f64, f64) = (0.6, 0.2, 0.2);
/// Number of days after which the freshness of a node is halved.
pub const HALF_LIFE_DAYS: f64 = 90.0;

/// One value each for the title, the body and the subjects.
type Counts<T> = [T; 3];

/// The nodes that a search considers. Each scope contains the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    All,
    Active,
    ActiveLearnings,
}

/// A full-text index of a corpus's nodes.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The key of the indexed corpus ([`Corpus::key`]).
    key: Option<Digest>,
    /// For each node, in the order of [`Corpus::nodes`], the smallest scope that contains the node,
    /// and the node's number of terms.
    nodes: Vec<(Scope, u32)>,
    /// The position of each term in `postings`.
    terms: HashMap<Box<str>, u32>,
    postings: Vec<Postings>,
}

/// The nodes that contain a term, in order. Each node is encoded as variable-length integers: the
/// distance from the previous node, and the counts.
#[derive(Clone, Debug, Default)]
struct Postings {
    bytes: Vec<u8>,
    /// The number of the last node in `bytes`. Numbering starts at 1.
    written: u32,
    /// The number of the node that is being indexed.
    node: u32,
    counts: Counts<u32>,
}

impl Postings {
    /// Writes the counts of the node that was being indexed.
    fn write(&mut self) {
        if self.node == self.written {
            return;
        }
        let [title, body, subjects] = self.counts;
        self.put(self.node - self.written);
        self.put(body << 2 | u32::from(subjects > 0) << 1 | u32::from(title > 0));
        [title, subjects].into_iter().filter(|count| *count > 0).for_each(|it| self.put(it));
        self.written = self.node;
    }

    fn put(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Returns the position of each node, with its counts.
    fn read(&self) -> impl Iterator<Item = (usize, Counts<u32>)> + '_ {
        let mut bytes = self.bytes.iter();
        let mut next = move || {
            let (mut number, mut shift) = (0, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return Some(number);
                }
            }
        };
        let mut node = 0;
        std::iter::from_fn(move || {
            node += next()?;
            let flags = next()?;
            let mut further = |flag: u32| if flags & flag > 0 { next() } else { Some(0) };
            let (title, subjects) = (further(1)?, further(2)?);
            Some((node as usize - 1, [title, flags >> 2, subjects]))
        })
    }
}

impl Index {
    /// Indexes all nodes of a corpus.
    pub fn of(corpus: &Corpus) -> Self {
        let mut index = Self { key: Some(corpus.key()), ..Self::default() };
        index.nodes.reserve_exact(corpus.nodes.len());
        for (at, node) in corpus.nodes.iter().enumerate() {
            let scope = match (node.is_active(), node.kind) {
                (true, NodeKind::Learning) => Scope::ActiveLearnings,
                (true, _) => Scope::Active,
                (false, _) => Scope::All,
            };
            let number = at as u32 + 1;
            let mut length = index.add(number, 0, &node.title);
            length += index.add(number, 1, front_matter::split(&node.text).body());
            length += node.subjects.iter().map(|it| index.add(number, 2, it)).sum::<u32>();
            index.nodes.push((scope, length));
        }
        for postings in &mut index.postings {
            postings.write();
            postings.bytes.shrink_to_fit();
        }
        index
    }

    /// Adds part of a node, and returns the number of terms in that part.
    fn add(&mut self, node: u32, part: usize, text: &str) -> u32 {
        let mut count = 0;
        each_term(text, |term| {
            count += 1;
            let at = match self.terms.get(term) {
                Some(at) => *at,
                None => {
                    let at = self.postings.len() as u32;
                    self.terms.insert(term.into(), at);
                    self.postings.push(Postings::default());
                    at
                }
            };
            let postings = &mut self.postings[at as usize];
            if postings.node != node {
                postings.write();
                (postings.node, postings.counts) = (node, [0; 3]);
            }
            postings.counts[part] += 1;
        });
        count
    }

    /// Returns whether the index was built for a corpus with this key.
    pub(super) fn is_of(&self, key: &Digest) -> bool {
        self.key.as_ref() == Some(key)
    }

    /// Returns the positions of the nodes in a scope whose title or body contains a term.
    pub(super) fn containing(&self, term: &str, scope: Scope) -> impl Iterator<Item = usize> + '_ {
        let found = self.within(term, scope);
        found.filter(|(_, [title, body, _])| title + body > 0).map(|(at, _)| at)
    }

    fn within(&self, term: &str, scope: Scope) -> impl Iterator<Item = (usize, Counts<u32>)> + '_ {
        let postings = self.terms.get(term).map(|at| self.postings[*at as usize].read());
        postings.into_iter().flatten().filter(move |(at, _)| self.nodes[*at].0 >= scope)
    }

    /// Returns the positions and scores of at most `limit` nodes that contain at least one of the
    /// terms, best first.
    fn ranked(
        &self,
        asked: &[String],
        weights: Counts<f64>,
        scope: Scope,
        limit: usize,
    ) -> Vec<(usize, f64)> {
        let lengths = || self.nodes.iter().filter(|(it, _)| *it >= scope).map(|(_, length)| length);
        let count = lengths().count() as f64;
        let mean = lengths().map(|length| u64::from(*length)).sum::<u64>() as f64 / count;
        let (k1, b) = BM25;
        let mut scores: Vec<Option<f64>> = vec![None; self.nodes.len()];
        for term in asked {
            let found: Vec<(usize, Counts<u32>)> = self.within(term, scope).collect();
            let hits = found.len() as f64;
            let rarity = ((count - hits + 0.5) / (hits + 0.5)).ln();
            let rarity = if rarity <= 0.0 { COMMON } else { rarity };
            for (at, counts) in found {
                let weighted = counts.iter().zip(weights).map(|(n, weight)| f64::from(*n) * weight);
                let frequency: f64 = weighted.sum();
                let length = f64::from(self.nodes[at].1);
                *scores[at].get_or_insert(0.0) += rarity
                    * ((frequency * (k1 + 1.0)) / (frequency + k1 * (1.0 - b + b * length / mean)));
            }
        }
        let found = scores.into_iter().enumerate();
        let mut found: Vec<(usize, f64)> = found.filter_map(|(at, it)| Some((at, it?))).collect();
        let best_first =
            |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if found.len() > limit {
            found.select_nth_unstable_by(limit, best_first);
            found.truncate(limit);
        }
        found.sort_unstable_by(best_first);
        found
    }
}

/// A search over part of a corpus. Freshness is measured as of `date`.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    pub corpus: &'a Corpus,
    pub scope: Scope,
    pub date: Date,
}

/// A node that matches a question.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    pub node: &'a Node,
    /// The composite score, from 0 to 1.
    pub score: f64,
    /// The relevance based on the terms alone, from 0 to 1.
    pub relevance: f64,
    /// Share of the question's terms that the node contains.
    pub covered: f64,
}

impl<'a> Search<'a> {
    /// Creates a search over the active nodes.
    pub fn active(corpus: &'a Corpus, date: Date) -> Self {
        Self { corpus, scope: Scope::Active, date }
    }

    /// Returns the positions of at most `limit` nodes, ranked by how well their titles and bodies
    /// match the question. Matches in subjects have no weight, and dates are ignored.
    pub fn by_relevance(&self, question: &str, limit: usize) -> Vec<usize> {
        let [title, body, _] = WEIGHTS;
        let asked = asked_terms(question);
        let found = self.corpus.index().ranked(&asked, [title, body, 0.0], self.scope, limit);
        found.into_iter().map(|(at, _)| at).collect()
    }

    /// Returns at most `limit` of the 64 most relevant nodes, ordered by composite score.
    pub fn hits(&self, question: &str, limit: usize) -> Vec<Hit<'a>> {
        let asked = asked_terms(question);
        let found = self.corpus.index().ranked(&asked, WEIGHTS, self.scope, POOL);
        let best = found.iter().map(|(_, score)| *score).fold(1e-9, f64::max);
        let mut hits: Vec<Hit<'a>> = found
            .into_iter()
            .map(|(at, score)| {
                let node = &self.corpus.nodes[at];
                let (relevance, freshness, utility) = SHARES;
                let words = (score / best).clamp(0.0, 1.0);
                Hit {
                    node,
                    score: rounded(
                        relevance * words
                            + freshness * freshness_of(node, self.date)
                            + utility * node.utility.unwrap_or(0.5).clamp(0.0, 1.0),
                    ),
                    relevance: rounded(words),
                    covered: 0.0,
                }
            })
            .collect();
        hits.sort_by(|a, b| match b.score.total_cmp(&a.score) {
            Ordering::Equal => a.node.path.cmp(&b.node.path),
            other => other,
        });
        hits.truncate(limit);
        for hit in &mut hits {
            let own = terms(&format!("{} {}", hit.node.title, hit.node.body()));
            let covered = asked.iter().filter(|term| own.contains(term)).count();
            hit.covered = covered as f64 / asked.len() as f64;
        }
        hits
    }
}

/// Returns the distinct terms of a question, at most [`QUERY`], in alphabetical order.
fn asked_terms(question: &str) -> Vec<String> {
    let mut asked = terms(question);
    asked.sort_unstable();
    asked.dedup();
    asked.truncate(QUERY);
    asked
}

/// Returns a node's freshness on `date`. The freshness is 1 for a node written or cited that day,
/// and halves every [`HALF_LIFE_DAYS`] days. It is 0.5 for a node without a date.
pub fn freshness_of(node: &Node, date: Date) -> f64 {
    let Some(from) = node.date.max(node.last_cited) else {
        return 0.5;
    };
    let days = f64::from((date - from).get_days().max(0));
    0.5_f64.powf(days / HALF_LIFE_DAYS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use runner_text::near::mix;

    use super::*;

    fn corpus(files: impl IntoIterator<Item = (String, String)>) -> Corpus {
        let mut corpus = Corpus::default();
        let files = files.into_iter().map(|(path, text)| (path, Some(text.into_bytes())));
        corpus.apply(&files.collect());
        corpus
    }

    fn note(title: &str, body: &str, tags: &str, status: &str) -> String {
        format!("---\ntitle: {title}\ntags: [{tags}]\nstatus: {status}\n---\n{body}\n")
    }

    #[test]
    fn scores_match_fts5() {
        let notes = [
            ("retry jitter", "retry retry upload network", "net"),
            ("tea", "green tea leaf", "shop"),
            ("upload", "upload network jitter jitter queue", "net, retry"),
            ("lock", "lock file process pipe", "lock"),
            ("cache", "cache key digest", "cache"),
        ];
        let files = notes.iter().enumerate().map(|(at, (title, body, tags))| {
            (format!("learnings/{at}.md"), note(title, body, tags, "active"))
        });
        let corpus = corpus(files);
        let ranked = |question: &str| {
            let found = corpus.index().ranked(&asked_terms(question), WEIGHTS, Scope::Active, 9);
            found.iter().map(|(at, score)| format!("{at} {score:.9}")).collect::<Vec<_>>()
        };
        // Recorded from SQLite's bm25(notes, 4.0, 1.0, 2.0).
        assert_eq!(ranked("retry with jitter"), ["0 1.164050134", "2 0.855448520"]);
    }

    #[test]
    fn searches_match_a_direct_computation() {
        let mut seed = 7;
        let mut random = |most: u64| {
            seed = mix(seed);
            seed % most
        };
        let mut words = |count: u64| {
            (0..count).map(|_| format!("word{}", random(30))).collect::<Vec<_>>().join(" ")
        };
        let mut files = BTreeMap::new();
        for n in 0..40 {
            let folder = if n % 3 == 0 { "findings" } else { "learnings" };
            let status = if n % 7 == 0 { "archived" } else { "active" };
            // The count of 200 occurrences takes two bytes.
            let body =
                format!("{} {}", words(5 + n), "word1 ".repeat(if n == 5 { 200 } else { 0 }));
            let text = note(&words(2), &body, &words(1), status);
            files.insert(format!("{folder}/{n:02}.md"), text);
        }
        let corpus = corpus(files);
        let fits = |node: &Node, scope| match scope {
            Scope::All => true,
            Scope::Active => node.is_active(),
            Scope::ActiveLearnings => node.is_active() && node.kind == NodeKind::Learning,
        };
        for scope in [Scope::All, Scope::Active, Scope::ActiveLearnings] {
            let all = corpus.nodes.iter().enumerate().filter(|(_, node)| fits(node, scope));
            let counted: Vec<(usize, Vec<Vec<String>>)> = all
                .map(|(at, node)| {
                    let subjects = node.subjects.iter().flat_map(|it| terms(it)).collect();
                    (at, vec![terms(&node.title), terms(node.body()), subjects])
                })
                .collect();
            let length = |parts: &[Vec<String>]| parts.iter().map(Vec::len).sum::<usize>() as f64;
            let total: f64 = counted.iter().map(|(_, parts)| length(parts)).sum();
            let (count, mean) = (counted.len() as f64, total / counted.len() as f64);
            for question in ["word1", "word2 word3 word4", "absent word29 word1"] {
                let asked = asked_terms(question);
                let mut expected: Vec<(usize, f64)> = Vec::new();
                for (at, parts) in &counted {
                    let mut score = None;
                    for term in &asked {
                        let has = |parts: &[Vec<String>]| parts.iter().any(|it| it.contains(term));
                        let hits = counted.iter().filter(|(_, parts)| has(parts)).count() as f64;
                        let rarity = ((count - hits + 0.5) / (hits + 0.5)).ln();
                        let times =
                            |part: &Vec<String>| part.iter().filter(|it| *it == term).count();
                        let weighted =
                            parts.iter().zip(WEIGHTS).map(|(it, w)| times(it) as f64 * w);
                        let frequency: f64 = weighted.sum();
                        if has(parts) {
                            let rarity = if rarity <= 0.0 { 1e-6 } else { rarity };
                            *score.get_or_insert(0.0) += rarity * (frequency * 2.2)
                                / (frequency + 1.2 * (0.25 + 0.75 * length(parts) / mean));
                        }
                    }
                    expected.extend(score.map(|score| (*at, score)));
                }
                expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                expected.truncate(10);
                let found = corpus.index().ranked(&asked, WEIGHTS, scope, 10);
                assert_eq!(found.len(), expected.len());
                for ((at, score), (other, wanted)) in found.iter().zip(&expected) {
                    assert!(at == other && (score - wanted).abs() < 1e-9, "{scope:?} {question}");
                }
            }
        }
    }

    #[test]
    fn index_of_other_contents_is_not_adopted() {
        let one =
            |body: &str| corpus([("learnings/a.md".to_owned(), note("a", body, "", "active"))]);
        let found =
            |corpus: &Corpus, term: &str| corpus.index().containing(term, Scope::All).count() == 1;
        let mut first = one("jitter");
        assert!(found(&first, "jitter"));
        let mut second = one("backoff");
        second.adopt(first.take_index());
        assert!(found(&second, "backoff") && !found(&second, "jitter"));
        let mut third = one("backoff");
        third.adopt(second.take_index());
        assert!(third.take_index().is_some_and(|index| index.terms.contains_key("backoff")));
        third.index();
        let text = note("a", "quota", "", "active").into_bytes();
        third.apply(&[("learnings/a.md".to_owned(), Some(text))].into());
        assert!(found(&third, "quota") && !found(&third, "backoff"));
    }
}
