//! Nights: one budget, one report, whatever happens to their parts.

use std::fs;

use crate::house::{House, Said};

const TWO: &str = "[jobs.a]\nkind = \"command\"\nprogram = \"true\"\n[jobs.b]\nkind = \"command\"\nprogram = \"true\"\n";

fn at(house: &House, clock: &str, args: &[&str]) -> Said {
    let path = house.root().join("clock");
    fs::write(&path, clock).unwrap();
    Said::of(
        house
            .runner(args)
            .env("RUNNER_TEST_CLOCK", &path)
            .output()
            .unwrap(),
    )
}

/// A project whose notes are older than any quiet time.
fn old(toml: &str) -> House {
    let house = House::new();
    at(&house, "2026-11-21T20:00:00Z", &["init"]).ends(0);
    house.configure(toml);
    house.write("ideas/note.md", "Maybe use a shorter name?\n");
    house
        .command("touch", &["-d", "2026-11-20T00:00:00Z", "ideas/note.md"])
        .status()
        .unwrap();
    at(&house, "2026-11-21T20:00:00Z", &["tick"]).ends(0);
    house
}

#[test]
fn jobs_of_one_night_do_not_starve_each_other() {
    let house = old(TWO);
    let told = at(&house, "2026-11-22T02:30:00Z", &["tick", "--json"])
        .ends(0)
        .json();
    let mut ends: Vec<String> = told["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            format!(
                "{} {}",
                run["job"].as_str().unwrap(),
                run["outcome"].as_str().unwrap()
            )
        })
        .collect();
    ends.sort();
    assert_eq!(
        ends,
        [
            "a succeeded",
            "b succeeded",
            "dream succeeded",
            "report succeeded"
        ]
    );
    assert_eq!(
        house.count("SELECT coalesce(sum(tokens), 0) FROM accounts"),
        0
    );
}

#[test]
fn a_night_that_is_caught_up_is_reported_after_its_jobs() {
    let house = old(TWO);
    at(&house, "2026-11-23T12:00:00Z", &["tick"]).ends(0);
    let report = house.read(".runner/reports/2026-11-23/report.md");
    assert!(
        report.contains("3 succeeded") && !report.contains("unfinished"),
        "{report}"
    );
    assert!(
        report.contains("## Missed") && report.contains("nothing was running"),
        "{report}"
    );
    at(&house, "2026-11-23T12:05:00Z", &["status"])
        .ends(0)
        .says("missed");
}

#[test]
fn a_model_that_states_no_usage_is_charged_what_was_reserved_for_one_call() {
    let house = old(
        "[backends.mine]\ntype = \"command\"\nprogram = \"echo\"\nargs = [\"\\\"yes\\\"\"]\n\
         [jobs.ask]\nkind = \"prompt\"\nprompt = \"?\"\nto = \"notes/{date}.md\"\nbackend = \"mine\"\n",
    );
    let told = at(&house, "2026-11-22T02:30:00Z", &["tick", "--json"])
        .ends(0)
        .json();
    assert_eq!(told["started"].as_array().unwrap().len(), 3, "{told}");
    assert_eq!(house.read("notes/2026-11-22.md"), "yes\n");
    let report = house.read(".runner/reports/2026-11-22/report.md");
    assert!(
        report.contains("usage of 1 model call not stated"),
        "{report}"
    );
    // A tenth of a run's default dollar and of its tokens: one of ten calls.
    assert_eq!(
        house.count("SELECT max(micros) FROM accounts WHERE level = 'night'"),
        100_000
    );
    assert_eq!(
        house.count("SELECT max(tokens) FROM accounts WHERE level = 'night'"),
        100_000
    );
}

#[test]
fn a_report_is_made_however_often_it_failed_before() {
    let house = old("");
    house.write(".runner/reports", "in the way");
    for _ in 0..4 {
        let said = house.run(&["night"]);
        assert_ne!(said.code, 0, "{said:?}");
        assert!(said.err.contains("report"), "{said:?}");
    }
    fs::remove_file(house.path(".runner/reports")).unwrap();
    house.run(&["night"]).ends(0).says("report.md");
    house.run(&["status"]).ends(0).says("last night");
}

#[test]
fn a_cancelled_night_is_over_and_reported() {
    let house = House::with(
        "[jobs.dream]\nenabled = false\n[jobs.a]\nkind = \"command\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo up > up.fifo; exec sleep 1000\"]\n[jobs.b]\nkind = \"command\"\nprogram = \"touch\"\nargs = [\"b-ran\"]\n",
    );
    house.command("mkfifo", &["up.fifo"]).status().unwrap();
    let night = house
        .runner(&["night"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(fs::read_to_string(house.path("up.fifo")).unwrap(), "up\n");
    let pid = rustix::process::Pid::from_child(&night);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(night.wait_with_output().unwrap().status.code(), Some(130));
    house.run(&["tick"]).ends(0);
    assert!(!house.path("b-ran").exists());
    house.run(&["report"]).ends(0).says("2 cancelled");
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state <> 'settled'"),
        0
    );
    let reports = fs::read_dir(house.path(".runner/reports")).unwrap().count();
    assert_eq!(reports, 1);
}

#[test]
fn a_clock_that_was_set_back_does_not_silence_a_job() {
    let house = old("");
    at(&house, "2036-01-01T00:00:00Z", &["tick", "--quiet"]);
    at(&house, "2026-11-22T00:00:00Z", &["tick"])
        .ends(1)
        .says("set back");
    at(&house, "2026-11-22T00:00:00Z", &["status"])
        .ends(0)
        .says("2026-11-22 02:30");
    at(&house, "2026-11-22T00:01:00Z", &["tick"]).ends(0);
}

#[test]
fn an_idea_saved_a_moment_ago_defers_a_pass_of_a_clock_and_not_of_a_person() {
    let house = old("");
    house
        .command("touch", &["-d", "2026-11-22T02:28:00Z", "ideas/note.md"])
        .status()
        .unwrap();
    let told = at(&house, "2026-11-22T02:30:00Z", &["tick", "--json"])
        .ends(0)
        .json();
    let outcome = told["started"][0]["outcome"].as_str().unwrap();
    assert!(
        outcome.starts_with("deferred until 2026-11-22T02:33:00Z"),
        "{outcome}"
    );
    assert!(
        outcome.contains("ideas/note.md (just changed)"),
        "{outcome}"
    );
    // Its time comes; the night is reported only then.
    assert!(!house.path(".runner/reports").exists());
    let told = at(&house, "2026-11-22T02:33:00Z", &["tick", "--json"])
        .ends(0)
        .json();
    assert_eq!(told["started"].as_array().unwrap().len(), 2, "{told}");
    assert!(
        house
            .read(".runner/reports/2026-11-22/report.md")
            .contains("1 succeeded")
    );
    house
        .command("touch", &["-d", "2026-11-22T02:40:00Z", "ideas/note.md"])
        .status()
        .unwrap();
    house.write("ideas/new.md", "Perhaps a shorter one still?\n");
    house
        .command("touch", &["-d", "2026-11-22T02:40:00Z", "ideas/new.md"])
        .status()
        .unwrap();
    at(&house, "2026-11-22T02:41:00Z", &["dream", "run"])
        .ends(0)
        .says("succeeded");
}

#[test]
fn a_request_that_the_budget_cannot_cover_is_never_made() {
    for budget in ["tokens = 10", "calls = 0", "money = 0.0"] {
        let house = old(&format!(
            "[backends.mine]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"touch asked; echo '\\\"yes\\\"'\"]\n\
             [jobs.ask]\nkind = \"prompt\"\nprompt = \"?\"\nto = \"notes/a.md\"\nbackend = \"mine\"\n\
             [jobs.ask.budget]\n{budget}\n"
        ));
        house
            .run(&["run", "ask"])
            .ends(1)
            .says("over-budget")
            .says("budget of run");
        assert!(!house.path("notes/a.md").exists());
        let found = std::process::Command::new("find")
            .args([house.root().as_os_str(), "-name".as_ref(), "asked".as_ref()])
            .output()
            .unwrap();
        assert!(found.stdout.is_empty(), "{budget}: the program was run");
    }
}
