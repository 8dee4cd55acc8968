//! Keeping the machine awake, with a fake of the host's own program that keeps a list.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::house::{House, Said};

/// A house whose `systemd-inhibit` says what it was asked, and does what comes after its options.
fn house(toml: &str, answer: &str) -> House {
    let house = House::with(toml);
    let program = house.root().join("host/systemd-inhibit");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let text = format!(
        "#!/bin/sh\ncd '{}'\necho \"$@\" >> asked\n{answer}\nwhile [ \"${{1#--}}\" != \"$1\" ]; do shift; done\n\"$@\"\necho over >> asked\n",
        house.root().display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    house
}

const TELL: &str = "[jobs.tell]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo a > $RUNNER_OUT/a\"]\nartifacts = [{ from = \"a\", to = \"a\" }]\n";

fn run(house: &House, args: &[&str]) -> Said {
    let mut command = house.runner(args);
    command.env(
        "PATH",
        format!("{}:/usr/bin:/bin", house.root().join("host").display()),
    );
    Said::of(command.output().unwrap())
}

fn asked(house: &House) -> String {
    fs::read_to_string(house.root().join("asked")).unwrap_or_default()
}

#[test]
fn a_night_keeps_the_machine_awake_and_its_report_says_so() {
    let house = house(TELL, "");
    let night = run(&house, &["night", "--json"]).ends(0);
    let asked = asked(&house);
    assert_eq!(asked.matches("--what=sleep:idle").count(), 2, "{asked}");
    assert_eq!(asked.matches("over").count(), 2, "all were let go: {asked}");
    assert!(asked.contains("--why=tell of "), "{asked}");
    let told = night.json();
    for line in told["runs"].as_array().unwrap() {
        assert_eq!(line["awake"]["held"], "sleep", "{line}");
    }
    run(&house, &["report"])
        .ends(0)
        .says("kept awake by logind");
    let id = told["runs"][0]["run"].as_str().unwrap();
    run(&house, &["runs", "show", id]).says("kept awake by logind");
    let shown = run(&house, &["runs", "show", id, "--json"]).json();
    assert_eq!(shown["awake"]["by"], "logind");
}

#[test]
fn who_wants_it_is_asked_and_the_flag_wins() {
    let by_hand = format!("{TELL}trigger = \"manual\"\n");
    let house = house(&by_hand, "");
    let first = run(&house, &["run", "tell", "--json"]).ends(0).json();
    assert!(first["awake"].is_null(), "{first}");
    assert_eq!(asked(&house), "", "a job by hand does not ask by itself");
    let second = run(&house, &["run", "tell", "--keep-awake", "--json"]).ends(0);
    assert_eq!(second.json()["awake"]["held"], "sleep");
    house.write(
        "runner.toml",
        house.read("runner.toml") + "keep_awake = true\n",
    );
    let third = run(&house, &["run", "tell", "--json"]).ends(0);
    assert_eq!(third.json()["awake"]["held"], "sleep");
    let fourth = run(&house, &["run", "tell", "--no-keep-awake", "--json"]).ends(0);
    assert!(fourth.json()["awake"].is_null(), "{fourth:?}");
    run(&house, &["run", "tell", "--keep-awake", "--no-keep-awake"]).ends(2);
}

#[test]
fn a_machine_that_cannot_be_kept_awake_is_told_of_and_the_run_goes_on() {
    let house = house(
        TELL,
        "echo 'Failed to connect to bus: No such file or directory' >&2; exit 1",
    );
    let told = run(&house, &["night", "--json"]).ends(0).json();
    let runs = told["runs"].as_array().unwrap();
    let tell = runs.iter().find(|line| line["job"] == "tell").unwrap();
    assert_eq!(tell["outcome"]["outcome"], "succeeded", "{tell}");
    assert_eq!(tell["awake"]["held"], "nothing", "{tell}");
    run(&house, &["report"])
        .ends(0)
        .says("not kept awake: Failed to connect to bus");
}
