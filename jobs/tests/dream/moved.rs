//! Tests passes over unchanged ideas: after new commits, with a selection, and with repeated
//! questions.

use std::sync::Arc;

use runner_backends::{BackendError, Scripted, Step};
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::proposal::{Action, IdeaStatus, Proposal};
use runner_jobs::dream::review::DecisionInput;
use runner_jobs::{SettledRun, Silent};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::{DONE, keep, of, project};

const RETRY: &str = "ideas/retry-policy.md";

/// Removes the record of the evidence that earlier passes saw.
fn forget_evidence(place: &Fixture) {
    for entry in std::fs::read_dir(place.cache()).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("dream-evidence") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Creates a project with some commits and no ideas.
fn without_ideas() -> Fixture {
    let place = Fixture::new();
    place.commit("chore: begin", &["README.md"]);
    for (subject, path) in [
        ("feat: colour the output", "src/term.rs"),
        ("fix: off by one in the parser", "src/parse.rs"),
        ("refactor: split the main module", "src/main.rs"),
        ("test: cover the lexer", "src/lexer.rs"),
        ("perf: read the cache once", "src/cache.rs"),
    ] {
        place.commit(subject, &[path]);
    }
    place
}

/// Creates a project with two ideas, neither of which is implemented, and runs a pass over them.
fn waiting() -> Fixture {
    let mut place = without_ideas();
    place.write("ideas/retry-policy.md", DONE);
    place.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    place.pass();
    place
}

#[test]
fn new_commit_selects_an_unchanged_idea() {
    let mut place = waiting();
    assert_eq!(of(&place.proposals().1, "ideas/retry-policy.md").action, Action::Promote);
    let skipped = Outcome::skipped(SkipReason::Idle, "no delta (2 ideas unchanged)");
    assert_eq!(place.pass().outcome, skipped);

    place.commit("docs: plan for calls that fail", &["docs/plan.md"]);
    assert_eq!(place.pass().outcome, skipped, "a document was treated as evidence");
    let done = place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    let settled = place.pass();
    assert_eq!(
        (&settled.summary.facts["shown"], &settled.summary.facts["moved"]),
        (&json!(1), &json!(1))
    );
    let (_, proposals) = place.proposals();
    assert_eq!(proposals.len(), 1);
    let found = of(&proposals, "ideas/retry-policy.md");
    assert_eq!((found.status, found.action), (IdeaStatus::Implemented, Action::Archive));
    assert!(found.evidence.contains(&done[..12]));
    place.commit("fix: an endless loop in the lexer", &["src/lexer.rs"]);
    assert_eq!(place.pass().outcome, skipped, "an unrelated commit was treated as evidence");

    // Without the record of the last pass, the idea is examined once more.
    forget_evidence(&place);
    assert_eq!(place.pass().summary.facts["shown"], 1);
    let line = json!({"proposal_id": found.id, "decision": "rejected", "action": "archive", "at": "x",
                      "targets_hash": found.targets_hash});
    place.write("dreams/ledger.md", format!("- {line}\n"));
    forget_evidence(&place);
    assert_eq!(place.pass().outcome, skipped, "an idea was selected despite the user's decision");
}

#[test]
fn commit_to_the_mentioned_files_archives_the_idea() {
    let mut place = without_ideas();
    place.commit("feat: list the depots", &["src/depot.rs"]);
    let path = "ideas/depot.md";
    let idea = "# Patient waits for calls to the depot\n\nThe code in `src/net/retry.rs` gives up at once, \
                and `src/net/wait.rs` never waits longer. Somebody has to start the transfer again \
                manually in the morning, which nobody likes.\n";
    place.write(path, idea);
    place.pass();
    assert_ne!(of(&place.proposals().1, path).action, Action::Archive);
    let done =
        place.commit("feat(net): waits longer for calls", &["src/net/retry.rs", "src/net/wait.rs"]);
    place.pass();
    let found = of(&place.proposals().1, path).clone();
    assert_eq!((found.status, found.action), (IdeaStatus::Implemented, Action::Archive));
    assert!(found.evidence.contains(&done[..12]), "{}", found.evidence);
}

/// A note that asks for the work of [`HOOK`] in other words.
const SILENT: &str = "# Silent hooks in projects without set-up\n\nThe resource hook creates folders in a \
                      project that nobody has set up. Each hook should stay silent until the project is \
                      initialised, and say so once when asked for its state.\n";
const HOOK: &str = "fix: keep resource hook silent until the project is initialised";
/// A note that fits the commit [`HOOK`] much better than [`SILENT`] does.
const SIBLING: &str = "# Resource hook until the project is initialised\n\nKeep the hook silent.\n";

/// Runs one pass before and one after the commit [`HOOK`], over [`SILENT`] and other notes. Returns
/// whether the second pass proposes to archive [`SILENT`]. `zebras` is the number of ideas about
/// something else.
fn archives_silent_hooks(zebras: usize, others: &[(&str, &str)]) -> bool {
    pass_after_hook(&mut without_ideas(), zebras, others).0
}

/// Runs the passes of [`archives_silent_hooks`]. Also returns the result of the second pass.
fn pass_after_hook(
    place: &mut Fixture,
    zebras: usize,
    others: &[(&str, &str)],
) -> (bool, SettledRun) {
    place.commit("feat: show the state of a project", &["src/state.rs"]);
    for at in 0..zebras {
        place.write(&format!("ideas/zebra-{at}.md"), format!("# Zebra\n\nPaint it {at} times.\n"));
    }
    let path = "ideas/silent-hooks.md";
    place.write(path, SILENT);
    others.iter().for_each(|(path, text)| place.write(path, text));
    place.pass();
    assert_ne!(of(&place.proposals().1, path).action, Action::Archive);
    place.commit(HOOK, &["src/hooks/resource.rs"]);
    let settled = place.pass();
    let (_, proposals) = place.proposals();
    let archives = |one: &Proposal| one.targets == [path] && one.action == Action::Archive;
    (proposals.iter().any(archives), settled)
}

#[test]
fn weak_fit_requires_enough_other_notes() {
    assert!(archives_silent_hooks(30, &[]));
    assert!(!archives_silent_hooks(28, &[]), "a weak fit was accepted with too few other notes");
}

#[test]
fn unreadable_note_disables_weak_fits() {
    let link = |place: &Fixture| {
        std::fs::create_dir(place.root.join("archive")).unwrap();
        std::os::unix::fs::symlink("../archive", place.root.join("ideas/done")).unwrap();
    };
    let large = |place: &Fixture| place.write("ideas/done/large.md", "word ".repeat(300_000));
    let changes: [&dyn Fn(&Fixture); 2] = [&link, &large];
    let problems = [
        "commits not compared with all notes: ideas/done is a symbolic link",
        "commits not compared with all notes: ideas/done/large.md is 1500000 bytes long",
    ];
    for (change, problem) in changes.into_iter().zip(problems) {
        let mut place = without_ideas();
        change(&place);
        let (archived, settled) = pass_after_hook(&mut place, 30, &[]);
        assert!(!archived, "{problem}");
        assert!(settled.outcome.to_string().contains(problem), "{:?}", settled.outcome);
    }
}

#[test]
fn documents_among_specs_are_not_ideas() {
    let specs: Vec<(String, String)> = (0..30)
        .map(|at| (format!("specs/rfc-{at}.md"), format!("# Report {at}\n\nPrint it.\n")))
        .collect();
    let specs: Vec<(&str, &str)> = specs.iter().map(|(path, text)| (&**path, &**text)).collect();
    assert!(!archives_silent_hooks(5, &specs));
}

#[test]
fn better_fitting_note_excludes_weak_fit() {
    for folder in ["ideas", "ideas/done", "ideas/done/2026", "specs"] {
        let path = format!("{folder}/resource-hook.md");
        assert!(!archives_silent_hooks(30, &[(&path, SIBLING)]), "{path}");
    }
}

#[test]
fn evidence_of_an_unpublished_pass_is_found_again() {
    let mut place = waiting();
    let state = std::fs::read(place.root.join("dreams/state.json")).unwrap();
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    assert_eq!(place.pass().summary.facts["moved"], 1);
    // A process that dies before the publication leaves the project in this state.
    let (folder, _) = place.proposals();
    std::fs::remove_dir_all(place.root.join(folder)).unwrap();
    std::fs::write(place.root.join("dreams/state.json"), state).unwrap();
    assert_eq!(place.pass().summary.facts["moved"], 1);
    let skipped = Outcome::skipped(SkipReason::Idle, "no delta (2 ideas unchanged)");
    assert_eq!(place.pass().outcome, skipped);
}

#[test]
fn work_older_than_an_idea_does_not_implement_it() {
    let (mut place, _) = project();
    place.pass();
    // The first pass did not see this idea, and the commit is older than that pass.
    place.write("ideas/retry-again.md", DONE.replace("person", "human"));
    place.pass();
    assert_ne!(of(&place.proposals().1, "ideas/retry-again.md").action, Action::Archive);
    let first = place.state("ideas/retry-policy.md")["first_seen"].clone();
    assert_eq!(first, "2026-11-21T23:00:00Z");
    assert!(place.state("ideas/retry-again.md")["first_seen"].as_str() > first.as_str());
}

#[test]
fn unchanged_ideas_can_be_selected() {
    let (mut place, _) = project();
    place.pass();
    place.spec.select = "all".to_owned();
    assert_eq!(place.pass().summary.facts["shown"], 6);
    place.spec.select = "./ideas/coffee.md".to_owned();
    place.pass();
    let (_, proposals) = place.proposals();
    assert_eq!(proposals.iter().map(|it| &*it.targets[0]).collect::<Vec<_>>(), ["ideas/coffee.md"]);
    place.spec.select = "ideas/nowhere.md".to_owned();
    let settled = place.pass();
    assert_eq!(settled.outcome.class(), Some(Class::Environment));
    assert!(settled.outcome.why().unwrap().contains("there is no idea ideas/nowhere.md"));
}

fn all(but: &str) -> Vec<Value> {
    let names =
        ["coffee", "offline-maps", "report-page", "retry-policy", "scheduler-story", "sub/report"];
    let paths = names.map(|name| format!("ideas/{name}.md"));
    paths.iter().filter(|path| **path != but).map(|path| keep(path)).collect()
}

#[test]
fn unanswered_ideas_are_asked_again_with_reasons() {
    let (mut place, _) = project();
    let mut first = all("ideas/coffee.md");
    let mut bad = keep("ideas/coffee.md");
    bad["status"] = json!("abandoned");
    first.push(bad);
    let steps = [Step::Answer(json!(first)), Step::Answer(json!([keep("ideas/coffee.md")]))];
    let backend = Arc::new(Scripted::new("model", steps));
    let settled = place.pass_with(backend.clone(), &mut Silent);
    let asked = backend.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].offer["sources"], json!(["ideas/coffee.md"]));
    assert!(asked[1].sources.iter().any(|source| source.fenced.contains("abandoned")));
    assert!(!asked[1].instructions.contains("abandoned"));
    assert_eq!(place.proposals().1.len(), 6);
    let why = "1 proposal was refused".to_owned();
    assert_eq!(settled.outcome, Outcome::Degraded { why });
}

#[test]
fn second_questions_come_last_and_cost_no_ideas() {
    let (mut place, _) = project();
    place.spec.max_ideas = 2;
    place.pass();
    place.spec.select = "all".to_owned();
    let steps = [Step::Text("no".into()), Step::Text("no".into()), Step::Text("no".into())];
    // Each question has room for one idea.
    let backend = Arc::new(Scripted::new("model", steps).with_window(3_000));
    let settled = place.pass_with(backend.clone(), &mut Silent);
    let asked: Vec<Value> = backend.asked().iter().map(|it| it.offer["sources"].clone()).collect();
    assert_eq!(asked.len(), 3, "{settled:?}");
    assert_ne!(asked[0], asked[1]);
    assert_eq!(
        asked[0], asked[2],
        "an idea was asked about twice before each was asked about once"
    );
    let run = place.store.runs(&Default::default()).unwrap().remove(0);
    assert_eq!(place.store.spent_by(&run.id).unwrap().ideas, 2);
    // The fourth question would exceed the budget of three requests, but the pass fails because of
    // the unusable answers.
    assert_eq!(settled.outcome.class(), Some(Class::Malformed), "{settled:?}");
}

#[test]
fn fallback_with_a_smaller_window_gets_shorter_questions() {
    let mut place = without_ideas();
    for name in ["tides", "lamps"] {
        place.write(&format!("ideas/{name}.md"), format!("Show {name} at night.\n").repeat(300));
    }
    let gone = BackendError::NotInstalled { what: "it".into(), hint: "no".into() };
    let first = Arc::new(Scripted::new("first", [Step::Error(gone)]));
    let steps = [Step::Text("no".into()), Step::Text("no".into())];
    let small = Arc::new(Scripted::new("small", steps).with_window(3_000));
    place.fallbacks = vec![small.clone()];
    let settled = place.pass_with(first.clone(), &mut Silent);
    let sources = |backend: &Scripted| -> Vec<Value> {
        backend.asked().iter().map(|it| it.offer["sources"].clone()).collect()
    };
    let (whole, parts) = (sources(&first), sources(&small));
    assert_eq!(whole[0].as_array().unwrap().len(), 2, "{settled:?}");
    assert_eq!(parts[..2], [json!([whole[0][0]]), json!([whole[0][1]])], "{settled:?}");
    // If the fallback does not answer the shorter question either, the first limit applies.
    let limited = BackendError::RateLimited { until: None, why: "full".into() };
    let silent = Arc::new(Scripted::new("small", []).with_window(3_000));
    place.fallbacks = vec![silent.clone()];
    let settled =
        place.pass_with(Arc::new(Scripted::new("first", [Step::Error(limited)])), &mut Silent);
    assert_eq!(silent.asked()[0].offer["sources"].as_array().unwrap().len(), 1, "{settled:?}");
    assert!(matches!(settled.outcome, Outcome::Deferred { .. }), "{settled:?}");
}

#[test]
fn unreadable_replies_rotate_and_park_ideas() {
    let (mut place, _) = project();
    place.spec.max_ideas = 3;
    let prose =
        || Arc::new(Scripted::new("model", [Step::Text("no".into()), Step::Text("no".into())]));
    let first = prose();
    let settled = place.pass_with(first.clone(), &mut Silent);
    assert_eq!(settled.outcome.class(), Some(Class::Malformed), "{settled:?}");
    let second = prose();
    place.pass_with(second.clone(), &mut Silent);
    let sources = |backend: &Scripted| backend.asked()[0].offer["sources"].clone();
    assert_ne!(sources(&first), sources(&second), "both passes asked about the same ideas");
    for _ in 0..4 {
        place.pass_with(prose(), &mut Silent);
    }
    let why = place.pass().outcome.why().unwrap().to_owned();
    assert!(why.contains("set aside"), "{why}");
}

#[test]
fn later_failure_keeps_earlier_answers() {
    let (mut place, _) = project();
    let gone = BackendError::Unavailable { why: "gone".into() };
    let steps = [Step::Answer(json!(all("ideas/coffee.md"))), Step::Error(gone)];
    let settled = place.pass_with(Arc::new(Scripted::new("model", steps)), &mut Silent);
    let Outcome::Degraded { why } = &settled.outcome else { panic!("{settled:?}") };
    assert_eq!(why, "1 idea got no answer");
    assert_eq!(place.proposals().1.len(), 5);
    assert!(settled.summary.lines.iter().any(|line| line.starts_with("no second answer:")));
}

#[test]
fn idea_with_new_evidence_waits_for_an_answer() {
    let mut place = waiting();
    place.write("ideas/new.md", "A new thought.\n");
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    let only = || vec![Step::Answer(json!([keep("ideas/new.md")])), Step::Answer(json!([]))];
    let settled = place.pass_with(Arc::new(Scripted::new("model", only())), &mut Silent);
    assert_eq!(settled.summary.facts["unanswered"], 1);
    let backend = Arc::new(Scripted::new("model", [Step::Answer(json!([keep(RETRY)]))]));
    place.pass_with(backend.clone(), &mut Silent);
    assert_eq!(backend.asked()[0].offer["sources"], json!([RETRY]));
    let why = place.pass().outcome.why().unwrap().to_owned();
    assert!(why.starts_with("no delta (3 ideas unchanged)"), "{why}");
}

#[test]
fn unusable_answers_park_an_idea_with_new_evidence() {
    let mut place = waiting();
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    for _ in 0..3 {
        let steps = [Step::Answer(json!([])), Step::Answer(json!([]))];
        place.pass_with(Arc::new(Scripted::new("model", steps)), &mut Silent);
    }
    let why = place.pass().outcome.why().unwrap().to_owned();
    assert!(why.contains("no delta") && why.contains(RETRY), "{why}");
    std::fs::remove_file(place.cache().join("dream-parked.json")).unwrap();
    assert_eq!(place.pass().summary.facts["shown"], 1, "the idea is not shown again");
}

#[test]
fn selected_idea_leaves_new_commits_unseen() {
    let mut place = waiting();
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    place.spec.select = "ideas/coffee.md".to_owned();
    place.pass();
    place.spec.select = "changed".to_owned();
    let settled = place.pass();
    assert_eq!(settled.summary.facts["moved"], 1);
}

#[test]
fn each_dream_job_sees_new_commits() {
    let mut place = waiting();
    let first = place.spec.clone();
    let second = DreamSpec { ideas: "notes".into(), done: "notes/done".into(), ..first.clone() };
    place.write("notes/other.md", "Tea is better in the evening.\n");
    std::fs::write(place.root.join(".git/info/exclude"), "/ideas/\n/dreams/\n/notes/\n").unwrap();
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    place.spec = second;
    place.pass();
    place.spec = first;
    assert_eq!(place.pass().summary.facts["moved"], 1);
}

#[test]
fn new_idea_at_an_archived_path_is_examined() {
    let mut place = waiting();
    place.decide(RETRY, DecisionInput::Amend { action: Action::Archive, into: None }).unwrap();
    assert_eq!(place.state(RETRY)["status"], "archived");
    place.write(RETRY, format!("{DONE}\nOnce more.\n"));
    place.pass();
    assert_eq!(place.state(RETRY)["status"], "active");
    // An existing idea is examined again even if the state still lists it as archived.
    let state = std::fs::read_to_string(place.root.join("dreams/state.json")).unwrap();
    place.write("dreams/state.json", state.replace("\"active\"", "\"archived\""));
    place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    assert_eq!(place.pass().summary.facts["moved"], 1);
}

#[test]
fn opposite_merges_are_never_both_open() {
    let (mut place, _) = project();
    let [a, b] = ["ideas/report-page.md", "ideas/sub/report.md"];
    let merge = |from: &str, into: &str| {
        json!({"targets": [from, into], "status": "duplicate", "action": "merge",
               "evidence": "the same text", "confidence": "high", "rationale": "r"})
    };
    place.spec.select = a.to_owned();
    place.answered(json!([merge(a, b)]));
    assert_eq!(of(&place.proposals().1, a).action, Action::Merge);
    place.spec.select = b.to_owned();
    place.answered(json!([merge(b, a)]));
    let (_, proposals) = place.proposals();
    assert_eq!(of(&proposals, b).action, Action::Keep);
    assert!(of(&proposals, b).rationale.contains("itself merged"), "{proposals:?}");
    // A newer answer replaces the older proposal about the same idea.
    place.spec.select = a.to_owned();
    place.answered(json!([keep(a)]));
    place.spec.select = b.to_owned();
    place.answered(json!([merge(b, a)]));
    assert_eq!(of(&place.proposals().1, b).action, Action::Merge);
}

#[test]
fn elements_of_several_arrays_survive() {
    let (mut place, _) = project();
    let paths = ["coffee", "offline-maps", "report-page", "retry-policy", "scheduler-story"];
    let fences =
        paths.map(|name| format!("```json\n{}\n```\n", json!([keep(&format!("ideas/{name}.md"))])));
    let mut last = keep("ideas/coffee.md");
    last["evidence"] = json!("the final answer");
    let text = format!("{}Final:\n```json\n{}\n```\n", fences.concat(), json!([last]));
    let steps = [Step::Text(text), Step::Answer(json!([keep("ideas/sub/report.md")]))];
    let settled = place.pass_with(Arc::new(Scripted::new("model", steps)), &mut Silent);
    let (_, proposals) = place.proposals();
    assert_eq!(proposals.len(), 6, "{settled:?}");
    assert_eq!(of(&proposals, "ideas/coffee.md").evidence, "the final answer");
    assert!(matches!(settled.outcome, Outcome::Degraded { .. }));
    let refused = settled.summary.refused.join("\n");
    assert!(refused.contains("6 JSON arrays") && refused.contains("coffee.md"), "{refused}");
}
