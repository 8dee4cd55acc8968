//! Tests sleep inhibition with a fake `systemd-inhibit` that records its calls.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::fixture::{CommandOutput, Fixture};

/// Creates a fixture with a `systemd-inhibit` that records its arguments, executes the shell script
/// `answer`, and then runs the command after its options.
fn fixture(toml: &str, answer: &str) -> Fixture {
    let fixture = Fixture::with(toml);
    let program = fixture.root().join("host/systemd-inhibit");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let text = format!(
        "#!/bin/sh\ncd '{}'\necho \"$@\" >> asked\n{answer}\nwhile [ \"${{1#--}}\" != \"$1\" ]; do shift; done\n\"$@\"\necho over >> asked\n",
        fixture.root().display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fixture
}

const TELL: &str = "[jobs.tell]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo a > $RUNNER_OUT/a\"]\nartifacts = [{ from = \"a\", to = \"a\" }]\n";

fn run(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    let mut command = fixture.runner(args);
    command.env("PATH", format!("{}:/usr/bin:/bin", fixture.root().join("host").display()));
    CommandOutput::of(command.output().unwrap())
}

fn asked(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.root().join("asked")).unwrap_or_default()
}

#[test]
fn night_inhibits_sleep_and_reports_inhibition() {
    let fixture = fixture(TELL, "");
    let night = run(&fixture, &["night", "--json"]).ends(0);
    let asked = asked(&fixture);
    assert_eq!(asked.matches("--what=sleep:idle").count(), 2, "{asked}");
    assert_eq!(asked.matches("over").count(), 2, "not all inhibitions were released: {asked}");
    assert!(asked.contains("--why=tell of "), "{asked}");
    let reported = night.json();
    for line in reported["runs"].as_array().unwrap() {
        assert_eq!(line["awake"]["held"], "sleep", "{line}");
    }
    run(&fixture, &["report"]).ends(0).expect_text("kept awake by logind");
    let id = reported["runs"][0]["run"].as_str().unwrap();
    run(&fixture, &["runs", "show", id]).expect_text("kept awake by logind");
    let shown = run(&fixture, &["runs", "show", id, "--json"]).json();
    assert_eq!(shown["awake"]["by"], "logind");
}

#[test]
fn keep_awake_flag_overrides_the_setting() {
    let manual = format!("{TELL}trigger = \"manual\"\n");
    let fixture = fixture(&manual, "");
    let first = run(&fixture, &["run", "tell", "--json"]).ends(0).json();
    assert!(first["awake"].is_null(), "{first}");
    assert_eq!(asked(&fixture), "", "a manual run inhibits sleep by default");
    let second = run(&fixture, &["run", "tell", "--keep-awake", "--json"]).ends(0);
    assert_eq!(second.json()["awake"]["held"], "sleep");
    fixture.write("runner.toml", fixture.read("runner.toml") + "keep_awake = true\n");
    let third = run(&fixture, &["run", "tell", "--json"]).ends(0);
    assert_eq!(third.json()["awake"]["held"], "sleep");
    let fourth = run(&fixture, &["run", "tell", "--no-keep-awake", "--json"]).ends(0);
    assert!(fourth.json()["awake"].is_null(), "{fourth:?}");
    run(&fixture, &["run", "tell", "--keep-awake", "--no-keep-awake"]).ends(2);
}

#[test]
fn failed_sleep_inhibition_is_reported() {
    let fixture =
        fixture(TELL, "echo 'Failed to connect to bus: No such file or directory' >&2; exit 1");
    let reported = run(&fixture, &["night", "--json"]).ends(0).json();
    let runs = reported["runs"].as_array().unwrap();
    let tell = runs.iter().find(|line| line["job"] == "tell").unwrap();
    assert_eq!(tell["outcome"]["outcome"], "succeeded", "{tell}");
    assert_eq!(tell["awake"]["held"], "nothing", "{tell}");
    run(&fixture, &["report"]).ends(0).expect_text("not kept awake: Failed to connect to bus");
}
