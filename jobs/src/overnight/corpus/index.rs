//! A full-text index of the corpus, which finds the nodes that match a question.
//!
//! The index is an SQLite FTS5 table in memory or, for a large corpus, in a temporary file without a
//! name. It uses the same terms as the index of a history, and ranks nodes by a composite of
//! relevance, freshness and utility. Equal scores are ordered by path. The index must never outlive
//! the process.

use jiff::civil::Date;
use runner_text::front_matter;
use runner_text::terms::terms;
use rusqlite::{Connection, params};

use super::{Node, rounded};

/// The weights of a match in the title, in the text and in the subjects.
const WEIGHTS: (f64, f64, f64) = (4.0, 1.0, 2.0);
/// Number of nodes above which the index is in a temporary file. It takes about as much space as the
/// texts of the nodes.
const LARGE: usize = 10_000;
/// Maximum number of terms of a question.
const QUERY: usize = 48;
/// Number of most relevant nodes that are ranked by the composite score.
const POOL: usize = 64;
/// The shares of relevance, freshness and utility in the composite score.
pub const SHARES: (f64, f64, f64) = (0.6, 0.2, 0.2);
/// Number of days after which the freshness of a node is halved.
pub const HALF_LIFE_DAYS: f64 = 90.0;

/// An error that occurred while the index was built or searched.
#[derive(Debug, thiserror::Error)]
#[error("the index of the corpus could not be used")]
pub struct IndexError(#[from] rusqlite::Error);

pub struct Index<'a> {
    db: Connection,
    nodes: Vec<&'a Node>,
    date: Date,
}

/// A node that matches a question.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    pub node: &'a Node,
    /// The composite score, from 0 to 1.
    pub score: f64,
    /// The relevance by the terms alone, from 0 to 1.
    pub relevance: f64,
    /// Share of the question's terms that the node contains.
    pub covered: f64,
}

impl<'a> Index<'a> {
    /// Builds an index of nodes. Freshness is measured on `date`.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the index cannot be built.
    pub fn build(nodes: impl Iterator<Item = &'a Node>, date: Date) -> Result<Self, IndexError> {
        let nodes: Vec<&Node> = nodes.collect();
        let mut db = match nodes.len() > LARGE {
            // The empty name is SQLite's name of a temporary file, which it deletes at once.
            true => Connection::open("")?,
            false => Connection::open_in_memory()?,
        };
        db.execute_batch(
            "CREATE VIRTUAL TABLE nodes USING fts5(title, body, subjects, content='',
             tokenize='unicode61 remove_diacritics 0')",
        )?;
        let tx = db.transaction()?;
        {
            let mut insert = tx.prepare(
                "INSERT INTO nodes(rowid, title, body, subjects) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for (at, node) in nodes.iter().enumerate() {
                let subjects: Vec<String> = node.subjects.iter().flat_map(|it| terms(it)).collect();
                insert.execute(params![
                    at as i64 + 1,
                    terms(&node.title).join(" "),
                    terms(front_matter::split(&node.text).body()).join(" "),
                    subjects.join(" ")
                ])?;
            }
        }
        tx.commit()?;
        Ok(Self { db, nodes, date })
    }

    /// Returns the nodes whose title and body match the question best, best first. Labels and
    /// dates do not count.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the search fails.
    pub fn by_relevance(&self, question: &str, limit: usize) -> Result<Vec<&'a Node>, IndexError> {
        let Some((_, query)) = query(question) else {
            return Ok(Vec::new());
        };
        let mut ask = self.db.prepare_cached(
            "SELECT rowid FROM nodes WHERE nodes MATCH ?1
             ORDER BY bm25(nodes, ?2, ?3, 0.0), rowid LIMIT ?4",
        )?;
        let (title, body, _) = WEIGHTS;
        let rows =
            ask.query_map(params![query, title, body, limit as i64], |row| row.get::<_, i64>(0))?;
        let nodes = rows
            .filter_map(|row| row.map(|row| self.nodes.get(row as usize - 1).copied()).transpose());
        Ok(nodes.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns the nodes that answer the question best, best first.
    ///
    /// # Errors
    /// Returns an [`IndexError`] if the search fails.
    pub fn search(&self, question: &str, limit: usize) -> Result<Vec<Hit<'a>>, IndexError> {
        let Some((asked, query)) = query(question) else {
            return Ok(Vec::new());
        };
        let (title, body, subjects) = WEIGHTS;
        let mut ask = self.db.prepare_cached(
            "SELECT rowid, bm25(nodes, ?2, ?3, ?4) AS badness FROM nodes WHERE nodes MATCH ?1
             ORDER BY badness, rowid LIMIT ?5",
        )?;
        let found = ask
            .query_map(params![query, title, body, subjects, POOL as i64], |row| {
                Ok((row.get::<_, i64>(0)?, -row.get::<_, f64>(1)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        let best = found.iter().map(|(_, score)| *score).fold(1e-9, f64::max);
        let mut hits: Vec<Hit<'a>> = found
            .into_iter()
            .filter_map(|(row, score)| {
                let node = *self.nodes.get(usize::try_from(row - 1).ok()?)?;
                let (relevance, freshness, utility) = SHARES;
                let words = (score / best).clamp(0.0, 1.0);
                Some(Hit {
                    node,
                    score: rounded(
                        relevance * words
                            + freshness * freshness_of(node, self.date)
                            + utility * node.utility.unwrap_or(0.5).clamp(0.0, 1.0),
                    ),
                    relevance: rounded(words),
                    covered: 0.0,
                })
            })
            .collect();
        hits.sort_by(|a, b| {
            let by_path = || a.node.path.cmp(&b.node.path);
            b.score.total_cmp(&a.score).then_with(by_path)
        });
        hits.truncate(limit);
        for hit in &mut hits {
            let own = terms(&format!("{} {}", hit.node.title, hit.node.body()));
            let covered = asked.iter().filter(|term| own.contains(term)).count();
            hit.covered = covered as f64 / asked.len() as f64;
        }
        Ok(hits)
    }
}

/// Returns the terms of a question, and the query that matches any of them. Returns `None` if the
/// question has no terms.
fn query(question: &str) -> Option<(Vec<String>, String)> {
    let mut asked = terms(question);
    asked.sort_unstable();
    asked.dedup();
    asked.truncate(QUERY);
    // Terms consist of letters and digits. The quotes turn OR, NEAR and NOT into plain words.
    let query: Vec<String> = asked.iter().map(|term| format!("\"{term}\"")).collect();
    (!query.is_empty()).then(|| (asked, query.join(" OR ")))
}

/// Returns a node's freshness on `date`. The freshness is 1 for a node written or cited that day,
/// and halves every [`HALF_LIFE_DAYS`]. A node without a date has 0.5.
pub fn freshness_of(node: &Node, date: Date) -> f64 {
    let Some(from) = node.date.max(node.last_cited) else {
        return 0.5;
    };
    let days = f64::from((date - from).get_days().max(0));
    0.5_f64.powf(days / HALF_LIFE_DAYS)
}
