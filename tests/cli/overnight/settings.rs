//! The settings of a night, under the names that other programs have for them too.

use super::{JOB, LATEST, corpus, said, start, summary_of};
use crate::house::House;

#[test]
fn the_other_names_of_the_settings_are_read_and_ours_win() {
    let house = House::with(
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
        house
            .run(&["config", "get", &format!("jobs.overnight.{key}")])
            .ends(0)
            .says(value);
    }
    house
        .run(&["config", "get", "curator.hourly_cap"])
        .ends(0)
        .says("3");
    // A mistake is shown where it stands, by the name that it has there.
    let toml = house.read("runner.toml");
    let line = |word: &str| toml.lines().position(|it| it.starts_with(word)).unwrap() + 1;
    house.write(
        "runner.toml",
        toml.replace("run_timeout = \"2h\"", "run_timeout = \"soon\""),
    );
    house
        .run(&["config", "check"])
        .ends(78)
        .says(&format!("runner.toml:{}:", line("run_timeout")))
        .says("dream.run_timeout");
    house.write(
        "runner.toml",
        toml.replace("max_iterations", "max_iteration"),
    );
    house
        .run(&["config", "check"])
        .ends(78)
        .says(&format!("runner.toml:{}:", line("max_iterations")))
        .says("max_iterations");
}

#[test]
fn a_night_that_only_other_names_tell_of_is_run_by_hand() {
    let house = House::with(
        "[dream]\noutput_dir = \".agents/overnight/theirs\"\nmax_iterations = 1\nretries = 0\n",
    );
    corpus(&house);
    house.write("../clock", "2026-11-22T02:30:00Z\n");
    house
        .run(&["config", "get", "jobs.overnight.trigger"])
        .ends(0)
        .says("manual");
    start(&house, &[]).ends(0);
    assert!(!house.path(LATEST).exists());
    said(&house, &["overnight", "report"])
        .ends(0)
        .says("  done");
    said(
        &house,
        &[
            "overnight",
            "report",
            "--validate",
            "--from",
            ".agents/overnight/theirs",
        ],
    )
    .ends(0);
    // With the job under its own name beside it, nothing is there twice.
    let house = House::with(&format!("{JOB}[dream]\nmax_iterations = 1\n"));
    corpus(&house);
    house.write("../clock", "2026-11-22T02:30:00Z\n");
    start(&house, &[]).ends(0);
    assert_eq!(
        summary_of(&house)["iterations"].as_array().unwrap().len(),
        1
    );
}
