//! A full-text index of the history, which finds the commits that contain a note's words.
//!
//! For each term, the index has a list of numbers. Each number encodes a commit and the parts of
//! the commit in which the term occurs. The index takes 4 bytes for each term of a commit, so the
//! index of 40,000 commits fits into 30 MB, whereas an SQLite FTS5 table took 200 MB. Terms are
//! split and stemmed in the same way as the terms of a note (`text::terms`), so `RetryPolicy`,
//! `retry_policy` and "retry policies" match. The index ranks commits and makes no decisions.

use std::collections::{HashMap, HashSet};

use runner_text::terms::terms;

use super::commit::Commit;
use super::documents::Documents;
use super::places;

/// Maximum number of terms in a query. More terms add little information and cost time.
const QUERY: usize = 64;
/// Number of bits for the parts of a commit.
const PARTS: u32 = 8;
/// Number of bits for a commit.
const COMMITS: u32 = 24;
/// Number of commits whose terms are sorted together.
const SEGMENT: usize = 4096;

/// The parts of a commit in which a term occurs, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    pub const SUBJECT: Self = Self(1);
    pub const BODY: Self = Self(2);
    /// The path of a file that is not a document.
    pub const PATH: Self = Self(4);
    /// The name of a file that the commit created and that is not a document.
    pub const CREATED: Self = Self(8);
    /// A line that the commit added to a file that is not a document.
    pub const ADDED: Self = Self(16);
    /// The path of a document.
    pub const DOCUMENT: Self = Self(32);

    /// Returns whether the set contains at least one of `parts`.
    pub fn intersects(self, parts: Self) -> bool {
        self.0 & parts.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the weight of a match in these parts: that of the part with the highest weight.
    fn weight(self) -> f64 {
        if self.intersects(Self::SUBJECT) {
            4.0
        } else if self.intersects(Self::CREATED) {
            3.0
        } else if self.intersects(Self::BODY.or(Self::PATH)) {
            2.0
        } else if self.intersects(Self::ADDED) {
            1.0
        } else {
            0.0
        }
    }
}

/// The message and the paths of a commit.
const MENTIONED: Parts =
    Parts::SUBJECT.or(Parts::BODY).or(Parts::PATH).or(Parts::CREATED).or(Parts::DOCUMENT);

/// Returns the hash that identifies a term in the index (32-bit FNV-1a). Among 200,000 terms, about
/// five pairs share a hash, which is harmless.
pub fn term_id(term: &str) -> u32 {
    term.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The terms of some of the commits. Sorting the terms of all commits in one list would temporarily
/// take twice the memory of the index.
#[derive(Debug, Default)]
struct Segment {
    /// The hashes of the terms, sorted.
    terms: Vec<u32>,
    /// For each term, the index of its first posting, followed by the total number of postings.
    starts: Vec<u32>,
    /// For each term, the commits in which it occurs, each with the parts, in commit order.
    postings: Vec<u32>,
    /// For each term, the number of commits whose message or paths contain it.
    mentioned: Vec<u32>,
}

impl Segment {
    /// Builds a segment from numbers, each of which encodes a term, a commit and the parts.
    fn of(found: &mut [u64]) -> Self {
        found.sort_unstable();
        let mut segment = Self { postings: Vec::with_capacity(found.len()), ..Self::default() };
        for number in found {
            let (term, posting) = ((*number >> 32) as u32, *number as u32);
            if segment.terms.last() != Some(&term) {
                segment.terms.push(term);
                segment.starts.push(segment.postings.len() as u32);
                segment.mentioned.push(0);
            }
            segment.postings.push(posting);
            if let Some(mentioned) = segment.mentioned.last_mut() {
                *mentioned += u32::from(parts_of(posting).intersects(MENTIONED));
            }
        }
        segment.starts.push(segment.postings.len() as u32);
        segment
    }

    /// Returns the number of commits whose message or paths contain a term, and its postings.
    fn find(&self, term: u32) -> (u32, &[u32]) {
        let Ok(at) = self.terms.binary_search(&term) else { return (0, &[]) };
        let postings = self.starts[at] as usize..self.starts[at + 1] as usize;
        (self.mentioned[at], &self.postings[postings])
    }
}

/// A full-text index of a history.
#[derive(Debug, Default)]
pub struct Index {
    /// The segments, in commit order, each with the terms of at most [`SEGMENT`] commits.
    segments: Vec<Segment>,
    /// Whether each commit changes more than documents and prose.
    works: Vec<bool>,
    /// For each commit, the number of terms in its added lines.
    added: Vec<u32>,
    /// The commits whose message mentions a markdown file, keyed by the path in the message.
    citing: HashMap<String, Vec<usize>>,
}

/// A commit that contains some of the searched terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The index of the commit in the history that was indexed.
    pub at: usize,
    /// The sum of the weights of the matching terms; higher is better.
    pub score: f64,
}

impl Index {
    /// Indexes a history. The terms of the added lines move into the index, so that they are not in
    /// memory twice; [`Index::added_terms`] returns them.
    pub fn build(commits: &mut [Commit], documents: &Documents) -> Self {
        let all = commits.len().min(1 << COMMITS);
        let commits = &mut commits[..all];
        let mut splitter = Splitter { documents, of_name: HashMap::new() };
        let mut index = Self::default();
        let mut found: Vec<u64> = Vec::new();
        for (at, commit) in commits.iter_mut().enumerate() {
            for text in [&commit.subject, &commit.body] {
                for cited in places::mentioned(text).filter(|name| name.ends_with(".md")) {
                    let citing = index.citing.entry(cited.to_owned()).or_default();
                    if citing.last() != Some(&at) {
                        citing.push(at);
                    }
                }
            }
            let works = commit.paths.iter().any(|path| !documents.contains(path));
            index.works.push(works && !commit.added.as_ref().is_some_and(|added| added.prose));
            let number = (at as u64) << PARTS;
            let terms = splitter.terms(commit);
            let added = terms.iter().filter(|(_, parts)| parts.intersects(Parts::ADDED)).count();
            index.added.push(added as u32);
            found.extend(terms.into_iter().map(|(term, parts)| {
                u64::from(term) << (COMMITS + PARTS) | number | u64::from(parts.0)
            }));
            if let Some(added) = &mut commit.added {
                added.terms = Vec::new();
            }
            if (at + 1) % SEGMENT == 0 || at + 1 == all {
                index.segments.push(Segment::of(&mut found));
                found.clear();
            }
        }
        index
    }

    /// Returns the terms in each commit's added lines, sorted.
    pub fn added_terms(&self) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new(); self.works.len()];
        for segment in &self.segments {
            for (term, bounds) in segment.terms.iter().zip(segment.starts.windows(2)) {
                for posting in &segment.postings[bounds[0] as usize..bounds[1] as usize] {
                    if parts_of(*posting).intersects(Parts::ADDED) {
                        all[(posting >> PARTS) as usize].push(*term);
                    }
                }
            }
        }
        all
    }

    /// Returns the commits in which a term occurs, with the parts.
    fn postings(&self, term: u32) -> impl Iterator<Item = (usize, Parts)> {
        let postings = self.segments.iter().flat_map(move |segment| segment.find(term).1);
        postings.map(|posting| ((posting >> PARTS) as usize, parts_of(*posting)))
    }

    /// Returns the parts of a commit in which a term occurs.
    pub fn parts(&self, term: u32, at: usize) -> Parts {
        let Some(segment) = self.segments.get(at / SEGMENT) else { return Parts::default() };
        let (_, postings) = segment.find(term);
        let found = postings.binary_search_by_key(&at, |posting| (posting >> PARTS) as usize);
        found.map_or(Parts::default(), |found| parts_of(postings[found]))
    }

    /// Returns the number of commits whose message or paths contain the term, and the number of
    /// commits that contain it anywhere.
    pub fn frequencies(&self, term: u32) -> (u32, u32) {
        self.segments.iter().map(|segment| segment.find(term)).fold(
            (0, 0),
            |(mentioned, anywhere), (more, postings)| {
                (mentioned + more, anywhere + postings.len() as u32)
            },
        )
    }

    /// Returns how well a term that occurs in `having` commits distinguishes commits: 0 for a term
    /// in every commit, and about 7 for a term in every thousandth commit of a long history.
    pub fn rarity(&self, having: u32) -> f64 {
        ((1.0 + self.works.len() as f64) / (1.0 + f64::from(having))).ln()
    }

    /// Returns whether a commit changes more than documents and prose.
    pub fn works(&self, at: usize) -> bool {
        self.works.get(at).copied().unwrap_or(false)
    }

    /// Returns the number of different terms in the lines that a commit added.
    pub fn added(&self, at: usize) -> usize {
        self.added.get(at).map_or(0, |terms| *terms as usize)
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> usize {
        self.works.len()
    }

    /// Returns the commits whose message mentions exactly this file, as in `Spec: ideas/a.md`,
    /// newest first.
    pub fn citing(&self, path: &str) -> impl Iterator<Item = usize> {
        self.citing.get(path).into_iter().flatten().copied()
    }

    /// Returns whether a commit's message mentions a markdown file other than this one.
    pub fn cites_another(&self, path: &str, at: usize) -> bool {
        self.citing.iter().any(|(cited, citing)| cited != path && citing.contains(&at))
    }

    /// Returns at most `limit` commits that change more than documents and prose and that match the
    /// first `QUERY` of `terms`, best first. Among equal scores, the newer commit comes first. Each
    /// term comes with its weight.
    pub fn search(&self, terms: &[(u32, f64)], limit: usize) -> Vec<Hit> {
        let mut scores = vec![0.0; self.works.len()];
        for (term, weight) in terms.iter().take(QUERY) {
            for (at, parts) in self.postings(*term) {
                scores[at] += weight * parts.weight();
            }
        }
        let scores = scores.into_iter().enumerate();
        let scores = scores.filter(|(at, score)| *score > 0.0 && self.works[*at]);
        let mut hits: Vec<Hit> = scores.map(|(at, score)| Hit { at, score }).collect();
        let first = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(a.at.cmp(&b.at));
        if hits.len() > limit && limit > 0 {
            hits.select_nth_unstable_by(limit - 1, first);
            hits.truncate(limit);
        }
        hits.sort_by(first);
        hits.truncate(limit);
        hits
    }
}

fn parts_of(posting: u32) -> Parts {
    Parts((posting & ((1 << PARTS) - 1)) as u8)
}

/// Splits commits into terms.
struct Splitter<'a> {
    documents: &'a Documents,
    /// The terms of the names in paths, which recur across many commits.
    of_name: HashMap<String, Vec<u32>>,
}

impl Splitter<'_> {
    /// Returns the terms of a commit with the parts in which they occur, each term once.
    fn terms(&mut self, commit: &Commit) -> Vec<(u32, Parts)> {
        let mut found: Vec<(u32, Parts)> = Vec::new();
        for (text, part) in [(&commit.subject, Parts::SUBJECT), (&commit.body, Parts::BODY)] {
            found.extend(terms(text).iter().map(|term| (term_id(term), part)));
        }
        let created: HashSet<u32> = commit.created.iter().copied().collect();
        for (number, path) in commit.paths.iter().enumerate() {
            let document = self.documents.contains(path);
            let part = if document { Parts::DOCUMENT } else { Parts::PATH };
            let names = path.split('/').count();
            for (place, name) in path.split('/').enumerate() {
                let last = place + 1 == names;
                let new = last && !document && created.contains(&(number as u32));
                let part = if new { part.or(Parts::CREATED) } else { part };
                if !self.of_name.contains_key(name) {
                    let ids = terms(name).iter().map(|term| term_id(term)).collect();
                    self.of_name.insert(name.to_owned(), ids);
                }
                found.extend(self.of_name[name].iter().map(|term| (*term, part)));
            }
        }
        if let Some(added) = &commit.added {
            found.extend(added.terms.iter().map(|term| (*term, Parts::ADDED)));
        }
        found.sort_unstable_by_key(|(term, _)| *term);
        found.dedup_by(|next, first| {
            let same = next.0 == first.0;
            if same {
                first.1 = first.1.or(next.1);
            }
            same
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::commit::AddedText;

    fn commit(subject: &str, paths: &[&str]) -> Commit {
        Commit {
            subject: subject.into(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            touched: paths.len(),
            ..Commit::default()
        }
    }

    fn built(commits: &[Commit]) -> Index {
        Index::build(&mut commits.to_vec(), &Documents::default())
    }

    fn query(index: &Index, text: &str) -> Vec<usize> {
        let terms: Vec<(u32, f64)> = terms(text).iter().map(|term| (term_id(term), 1.0)).collect();
        index.search(&terms, 9).iter().map(|hit| hit.at).collect()
    }

    #[test]
    fn search_matches_all_naming_styles() {
        let commits = [
            commit("docs: tidy the readme", &["README.md"]),
            commit("feat: add RetryPolicy", &["src/net.rs"]),
            commit("feat: something else", &["src/retry_policy.rs"]),
            commit("fix: a typing slip", &["src/main.rs"]),
        ];
        let index = built(&commits);
        assert_eq!(query(&index, "retry policies"), [1, 2]);
        assert_eq!(query(&index, "nowhere"), [0; 0]);
        assert_eq!(index.frequencies(term_id(&terms("retry")[0])), (2, 2));
        assert!(index.rarity(0) > index.rarity(2) && index.rarity(2) > 0.0);
        assert_eq!(query(&built(&[]), "anything"), [0; 0]);
    }

    #[test]
    fn terms_of_all_segments_are_found() {
        let mut commits = vec![commit("fix: a typing slip", &["src/main.rs"]); 2 * SEGMENT + 1];
        for at in [0, SEGMENT - 1, SEGMENT, 2 * SEGMENT] {
            commits[at].subject = "feat: add jitter".to_owned();
        }
        let index = built(&commits);
        let jitter = term_id(&terms("jitter")[0]);
        assert_eq!(query(&index, "jitter"), [0, SEGMENT - 1, SEGMENT, 2 * SEGMENT]);
        assert_eq!(index.frequencies(jitter), (4, 4));
        assert!(index.parts(jitter, SEGMENT).intersects(Parts::SUBJECT));
        assert!(index.parts(jitter, SEGMENT + 1).is_empty());
        assert!(index.parts(jitter, 9 * SEGMENT).is_empty());
    }

    #[test]
    fn added_lines_are_searched() {
        let mut silent = commit("wip", &["src/a.rs"]);
        let jitter = term_id(&terms("jitter")[0]);
        silent.added = Some(AddedText { terms: vec![jitter], whole: true, prose: false });
        let index = built(&[commit("other", &["src/b.rs"]), silent]);
        assert_eq!(query(&index, "jitter"), [1]);
        assert!(index.parts(jitter, 1).intersects(Parts::ADDED));
        assert!(index.parts(jitter, 0).is_empty());
        assert_eq!(index.added_terms(), [vec![], vec![jitter]]);
    }

    #[test]
    fn commits_of_documents_are_not_found() {
        let mut list = commit("add the zebra task", &["backlog.json"]);
        list.added = Some(AddedText { prose: true, ..AddedText::default() });
        let index = built(&[commit("docs: zebra", &["docs/zebra.md"]), list]);
        assert_eq!(query(&index, "zebra"), [0; 0]);
        assert!(!index.works(0) && !index.works(1) && !index.works(2));
    }
}
