//! Tests changes in a scheduler's environment, such as a removed folder or an invalid
//! configuration.

use std::fs;

use crate::fixture::Fixture;
use crate::served::{Daemon, fixture};

const COUNT: &str =
    "[jobs.count]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"true\"\n";

#[test]
fn daemon_survives_removed_folder_and_executable() {
    let fixture = fixture(COUNT);
    let gone = fixture.root().join("gone");
    fs::create_dir(&gone).unwrap();
    let program = fixture.root().join("runner");
    // Another process makes the copy, because a child of this process could inherit the write
    // descriptor.
    let copy = [env!("CARGO_BIN_EXE_runner"), program.to_str().unwrap()];
    assert!(fixture.command("cp", &copy).status().unwrap().success());
    let mut command = fixture.command(program.to_str().unwrap(), &["daemon"]);
    command.current_dir(&gone);
    let daemon = Daemon::of(&fixture, command);
    fs::remove_dir(&gone).unwrap();
    fs::remove_file(&program).unwrap();
    fixture.set_clock("2026-11-21T20:01:00Z");
    let reported = daemon.tick();
    let id = reported["started"][0].as_str().unwrap().to_owned();
    crate::served::over(&fixture, &id);
    assert!(crate::served::outcome(&fixture, &id).contains("succeeded"));
    daemon.signal(rustix::process::Signal::TERM);
    daemon.ends(0);
}

#[test]
fn invalid_configuration_defers_the_run() {
    let fixture = fixture(COUNT);
    fixture.run_with_clock(&["tick"]).ends(0);
    let path = fixture.path("runner.toml");
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{good}\n[jobs.cou")).unwrap();
    let reported = fixture.run_at("2026-11-21T20:01:00Z", &["tick", "--json"]).json();
    let outcome = reported["started"][0]["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("deferred until"), "{reported}");
    fs::write(&path, good).unwrap();
    let reported = fixture.run_at("2026-11-21T20:20:00Z", &["tick", "--json"]).ends(0).json();
    assert_eq!(reported["started"][0]["outcome"], "succeeded", "{reported}");
}

#[test]
fn pause_keeps_runs_already_due() {
    let fixture = fixture(COUNT);
    fixture.run_with_clock(&["tick"]).ends(0);
    fixture
        .run_at("2026-11-21T20:01:30Z", &["pause", "count", "--until", "2026-11-21T20:10:00Z"])
        .ends(0);
    let queued = fixture.run_with_clock(&["runs", "--json"]).ends(0).json();
    assert_eq!(queued[0]["state"], "queued", "{queued}");
    assert_eq!(queued[0]["due"], "2026-11-21T20:01:00Z", "{queued}");
    fixture.run_at("2026-11-21T20:10:30Z", &["tick"]).ends(0);
    let reported = fixture.run_with_clock(&["status", "--json"]).ends(0).out;
    assert!(reported.contains("paused"), "{reported}");
    let runs = fixture.run_with_clock(&["runs", "--json"]).ends(0).json();
    let of_then = |one: &&serde_json::Value| one["due"] == "2026-11-21T20:01:00Z";
    let then = runs.as_array().unwrap().iter().find(of_then).unwrap();
    assert_eq!(then["outcome"], "succeeded", "{runs}");
}

#[test]
fn deferred_night_announces_a_later_report() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    // A merge is in progress.
    fixture.write(".git/MERGE_HEAD", fixture.git(&["rev-parse", "HEAD"]));
    fixture
        .run(&["night"])
        .ends(0)
        .expect_text("the report will be written when the remaining runs finish");
}

/// Checks that runner works in a container when the leader of its process group is outside.
#[test]
fn init_works_inside_a_container() {
    let fixture = crate::fixture::Fixture::new();
    let inside = ["--mount", "--pid", "--fork", "--mount-proc"];
    let unshare = |what: &[&str]| fixture.command("unshare", &[&inside[..], what].concat());
    if !unshare(&["true"]).status().is_ok_and(|status| status.success()) {
        println!("a container: skipped 1: /proc cannot be mounted here");
        return;
    }
    let mut inside = unshare(&[env!("CARGO_BIN_EXE_runner"), "init"]);
    crate::fixture::CommandOutput::of(inside.output().unwrap())
        .ends(0)
        .expect_text("is a project now");
}
