//! The retrieval bench: how well the corpus answers a fixed set of questions.
//!
//! The questions stand in code, each with the words by which an answer is judged; the judge knows
//! nothing of the ranking. A fixture may bring questions with the ids that answer them. No randomness
//! and no clock: the same corpus, date and code give the same bytes.

use std::collections::BTreeSet;

use jiff::civil::Date;
use runner_text::terms::terms;
use serde::{Deserialize, Serialize};

use super::index::{Index, IndexError};
use super::{Corpus, Node, NodeKind, rounded};

/// How many answers are looked at.
const DEPTH: usize = 10;

/// A question, and the words of which an answer has at least two.
const QUESTIONS: [(&str, &[&str]); 24] = [
    ("tests that fail only in CI", &["test", "ci", "fail", "flaky", "pipeline"]),
    ("what to check before a release", &["release", "tag", "version", "changelog"]),
    ("parallel work in one worktree", &["worktree", "parallel", "branch", "session"]),
    ("how to split a large change into steps", &["wave", "slice", "step", "plan", "decompose"]),
    ("reviewing a plan before implementation", &["pre-mortem", "plan", "review", "risk"]),
    ("secrets in logs or commits", &["secret", "token", "redact", "credential"]),
    ("flaky tests and timing", &["flaky", "timing", "sleep", "race"]),
    ("retry and backoff on errors", &["retry", "backoff", "timeout", "limit"]),
    ("configuration that drifts from documentation", &["config", "docs", "drift", "schema"]),
    ("database migration safety", &["migration", "database", "schema", "rollback"]),
    ("gates that can never pass", &["gate", "deadlock", "threshold", "promotion"]),
    ("duplicate code and helpers", &["duplicate", "helper", "shared", "refactor"]),
    ("performance of a slow command", &["slow", "performance", "cache", "index"]),
    ("prompt wording and model output", &["prompt", "model", "output", "template"]),
    ("cleaning up stale files", &["stale", "cleanup", "prune", "delete"]),
    ("validation of input data", &["validate", "schema", "input", "parse"]),
    ("agents that overstep their task", &["scope", "agent", "worker", "boundary"]),
    ("handing work over between sessions", &["handoff", "session", "context", "note"]),
    ("evidence before closing a task", &["evidence", "proof", "close", "verify"]),
    ("locks and concurrent writers", &["lock", "concurrent", "race", "atomic"]),
    ("documentation layout and index", &["index", "docs", "wiki", "link"]),
    ("build and dependency problems", &["build", "dependency", "version", "package"]),
    ("lint and format gates", &["lint", "format", "gate", "hook"]),
    ("environment variables leaking into tests", &["environment", "variable", "test", "isolation"]),
];

/// A question of a fixture.
#[derive(Clone, Debug, Deserialize)]
pub struct JudgedQuestion {
    /// The text of the question.
    pub query: String,
    /// The ids of the nodes that answer it.
    pub relevant: Vec<String>,
}

/// One question's answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answered {
    /// The text of the question.
    pub query: String,
    /// How many nodes answer it.
    pub relevant: usize,
    /// Share of relevant nodes among the first three answers, or among as many as there are.
    pub precision_at_3: f64,
    /// One over the rank of the first that does; 0 beyond ten.
    pub reciprocal_rank: f64,
    /// The first three answers.
    pub top: Vec<Top>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// The node's id.
    pub id: String,
    /// Its file.
    pub path: String,
    /// Its composite score.
    pub score: f64,
    /// Whether it answers.
    pub relevant: bool,
}

/// The bench's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    /// The form of this document.
    pub schema_version: u32,
    /// The date of freshness.
    pub date: String,
    /// How many nodes were searched.
    pub nodes: usize,
    /// How many questions have an answer in the corpus; only they count.
    pub questions: usize,
    /// How many have none.
    pub unanswerable: usize,
    /// The mean precision of the first three; `None` without questions.
    pub precision_at_3: Option<f64>,
    /// The mean reciprocal rank; `None` without questions.
    pub mrr: Option<f64>,
    /// Each question that counts.
    pub results: Vec<Answered>,
}

/// Asks the questions of the learnings.
///
/// # Errors
/// The index could not be used.
pub fn bench(
    corpus: &Corpus,
    date: Date,
    judged: Option<&[JudgedQuestion]>,
) -> Result<Bench, IndexError> {
    let searched: Vec<&Node> =
        corpus.active().filter(|node| node.kind == NodeKind::Learning).collect();
    let index = Index::build(searched.iter().copied(), date)?;
    let own: Vec<(BTreeSet<String>, &Node)> = match judged {
        Some(_) => Vec::new(),
        None => searched
            .iter()
            .map(|node| {
                let words = terms(&format!("{} {}", node.title, node.body()));
                (words.into_iter().collect(), *node)
            })
            .collect(),
    };
    let mut asked: Vec<(String, BTreeSet<&str>)> = Vec::new();
    match judged {
        Some(judged) => {
            for one in judged {
                let has = |node: &&&Node| one.relevant.contains(&node.id);
                let answers = searched.iter().filter(has);
                asked.push((one.query.clone(), answers.map(|it| it.path.as_str()).collect()));
            }
        }
        None => {
            for (query, words) in QUESTIONS {
                let words: BTreeSet<String> = words.iter().flat_map(|word| terms(word)).collect();
                let answers = own.iter().filter(|(has, _)| {
                    words.iter().filter(|word| has.contains(*word)).count() >= 2
                });
                let answers = answers.map(|(_, node)| node.path.as_str()).collect();
                asked.push((query.to_owned(), answers));
            }
        }
    }
    let mut results = Vec::new();
    let mut unanswerable = 0;
    for (query, relevant) in asked {
        if relevant.is_empty() {
            unanswerable += 1;
            continue;
        }
        let hits = index.search(&query, DEPTH)?;
        let is = |path: &str| relevant.contains(path);
        let first = hits.iter().position(|hit| is(&hit.node.path));
        let of_three = hits.iter().take(3).filter(|hit| is(&hit.node.path)).count();
        results.push(Answered {
            query,
            relevant: relevant.len(),
            precision_at_3: rounded(of_three as f64 / relevant.len().min(3) as f64),
            reciprocal_rank: rounded(first.map_or(0.0, |at| 1.0 / (at + 1) as f64)),
            top: hits
                .iter()
                .take(3)
                .map(|hit| Top {
                    id: hit.node.id.clone(),
                    path: hit.node.path.clone(),
                    score: hit.score,
                    relevant: is(&hit.node.path),
                })
                .collect(),
        });
    }
    let mean = |of: fn(&Answered) -> f64| {
        let sum: f64 = results.iter().map(of).sum();
        (!results.is_empty()).then(|| rounded(sum / results.len() as f64))
    };
    Ok(Bench {
        schema_version: 1,
        date: date.to_string(),
        nodes: searched.len(),
        questions: results.len(),
        unanswerable,
        precision_at_3: mean(|it| it.precision_at_3),
        mrr: mean(|it| it.reciprocal_rank),
        results,
    })
}
