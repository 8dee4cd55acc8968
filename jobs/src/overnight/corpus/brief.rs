//! A brief for a goal: the corpus's knowledge about it, each sentence with the node that supports
//! it.

use jiff::civil::Date;
use runner_text::markdown;
use serde::Serialize;

use super::index::{Index, IndexError};
use super::{Corpus, NodeKind};

/// The most nodes that are cited.
const MOST: usize = 8;
/// A node that has less of the goal's words does not speak of it.
const COVERED: f64 = 0.3;

/// A node that is cited.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cited {
    /// Its id.
    pub id: String,
    /// Its file.
    pub path: String,
    /// Which folder it is in.
    pub kind: NodeKind,
    /// Its title.
    pub title: String,
    /// How well it fits, from 0 to 1.
    pub score: f64,
    /// Its own first words.
    pub excerpt: String,
}

/// The brief.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Brief {
    /// The form of this document.
    pub schema_version: u32,
    /// The goal that the brief is for.
    pub goal: String,
    /// The nodes that the brief cites, best first.
    pub nodes: Vec<Cited>,
    /// The brief as markdown; every line of it cites a node.
    pub text: String,
}

/// Briefs on a goal. Without a node that speaks of it the brief is empty: nothing is made up.
///
/// # Errors
/// The index could not be used.
pub fn brief(corpus: &Corpus, goal: &str, date: Date) -> Result<Brief, IndexError> {
    let index = Index::build(corpus.active(), date)?;
    let hits = index.search(goal, MOST * 4)?;
    let nodes: Vec<Cited> = hits
        .into_iter()
        .filter(|hit| hit.covered >= COVERED && hit.relevance > 0.0)
        .take(MOST)
        .map(|hit| Cited {
            id: hit.node.id.clone(),
            path: hit.node.path.clone(),
            kind: hit.node.kind,
            title: hit.node.title.clone(),
            score: hit.score,
            excerpt: markdown::summary(hit.node.body(), 280),
        })
        .collect();
    let text = nodes
        .iter()
        .map(|node| format!("- {}: {} [{}]\n", node.title, node.excerpt, node.path))
        .collect();
    Ok(Brief { schema_version: 1, goal: goal.to_owned(), nodes, text })
}
