//! Tests the settings of a night, also under the names that other programs use.

use std::fs;

use super::{JOB, LATEST, command, corpus, night, run_ok, start, summary_of};
use crate::fixture::{CommandOutput, Fixture};

#[test]
fn own_settings_override_alternate_names() {
    let fixture = Fixture::with(
        "[dream]\nrun_timeout = \"2h\"\nrunners = [\"claude-haiku\"]\nkeep_awake = false\nmax_iterations = 4\ngoal = \"theirs\"\nat = \"02:30\"\n\
         [dream.local_curator]\nhourly_cap = 3\n[backends.claude-haiku]\ntype = \"command\"\nprogram = \"true\"\n[jobs.overnight]\ngoal = \"ours\"\n",
    );
    for (key, value) in [
        ("kind", "overnight"),
        ("timeout", "2h"),
        ("runners", "claude-haiku"),
        ("keep_awake", "false"),
        ("max_iterations", "4"),
        ("goal", "ours"),
        ("trigger", "daily 02:30"),
    ] {
        fixture
            .run(&["config", "get", &format!("jobs.overnight.{key}")])
            .ends(0)
            .expect_text(value);
    }
    fixture.run(&["config", "get", "curator.hourly_cap"]).ends(0).expect_text("3");
    // A mistake is reported with the location and name in the file.
    let toml = fixture.read("runner.toml");
    let line = |word: &str| toml.lines().position(|it| it.starts_with(word)).unwrap() + 1;
    fixture.write("runner.toml", toml.replace("run_timeout = \"2h\"", "run_timeout = \"soon\""));
    fixture
        .run(&["config", "check"])
        .ends(78)
        .expect_text(&format!("runner.toml:{}:", line("run_timeout")))
        .expect_text("dream.run_timeout");
    fixture.write("runner.toml", toml.replace("max_iterations", "max_iteration"));
    fixture
        .run(&["config", "check"])
        .ends(78)
        .expect_text(&format!("runner.toml:{}:", line("max_iterations")))
        .expect_text("max_iterations");
}

#[test]
fn alternate_names_alone_configure_manual_nights() {
    let fixture = Fixture::with(
        "[dream]\noutput_dir = \".agents/overnight/theirs\"\nmax_iterations = 1\nretries = 0\n",
    );
    corpus(&fixture);
    fixture.write("../clock", "2026-11-22T02:30:00Z\n");
    fixture.run(&["config", "get", "jobs.overnight.trigger"]).ends(0).expect_text("manual");
    start(&fixture, &[]).ends(0);
    assert!(!fixture.path(LATEST).exists());
    run_ok(&fixture, &["overnight", "report"]).ends(0).expect_text("  done");
    run_ok(&fixture, &["overnight", "report", "--validate", "--from", ".agents/overnight/theirs"])
        .ends(0);
    // If the job is also configured under its own name, no setting is applied twice.
    let fixture = Fixture::with(&format!("{JOB}[dream]\nmax_iterations = 1\n"));
    corpus(&fixture);
    fixture.write("../clock", "2026-11-22T02:30:00Z\n");
    start(&fixture, &[]).ends(0);
    assert_eq!(summary_of(&fixture)["iterations"].as_array().unwrap().len(), 1);
}

#[test]
fn start_needs_only_a_corpus() {
    let fixture = night();
    fs::remove_file(fixture.path("runner.toml")).unwrap();
    CommandOutput::of(command(&fixture, &["overnight", "start"]).output().unwrap()).ends(0);
    assert!(fixture.read("runner.toml").contains("[jobs.overnight]"));
    assert_eq!(summary_of(&fixture)["status"], "done");
    // A configured job is left as it is.
    let before = fixture.read("runner.toml");
    CommandOutput::of(command(&fixture, &["overnight", "start"]).output().unwrap()).ends(0);
    assert_eq!(fixture.read("runner.toml"), before);
}
