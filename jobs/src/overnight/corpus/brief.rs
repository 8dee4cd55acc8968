//! Builds a brief: what the corpus knows about a goal, with a citation on each line.

use jiff::civil::Date;
use runner_text::markdown;
use serde::Serialize;

use super::index::Search;
use super::{Corpus, NodeKind};

/// Maximum number of nodes that a brief cites.
const MOST: usize = 8;
/// Minimum share of the goal's words that a cited node must contain.
const COVERED: f64 = 0.3;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cited {
    pub id: String,
    /// The path of the node's file.
    pub path: String,
    pub kind: NodeKind,
    pub title: String,
    /// The score of the node for the goal, from 0 to 1.
    pub score: f64,
    /// The beginning of the node's text.
    pub excerpt: String,
}

/// The corpus's knowledge about a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Brief {
    pub schema_version: u32,
    pub goal: String,
    /// The nodes that the brief cites, best first.
    pub nodes: Vec<Cited>,
    /// The brief as Markdown. Every line cites a node.
    pub text: String,
}

/// Builds a brief on a goal. The brief is empty if no node matches the goal.
pub fn brief(corpus: &Corpus, goal: &str, date: Date) -> Brief {
    let nodes: Vec<Cited> = Search::active(corpus, date)
        .hits(goal, MOST * 4)
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
    Brief { schema_version: 1, goal: goal.to_owned(), nodes, text }
}
