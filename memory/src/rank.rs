//! Ranks nodes by their relevance to a string, by fusing three BM25 scores: those of the node, of
//! its neighbours in its original session, and of that session.
//!
//! The running time is limited. For each word, a prompt considers the newest `COMMON` nodes in
//! scope that contain the word. It finds them among the newest `SCANNED` nodes of all projects that
//! contain the word. If more nodes contain the word, a search also ranks the newest `WINDOW` nodes.
//! Each kind of score is computed for at most [`DEPTH`] candidates and as many neighbours. The
//! fusion uses scores instead of ranks, because ranks give worse results.

use std::collections::{HashMap, HashSet};

use runner_text::terms::terms;
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::Result;
use crate::node::Scope;
use crate::query::phrase;
use crate::store::{Reader, scope_arguments};

/// Maximum number of candidates to score.
pub const DEPTH: usize = 64;
/// Maximum number of nodes to list per word.
const COMMON: usize = 400;
/// Maximum number of nodes per word whose scope is checked. Checking them takes about 1 ms.
const SCANNED: usize = 10 * COMMON;
/// Number of the newest nodes to rank if a word occurs in too many nodes to list. Ranking them
/// takes about 10 ms for a word that is in a tenth of them, and 250 ms for 24 very common words.
const WINDOW: i64 = 100_000;
/// Maximum number of words to search for per string.
const WORDS: usize = 24;
/// The usual values of BM25's parameters.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// Number of neighbours before and after a node in its session.
const REACH: i64 = 2;
/// Number of best candidates whose neighbours also become candidates.
const SPREAD: usize = 32;
/// Number of terms in a typical node. BM25 only needs its order of magnitude.
const TYPICAL: f64 = 40.0;

/// Minimum share of a prompt's information that a node must contain to be injected unasked.
pub const RECALL_SHARE: f64 = 0.40;
/// Fraction of [`RECALL_SHARE`] that the index must find in a node before the node is read. It is
/// below 1 because the index does not find every form of a word.
const LIKELY: f64 = 0.5;
/// Maximum number of nodes to inject unasked.
pub const FEW: usize = 5;
/// Minimum number of a prompt's words that a node must contain to be injected unasked.
pub const RECALL_WORDS: usize = 3;

/// The weights of the other scores. A node's own score has the weight 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// The weight of the best neighbour, among at most two nodes before and two after the node in
    /// its session. The weight is less than 1, so a node that contains the words ranks above its
    /// neighbours.
    pub neighbours: f64,
    /// The weight of the best node in the session.
    pub session: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { neighbours: 0.8, session: 0.7 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub id: String,
    /// The fused score.
    pub score: f64,
    /// The share of the search text's information that the node itself contains, from 0 to 1.
    pub share: f64,
    /// The number of the search text's words that the node itself contains.
    pub words: usize,
}

impl Hit {
    /// Returns whether the node is relevant enough to be injected unasked.
    pub fn is_relevant(&self) -> bool {
        self.share >= RECALL_SHARE && self.words >= RECALL_WORDS
    }
}

/// A word of the search text.
struct Word {
    term: String,
    /// The FTS5 query that finds the word.
    phrase: String,
    idf: f64,
    /// The sequence numbers of the nodes in scope that contain the word.
    seqs: Vec<i64>,
    /// Whether the word may occur in more nodes in scope than those in the list.
    common: bool,
}

struct Candidate {
    seq: i64,
    id: String,
    session: Option<String>,
    own: f64,
    share: f64,
    words: usize,
}

/// Returns the nodes in scope for a string, best first: nodes that contain its words, and
/// neighbours of the best of these nodes.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn search(memory: Reader<'_>, text: &str, scope: &Scope, limit: usize) -> Result<Vec<Hit>> {
    search_with(memory, text, scope, limit, Weights::default())
}

/// Works like [`search`], but with the given weights.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn search_with(
    memory: Reader<'_>,
    text: &str,
    scope: &Scope,
    limit: usize,
    weights: Weights,
) -> Result<Vec<Hit>> {
    let mut hits = memory.read(|db| {
        let words = words(db, text, scope)?;
        let mut candidates = candidates(db, &words, scope, Bar::Any)?;
        let ranked = ranked(db, &words, scope, &candidates)?;
        read(db, ranked, &words, scope, &mut candidates)?;
        let near = neighbours(db, &candidates)?;
        read(db, near, &words, scope, &mut candidates)?;
        fuse(db, candidates, weights)
    })?;
    hits.truncate(limit);
    Ok(hits)
}

/// Returns the nodes in scope that are relevant enough to be injected unasked, best first.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn relevant(memory: Reader<'_>, text: &str, scope: &Scope) -> Result<Vec<Hit>> {
    let mut hits = memory.read(|db| {
        let words = words(db, text, scope)?;
        let few = fuse(db, candidates(db, &words, scope, Bar::Relevant)?, Weights::default())?;
        // Neighbours and sessions only affect the order, which matters only if there are more than
        // `FEW` relevant nodes.
        match few.iter().filter(|hit| hit.is_relevant()).count() > FEW {
            true => fuse(db, candidates(db, &words, scope, Bar::Any)?, Weights::default()),
            false => Ok(few),
        }
    })?;
    hits.retain(Hit::is_relevant);
    Ok(hits)
}

/// Returns the first `WORDS` distinct words of a string with their nodes in scope. Stop words are
/// omitted.
fn words(db: &Connection, text: &str, scope: &Scope) -> rusqlite::Result<Vec<Word>> {
    let total = newest(db)? as f64;
    let (any, project) = scope_arguments(scope);
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    let mut statement = db.prepare_cached(
        "SELECT i.seq, ?2 OR i.project IS NULL OR i.project IS ?3 \
         FROM search s CROSS JOIN node_index i ON i.seq = s.rowid \
         WHERE s.search MATCH ?1 ORDER BY s.rowid DESC LIMIT ?4",
    )?;
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        if out.len() == WORDS {
            break;
        }
        let Some(term) = terms(word).into_iter().next() else { continue };
        if !seen.insert(term.clone()) {
            continue;
        }
        let phrase = phrase(word);
        let mut rows = statement.query(params![phrase, any, project, SCANNED as i64])?;
        let (mut seqs, mut scanned) = (Vec::new(), 0);
        while seqs.len() <= COMMON
            && let Some(row) = rows.next()?
        {
            scanned += 1;
            if row.get(1)? {
                seqs.push(row.get(0)?);
            }
        }
        let common = seqs.len() > COMMON || scanned == SCANNED;
        let count = match common {
            // The remaining nodes that contain the word are not counted, because that would take
            // too long.
            true => (total / 20.0).max(scanned as f64),
            false => scanned as f64,
        };
        let idf = (1.0 + (total - count + 0.5).max(0.5) / (count + 0.5)).ln();
        out.push(Word { term, phrase, idf, seqs, common });
    }
    Ok(out)
}

/// Returns the sequence number of the newest node, or 0 if there are no nodes.
fn newest(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT coalesce(max(seq), 0) FROM node_index")?
        .query_row([], |row| row.get(0))
}

/// If a word may occur in more nodes than its list contains, returns the nodes in scope that match
/// the words best by the index's own BM25 scores and are not candidates yet. Otherwise, returns no
/// nodes.
fn ranked(
    db: &Connection,
    words: &[Word],
    scope: &Scope,
    candidates: &[Candidate],
) -> rusqlite::Result<Vec<i64>> {
    if words.iter().all(|word| !word.common) {
        return Ok(Vec::new());
    }
    let query: Vec<&str> = words.iter().map(|word| word.phrase.as_str()).collect();
    let (any, project) = scope_arguments(scope);
    let mut statement = db.prepare_cached(
        "SELECT i.seq FROM search s JOIN node_index i ON i.seq = s.rowid \
         JOIN nodes n ON n.id = i.node_id WHERE s.search MATCH ?1 AND s.rowid > ?2 \
         AND n.superseded_by IS NULL AND (?3 OR n.project IS NULL OR n.project = ?4) \
         ORDER BY s.rank LIMIT ?5",
    )?;
    let after = newest(db)? - WINDOW;
    let arguments = params![query.join(" OR "), after, any, project, DEPTH as i64];
    let best: rusqlite::Result<Vec<i64>> =
        statement.query_map(arguments, |row| row.get(0))?.collect();
    let known: HashSet<i64> = candidates.iter().map(|it| it.seq).collect();
    Ok(best?.into_iter().filter(|seq| !known.contains(seq)).collect())
}

/// The condition under which a node is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bar {
    /// The node contains any of the words.
    Any,
    /// The node may be relevant enough to be injected unasked.
    Relevant,
}

/// Reads and scores the nodes that contain the most informative words.
fn candidates(
    db: &Connection,
    words: &[Word],
    scope: &Scope,
    bar: Bar,
) -> rusqlite::Result<Vec<Candidate>> {
    let mut sums: HashMap<i64, f64> = HashMap::new();
    for word in words {
        for seq in &word.seqs {
            *sums.entry(*seq).or_default() += word.idf;
        }
    }
    let all: f64 = words.iter().map(|word| word.idf).sum();
    // A common word might also occur in nodes that its list does not contain.
    let common = words.iter().filter(|word| word.common).map(|word| word.idf);
    let least = match bar {
        Bar::Any => 0.0,
        Bar::Relevant => LIKELY * RECALL_SHARE * all - common.sum::<f64>(),
    };
    let mut best: Vec<(i64, f64)> = sums.into_iter().filter(|(_, sum)| *sum >= least).collect();
    best.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    let mut out = Vec::new();
    let seqs = best.into_iter().take(4 * DEPTH).map(|(seq, _)| seq);
    read(db, seqs, words, scope, &mut out)?;
    Ok(out)
}

/// Returns those neighbours of the best candidates that are not candidates yet.
fn neighbours(db: &Connection, candidates: &[Candidate]) -> rusqlite::Result<Vec<i64>> {
    let mut known: HashSet<i64> = candidates.iter().map(|it| it.seq).collect();
    let mut best: Vec<&Candidate> = candidates.iter().collect();
    best.sort_by(|a, b| b.own.total_cmp(&a.own).then(b.seq.cmp(&a.seq)));
    let mut out = Vec::new();
    for it in best.into_iter().take(SPREAD) {
        out.extend(near(db, it)?.into_iter().filter(|seq| known.insert(*seq)));
    }
    Ok(out)
}

/// Returns the nodes before and after a candidate in its session.
fn near(db: &Connection, it: &Candidate) -> rusqlite::Result<Vec<i64>> {
    let Some(session) = it.session.as_deref() else { return Ok(Vec::new()) };
    let mut near = db.prepare_cached(
        "SELECT seq FROM (SELECT seq FROM node_index WHERE session = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3) \
         UNION ALL SELECT seq FROM (SELECT seq FROM node_index WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3)",
    )?;
    near.query_map(params![session, it.seq, REACH], |row| row.get(0))?.collect()
}

/// Reads and scores nodes in scope, until there are [`DEPTH`] more candidates.
fn read(
    db: &Connection,
    seqs: impl IntoIterator<Item = i64>,
    words: &[Word],
    scope: &Scope,
    out: &mut Vec<Candidate>,
) -> rusqlite::Result<()> {
    let all: f64 = words.iter().map(|word| word.idf).sum();
    let (any, project) = scope_arguments(scope);
    let most = out.len() + DEPTH;
    let mut statement = db.prepare_cached(
        "SELECT i.node_id, i.session, n.content, n.summary FROM node_index i JOIN nodes n ON n.id = i.node_id \
         WHERE i.seq = ?1 AND n.superseded_by IS NULL AND (?2 OR n.project IS NULL OR n.project = ?3)",
    )?;
    for seq in seqs {
        if out.len() == most {
            break;
        }
        let row = statement
            .query_row(params![seq, any, project], |row| {
                let text: String = row.get(2)?;
                let summary: Option<String> = row.get(3)?;
                let text = text + " " + summary.as_deref().unwrap_or_default();
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, text))
            })
            .optional()?;
        let Some((id, session, text)) = row else { continue };
        let (own, shared, words) = score(words, &text);
        out.push(Candidate { seq, id, session, own, share: shared / all.max(f64::EPSILON), words });
    }
    Ok(())
}

/// Returns the BM25 score of a node's text, and the total weight and number of the words that it
/// contains.
fn score(words: &[Word], text: &str) -> (f64, f64, usize) {
    // Only the beginning of long content is scored, so one node cannot delay a prompt.
    let cut = text.char_indices().nth(8_000).map_or(text.len(), |(at, _)| at);
    let found = terms(&text[..cut]);
    let mut counts: HashMap<&str, f64> = HashMap::new();
    for term in &found {
        *counts.entry(term).or_default() += 1.0;
    }
    let norm = K1 * (1.0 - B + B * found.len() as f64 / TYPICAL);
    let (mut own, mut shared, mut number) = (0.0, 0.0, 0);
    for word in words {
        if let Some(count) = counts.get(word.term.as_str()) {
            own += word.idf * count * (K1 + 1.0) / (count + norm);
            shared += word.idf;
            number += 1;
        }
    }
    (own, shared, number)
}

/// Adds the scores of neighbours and of sessions. Returns all candidates, best first.
fn fuse(
    db: &Connection,
    candidates: Vec<Candidate>,
    weights: Weights,
) -> rusqlite::Result<Vec<Hit>> {
    let own: HashMap<i64, f64> = candidates.iter().map(|it| (it.seq, it.own)).collect();
    let mut sessions: HashMap<&str, f64> = HashMap::new();
    for candidate in &candidates {
        if let Some(session) = candidate.session.as_deref() {
            let best = sessions.entry(session).or_default();
            *best = best.max(candidate.own);
        }
    }
    let mut out = Vec::new();
    for it in &candidates {
        let mut score = it.own;
        if let Some(session) = it.session.as_deref() {
            let around = near(db, it)?;
            let around = around.iter().filter_map(|seq| own.get(seq));
            let around = around.fold(0.0, |a: f64, b| a.max(*b));
            score += weights.neighbours * around
                + weights.session * sessions.get(session).copied().unwrap_or(0.0);
        }
        out.push(Hit { id: it.id.clone(), score, share: it.share, words: it.words });
    }
    out.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NewNode;
    use crate::store::{Access, Memory};

    /// Creates a store with these nodes. Returns it with its folder and the ids.
    fn store_of(nodes: impl Iterator<Item = NewNode>) -> (tempfile::TempDir, Memory, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let now = "2026-11-01T00:00:00Z".parse().unwrap();
        let mut memory =
            Memory::open(&folder.path().join("store.db"), Access::Prompt, now).unwrap();
        let add = |change: &mut crate::store::Change<'_>| {
            nodes.map(|node| change.add(&node)).collect::<Result<Vec<String>>>()
        };
        let ids = memory.change("add", now, add).unwrap();
        (folder, memory, ids)
    }

    fn node(project: &str, content: &str) -> NewNode {
        NewNode {
            content: content.to_owned(),
            project: Some(project.to_owned()),
            ..NewNode::default()
        }
    }

    #[test]
    fn common_words_find_the_best_nodes() {
        let best = [node("p", "Deploy release"), node("q", "Our deploy needs a long release note")];
        let others = ["deploy", "release"].into_iter().flat_map(|word| {
            (0..2 * COMMON).map(move |number| {
                node(
                    "p",
                    &format!("Number {number} names {word} in many other words of a long note"),
                )
            })
        });
        let newest = node("p", "The number names deploy in many other words");
        let nodes = best.into_iter().chain(others).chain([newest]);
        let (_folder, memory, ids) = store_of(nodes);
        let first = |project: &str, text: &str| {
            let scope = Scope::Project(project.to_owned());
            let hits = search(memory.reader(), text, &scope, 20).unwrap();
            hits.first().map(|hit| hit.id.clone())
        };
        for text in ["deploy", "deploy release", "release"] {
            assert_eq!(first("p", text).as_ref(), Some(&ids[0]), "{text}");
            // The nodes of other projects hide none of this project.
            assert_eq!(first("q", text).as_ref(), Some(&ids[1]), "{text}");
        }
        // Nor do they hide them from a prompt.
        let scope = Scope::Project("q".to_owned());
        let unasked = relevant(memory.reader(), "long deploy release note", &scope);
        let unasked: Vec<String> = unasked.unwrap().into_iter().map(|hit| hit.id).collect();
        assert_eq!(unasked, [ids[1].clone()]);
        // A prompt considers the newest nodes that contain a common word.
        let scope = Scope::Project("p".to_owned());
        let text = "number names deploy in many other words";
        let unasked = relevant(memory.reader(), text, &scope).unwrap();
        assert!(unasked.iter().any(|hit| Some(&hit.id) == ids.last()));
    }

    #[test]
    fn neighbours_are_found_but_not_injected() {
        let texts = [
            ("s", "Too far away to be a neighbour"),
            ("s", "Compare the figures first"),
            ("s", "The old key stays valid for a day"),
            ("s", "Refresh tokens rotate on every login of the mobile client"),
            ("s", "Then the second step follows"),
            ("other", "A note of another session"),
        ];
        let nodes = texts.into_iter().map(|(session, content)| NewNode {
            session: Some(session.to_owned()),
            ..node("p", content)
        });
        let (_folder, memory, ids) = store_of(nodes);
        let found = |scope: &str, limit| {
            let scope = Scope::Project(scope.to_owned());
            search(memory.reader(), "do refresh tokens rotate at login?", &scope, limit).unwrap()
        };
        let hits = found("p", 10);
        assert_eq!(hits[0].id, ids[3]);
        let near: HashSet<&str> = hits[1..].iter().map(|hit| hit.id.as_str()).collect();
        assert_eq!(near, HashSet::from([ids[1].as_str(), &ids[2], &ids[4]]));
        assert!(hits[1..].iter().all(|hit| hit.score > 0.0 && !hit.is_relevant()));
        assert_eq!(found("p", 2).len(), 2);
        assert_eq!(found("q", 10), []);
        let scope = Scope::Project("p".to_owned());
        let unasked = relevant(memory.reader(), "do refresh tokens rotate at login?", &scope);
        let unasked: Vec<String> = unasked.unwrap().into_iter().map(|hit| hit.id).collect();
        assert_eq!(unasked, [ids[3].clone()]);
    }
}
