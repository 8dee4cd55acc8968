//! Tests the output of help, status and ticks.

use std::fs;

use crate::fixture::Fixture;

/// Splits the name of a manual page into the words of its command. A hyphen separates two words
/// unless the part before the hyphen has no page.
fn words<'p>(page: &'p str, pages: &[String]) -> Vec<&'p str> {
    let name = page.trim_end_matches(".1");
    let mut words = Vec::new();
    let mut begin = "runner-".len();
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    for end in ends.filter(|end| *end >= "runner-".len()) {
        if pages.contains(&format!("{}.1", &name[..end])) {
            words.push(&name[begin..end]);
            begin = end + 1;
        }
    }
    words
}

#[test]
fn help_matches_the_snapshot() {
    let fixture = Fixture::new();
    let manual = fixture.root().join("man");
    fixture.run(&["man", &manual.display().to_string()]).ends(0);
    let mut pages: Vec<String> = fs::read_dir(&manual)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    pages.sort_by_key(|name| name.trim_end_matches(".1").replace('-', " "));
    let mut all = String::new();
    for page in &pages {
        let mut args = words(page, &pages);
        args.push("--help");
        let said = fixture.run(&args).ends(0);
        all.push_str(&format!("$ runner {}\n\n{}\n", args.join(" "), said.out));
    }
    crate::snapshots::compare("help", &all);
}

#[test]
fn status_reports_nights_and_trouble() {
    let fixture = Fixture::new();
    fixture.run(&["status"]).ends(0).expect_text("no projects yet");
    assert!(!fixture.state().exists(), "a read-only command created files");
    fixture.run(&["init"]).ends(0);
    fixture.run(&["status"]).ends(0).expect_text("none yet").expect_text("dream at");
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.run(&["night"]).ends(0);
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let project = &status["projects"][0];
    assert_eq!(project["last_night"]["worst"], "succeeded");
    assert_eq!(project["trouble"], serde_json::Value::Null);
    fs::remove_dir_all(fixture.path(".runner/reports")).unwrap();
    fixture.run(&["status"]).ends(0).expect_text("TROUBLE").expect_text("has no report");
    fixture.run(&["report"]).ends(0).expect_text("# Night");
}

#[test]
fn tick_runs_and_reports_night_once() {
    let fixture = Fixture::new();
    let tick_at = |now: &str| fixture.run_at(now, &["tick", "--json"]).ends(0).json();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    // The note was not changed in the last minutes, so the pass is not deferred.
    fixture.command("touch", &["-d", "2026-11-20T00:00:00Z", "ideas/note.md"]).status().unwrap();
    assert!(tick_at("2026-11-22T02:29:59Z")["started"].as_array().unwrap().is_empty());
    let reported = tick_at("2026-11-22T02:30:00Z");
    let jobs: Vec<_> = reported["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["job"].as_str().unwrap())
        .collect();
    assert_eq!(jobs, ["dream", "report"], "{reported}");
    assert!(fixture.path(".runner/reports/2026-11-22/report.md").is_file());
    assert!(tick_at("2026-11-22T02:31:00Z")["started"].as_array().unwrap().is_empty());
    // A tick after a long sleep opens one night, and records all missed times in one row.
    tick_at("2026-11-25T08:00:00Z");
    assert_eq!(
        fixture.count("SELECT count(*) FROM occurrences WHERE outcome LIKE '%\"missed\"%'"),
        1
    );
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 2);
}

#[test]
fn concurrent_ticks_start_due_job_once() {
    let fixture = Fixture::with(
        "[jobs.count]\nkind = \"command\"\ntrigger = \"every 1m\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> times\"]\n[jobs.dream]\nenabled = false\n",
    );
    fixture.write("times", "");
    let tick = || {
        let mut command = fixture.runner_with_clock(&["tick", "--json"]);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    fixture.run_at("2026-11-21T20:00:00Z", &["tick", "--json"]);
    fixture.set_clock("2026-11-21T20:05:00Z");
    let ticks: Vec<_> = (0..6).map(|_| tick()).collect();
    for child in ticks {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let runs = fixture.run(&["runs", "--json"]).out;
    let times = std::fs::read_to_string(fixture.path("times")).unwrap_or_default();
    assert_eq!(times, "x\n", "{runs}");
}
