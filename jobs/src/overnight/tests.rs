//! Tests the pure steps on small corpora, and the state that is kept between nights.

use std::fs;

use jiff::civil::{Date, date};
use serde_json::json;

use super::corpus::close_loop::close_loop;
use super::corpus::compile::compile;
use super::corpus::defrag::{Options, defrag};
use super::corpus::harvest::{CommitSource, NoteSource, Sources, harvest};
use super::corpus::health::{METRICS, measure};
use super::corpus::oscillation::{FileEvent, FileHistory};
use super::corpus::work::WorkFile;
use super::corpus::{Changes, Corpus, Maturity, Node, NodeKind};
use super::output::Output;
use super::resume::rehydrate;
use super::summary::Iteration;
use super::warn_budget::WarnBudget;

const TODAY: Date = date(2026, 11, 22);
const TEXT: &str = "A retry without jitter makes all clients come back at the very same moment, so the server that was slow is now down for good.";

fn corpus(files: &[(&str, &str)]) -> Corpus {
    let mut corpus = Corpus::default();
    let changes: Changes = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Some(text.as_bytes().to_vec())))
        .collect();
    corpus.apply(&changes);
    corpus
}

fn learning(front: &str, body: &str) -> String {
    format!("---\n{front}---\n# T\n\n{body}\n")
}

#[test]
fn guide_lists_the_current_metrics() {
    let guide = include_str!("../../../docs/guide/corpus.md");
    for (name, weight, floor, definition) in METRICS {
        let row = format!("| `{name}` | {weight} | {floor} | {definition} |");
        assert!(guide.contains(&row), "{row}");
    }
    let sum: f64 = METRICS.iter().map(|(_, weight, ..)| weight).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn only_first_promotion_needs_no_citation() {
    let good = learning("date: 2026-11-22\nmaturity: provisional\nutility: 0.7\n", TEXT);
    let short = learning("date: 2026-11-22\nmaturity: provisional\nutility: 0.9\n", "Too short.");
    let harmful =
        learning("date: 2026-11-22\nmaturity: provisional\nutility: 0.9\nharmful_count: 3\n", TEXT);
    let bare = learning("date: 2026-11-22\nmaturity: provisional\n", TEXT);
    let listed = learning("date: 2026-11-22\nutility: 0.9\nmaturity:\n  - provisional\n", TEXT);
    let corpus = corpus(&[
        ("learnings/bare.md", &bare),
        ("learnings/good.md", &good),
        ("learnings/harmful.md", &harmful),
        ("learnings/listed.md", &listed),
        ("learnings/short.md", &short),
    ]);
    let (report, changes) = close_loop(&corpus, TODAY, 0);
    assert_eq!(changes.keys().collect::<Vec<_>>(), ["learnings/good.md"]);
    assert_eq!(report.promoted[0].to, Maturity::Candidate);
    assert_eq!(report.held.values().sum::<usize>(), 3);
    let (report, _) = close_loop(&corpus, TODAY, 24);
    assert!(
        report.promoted.is_empty() && report.held.contains_key("it is younger than the threshold")
    );
    // A citation in a node that runner generated does not count.
    let candidate = learning("date: 2026-10-01\nmaturity: candidate\n", TEXT);
    for (generated, promoted) in [("generated_by: runner\n", 0), ("", 1)] {
        let citing = learning(generated, "See [[the-candidate]].");
        let corpus =
            self::corpus(&[("learnings/the-candidate.md", &candidate), ("patterns/p.md", &citing)]);
        assert_eq!(close_loop(&corpus, TODAY, 0).0.promoted.len(), promoted);
    }
}

#[test]
fn oscillating_files_are_left_alone() {
    let twin = learning("date: 2026-11-01\nmaturity: candidate\n", TEXT);
    let corpus = corpus(&[("learnings/one.md", &twin), ("learnings/two.md", &twin)]);
    let mut history = FileHistory::default();
    let all = Options::default();
    assert_eq!(defrag(&corpus, &history, TODAY, all).0.removed.len(), 1);
    for (number, added) in [true, false, true, false].into_iter().enumerate() {
        history.note(&format!("r-{number}"), [("learnings/two.md", added)].into_iter());
    }
    assert_eq!(
        history.acts["learnings/two.md"][0],
        FileEvent { iteration: "r-0".into(), added: true }
    );
    let (report, changes) = defrag(&corpus, &history, TODAY, all);
    assert_eq!(report.oscillating, ["learnings/two.md"]);
    assert!(report.removed.is_empty() && changes.is_empty());
    assert_eq!(FileHistory::parse(b"damaged"), FileHistory::default());
}

#[test]
fn bounded_defrag_leaves_rest_for_next_iteration() {
    let texts: Vec<(String, String)> = (0..20)
        .map(|n| {
            (
                format!("learnings/l{n:02}.md"),
                learning(
                    &format!("date: 2020-01-01\nn: {n}\nmaturity: provisional\n"),
                    &format!("word{n} alone"),
                ),
            )
        })
        .collect();
    let files: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut corpus = corpus(&files);
    let few = Options { most: 8, ..Options::default() };
    for left in [12, 4, 0] {
        let (report, changes) = defrag(&corpus, &FileHistory::default(), TODAY, few);
        assert_eq!((report.left_over, changes.len() <= 8), (left, true));
        corpus.apply(&changes);
    }
    assert!(defrag(&corpus, &FileHistory::default(), TODAY, few).1.is_empty());
}

#[test]
fn harvest_takes_foreign_learnings_once() {
    let work = b"{\"source_epic\":\"e\",\"items\":[{\"title\":\"Done\",\"type\":\"t\",\"consumed_note\":\"it turned out that the cache was keyed by the wrong thing\"}],\"consumed\":true}\n";
    let mut corpus = Corpus { work: WorkFile::parse(work), ..Corpus::default() };
    let note = |path: &str, front: &str| NoteSource {
        path: path.to_owned(),
        text: format!(
            "{front}# Session\n\n- not this one, it stands under no heading that says so\n\n## What we learned\n\n- locks that are never released by a dead process are not locks at all\n- short\n\n## Next\n\n- nothing of what stands under the next heading is a learning\n"
        ),
    };
    let sources = Sources {
        commits: vec![CommitSource {
            hash: "8f1e2d3c4b5a69788f1e2d3c4b5a69788f1e2d3c".to_owned(),
            date: date(2026, 11, 1),
            subject: "Fix the retry".to_owned(),
            body: format!("Some prose.\n\nRoot cause: {TEXT}\n\nSigned-off-by: a\n"),
            paths: vec!["src/net.rs".to_owned()],
        }],
        notes: vec![
            note(".agents/ao/sessions/2026-11-02-x.md", ""),
            note(".agents/sessions/own.md", "---\ngenerated_by: runner\n---\n"),
        ],
        left_out: Vec::new(),
    };
    let history = FileHistory::default();
    let (report, changes) = harvest(&corpus, &sources, &history, TODAY).unwrap();
    assert_eq!(report.added.len(), 3, "{report:?}");
    corpus.apply(&changes);
    for node in &corpus.nodes {
        assert!(
            node.generated && node.sourced && node.value("source_key").is_some(),
            "{}",
            node.text
        );
        assert_eq!((node.kind, node.maturity), (NodeKind::Learning, Maturity::Provisional));
    }
    assert!(corpus.nodes.iter().any(|it| it.path.starts_with("learnings/2026-11-02-locks-that")
        && it.text.contains("sessions/2026-11-02-x.md")));
    let (again, changes) = harvest(&corpus, &sources, &history, TODAY).unwrap();
    assert!(again.added.is_empty() && changes.is_empty() && again.known == 3);
    // A learning that someone else already added to the corpus is not new either.
    let said = self::corpus(&[("learnings/jitter.md", &learning("date: 2026-01-01\n", TEXT))]);
    assert!(
        harvest(&said, &sources, &history, TODAY)
            .unwrap()
            .0
            .added
            .iter()
            .all(|it| !it.title.contains("retry"))
    );
}

#[test]
fn compile_skips_known_sources_and_user_patterns() {
    let one = |n: u32| {
        learning(
            &format!("date: 2026-10-0{n}\ntags: [Retry Policy]\nmaturity: candidate\n"),
            &format!("{TEXT} {n}"),
        )
    };
    let (a, b, c) = (one(1), one(2), one(3));
    let files = [
        ("learnings/a-one.md", a.as_str()),
        ("learnings/b-two.md", &b),
        ("learnings/c-three.md", &c),
    ];
    let mut corpus = corpus(&files);
    let (compiled, changes) = compile(&corpus, TODAY);
    assert_eq!(compiled[0].path, "patterns/compiled-retry-policy.md");
    corpus.apply(&changes);
    let node = corpus.at(&compiled[0].path).unwrap();
    assert!(node.generated && node.text.contains("[[a-one]]"), "{}", node.text);
    assert!(compile(&corpus, date(2026, 12, 1)).1.is_empty(), "the sources are unchanged");
    let mut owned = self::corpus(&files);
    owned.nodes.push(Node::parse(
        "patterns/compiled-retry-policy.md",
        NodeKind::Pattern,
        "# Mine\n".to_owned(),
    ));
    owned.nodes.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(compile(&owned, TODAY).1.is_empty(), "the user replaced the pattern");
}

#[test]
fn measurements_are_deterministic_and_absent_when_empty() {
    let empty = measure(&Corpus::default(), TODAY).unwrap();
    assert_eq!(empty.fitness.composite, 0.0);
    assert!(empty.fitness.metrics.is_empty());
    let text = learning("date: 2026-10-01\nmaturity: candidate\n", TEXT);
    let corpus = corpus(&[
        ("learnings/a.md", &text),
        ("learnings/b.md", &text),
        ("learnings/c.md", &text.replace("slow", "fast")),
    ]);
    let bytes = || {
        let measured = measure(&corpus, TODAY).unwrap();
        json!([measured.health, measured.bench]).to_string()
    };
    assert_eq!(bytes(), bytes());
    let measured = measure(&corpus, TODAY).unwrap();
    assert_eq!(measured.health.duplicates.len(), 1);
    assert!((measured.fitness.metrics["uniqueness"] - 0.666667).abs() < 1e-9);
}

#[test]
fn warn_budget_persists_and_damage_exhausts_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join(super::lock::FOLDER)).unwrap();
    let mut rescues = WarnBudget::read(root);
    assert_eq!(rescues.remaining, 3);
    rescues.spend(root, "r-iter-1", "plateau").unwrap();
    rescues.spend(root, "r-iter-1", "plateau").unwrap();
    assert_eq!(WarnBudget::read(root).remaining, 2, "once per iteration");
    fs::write(root.join(super::lock::FOLDER).join("warn-only-budget.json"), "{").unwrap();
    assert_eq!(WarnBudget::read(root).remaining, 0);
}

#[test]
fn iterations_after_gap_or_mismatch_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let out = Output::new(folder.path(), "out");
    let put = |index: u64, id: &str| {
        let iteration = Iteration { id: id.to_owned(), index, ..Iteration::default() };
        out.json(&format!("R/iterations/iter-{index}.json"), &iteration).unwrap();
    };
    put(1, "R-iter-1");
    put(2, "R-iter-2");
    put(4, "R-iter-4");
    assert_eq!(rehydrate(&out, "R").0.len(), 2, "iterations after a gap are not trusted");
    put(3, "OTHER-iter-3");
    let (found, reported) = rehydrate(&out, "R");
    assert_eq!(found.len(), 2);
    assert!(reported[0].contains("iter-3.json is rejected"), "{reported:?}");
}
