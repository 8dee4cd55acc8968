//! Tests pruning of rows and files, including kills before each step.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Aged, content, names};
use crate::fixture::{CommandOutput, Fixture, print_line};

/// Creates a fixture in December with runs and logs from January to March. A link among the runs'
/// folders points to a folder outside the state folder.
fn with_old_history() -> Aged {
    let aged = Aged::new();
    for month in ["01-11", "02-11", "03-11"] {
        aged.at(&format!("2026-{month}T13:00:30Z"));
        aged.run(&["tick"]).ends(0);
        aged.run(&["run", "late", "--key", month]).ends(0);
    }
    let runs = aged.fixture.state().join("runs");
    let outside = aged.fixture.root().join("outside");
    fs::create_dir_all(outside.join("precious")).unwrap();
    symlink(&outside, runs.join("01K00000000000000000000000")).unwrap();
    aged.at("2026-12-01T12:00:00Z");
    aged
}

#[test]
fn pruning_dry_run_matches_real_run() {
    let aged = with_old_history();
    let jobs = "SELECT count(DISTINCT job) FROM runs";
    let ran = aged.fixture.count(jobs);
    let before = content(&aged.store());
    let plan = aged.run(&["db", "prune", "--dry-run", "--json"]).ends(0).json();
    assert_eq!(content(&aged.store()), before, "a dry run changed the database");
    let gone = plan["rows"]["occurrences"].as_array().unwrap().len();
    assert!(gone >= 4, "{plan}");
    let done = aged.run(&["db", "prune", "--json"]).ends(0).json();
    assert_eq!(plan["rows"], done["rows"]);
    assert_eq!(plan["files"], done["files"]);
    aged.run(&["db", "check"]).ends(0);
    // The newest run of each job is kept, and links to other folders are not followed.
    assert_eq!(aged.fixture.count(jobs), ran, "{plan}");
    assert!(aged.fixture.root().join("outside/precious").is_dir());
    let again = aged.run(&["db", "prune", "--dry-run", "--json"]).ends(0).json();
    assert_eq!(again["rows"]["occurrences"].as_array().unwrap().len(), 0);
    assert_eq!(again["files"].as_array().unwrap().len(), 0, "{again}");
    // A key can be used again after its occurrence has been removed.
    aged.run(&["run", "late", "--key", "01-11"]).ends(0);
    assert_eq!(
        aged.fixture.count(
            "SELECT count(*) FROM occurrences WHERE key LIKE '%01-11' AND recorded > 1790000000000"
        ),
        1
    );
}

#[test]
fn next_pruning_completes_a_killed_one() {
    let mut steps = 0;
    for step in 0..60 {
        let aged = with_old_history();
        let output = aged
            .command(&["db", "prune"])
            .env("RUNNER_TEST_DIE_AT", step.to_string())
            .output()
            .unwrap();
        aged.run(&["db", "check"]).ends(0);
        aged.run(&["db", "prune"]).ends(0);
        let again = aged.run(&["db", "prune", "--dry-run"]).ends(0);
        assert!(again.out.contains("nothing to remove"), "step {step}: {again:?}");
        if output.status.code() == Some(0) {
            steps = step;
            break;
        }
    }
    assert!(steps > 4, "{steps} steps");
    print_line(&format!("pruning was killed before each of its {steps} steps"));
}

#[test]
fn one_unremovable_file_does_not_stop_pruning() {
    let aged = with_old_history();
    let runs = aged.fixture.state().join("runs");
    // Even root cannot remove an immutable file.
    let first = names(&runs).into_iter().find(|run| run.is_dir() && !run.is_symlink()).unwrap();
    let held = |how: &str| {
        std::process::Command::new("chattr")
            .args([how, first.to_str().unwrap()])
            .output()
            .is_ok_and(|done| done.status.success())
    };
    if !held("+i") {
        print_line("skipped 1: no file can be made immutable here");
        return;
    }
    let before = aged.backups().len();
    let last = names(&runs).len();
    aged.run(&["tick"]).expect_text("cannot remove");
    let once = aged.backups().len();
    aged.at("2026-12-01T14:00:00Z");
    aged.run(&["tick"]).expect_text("cannot remove");
    let twice = aged.backups().len();
    let left = names(&runs).len();
    assert!(held("-i"));
    assert_eq!(once, twice, "{before} before");
    assert!(left < last, "{left} of {last}");
    aged.at("2026-12-01T16:00:00Z");
    aged.run(&["tick"]);
    assert!(!first.exists());
}

#[test]
fn pruning_dry_run_creates_no_state() {
    let fixture = Fixture::new();
    let plan = CommandOutput::of(fixture.runner(&["db", "prune", "--dry-run"]).output().unwrap());
    plan.ends(0).expect_text("nothing to remove");
    assert!(!fixture.state().exists());
}

#[test]
fn pruning_removes_old_undo_folders() {
    let aged = Aged::new();
    let backup = |at: &str| {
        let at: jiff::Timestamp = at.parse().unwrap();
        let run = runner_engine::ids::RunId::new(at);
        let folder = format!("dreams/.undo/p-1/{run}");
        aged.fixture.write(&format!("{folder}/act.json"), "{}");
        aged.fixture.path(&folder)
    };
    let (old, young) = (backup("2026-01-10T12:00:00Z"), backup("2026-03-10T12:00:00Z"));
    aged.at("2026-04-20T12:00:00Z");
    aged.run(&["db", "prune", "--dry-run"]).ends(0).expect_text("kind undo");
    assert!(old.exists() && young.exists());
    aged.run(&["db", "prune"]).ends(0);
    assert!(!old.exists() && young.exists());
    aged.at("2026-06-20T12:00:00Z");
    aged.run(&["db", "prune"]).ends(0);
    assert!(!aged.fixture.path("dreams/.undo/p-1").exists(), "the empty folder is still there");
}
