//! The retrieval bench, which measures how well the corpus answers a fixed set of questions.
//!
//! Each built-in question has words that identify a correct answer independently of the ranking. A
//! fixture may instead supply questions with the ids of the correct nodes. The bench uses no
//! randomness and no clock, so the same corpus, date and code yield the same result.

use std::collections::BTreeSet;

use jiff::civil::Date;
use runner_text::terms::terms;
use serde::{Deserialize, Serialize};

use super::index::{Scope, Search};
use super::{Corpus, Node, NodeKind, rounded};

/// Number of answers to examine for each question.
const DEPTH: usize = 10;

/// The questions, each with the words that identify an answer. A correct answer contains at least
/// two of these words.
pub(super) const QUESTIONS: [(&str, &[&str]); 24] = [
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

/// A question from a fixture.
#[derive(Clone, Debug, Deserialize)]
pub struct JudgedQuestion {
    pub query: String,
    /// The ids of the correct nodes.
    pub relevant: Vec<String>,
}

/// The figures for one question, with its first answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answered {
    pub query: String,
    /// Number of nodes that answer the question.
    pub relevant: usize,
    /// Number of relevant nodes among the first three answers, divided by three or by the number of
    /// relevant nodes, whichever is smaller.
    pub precision_at_3: f64,
    /// The reciprocal of the rank of the first correct answer, or 0 if none of the first ten is
    /// correct.
    pub reciprocal_rank: f64,
    /// The first three answers.
    pub top: Vec<Top>,
}

/// One answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    pub id: String,
    /// The path of the node's file.
    pub path: String,
    /// The composite score of the node.
    pub score: f64,
    /// True if the node answers the question.
    pub relevant: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    pub schema_version: u32,
    /// The date against which freshness is measured.
    pub date: String,
    /// Number of nodes that were searched.
    pub nodes: usize,
    /// Number of questions that have an answer in the corpus. Only these questions are included in
    /// the figures.
    pub questions: usize,
    /// Number of questions without an answer in the corpus.
    pub unanswerable: usize,
    /// The mean precision of the first three answers, or `None` if no question has an answer.
    pub precision_at_3: Option<f64>,
    /// The mean reciprocal rank, or `None` if no question has an answer.
    pub mrr: Option<f64>,
    /// The results for the questions that have an answer in the corpus.
    pub results: Vec<Answered>,
}

/// Runs the bench on the active learnings of a corpus, with the built-in questions or those in
/// `judged`.
pub fn bench(corpus: &Corpus, date: Date, judged: Option<&[JudgedQuestion]>) -> Bench {
    let scope = Scope::ActiveLearnings;
    let search = Search { corpus, scope, date };
    let searched: Vec<&Node> =
        corpus.active().filter(|node| node.kind == NodeKind::Learning).collect();
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
                let found = words.iter().flat_map(|word| corpus.index().containing(word, scope));
                let (mut once, mut answers) = (BTreeSet::new(), BTreeSet::new());
                for at in found {
                    if !once.insert(at) {
                        answers.insert(corpus.nodes[at].path.as_str());
                    }
                }
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
        let hits = search.hits(&query, DEPTH);
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
    Bench {
        schema_version: 1,
        date: date.to_string(),
        nodes: searched.len(),
        questions: results.len(),
        unanswerable,
        precision_at_3: mean(|it| it.precision_at_3),
        mrr: mean(|it| it.reciprocal_rank),
        results,
    }
}
