//! A full-text index of the history, which finds the commits that contain an idea's words.
//!
//! The index is an SQLite FTS5 table in memory. Its terms are already split and stemmed in the same
//! way as the terms of an idea (`text::terms`), so that `RetryPolicy`, `retry_policy` and "retry
//! policies" match. The index ranks commits and makes no decision. It must never be written to
//! disk: building a new index for each run takes less time than checking an old index.

use std::collections::{BTreeSet, HashMap};

use runner_text::terms::terms;
use rusqlite::{Connection, params};

use super::history::Commit;
use super::places;

/// Weights of a match in a subject, in a body and in a path.
const WEIGHTS: (f64, f64, f64) = (4.0, 2.0, 1.0);
/// Maximum number of terms in a query. More terms add no information and cost time.
const QUERY: usize = 48;

/// An error that occurred while the index was built or queried: a bug in runner, or a lack of
/// memory.
#[derive(Debug, thiserror::Error)]
#[error("the index of the history could not be {act}")]
pub struct IndexError {
    act: &'static str,
    source: rusqlite::Error,
}

/// A full-text index of a history.
pub struct Index {
    db: Connection,
    /// Number of commits in which each term occurs.
    frequency: HashMap<String, u32>,
    /// The commits whose message names a markdown file, by the name of that file.
    citing: HashMap<String, Vec<usize>>,
    commits: usize,
}

/// A commit that contains some of the searched terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The index of the commit in the history that was indexed.
    pub at: usize,
    /// BM25 score; higher is better. Scores are comparable only within one search.
    pub score: f64,
}

impl Index {
    /// Indexes a history.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the index cannot be built.
    pub fn build(commits: &[Commit]) -> Result<Self, IndexError> {
        let fail = |source| IndexError { act: "built", source };
        let mut db = Connection::open_in_memory().map_err(fail)?;
        let mut frequency: HashMap<String, u32> = HashMap::new();
        let mut of_name: HashMap<String, String> = HashMap::new();
        let mut citing: HashMap<String, Vec<usize>> = HashMap::new();
        // The table stores no content, because the terms are only searched and never read back. The
        // table uses FTS5's default `detail`; with less detail, BM25 would count instances in the
        // content, which is not stored.
        db.execute_batch(
            "CREATE VIRTUAL TABLE commits USING fts5(subject, body, paths, content='',
             tokenize='unicode61 remove_diacritics 0')",
        )
        .map_err(fail)?;
        let tx = db.transaction().map_err(fail)?;
        {
            let mut insert = tx
                .prepare("INSERT INTO commits(rowid, subject, body, paths) VALUES (?1, ?2, ?3, ?4)")
                .map_err(fail)?;
            for (at, commit) in commits.iter().enumerate() {
                let subject = terms(&commit.subject);
                let body = terms(&commit.body);
                for message in [&commit.subject, &commit.body] {
                    for cited in places::mentioned(message).filter(|name| name.ends_with(".md")) {
                        let commits = citing.entry(cited.to_owned()).or_default();
                        if commits.last() != Some(&at) {
                            commits.push(at);
                        }
                    }
                }
                let paths = path_terms(&commit.paths, &mut of_name);
                let all: BTreeSet<&str> =
                    subject.iter().chain(&body).chain(&paths).map(String::as_str).collect();
                for term in all {
                    match frequency.get_mut(term) {
                        Some(count) => *count += 1,
                        None => {
                            frequency.insert(term.to_owned(), 1);
                        }
                    }
                }
                let paths = paths.into_iter().collect::<Vec<_>>().join(" ");
                insert
                    .execute(params![at as i64 + 1, subject.join(" "), body.join(" "), paths])
                    .map_err(fail)?;
            }
        }
        tx.commit().map_err(fail)?;
        Ok(Self { db, frequency, citing, commits: commits.len() })
    }

    /// Returns how well a term distinguishes commits: 0 for a term in every commit, about 7 for a
    /// term in one of a thousand commits, and the maximum for a term in no commit.
    pub fn rarity(&self, term: &str) -> f64 {
        let having = f64::from(self.frequency.get(term).copied().unwrap_or(0));
        ((1.0 + self.commits as f64) / (1.0 + having)).ln()
    }

    /// Returns the number of commits in which the term occurs.
    pub fn frequency(&self, term: &str) -> u32 {
        self.frequency.get(term).copied().unwrap_or(0)
    }

    /// Returns the commits whose message names exactly this file, as in `Spec: ideas/a.md`, the
    /// newest first.
    pub fn citing(&self, path: &str) -> impl Iterator<Item = usize> {
        self.citing.get(path).into_iter().flatten().copied()
    }

    /// Returns the commits that match `terms` best, best first; among equal scores the newer commit
    /// comes first. Terms that occur in no commit are skipped.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the search fails.
    pub fn search(&self, terms: &[String], limit: usize) -> Result<Vec<Hit>, IndexError> {
        let fail = |source| IndexError { act: "searched", source };
        let mut query = String::new();
        for term in terms.iter().filter(|term| self.frequency(term) > 0).take(QUERY) {
            if !query.is_empty() {
                query.push_str(" OR ");
            }
            // Terms consist of letters and digits. The quotes turn OR, NEAR and NOT into plain
            // words.
            query.push('"');
            query.push_str(term);
            query.push('"');
        }
        if query.is_empty() {
            return Ok(Vec::new());
        }
        let (subject, body, paths) = WEIGHTS;
        let mut ask = self
            .db
            .prepare_cached(
                "SELECT rowid, bm25(commits, ?2, ?3, ?4) AS badness FROM commits WHERE commits MATCH ?1
                 ORDER BY badness, rowid LIMIT ?5",
            )
            .map_err(fail)?;
        let rows = ask
            .query_map(params![query, subject, body, paths, limit as i64], |row| {
                let at: i64 = row.get(0)?;
                let badness: f64 = row.get(1)?;
                Ok(Hit { at: (at - 1) as usize, score: -badness })
            })
            .map_err(fail)?;
        rows.collect::<Result<_, _>>().map_err(fail)
    }
}

/// Returns the terms of some paths, each once. `of_name` caches the terms of each name, because
/// names recur.
fn path_terms(paths: &[String], of_name: &mut HashMap<String, String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in paths.iter().flat_map(|path| path.split('/')) {
        let known = match of_name.get(name) {
            Some(known) => known,
            None => {
                of_name.insert(name.to_owned(), terms(name).join(" "));
                &of_name[name]
            }
        };
        for term in known.split(' ').filter(|term| !term.is_empty()) {
            if !all.contains(term) {
                all.insert(term.to_owned());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(subject: &str, paths: &[&str]) -> Commit {
        Commit {
            hash: "a".repeat(40),
            at: 0,
            subject: subject.into(),
            body: String::new(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            touched: paths.len(),
            created: Vec::new(),
        }
    }

    #[test]
    fn search_matches_all_naming_styles() {
        let commits = [
            commit("docs: tidy the readme", &["README.md"]),
            commit("feat: add RetryPolicy", &["src/net.rs"]),
            commit("feat: something else", &["src/retry_policy.rs"]),
            commit("fix: a typing slip", &["src/main.rs"]),
            commit("chore: newer tools", &["Cargo.toml"]),
        ];
        let index = Index::build(&commits).unwrap();
        let hits = index.search(&terms("retry policies"), 9).unwrap();
        assert_eq!(hits.iter().map(|hit| hit.at).collect::<Vec<_>>(), [1, 2]);
        assert!(hits[0].score > hits[1].score);
        assert!(index.rarity("nowhere") > index.rarity("retry"));
        assert!(index.rarity("retry") > 0.0);
        assert_eq!(index.frequency("retry"), 2);
    }

    #[test]
    fn search_operators_are_treated_as_words() {
        let index = Index::build(&[commit("near or not", &[])]).unwrap();
        for words in [&["near"][..], &["or"], &["*", "\"", "near"], &["nowhere"], &[]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(index.search(&words, 5).is_ok(), "{words:?}");
        }
        assert!(Index::build(&[]).unwrap().search(&terms("any thing"), 5).unwrap().is_empty());
    }
}
