//! Tests the ways in which the loop ends, and how the summary and the iterations report them.

use std::fs;

use serde_json::Value;

use super::{
    JOB, WORK_FILE, citation, json, killed_after_one_iteration, learning, night, run_ok, start,
    summary_of, tree, watched, words,
};
use crate::fixture::{CommandOutput, Fixture, skip};

#[test]
fn limits_and_pinned_queue_are_respected() {
    let fixture = night();
    // The checkpoint exceeds its limit, so close-loop, which is a hard step, cannot run.
    fixture.write(".agents/knowledge/big.bin", vec![7; 2 * 1024 * 1024]);
    let before = tree(&fixture);
    start(&fixture, &["--checkpoint-max-mb", "1"]).ends(78).expect_text("--checkpoint-max-mb 3");
    assert_eq!(tree(&fixture), before);
    let summary = summary_of(&fixture);
    assert_eq!(
        (&summary["status"], &summary["iterations"][0]["status"]),
        (&"failed".into(), &"failed".into())
    );
    assert_eq!(summary["steps"][0]["name"], "close-loop");
    assert_eq!(summary["steps"][0]["status"], "failed");
    fs::remove_file(fixture.path(".agents/knowledge/big.bin")).unwrap();
    fixture.write("queue.md", "# Tonight\n- Look at the network [file: src/net.rs] [severity: low] [x: y]\n  it is slow\n\n- Second\n");
    start(&fixture, &["--queue", "queue.md", "--warn-only=false", "--plateau-epsilon", "1"])
        .ends(0);
    let summary = summary_of(&fixture);
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(packets[0]["title"], "Look at the network [x: y]");
    assert_eq!(packets[0]["severity"], "low");
    assert_eq!(packets[1]["title"], "Second");
    assert_eq!(packets[0]["target_files"], serde_json::json!(["src/net.rs"]));
    let last = summary["iterations"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "halted-on-regression-pre-commit");
    assert!(summary["plateau_reason"].as_str().unwrap().contains("under 1"));
    let work = fixture.read(WORK_FILE);
    assert!(
        work.contains("\"dedup_key\":\"pinned|second\"")
            && work.contains("\"status\":\"proposed\""),
        "{work}"
    );
    start(&fixture, &["--queue", "queue.md"]).ends(0);
    assert_eq!(
        fixture.read(WORK_FILE).matches("pinned|second").count(),
        1,
        "an item was added twice"
    );
    // An item that is no longer pinned is not offered again.
    start(&fixture, &[]).ends(0);
    let titles = summary_of(&fixture)["morning_packets"].to_string();
    assert!(!titles.contains("\"title\":\"Second\""), "{titles}");
    for bad in [
        ["--plateau-window", "1"],
        ["--output-dir", ".agents/learnings/x"],
        ["--output-dir", "../x"],
        ["--plateau-epsilon", "2"],
    ] {
        let said = start(&fixture, &bad);
        assert!(matches!(said.code, 2 | 78), "{bad:?}: {said:?}");
    }
}

#[test]
fn exhausted_run_time_ends_the_loop() {
    let fixture = night();
    killed_after_one_iteration(&fixture, &["--run-timeout", "1h"]);
    // Two seconds of the run's hour are left, which is less than the time reserved for the steps.
    fixture.set_clock("2026-11-22T03:29:58Z");
    start(&fixture, &["--run-timeout", "1h"]).ends(0);
    let summary = summary_of(&fixture);
    assert_eq!(summary["status"], "done");
    assert_eq!(summary["budget_exhausted"], true);
    let iterations = summary["iterations"].as_array().unwrap();
    assert_eq!(iterations.len(), 1, "an iteration was started without enough time");
    assert_eq!(iterations[0]["status"], "done");
    assert!(summary["plateau_reason"].is_null() && summary["regression_reason"].is_null());
    assert_eq!(summary["runtime"]["requested_timeout"], "1h0m0s");
    assert_eq!(summary["runtime"]["effective_timeout"], "2s");
    assert!(!summary["morning_packets"].as_array().unwrap().is_empty());
    run_ok(&fixture, &["overnight", "report", "--validate"]).ends(0);
}

#[test]
fn max_iterations_limits_the_loop() {
    let fixture = night();
    start(&fixture, &["--max-iterations", "1"]).ends(0);
    let summary = summary_of(&fixture);
    assert_eq!(summary["iterations"].as_array().unwrap().len(), 1);
    assert!(
        summary["budget_exhausted"].is_null(),
        "the field is set although the time is not exhausted"
    );
}

/// Builds a library that simulates a broken disk. Returns `None` if it cannot be compiled.
fn broken_disk(fixture: &Fixture) -> Option<std::path::PathBuf> {
    let library = fixture.root().join("eio.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fakes/eio.c");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]);
    let made = compiler.status().is_ok_and(|it| it.success());
    if !made {
        skip("cc", "the simulation of a broken disk: no C compiler is installed");
    }
    made.then_some(library)
}

fn with_broken_disk(fixture: &Fixture, library: &std::path::Path, times: u64) -> CommandOutput {
    let mut start = fixture.runner_with_clock(&["overnight", "start"]);
    start
        .env("LD_PRELOAD", library)
        .env("EIO_OPENDIR", "/overnight/staging/")
        .env("EIO_TIMES", times.to_string());
    watched(fixture, &mut start)
}

#[test]
fn three_measurement_failures_end_the_loop() {
    let fixture = night();
    let Some(library) = broken_disk(&fixture) else {
        return;
    };
    let before = (tree(&fixture), fixture.read(WORK_FILE));
    with_broken_disk(&fixture, &library, 1_000).ends(0);
    let summary = summary_of(&fixture);
    assert_eq!(summary["status"], "done", "the steps after the loop were skipped");
    assert_eq!(summary["measure_failure_halt"], true);
    let iterations = summary["iterations"].as_array().unwrap();
    assert_eq!(iterations.len(), 3);
    for it in iterations {
        assert_eq!(it["status"], "rolled-back-pre-commit");
        let error = it["error"].as_str().unwrap();
        assert!(error.contains("could not be measured") && error.contains("os error 5"), "{error}");
        assert_eq!(it["fitness_after"], Value::Null);
    }
    assert_eq!(tree(&fixture), before.0, "something was committed");
    // The close-loop step did not take effect either.
    assert_eq!(summary["degraded"].as_array().unwrap().len(), 4);
    assert!(summary["degraded"].to_string().contains("no iteration was committed"));
    assert!(!summary["morning_packets"].as_array().unwrap().is_empty());
    run_ok(&fixture, &["overnight", "report", "--validate"]).ends(0);
    assert!(!fixture.path(".agents/overnight/staging").exists());

    // Two failures do not halt the night, because the limit is three.
    with_broken_disk(&fixture, &library, 2).ends(0);
    let summary = summary_of(&fixture);
    assert!(summary["measure_failure_halt"].is_null());
    let words: Vec<_> =
        summary["iterations"].as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
    assert_eq!(words[..3], ["rolled-back-pre-commit", "rolled-back-pre-commit", "done"]);
    assert!(summary["fitness_delta"].as_f64().unwrap() > -0.01);
}

/// Creates a fixture in which all established learnings have been used and other learnings are
/// confirmed only by a commit. Promoting the latter lowers the share of supported claims.
fn regressing() -> Fixture {
    let fixture = Fixture::with(JOB);
    for number in 0..3_u64 {
        let other = (number + 1) % 3;
        let text = learning(
            ["ci", "release", "agents"][number as usize],
            "established",
            &format!("Lesson {number}"),
            &format!("{} See [[lesson-{other}]].", words(number)),
        );
        fixture.write(&format!(".agents/learnings/lesson-{number}.md"), text);
    }
    let cited: String = (0..3).map(|number| citation(&format!("lesson-{number}"))).collect();
    fixture.write(".agents/ao/citations.jsonl", cited);
    fixture.write("src/net.rs", "// retry\n");
    fixture.git(&["add", "src"]);
    fixture.git(&["commit", "--quiet", "-m", "Retry"]);
    let commit = fixture.git(&["rev-parse", "HEAD"]);
    for number in 0..6_u64 {
        let text = format!("{} Commit {}.", words(number + 50), commit.trim());
        let text = learning("ci", "provisional", &format!("Confirmed {number}"), &text);
        fixture.write(&format!(".agents/learnings/confirmed-{number}.md"), text);
    }
    fixture.set_clock("2026-11-22T02:30:00Z");
    fixture
}

#[test]
fn regression_is_tolerated_only_within_the_budget() {
    let fixture = regressing();
    let before = tree(&fixture);
    start(&fixture, &["--warn-only=false"]).ends(0).expect_text("fell by");
    let strict = summary_of(&fixture);
    assert_eq!(tree(&fixture), before, "the live tree was changed");
    let last = strict["iterations"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "halted-on-regression-pre-commit");
    let why = strict["regression_reason"].as_str().unwrap();
    assert!(why.contains("fell by") && !why.contains("exhausted"), "{why}");
    assert_eq!(strict["status"], "done");
    // The headline names the fitness of the corpus, not of the rejected copy.
    let id = fixture.run(&["runs", "--job", "overnight", "--json"]).json()[0]["id"].clone();
    let run = fixture.run(&["runs", "show", id.as_str().unwrap(), "--json"]).ends(0).json();
    let composite = strict["iterations"][0]["fitness_before"]["composite"].as_f64().unwrap();
    assert_eq!(run["facts"]["composite"].as_f64(), Some(composite), "{run:#}");
    run_ok(&fixture, &["overnight", "report", "--validate"]).ends(0);

    // A regression uses one rescue of the warn-only budget, which nights share and never refill.
    let budget = ".agents/overnight/warn-only-budget.json";
    assert!(!fixture.path(budget).exists());
    start(&fixture, &["--max-iterations", "1"]).ends(0);
    let warned = summary_of(&fixture);
    assert_eq!(warned["warn_only_budget_initial"], 3);
    assert_eq!(warned["warn_only_remaining"], 2);
    assert_eq!(json(&fixture, budget)["remaining"], 2);
    let reported = warned["iterations"][0]["degraded"][0].as_str().unwrap();
    assert!(reported.contains("a rescue was used, 2 left"), "{reported}");
    assert!(warned["degraded"].to_string().contains("a rescue was used"), "{warned}");
    run_ok(&fixture, &["overnight", "warn-budget", "show"])
        .ends(0)
        .expect_text("2 of 3 rescues left");
    run_ok(&fixture, &["overnight", "warn-budget", "reset"]).ends(0);
    assert_eq!(json(&fixture, budget)["remaining"], 3);
    assert_ne!(tree(&fixture), before);

    let fixture = regressing();
    fixture.write(budget, "{\"schema_version\":1,\"initial\":3,\"remaining\":0,\"spent\":[]}\n");
    start(&fixture, &[]).ends(0);
    let gone = summary_of(&fixture);
    let why = gone["regression_reason"].as_str().unwrap();
    assert!(why.ends_with(" (warn-only budget exhausted)"), "{why}");
    assert_eq!(gone["warn_only_remaining"], 0);
    assert_eq!(tree(&fixture), before);
}
