//! Measures the ranking on real Claude Code transcripts: `recall_measure FOLDER [MODEL]`.
//!
//! Each paragraph of an answer becomes a node of its session. Each prompt is a question, and the
//! paragraphs of its answers are the relevant nodes. Sessions are divided into a development half,
//! on which weights are to be chosen, and a test half; the same figures are printed for both. Each
//! prompt is also compared with the nodes of other repositories, none of which should be injected
//! unasked. If a static model is given, its cosines are added to the scores.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a benchmark program"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use jiff::Timestamp;
use runner_memory::model::Table;
use runner_memory::node::NewNode;
use runner_memory::rank::{Weights, relevant, search_with};
use runner_memory::store::Access;
use runner_memory::{Memory, Scope};
use runner_text::terms::terms;
use serde_json::Value;

struct Question {
    text: String,
    project: String,
    relevant: BTreeSet<String>,
}

struct Half {
    memory: Memory,
    questions: Vec<Question>,
    nodes: Vec<LoadedNode>,
}

struct LoadedNode {
    id: String,
    project: String,
    session: String,
    text: String,
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks
                .iter()
                .filter(|it| it["type"] == "text")
                .filter_map(|it| it["text"].as_str());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

fn load(files: &[std::path::PathBuf], store: &Path) -> Half {
    let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let mut memory = Memory::open(store, Access::Prompt, now).unwrap();
    let (mut questions, mut nodes) = (Vec::new(), Vec::new());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let project = name.split("__").next().unwrap().to_owned();
        let text = std::fs::read(file).unwrap();
        let mut question: Option<Question> = None;
        let mut end = |question: Option<Question>| {
            questions.extend(question.filter(|it| !it.relevant.is_empty()))
        };
        memory
            .change("load", now, |change| {
                for line in text.split(|byte| *byte == b'\n') {
                    let Ok(row) = serde_json::from_slice::<Value>(line) else { continue };
                    if row["isSidechain"] == true
                        || row["isMeta"] == true
                        || row["isCompactSummary"] == true
                    {
                        continue;
                    }
                    let said = text_of(&row["message"]["content"]);
                    if row["type"] == "user" && !said.trim().is_empty() {
                        end(question.take());
                        let count = terms(&said).len();
                        let plain = !said.starts_with('<') && !said.starts_with('[');
                        question = ((4..120).contains(&count) && plain).then(|| Question {
                            text: said,
                            project: project.clone(),
                            relevant: BTreeSet::new(),
                        });
                    } else if row["type"] == "assistant" {
                        for part in said.split("\n\n").map(str::trim) {
                            if part.len() < 60 {
                                continue;
                            }
                            let node = NewNode {
                                content: part.to_owned(),
                                project: Some(project.clone()),
                                session: Some(name.clone()),
                                ..NewNode::default()
                            };
                            let id = change.add(&node)?;
                            nodes.push(LoadedNode {
                                id: id.clone(),
                                project: project.clone(),
                                session: name.clone(),
                                text: node.content,
                            });
                            if let Some(question) = &mut question {
                                question.relevant.insert(id.clone());
                            }
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
        end(question.take());
    }
    Half { memory, questions, nodes }
}

/// Returns the mean share of relevant nodes found among the first ten results. At most ten nodes
/// are expected for each question.
fn recall_at_10(half: &Half, find: impl Fn(&Question) -> Vec<String>) -> f64 {
    let share = |question: &Question| {
        let found = find(question);
        let hits = found.iter().take(10).filter(|id| question.relevant.contains(*id)).count();
        hits as f64 / question.relevant.len().min(10) as f64
    };
    half.questions.iter().map(share).sum::<f64>() / half.questions.len() as f64
}

fn plain(half: &Half, question: &Question) -> Vec<String> {
    let db = rusqlite::Connection::open(half.memory.path()).unwrap();
    let words = question.text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let query = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
    let sql = "SELECT i.node_id FROM search s JOIN node_index i ON i.seq = s.rowid \
        WHERE search MATCH ?1 AND i.project = ?2 ORDER BY s.rank LIMIT 10";
    let mut statement = db.prepare(sql).unwrap();
    statement
        .query_map((&query, &question.project), |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn fused(half: &Half, question: &Question, weights: Weights) -> Vec<String> {
    let scope = Scope::Project(question.project.clone());
    let hits = search_with(half.memory.reader(), &question.text, &scope, 10, weights).unwrap();
    hits.into_iter().map(|hit| hit.id).collect()
}

/// Prints the recall of the ranking with the cosine of node and prompt added to the node's own
/// score, for several weights. Neighbours and sessions are weighted as in the ranking.
fn with_model(half: &Half, table: &Table) {
    let vectors: Vec<_> = half.nodes.iter().map(|node| table.embed(&node.text)).collect();
    for weight in [0.0, 0.25, 0.5, 1.0, 2.0, 1e6] {
        let find = |question: &Question| {
            let scope = Scope::Project(question.project.clone());
            let alone = Weights { neighbours: 0.0, session: 0.0 };
            let hits =
                search_with(half.memory.reader(), &question.text, &scope, 64, alone).unwrap();
            let most = hits.first().map_or(1.0, |hit| hit.score);
            let known: HashMap<&str, f64> =
                hits.iter().map(|hit| (hit.id.as_str(), hit.score / most)).collect();
            let asked = table.embed(&question.text);
            let own: Vec<f64> = half
                .nodes
                .iter()
                .zip(&vectors)
                .map(|(node, vector)| {
                    let both = asked.as_ref().zip(vector.as_ref());
                    let cosine = both.map_or(0.0, |(a, b)| f64::from(a.cosine(b)).max(0.0));
                    known.get(node.id.as_str()).copied().unwrap_or_default() + weight * cosine
                })
                .collect();
            fuse(half, question, &own)
        };
        println!("  R@10 with cosines, weight {weight}: {:.3}", recall_at_10(half, find));
    }
}

/// Returns the ten best nodes by the sum of their own scores and those of their neighbours and
/// session.
fn fuse(half: &Half, question: &Question, own: &[f64]) -> Vec<String> {
    let Weights { neighbours, session } = Weights::default();
    let mut sessions: HashMap<&str, f64> = HashMap::new();
    for (node, score) in half.nodes.iter().zip(own) {
        let best = sessions.entry(&node.session).or_default();
        *best = best.max(*score);
    }
    let score = |at: usize| {
        let near = (at.saturating_sub(2)..(at + 3).min(own.len())).filter(|it| *it != at);
        let same = near.filter(|it| half.nodes[*it].session == half.nodes[at].session);
        let best = same.map(|it| own[it]).fold(0.0, f64::max);
        own[at] + neighbours * best + session * sessions[half.nodes[at].session.as_str()]
    };
    let all = half.nodes.iter().enumerate();
    let mut all: Vec<(f64, &String)> = all
        .filter(|(_, node)| node.project == question.project)
        .map(|(at, node)| (score(at), &node.id))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    all.into_iter().take(10).map(|(_, id)| id.clone()).collect()
}

fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    files.sort();
    let scratch = tempfile::tempdir().unwrap();
    let (mut development, mut test) = (Vec::new(), Vec::new());
    for (at, file) in files.into_iter().enumerate() {
        if at % 2 == 0 { development.push(file) } else { test.push(file) }
    }
    let development = load(&development, &scratch.path().join("d.db"));
    let test = load(&test, &scratch.path().join("t.db"));
    for (name, half) in [("development", &development), ("test", &test)] {
        let nodes = half.memory.reader().count(&Scope::All).unwrap();
        println!("{name}: {nodes} nodes, {} questions", half.questions.len());
        println!("  R@10 of plain FTS5: {:.3}", recall_at_10(half, |it| plain(half, it)));
        for neighbours in [0.0, 0.6, 0.8, 1.0] {
            for session in [0.0, 0.35, 0.7] {
                let weights = Weights { neighbours, session };
                let recall = recall_at_10(half, |it| fused(half, it, weights));
                println!(
                    "  R@10 fused, neighbours {neighbours:.1} session {session:.2}: {recall:.3}"
                );
            }
        }
        if let Some(path) = std::env::args().nth(2) {
            with_model(half, &Table::open(path.as_ref()).unwrap().load().unwrap());
        }
        thresholds(half);
        unasked(half);
    }
}

/// Prints how many prompts get unasked nodes, how many of these get a node of their own answer
/// among the first five, and how often nodes of another repository are injected.
fn unasked(half: &Half) {
    let projects: BTreeSet<&String> = half.questions.iter().map(|it| &it.project).collect();
    let (mut got, mut right, mut foreign, mut others) = (0, 0, 0, 0);
    for question in &half.questions {
        for project in &projects {
            let scope = Scope::Project((*project).clone());
            let hits = relevant(half.memory.reader(), &question.text, &scope).unwrap();
            if **project == question.project {
                got += usize::from(!hits.is_empty());
                let own = hits.iter().take(5).any(|it| question.relevant.contains(&it.id));
                right += usize::from(own);
            } else {
                foreign += usize::from(!hits.is_empty());
                others += 1;
            }
        }
    }
    let all = half.questions.len();
    println!(
        "  unasked: {got} of {all} get nodes, {right} from their own answer; {foreign} of {others} get foreign ones"
    );
}

/// Prints the figures of [`unasked`] for several thresholds.
fn thresholds(half: &Half) {
    let projects: BTreeSet<&String> = half.questions.iter().map(|it| &it.project).collect();
    let mut rows: BTreeMap<(u32, usize), [usize; 4]> = BTreeMap::new();
    let grid: Vec<(u32, usize)> = [30, 35, 40, 45, 50, 55, 60]
        .into_iter()
        .flat_map(|share| [2, 3, 4].map(|words| (share, words)))
        .collect();
    for question in &half.questions {
        for project in &projects {
            let scope = Scope::Project((*project).clone());
            let hits =
                search_with(half.memory.reader(), &question.text, &scope, 64, Weights::default())
                    .unwrap();
            let own = **project == question.project;
            for (share, words) in &grid {
                let mut found = hits
                    .iter()
                    .filter(|it| it.share * 100.0 >= f64::from(*share) && it.words >= *words);
                let row = rows.entry((*share, *words)).or_default();
                let got: Vec<_> = found.by_ref().take(5).collect();
                match own {
                    true => {
                        row[0] += usize::from(!got.is_empty());
                        row[1] +=
                            usize::from(got.iter().any(|it| question.relevant.contains(&it.id)));
                    }
                    false => {
                        row[2] += usize::from(!got.is_empty());
                        row[3] += 1;
                    }
                }
            }
        }
    }
    let count = half.questions.len() as f64;
    println!(
        "  share words: prompts with nodes, with a node of their own answer, false (other repository)"
    );
    for ((share, words), row) in rows {
        let percent = |part: usize, whole: f64| 100.0 * part as f64 / whole.max(1.0);
        println!(
            "  0.{share} {words}: {:.0} % {:.0} % {:.1} %",
            percent(row[0], count),
            percent(row[1], count),
            percent(row[2], row[3] as f64)
        );
    }
}
