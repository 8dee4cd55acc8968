//! Tests the pure steps on small corpora, and the state kept between nights.

use std::fs;

use jiff::Timestamp;
use jiff::civil::{Date, date};
use runner_engine::ids::{Fence, RunId};
use serde_json::json;

use super::commit::{Commit, targets};
use super::corpus::close_loop::close_loop;
use super::corpus::compile::compile;
use super::corpus::defrag::{Options, RetireReason, defrag, suggestions};
use super::corpus::fitness::MEASURES;
use super::corpus::harvest::{CommitSource, NoteSource, Sources, harvest};
use super::corpus::health::{METRICS, measure};
use super::corpus::oscillation::{FileEvent, FileHistory};
use super::corpus::uses::{NodeUse, Uses};
use super::corpus::work::WorkFile;
use super::corpus::{Changes, Corpus, FOLDER, Maturity, NodeKind, read};
use super::output::Output;
use super::proposals::Proposals;
use super::resume::rehydrate;
use super::summary::Iteration;
use super::warn_budget::WarnBudget;

const TODAY: Date = date(2026, 11, 22);
const TEXT: &str = "A retry without jitter makes all clients come back at the very same moment, so the server that was slow is now down for good.";
const ACT: &str = "Add a random delay to each retry.";

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
    for (name, weight, definition) in MEASURES {
        let row = format!("| `{name}` | {weight} | {definition} |");
        assert!(guide.contains(&row), "{row}");
    }
    let hygiene: f64 = METRICS.iter().map(|(_, weight, ..)| weight).sum();
    let fitness: f64 = MEASURES.iter().map(|(_, weight, _)| weight).sum();
    assert!((hygiene - 1.0).abs() < 1e-9 && (fitness - 1.0).abs() < 1e-9);
}

fn used(name: &str, by: &str, date: Date, helped: bool) -> NodeUse {
    let question = "clients come back after a retry".to_owned();
    NodeUse { name: name.to_owned(), by: by.to_owned(), date, helped, question }
}

#[test]
fn promotion_needs_later_proof() {
    let day = date(2026, 11, 1);
    let new = learning("date: 2026-11-01\nmaturity: provisional\n", &format!("{TEXT} {ACT}"));
    let event = learning(
        "date: 2026-11-01\nmaturity: provisional\n",
        "mise run lint failed. It said: exit status one. The same call worked later in the session.",
    );
    let tonight = new.replace("date: 2026-11-01", "date: 2026-11-22");
    let harvested = new.replace("maturity", "harvested_at: 2026-11-22\nmaturity");
    let linked = learning("generated_by: runner\n", "See [[new-one]] and [[event-one]].");
    let commit = format!("{new}See 8f1e2d3 in net.rs, that is src/net.rs.\n");
    // The commit that a learning was taken from does not prove the learning.
    let taken = commit.replace("maturity", "source_commit: 8f1e2d3c4b5a\nmaturity");
    let own = commit.replace("maturity", "generated_by: runner\nmaturity");
    let corpus = corpus(&[
        ("learnings/checked-one.md", &commit),
        ("learnings/event-one.md", &event),
        ("learnings/harvested-one.md", &harvested),
        ("learnings/new-one.md", &new),
        ("learnings/own-one.md", &own),
        ("learnings/taken-one.md", &taken),
        ("learnings/tonight-one.md", &tonight),
        ("patterns/p.md", &linked),
    ]);
    let mut uses = Uses::default();
    assert!(close_loop(&corpus, &uses, TODAY, 0).1.is_empty(), "runner's own link is not proof");
    uses.commits.insert("8f1e2d3".to_owned(), vec!["src/net.rs".to_owned()]);
    for name in ["event-one", "harvested-one", "new-one", "tonight-one"] {
        uses.events.push(used(name, "session s", TODAY, true));
    }
    let promoted =
        |uses: &Uses| close_loop(&corpus, uses, TODAY, 0).1.into_keys().collect::<Vec<_>>();
    assert_eq!(promoted(&uses), ["learnings/checked-one.md", "learnings/new-one.md"]);
    uses.events.push(used("new-one", "session t", TODAY, false));
    assert_eq!(promoted(&uses), ["learnings/checked-one.md"]);
    // A candidate needs two uses after its promotion, and must wait a week.
    let candidate = new.replace("provisional", "candidate");
    let corpus = self::corpus(&[("learnings/new-one.md", &candidate)]);
    let twice = |at| Uses {
        events: vec![used("new-one", "session a", at, true), used("new-one", "commit b", at, true)],
        ..Uses::default()
    };
    assert!(close_loop(&corpus, &twice(day), TODAY, 0).1.is_empty());
    let (report, _) = close_loop(&corpus, &twice(TODAY), TODAY, 0);
    assert_eq!(report.promoted[0].to, Maturity::Established);
}

#[test]
fn retirement_is_only_suggested() {
    let old = |maturity: &str| learning(&format!("date: 2020-01-01\n{maturity}"), TEXT);
    let (stale, plain) = (old("maturity: provisional\n"), old(""));
    let near = stale.replace("slow", "late").replace("2020", "2019");
    let failed = learning("maturity: established\n", "Completely different words about tides.");
    let corpus = corpus(&[
        ("learnings/bad-one.md", &failed),
        ("learnings/near.md", &near),
        ("learnings/plain.md", &plain.replace("retry", "walrus").replace("clients", "seals")),
        ("learnings/read-one.md", &stale.replace("server", "harbour").replace("moment", "pier")),
        ("learnings/stale.md", &stale),
    ]);
    let uses = Uses {
        events: vec![
            used("bad-one", "session a", TODAY, false),
            used("read-one", "session a", TODAY, true),
        ],
        ..Uses::default()
    };
    let history = FileHistory::default();
    assert!(defrag(&corpus, &history, Options::default()).1.is_empty());
    let found = suggestions(&corpus, &uses, &history, TODAY, Options::default());
    let found: Vec<(&str, RetireReason)> =
        found.iter().map(|it| (it.path.as_str(), it.reason)).collect();
    assert!(found.contains(&("learnings/bad-one.md", RetireReason::Failed)), "{found:?}");
    assert!(found.contains(&("learnings/stale.md", RetireReason::Stale)), "{found:?}");
    assert!(
        found.iter().all(|(path, _)| !path.contains("plain")),
        "an unclassified node is never stale: {found:?}"
    );
    assert!(
        !found.contains(&("learnings/read-one.md", RetireReason::Stale)),
        "a use postpones staleness: {found:?}"
    );
}

#[test]
fn ineffective_acceptance_is_reopened() {
    let text = learning("date: 2020-01-01\nmaturity: provisional\n", TEXT);
    let mut corpus = corpus(&[("learnings/a.md", &text)]);
    let history = FileHistory::default();
    let found = suggestions(&corpus, &Uses::default(), &history, TODAY, Options::default());
    let mut all = Proposals::default();
    all.update(&corpus, &found, Options::default(), ("r", "2026-11-22"));
    let id = all.0[0].id.clone();
    let open = |all: &Proposals| all.open().count();
    // The process died before the commit: the decision is stored, and the node is unchanged.
    all.accept(&corpus, &id, "now").unwrap();
    let mut again = all.clone();
    again.update(&corpus, &found, Options::default(), ("r", "later"));
    assert_eq!((open(&all), open(&again)), (0, 1));
    all.clone().reject(&corpus, &id, "later").unwrap();
    let changes = all.accept(&corpus, &id, "later").unwrap();
    corpus.apply(&changes);
    assert!(all.accept(&corpus, &id, "again").is_err());
    // The process died after the commit of an undo: the node is restored, but the decision is still
    // stored.
    let mut died = all.clone();
    let changes = died.undo(&corpus, &id).unwrap();
    corpus.apply(&changes);
    all.undo(&corpus, &id).unwrap();
    assert_eq!((all.0[0].text.as_str(), open(&all)), (text.as_str(), 1));
    // A defragmentation without pruning leaves the proposal for a stale node open.
    let dedup = Options { prune: false, oscillation_sweep: false, ..Options::default() };
    all.update(&corpus, &[], dedup, ("r", "later"));
    assert_eq!(open(&all), 1);
    all.update(&corpus, &[], Options::default(), ("r", "later"));
    assert_eq!(open(&all), 0);
}

#[test]
fn oscillating_files_are_not_removed() {
    let twin = learning("date: 2026-11-01\nmaturity: candidate\n", TEXT);
    let corpus = corpus(&[("learnings/one.md", &twin), ("learnings/two.md", &twin)]);
    let mut history = FileHistory::default();
    let all = Options::default();
    assert_eq!(defrag(&corpus, &history, all).0.removed.len(), 1);
    for (number, added) in [true, false, true, false].into_iter().enumerate() {
        history.note(&format!("r-{number}"), [("learnings/two.md", added)].into_iter());
    }
    assert_eq!(
        history.acts["learnings/two.md"][0],
        FileEvent { iteration: "r-0".into(), added: true }
    );
    let (report, changes) = defrag(&corpus, &history, all);
    assert!(report.removed.is_empty() && changes.is_empty());
    let found = suggestions(&corpus, &Uses::default(), &history, TODAY, all);
    assert!(found.iter().any(|it| it.path == "learnings/two.md"), "{found:?}");
    assert_eq!(FileHistory::parse(b"damaged"), FileHistory::default());
}

#[test]
fn limited_defrag_leaves_rest_for_next_iteration() {
    let same = learning("maturity: provisional\n", TEXT);
    let texts: Vec<(String, String)> =
        (0..21).map(|n| (format!("learnings/l{n:02}.md"), same.clone())).collect();
    let files: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut corpus = corpus(&files);
    let few = Options { most: 8, ..Options::default() };
    for left in [12, 4, 0] {
        let (report, changes) = defrag(&corpus, &FileHistory::default(), few);
        assert_eq!((report.left_over, changes.len() <= 8), (left, true));
        corpus.apply(&changes);
    }
    assert!(defrag(&corpus, &FileHistory::default(), few).1.is_empty());
}

#[test]
fn harvest_adds_foreign_learnings_once() {
    let work = b"{\"source_epic\":\"e\",\"items\":[{\"title\":\"Done\",\"type\":\"t\",\"consumed_note\":\"the cache must be keyed by the digest, because names are reused\"}],\"consumed\":true}\n";
    let mut corpus = corpus(&[]);
    corpus.work = WorkFile::parse(work);
    let note = |path: &str, front: &str| NoteSource {
        path: path.to_owned(),
        text: format!(
            "{front}# Session\n\n- not this one, because it is not below a heading for learnings\n\n## What we learned\n\n- locks that a dead process never releases are useless because they block everyone; use the lock of the kernel\n- short\n\n## Next\n\n- nothing below this heading is treated as a learning\n"
        ),
    };
    let sources = Sources {
        commits: vec![CommitSource {
            hash: "8f1e2d3c4b5a69788f1e2d3c4b5a69788f1e2d3c".to_owned(),
            date: date(2026, 11, 1),
            subject: "Fix the retry".to_owned(),
            body: format!("Some prose.\n\nRoot cause: {TEXT} {ACT}\n\nSigned-off-by: a\n"),
            paths: vec!["src/net.rs".to_owned()],
        }],
        notes: vec![
            note(".agents/ao/sessions/2026-11-02-x.md", ""),
            note(".agents/sessions/own.md", "---\ngenerated_by: runner\n---\n"),
        ],
        left_out: Vec::new(),
    };
    let history = FileHistory::default();
    let (report, changes) = harvest(&corpus, &sources, &history, TODAY);
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
    let (again, changes) = harvest(&corpus, &sources, &history, TODAY);
    assert!(again.added.is_empty() && changes.is_empty() && again.known == 3);
    // A learning that someone else already added to the corpus is not new either.
    let said = self::corpus(&[(
        "learnings/jitter.md",
        &learning("date: 2026-01-01\n", &format!("{TEXT} {ACT}")),
    )]);
    assert!(
        harvest(&said, &sources, &history, TODAY)
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
    let path = compiled[0].path.clone();
    let own = "note: \"say \\\"hi\\\"\"\nlinks: [x, y]\nstatus: retired\n";
    let text = corpus.at(&path).unwrap().text.clone();
    let text = text.lines().filter(|line| !line.starts_with("status:"));
    let text: String = text.map(|line| format!("{line}\n")).collect();
    let with = |status: &str| {
        let own = own.replace("retired", status);
        Some(text.replacen("---\n", &format!("---\n{own}"), 1).into_bytes())
    };
    corpus.apply(&Changes::from([
        ("learnings/d-four.md".to_owned(), Some(one(4).into_bytes())),
        (path.clone(), with("active")),
    ]));
    let again = compile(&corpus, TODAY).1;
    let bytes = again[&path].clone().expect("a new source changes the pattern");
    let again = String::from_utf8(bytes).unwrap();
    assert!(
        again.contains("[[d-four]]") && again.contains("say \\\"hi\\\"\"\nlinks: [x, y]"),
        "{again}"
    );
    corpus.apply(&Changes::from([(path, with("retired"))]));
    assert!(compile(&corpus, TODAY).1.is_empty(), "the user retired the pattern");
    let mut owned = self::corpus(&files);
    let mine = b"# Mine\n".to_vec();
    owned.apply(&Changes::from([("patterns/compiled-retry-policy.md".to_owned(), Some(mine))]));
    assert!(compile(&owned, TODAY).1.is_empty(), "the user replaced the pattern");
}

#[test]
fn compiled_patterns_are_stable_with_odd_names() {
    let learning = |id: &str, subject: &str| {
        let path = format!("learnings/{}.md", id.replace('"', ""));
        let text = format!(
            "---\nid: '{id}'\nmaturity: candidate\ncategory: '{subject}'\n---\n# About {id}\n\nA body.\n"
        );
        (path, text)
    };
    let mut files = Vec::new();
    for number in 0..4 {
        files.push(learning(&format!("x\"{number}"), "c"));
        files.push(learning(&format!("y{number}"), "c++"));
        files.push(learning(&format!("z{number}"), "d:\\temp"));
    }
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut corpus = corpus(&files);
    let (compiled, changes) = compile(&corpus, TODAY);
    let subjects: Vec<&str> = compiled.iter().map(|one| one.subject.as_str()).collect();
    assert_eq!(subjects, ["c", "d:\\temp"]);
    corpus.apply(&changes);
    assert!(compile(&corpus, TODAY).1.is_empty(), "the sources are unchanged");
    let (path, text) = learning("z9", "d:\\temp");
    corpus.apply(&Changes::from([(path, Some(text.into_bytes()))]));
    assert_eq!(compile(&corpus, TODAY).0.len(), 1, "a new source changes the pattern");
}

#[test]
fn measurements_are_deterministic_and_unknown_when_empty() {
    let none = Uses::default();
    let empty = measure(&Corpus::default(), &none, TODAY);
    assert_eq!(empty.fitness.composite, None);
    assert!(empty.fitness.metrics.is_empty());
    let text = learning("date: 2026-10-01\nmaturity: candidate\n", TEXT);
    let corpus = corpus(&[
        ("learnings/a.md", &text),
        ("learnings/b.md", &text),
        ("learnings/c.md", &text.replace("slow", "fast")),
    ]);
    let bytes = || {
        let measured = measure(&corpus, &none, TODAY);
        json!([measured.health, measured.bench]).to_string()
    };
    assert_eq!(bytes(), bytes());
    let measured = measure(&corpus, &none, TODAY);
    assert_eq!(measured.health.duplicates.len(), 1);
    let unique = measured.health.metrics.iter().find(|it| it.name == "uniqueness").unwrap();
    assert_eq!(unique.value, Some(0.666667));
    assert_eq!(measured.health.composite, None, "no uses are known");
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
    assert_eq!(WarnBudget::read(root).remaining, 2, "an iteration spends at most one rescue");
    fs::write(root.join(super::lock::FOLDER).join("warn-only-budget.json"), "{").unwrap();
    assert_eq!(WarnBudget::read(root).remaining, 0);
    WarnBudget::reset(root).unwrap();
    assert_eq!(WarnBudget::read(root).remaining, 3);
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
    // The second iteration began before the first one ended.
    let mut late = Iteration { id: "R-iter-2".to_owned(), index: 2, ..Iteration::default() };
    late.started_at = "2026-11-21T02:30:00Z".to_owned();
    out.json("R/iterations/iter-2.json", &late).unwrap();
    let mut first = Iteration { id: "R-iter-1".to_owned(), index: 1, ..Iteration::default() };
    first.finished_at = "2026-11-22T02:31:00Z".to_owned();
    out.json("R/iterations/iter-1.json", &first).unwrap();
    let (found, reported) = rehydrate(&out, "R");
    assert_eq!(found.len(), 1);
    assert!(reported[0].contains("before its predecessor"), "{reported:?}");
    put(2, "R-iter-2");
    put(3, "OTHER-iter-3");
    let (found, reported) = rehydrate(&out, "R");
    assert_eq!(found.len(), 2);
    assert!(reported[0].contains("iter-3.json is rejected"), "{reported:?}");
}

#[test]
fn file_edited_after_reading_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".agents/learnings/a.md");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, learning("", TEXT)).unwrap();
    let corpus = read(&folder.path().join(FOLDER)).unwrap();
    let changes = Changes::from([("learnings/a.md".to_owned(), Some(b"new".to_vec()))]);
    fs::write(&path, "the user's text").unwrap();
    let free = |_: &RunId, _: Fence| Ok(());
    let commit = Commit {
        root: folder.path(),
        run: RunId::new(Timestamp::UNIX_EPOCH),
        fence: Fence(0),
        guard: &free,
        number: 0,
        iteration_id: String::new(),
        started_at: String::new(),
        record: json!(null),
    };
    let error = commit.make(targets(folder.path(), &corpus, changes).unwrap()).unwrap_err();
    assert!(error.to_string().contains("learnings/a.md was changed"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "the user's text");
}
