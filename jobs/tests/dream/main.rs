//! Tests the dream pass from outside, with a real repository, a real database and real
//! publications.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test needs the PATH that it was started with, fails by panicking, and prints what it skips"
)]

mod fixture;
mod hostile;
mod moved;
mod review;
mod sequences;
mod spending;
mod traps;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use fixture::Fixture;
use jiff::Timestamp;
use runner_backends::{BackendError, Scripted, Step};
use runner_engine::digest::Digest;
use runner_engine::outcome::{Class, Outcome, SkipReason};
use runner_jobs::dream::proposal::{Action, IdeaStatus, Proposal};
use runner_jobs::dream::{Dirty, DreamSpec, dirty};
use runner_jobs::{Progress, Silent};
use serde_json::{Value, json};

const DONE: &str = "\
# Retry policy with jitter

## Problem

Calls fail at night and a person has to start them again in the morning.

## Proposal

- Add jitter to every wait
- Cap the wait at an hour
";

const OPEN: &str = "\
# Offline maps

## Problem

On a train there is no network, and the map stays grey for the whole journey.

## Proposal

- Download the tiles of a region before leaving
- Show how old each tile is
- Remove tiles that nobody looked at for a month

## Acceptance

- [ ] With the network cable pulled, the map of the region can be zoomed
";

const STORY: &str = "\
# Blog post: the night the scheduler stopped

## Hook

I was asleep when it stopped, and we only learned of it from a customer.

## Takeaways

We had trusted an exit code.
";

const TWIN: &str = "\
# Report on one page

Every morning there should be one page that lists which jobs ran in the night, how long each of
them took, what it cost in tokens and in money, and which of them need a person to look at them.
";

/// Creates a project with ideas of every class. Also returns the hash of the commit that
/// implemented one of them.
fn project() -> (Fixture, String) {
    let place = Fixture::new();
    place.commit("chore: begin", &["README.md"]);
    place.commit("feat: colour the output", &["src/term.rs"]);
    let done = place.commit("feat: retry policy with jitter", &["src/retry.rs"]);
    place.commit("fix: off by one in the parser", &["src/parse.rs"]);
    place.commit("refactor: split the main module", &["src/main.rs"]);
    place.write("ideas/retry-policy.md", DONE);
    place.write("ideas/offline-maps.md", OPEN);
    place.write("ideas/scheduler-story.md", STORY);
    place.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    place.write("ideas/report-page.md", TWIN);
    place.write("ideas/sub/report.md", format!("{TWIN}It should fit on a telephone, too.\n"));
    (place, done)
}

fn of<'a>(proposals: &'a [Proposal], path: &str) -> &'a Proposal {
    let mut found = proposals.iter().filter(|proposal| proposal.targets[0] == path);
    let first = found.next().unwrap_or_else(|| panic!("no proposal for {path}"));
    assert!(found.next().is_none(), "two proposals for {path}");
    first
}

fn keep(path: &str) -> Value {
    json!({"targets": [path], "status": "sidenote", "action": "keep", "evidence": "short",
           "confidence": "low", "rationale": "a note"})
}

#[test]
fn every_class_is_recognized_and_recorded() {
    let (mut place, done) = project();
    let settled = place.pass();
    assert_eq!(settled.outcome, Outcome::Succeeded, "{settled:?}");
    let (folder, proposals) = place.proposals();
    assert_eq!(folder, "dreams/20261121T230000Z");
    let judged = |path| {
        let it = of(&proposals, path);
        (it.status, it.action)
    };
    assert_eq!(judged("ideas/retry-policy.md"), (IdeaStatus::Implemented, Action::Archive));
    assert_eq!(judged("ideas/offline-maps.md"), (IdeaStatus::Meritorious, Action::Promote));
    assert_eq!(judged("ideas/scheduler-story.md"), (IdeaStatus::BlogCandidate, Action::MarkBlog));
    assert_eq!(judged("ideas/coffee.md"), (IdeaStatus::Sidenote, Action::Keep));
    assert_eq!(judged("ideas/sub/report.md"), (IdeaStatus::Duplicate, Action::Merge));
    assert_eq!(of(&proposals, "ideas/sub/report.md").targets[1], "ideas/report-page.md");
    assert_eq!(judged("ideas/report-page.md"), (IdeaStatus::Meritorious, Action::Promote));
    assert!(of(&proposals, "ideas/retry-policy.md").evidence.contains(&done[..12]));
    assert_eq!(proposals.len(), 6);

    let raw: Vec<Value> =
        serde_json::from_slice(&place.read(&format!("{folder}/proposals.json"))).unwrap();
    let keys: Vec<&String> = raw[0].as_object().unwrap().keys().collect();
    let wanted = [
        "id",
        "targets",
        "status",
        "action",
        "evidence",
        "confidence",
        "rationale",
        "targets_hash",
    ];
    assert_eq!(keys, wanted);

    let entry = place.state("ideas/offline-maps.md");
    assert_eq!(entry["hash"], Digest::of(OPEN.as_bytes()).to_string());
    assert_eq!(
        (&entry["last_surfaced"], &entry["status"]),
        (&json!("2026-11-21T23:00:00Z"), &json!("active"))
    );
    assert!(
        entry["merit"].as_f64().unwrap()
            > place.state("ideas/coffee.md")["merit"].as_f64().unwrap()
    );
    assert!(entry["last_modified"].as_str().unwrap().parse::<Timestamp>().is_ok());
    assert!(place.read("dreams/state.json").starts_with(b"[\n  {\n    \"path\": "));

    assert_eq!(settled.summary.facts["proposals"], 6);
    assert_eq!(settled.summary.facts["implemented"], 1);
    assert!(settled.summary.lines[0].contains("ideas/"), "{:?}", settled.summary.lines);
    assert_eq!(
        settled.summary.artifacts,
        [format!("{folder}/proposals.json"), "dreams/state.json".into()]
    );
    assert!(
        !place.root.join("dreams/.staging").exists()
            || fs::read_dir(place.root.join("dreams/.staging")).unwrap().next().is_none()
    );
}

#[test]
fn pass_runs_only_when_ideas_changed() {
    let (mut place, _) = project();
    place.pass();
    let (_, first) = place.proposals();
    let before = place.everything();
    let again = place.pass();
    assert_eq!(again.outcome, Outcome::skipped(SkipReason::Idle, "no delta (6 ideas unchanged)"));
    assert_eq!(place.everything(), before);

    place.write("ideas/offline-maps.md", OPEN.replace("a month", "a year"));
    assert_eq!(place.pass().outcome, Outcome::Succeeded);
    let (folder, proposals) = place.proposals();
    assert_eq!((folder.as_str(), proposals.len()), ("dreams/20261122T010000Z", 1));
    let old = of(&first, "ideas/offline-maps.md");
    assert_eq!(proposals[0].id, old.id, "the second proposal about an idea has a different id");
    assert_ne!(proposals[0].targets_hash, old.targets_hash, "the hash ignores changed content");
    assert_eq!(place.pass().outcome.as_str(), "skipped");
}

#[test]
fn decided_proposal_returns_only_after_idea_change() {
    let (mut place, _) = project();
    place.pass();
    let (_, first) = place.proposals();
    let [maps, coffee] =
        ["ideas/offline-maps.md", "ideas/coffee.md"].map(|path| of(&first, path).clone());
    let line = |it: &Proposal, hash: Option<&str>| {
        let mut line = json!({"proposal_id": it.id, "decision": "rejected", "action": it.action, "at": "2026-11-22T08:00:00Z"});
        if let Some(hash) = hash {
            line["targets_hash"] = json!(hash);
        }
        format!("- {line}\n")
    };
    let decisions = format!(
        "# Decided\n{}some note\n{}",
        line(&maps, Some(&maps.targets_hash)),
        line(&coffee, None)
    );
    place.write("dreams/ledger.md", &decisions);
    // Without the state file, every idea is examined again.
    fs::remove_file(place.root.join("dreams/state.json")).unwrap();
    let settled = place.pass();
    assert_eq!(
        (settled.outcome, &settled.summary.facts["decided"]),
        (Outcome::Succeeded, &json!(2))
    );
    let (_, second) = place.proposals();
    assert!(second.iter().all(|it| it.id != maps.id && it.id != coffee.id));
    assert_eq!(second.len(), 4);

    place.write("ideas/offline-maps.md", OPEN.replace("a month", "a year"));
    place.write("ideas/coffee.md", "Tea is better in the morning.\n");
    place.pass();
    let (_, third) = place.proposals();
    assert_eq!(
        third.iter().map(|it| &it.id).collect::<Vec<_>>(),
        [&maps.id],
        "a decision without a hash did not apply to changed content"
    );
    assert_eq!(place.read("dreams/ledger.md"), decisions.as_bytes());
}

#[test]
fn valid_proposal_survives_three_invalid_ones() {
    let (mut place, _) = project();
    let mut stripped = keep("ideas/offline-maps.md");
    stripped["evidence"] = json!("");
    let mut unknown = keep("ideas/report-page.md");
    unknown["action"] = json!("shred");
    let settled =
        place.answered(json!([stripped, unknown, {"status": "sidenote"}, keep("ideas/coffee.md")]));
    let Outcome::Degraded { why } = &settled.outcome else { panic!("{settled:?}") };
    assert_eq!(why, "3 proposals were refused, 5 ideas got no answer");
    assert!(
        settled
            .summary
            .lines
            .iter()
            .any(|line| line.starts_with("refused: proposal 1:") && line.contains("shred"))
    );
    let (_, proposals) = place.proposals();
    assert_eq!(
        proposals.iter().map(|it| it.targets[0].as_str()).collect::<Vec<_>>(),
        ["ideas/coffee.md"]
    );
    let unanswered = place.state("ideas/offline-maps.md");
    assert_eq!(
        (&unanswered["hash"], &unanswered["last_surfaced"]),
        (&json!(""), &json!("2026-11-21T23:00:00Z"))
    );
    let settled = place.pass();
    assert_eq!(settled.summary.facts["shown"], 5, "an unanswered idea was not selected again");
}

#[test]
fn unreadable_ideas_are_reported_without_failing() {
    let mut place = Fixture::new();
    place.commit("chore: begin", &["README.md"]);
    place.write("ideas/good.md", "A note.\n");
    place.write("ideas/bytes.md", [0xff, 0xfe, b'x']);
    let huge = fs::File::create(place.root.join("ideas/huge.md")).unwrap();
    huge.set_len(500 * 1024 * 1024).unwrap();
    symlink("circle.md", place.root.join("ideas/circle.md")).unwrap();
    symlink("../README.md", place.root.join("ideas/link.md")).unwrap();
    let mut expected = vec!["ideas/bytes.md", "ideas/circle.md", "ideas/huge.md", "ideas/link.md"];
    place.write("ideas/secret.md", "x");
    let secret = place.root.join("ideas/secret.md");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&secret).is_err() {
        expected.push("ideas/secret.md");
    } else {
        // `tests/cli` checks this case as another user, so this test is not reported as skipped.
        let _closed = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"not checked here: this user can read a file without read permission\n",
        );
        fs::remove_file(&secret).unwrap();
    }
    let settled = place.pass();
    let why = format!("{} files could not be read", expected.len());
    assert_eq!(settled.outcome, Outcome::Degraded { why });
    for path in &expected {
        assert!(
            settled
                .summary
                .lines
                .iter()
                .any(|line| line.starts_with(&format!("not read: {path} "))),
            "{path}"
        );
    }
    assert_eq!(place.proposals().1.len(), 1);
    let again = place.pass().outcome.why().unwrap().to_owned();
    assert!(
        again.starts_with(&format!(
            "no delta (1 idea unchanged); {} could not be read",
            expected.len()
        )),
        "{again}"
    );
}

/// Changes an idea while a pass is running.
struct Editor {
    path: PathBuf,
}

impl Progress for Editor {
    fn step(&mut self, _what: &str, done: u64, total: u64) {
        if done == total {
            fs::write(&self.path, "Quite another thought.\n").unwrap();
        }
    }
}

#[test]
fn idea_changed_during_pass_remains_selected() {
    let (mut place, _) = project();
    let mut editor = Editor { path: place.root.join("ideas/report-page.md") };
    let settled = place.pass_with(Arc::new(runner_backends::Builtin::default()), &mut editor);
    let Outcome::Degraded { why } = &settled.outcome else { panic!("{settled:?}") };
    assert_eq!(why, "2 proposals were dropped because an idea changed in the meantime");
    let (_, proposals) = place.proposals();
    assert!(proposals.iter().all(|it| !it.targets.contains(&"ideas/report-page.md".to_owned())));
    assert_eq!(place.state("ideas/report-page.md")["hash"], "");
    assert_eq!(
        place.state("ideas/sub/report.md")["hash"],
        "",
        "an idea whose merge destination changed is not selected"
    );
    assert_eq!(place.pass().summary.facts["shown"], 2);
}

#[test]
fn failed_answer_changes_no_file() {
    let (mut place, _) = project();
    let before = place.everything();
    let auth = BackendError::Auth { why: "no key".into() };
    for (step, class) in [
        (Step::Error(auth), Class::Auth),
        (Step::Text(String::new()), Class::Malformed),
        (Step::Answer(json!([])), Class::Malformed),
        (Step::Answer(json!({"proposals": "none"})), Class::Malformed),
    ] {
        let settled =
            place.pass_with(Arc::new(Scripted::new("model", [step.clone()])), &mut Silent);
        assert_eq!(settled.outcome.class(), Some(class), "{step:?} {settled:?}");
        assert_eq!(place.everything(), before, "{step:?}");
    }
    let around = json!({"proposals": [keep("ideas/coffee.md")]});
    assert_eq!(place.answered(around).outcome.as_str(), "degraded");
}

#[test]
fn idea_limit_rotates_through_all_ideas() {
    let (mut place, _) = project();
    place.spec.max_ideas = 4;
    let settled = place.pass();
    assert!(
        settled.summary.headline.contains("2 more ideas left for next time"),
        "{}",
        settled.summary.headline
    );
    let shown: Vec<String> = place.proposals().1.iter().map(|it| it.targets[0].clone()).collect();
    assert_eq!(shown.len(), 4);
    place.write("ideas/coffee.md", "Coffee is better after noon.\n");
    place.pass();
    let then: Vec<String> = place.proposals().1.iter().map(|it| it.targets[0].clone()).collect();
    assert_eq!(
        then,
        ["ideas/scheduler-story.md", "ideas/sub/report.md", "ideas/coffee.md"],
        "after {shown:?}"
    );
}

#[test]
fn work_in_progress_is_detected() {
    let (place, _) = project();
    let spec = DreamSpec::default();
    let found = |spec: &DreamSpec| dirty(&place.ask(), spec).unwrap();
    assert_eq!(found(&spec), [""; 0]);

    place.git(&["add", "-f", "ideas/coffee.md"]);
    assert_eq!(found(&spec), ["ideas/coffee.md"]);
    place.git(&["rm", "-q", "--cached", "ideas/coffee.md"]);
    fs::write(place.root.join(".git/info/exclude"), "/dreams/\n").unwrap();
    assert_eq!(found(&spec), [""; 0], "untracked ideas are treated as work in progress");
    let strict = DreamSpec { dirty: Dirty::Strict, ..DreamSpec::default() };
    assert_eq!(found(&strict).len(), 6);
    fs::write(place.root.join(".git/info/exclude"), "/dreams/\n/ideas/\n").unwrap();

    place.git(&["checkout", "-q", "-b", "other", "HEAD~1"]);
    place.commit("feat: theirs", &["src/main.rs"]);
    place.git(&["checkout", "-q", "main"]);
    let merge = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        place.git(&["merge", "-q", "other"])
    }));
    assert!(merge.is_err(), "the merge did not conflict");
    assert_eq!(found(&spec), ["a merge is unfinished", "src/main.rs (unmerged)"]);
    place.git(&["merge", "--abort"]);
    fs::write(place.root.join(".git/index.lock"), "").unwrap();
    assert_eq!(found(&spec), ["a git operation is running (index.lock)"]);
}
