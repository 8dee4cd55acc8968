//! Tests that a night has one budget and one report, even if its jobs fail, wait or die.

use std::fs;

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use runner_engine::locks::{JobLock, job_lock_path};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::fixture::Fixture;
use crate::served::NO_DREAM;

const TWO: &str = "[jobs.a]\nkind = \"command\"\nprogram = \"true\"\n[jobs.b]\nkind = \"command\"\nprogram = \"true\"\n";

/// Creates a project whose idea was not changed in the last minutes, so no pass is deferred.
fn old(toml: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.configure(toml);
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    fixture.command("touch", &["-d", "2026-11-20T00:00:00Z", "ideas/note.md"]).status().unwrap();
    fixture.run_at("2026-11-21T20:00:00Z", &["tick"]).ends(0);
    fixture
}

#[test]
fn night_jobs_do_not_starve_each_other() {
    let fixture = old(TWO);
    let reported = fixture.run_at("2026-11-22T02:30:00Z", &["tick", "--json"]).ends(0).json();
    let mut ends: Vec<String> = reported["started"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| format!("{} {}", run["job"].as_str().unwrap(), run["outcome"].as_str().unwrap()))
        .collect();
    ends.sort();
    assert_eq!(ends, ["a succeeded", "b succeeded", "dream succeeded", "report succeeded"]);
    assert_eq!(fixture.count("SELECT coalesce(sum(tokens), 0) FROM budget_usage"), 0);
}

#[test]
fn caught_up_night_reports_after_its_jobs() {
    let fixture = old(TWO);
    fixture.run_at("2026-11-23T12:00:00Z", &["tick"]).ends(0);
    let report = fixture.read(".runner/reports/2026-11-23/report.md");
    assert!(report.contains("3 succeeded") && !report.contains("unfinished"), "{report}");
    assert!(report.contains("## Missed") && report.contains("nothing was running"), "{report}");
    fixture.run_at("2026-11-23T12:05:00Z", &["status"]).ends(0).expect_text("missed");
}

#[test]
fn jobs_caught_up_together_share_a_night() {
    let fixture = old("[jobs.late]\nkind = \"overnight\"\ntrigger = \"daily 23:00\"\n");
    fixture.run_at("2026-11-21T23:30:00Z", &["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 1);
    // The pass was due next, but its last scheduled time is after that of the other job.
    fixture.run_at("2026-11-25T12:00:00Z", &["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 2);
    let report = fixture.read(".runner/reports/2026-11-25/report.md");
    assert!(report.contains("late") && report.contains("dream"), "{report}");
}

#[test]
fn missed_job_is_in_the_report_of_its_night() {
    let job = "[jobs.a]\nkind = \"command\"\nprogram = \"true\"\ncatch_up = \"none\"\n";
    let fixture = old(job);
    fixture.run_at("2026-11-22T02:55:00Z", &["tick"]).ends(0);
    let text = fixture.read(".runner/reports/2026-11-22/report.json");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["worst"], "missed", "{report:#}");
    assert_eq!(report["not_run"][0]["job"], "a", "{report:#}");
    assert!(report["missed"][0].as_str().unwrap().starts_with("a at "), "{report:#}");
    let shown = fixture.read(".runner/reports/2026-11-22/report.md");
    assert!(shown.contains("**a (missed) did not run; 1 succeeded"), "{shown}");
    // The next night's report has only the times since that night.
    fixture.run_at("2026-11-23T02:30:00Z", &["tick"]).ends(0);
    assert!(!fixture.read(".runner/reports/2026-11-23/report.md").contains("(missed)"));

    // After several nights without a tick, the missed times begin long before the night.
    let fixture = old(job);
    fixture.run_at("2026-11-24T02:55:00Z", &["tick"]).ends(0);
    let text = fixture.read(".runner/reports/2026-11-24/report.json");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["missed"].to_string().contains("\"a, 3 times from "), "{report:#}");
    assert_eq!(report["not_run"].as_array().unwrap().len(), 1, "{report:#}");

    // Times at which a job was paused are not missed.
    let fixture = old(job);
    fixture.run_at("2026-11-21T21:00:00Z", &["pause", "a"]).ends(0);
    fixture.run_at("2026-11-22T02:30:00Z", &["tick"]).ends(0);
    fixture.run_at("2026-11-22T12:00:00Z", &["resume", "a"]).ends(0);
    fixture.run_at("2026-11-22T12:01:00Z", &["tick"]).ends(0);
    let why = "SELECT count(*) FROM occurrences WHERE missed AND outcome ->> '$.why' = 'paused'";
    assert_eq!(fixture.count(why), 1);
    fixture.run_at("2026-11-22T12:02:00Z", &["report"]).ends(0);
    assert!(!fixture.read(".runner/reports/2026-11-22/report.md").contains("(missed)"));
}

#[test]
fn unreported_usage_is_charged_as_reserved() {
    let fixture = old(
        "[backends.mine]\ntype = \"command\"\nprogram = \"echo\"\nargs = [\"\\\"yes\\\"\"]\n\
         [jobs.ask]\nkind = \"prompt\"\nprompt = \"?\"\nto = \"notes/{date}.md\"\nbackend = \"mine\"\n",
    );
    let reported = fixture.run_at("2026-11-22T02:30:00Z", &["tick", "--json"]).ends(0).json();
    assert_eq!(reported["started"].as_array().unwrap().len(), 3, "{reported}");
    assert_eq!(fixture.read("notes/2026-11-22.md"), "yes\n");
    let report = fixture.read(".runner/reports/2026-11-22/report.md");
    assert!(report.contains("usage of 1 model call not reported"), "{report}");
    // One of ten calls is charged a tenth of the run's default budget of money and tokens.
    assert_eq!(
        fixture.count("SELECT max(micros) FROM budget_usage WHERE level = 'night'"),
        100_000
    );
    assert_eq!(
        fixture.count("SELECT max(tokens) FROM budget_usage WHERE level = 'night'"),
        100_000
    );
}

#[test]
fn report_succeeds_after_repeated_failures() {
    let fixture = old("");
    fixture.write(".runner/reports", "in the way");
    for _ in 0..4 {
        let said = fixture.run(&["night"]);
        assert_ne!(said.code, 0, "{said:?}");
        assert!(said.err.contains("report"), "{said:?}");
    }
    fs::remove_file(fixture.path(".runner/reports")).unwrap();
    fixture.run(&["night"]).ends(0).expect_text("report.md");
    fixture.run(&["status"]).ends(0).expect_text("last night");
}

#[test]
fn cancelled_night_is_closed_and_reported() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.a]\nkind = \"command\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo up > up.fifo; exec sleep 1000\"]\n[jobs.b]\nkind = \"command\"\nprogram = \"touch\"\nargs = [\"b-ran\"]\n\
         [jobs.c]\nkind = \"command\"\ntrigger = \"after a ends\"\nprogram = \"touch\"\nargs = [\"c-ran\"]\n",
    );
    fixture.command("mkfifo", &["up.fifo"]).status().unwrap();
    let night = fixture.runner(&["night"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let pid = rustix::process::Pid::from_child(&night);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(night.wait_with_output().unwrap().status.code(), Some(130));
    fixture.run(&["tick"]).ends(0);
    assert!(!fixture.path("b-ran").exists() && !fixture.path("c-ran").exists());
    fixture.run(&["report"]).ends(0).expect_text("3 cancelled");
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled'"), 0);
    let reports = fs::read_dir(fixture.path(".runner/reports")).unwrap().count();
    assert_eq!(reports, 1);
}

#[test]
fn night_ends_if_stopped_before_a_run_begins() {
    let after = "[jobs.c]\nkind = \"command\"\ntrigger = \"after a ends\"\nprogram = \"true\"\n";
    let fixture = Fixture::with(&format!("{NO_DREAM}{TWO}{after}"));
    let project: String =
        fixture.store().query_row("SELECT id FROM projects", [], |row| row.get(0)).unwrap();
    let path = job_lock_path(&fixture.state(), &project.parse().unwrap(), "a");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // The run's process waits a few seconds for a lock that names no holder.
    let lock = JobLock::try_take(&path).unwrap();
    fixture.set_clock("2026-11-20T12:00:00Z");
    let mut command = fixture.runner_with_clock(&["night"]);
    let mut night = command.process_group(0).stdout(Stdio::null()).spawn().unwrap();
    while fixture.count("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == 0 {
        assert!(night.try_wait().unwrap().is_none(), "the night ended");
        std::thread::yield_now();
    }
    kill_process_group(Pid::from_child(&night), Signal::INT).unwrap();
    assert_eq!(night.wait().unwrap().code(), Some(130));
    drop(lock);
    fixture.run_with_clock(&["tick"]).ends(0);
    let began = "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job
                 WHERE r.started IS NOT NULL AND j.name <> 'report'";
    assert_eq!(fixture.count(began), 0);
    fixture.run(&["report"]).ends(0).expect_text("2 cancelled").expect_text("1 skipped");
}

#[test]
fn followers_in_a_manual_night_ignore_a_pause() {
    let after = "[jobs.c]\nkind = \"command\"\ntrigger = \"after a\"\nprogram = \"true\"\n";
    let fixture = Fixture::with(&format!("{NO_DREAM}{TWO}{after}"));
    fixture.run(&["pause", "--all"]).ends(0);
    fixture.run(&["night"]).ends(0).expect_text("3 succeeded");
}

#[test]
fn run_cancelled_by_its_id_ends_alone() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.a]\nkind = \"command\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo up > up.fifo; exec sleep 1000\"]\n[jobs.b]\nkind = \"command\"\nprogram = \"true\"\n[jobs.c]\nkind = \"command\"\nprogram = \"true\"\n",
    );
    fixture.command("mkfifo", &["up.fifo"]).status().unwrap();
    let night = fixture.runner(&["night"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    // The first of these runs is still queued, and the second is running.
    for job in ["b", "a"] {
        let runs = fixture.run(&["runs", "--job", job, "--json"]).ends(0).json();
        fixture.run(&["cancel", runs[0]["id"].as_str().unwrap()]).ends(0);
    }
    assert_eq!(night.wait_with_output().unwrap().status.code(), Some(130));
    fixture.run(&["report"]).ends(0).expect_text("2 cancelled").expect_text("1 succeeded");
}

#[test]
fn clock_set_back_does_not_block_jobs() {
    let fixture = old("");
    fixture.run_at("2036-01-01T00:00:00Z", &["tick", "--quiet"]);
    fixture.run_at("2026-11-22T00:00:00Z", &["tick"]).ends(1).expect_text("set back");
    fixture.run_at("2026-11-22T00:00:00Z", &["status"]).ends(0).expect_text("2026-11-22 02:30");
    fixture.run_at("2026-11-22T00:01:00Z", &["tick"]).ends(0);
}

#[test]
fn fresh_idea_defers_scheduled_passes() {
    let fixture = old("");
    fixture.command("touch", &["-d", "2026-11-22T02:28:00Z", "ideas/note.md"]).status().unwrap();
    let reported = fixture.run_at("2026-11-22T02:30:00Z", &["tick", "--json"]).ends(0).json();
    let outcome = reported["started"][0]["outcome"].as_str().unwrap();
    assert!(outcome.starts_with("deferred until 2026-11-22T02:33:00Z"), "{outcome}");
    assert!(outcome.contains("ideas/note.md (just changed)"), "{outcome}");
    // The night's report waits for the deferred job.
    assert!(!fixture.path(".runner/reports").exists());
    let reported = fixture.run_at("2026-11-22T02:33:00Z", &["tick", "--json"]).ends(0).json();
    assert_eq!(reported["started"].as_array().unwrap().len(), 2, "{reported}");
    assert!(fixture.read(".runner/reports/2026-11-22/report.md").contains("1 succeeded"));
    fixture.command("touch", &["-d", "2026-11-22T02:40:00Z", "ideas/note.md"]).status().unwrap();
    fixture.write("ideas/new.md", "Perhaps a shorter one still?\n");
    fixture.command("touch", &["-d", "2026-11-22T02:40:00Z", "ideas/new.md"]).status().unwrap();
    fixture.run_at("2026-11-22T02:41:00Z", &["dream", "run"]).ends(0).expect_text("succeeded");
}

#[test]
fn unaffordable_request_is_not_made() {
    for budget in ["tokens = 10", "calls = 0", "money = 0.0"] {
        let fixture = old(&format!(
            "[backends.mine]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"touch asked; echo '\\\"yes\\\"'\"]\n\
             [jobs.ask]\nkind = \"prompt\"\nprompt = \"?\"\nto = \"notes/a.md\"\nbackend = \"mine\"\n\
             [jobs.ask.budget]\n{budget}\n"
        ));
        fixture
            .run(&["run", "ask"])
            .ends(1)
            .expect_text("over-budget")
            .expect_text("budget of run");
        assert!(!fixture.path("notes/a.md").exists());
        let found = std::process::Command::new("find")
            .args([fixture.root().as_os_str(), "-name".as_ref(), "asked".as_ref()])
            .output()
            .unwrap();
        assert!(found.stdout.is_empty(), "{budget}: the program was run");
    }
}
