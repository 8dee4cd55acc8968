//! Tests `runner metrics`, and the alert rules and the dashboard in `docs/monitoring/`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::{Fixture, skip};

fn monitoring(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring");
    folder.join(file).display().to_string()
}

/// Returns the metrics of a night in which one job succeeds and one job fails.
fn metrics() -> String {
    let fixture = Fixture::with(
        "[jobs.good]\nkind = \"command\"\nprogram = \"true\"\n\
         [jobs.bad]\nkind = \"command\"\nprogram = \"false\"\n",
    );
    assert_eq!(fixture.run(&["night"]).code, 1);
    fixture.run(&["metrics"]).ends(0).out
}

/// Returns the value of the metric whose line contains all of `parts`.
fn value(text: &str, parts: &[&str]) -> f64 {
    let mut lines = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    let line = lines.next().unwrap_or_else(|| panic!("no {parts:?} in {text}"));
    assert_eq!(lines.next(), None, "{parts:?}");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn night_is_measured() {
    let text = metrics();
    assert_eq!(value(&text, &["runner_runs_total", "job=\"good\"", "succeeded"]), 1.0);
    assert_eq!(value(&text, &["runner_runs_total", "job=\"bad\"", "failed", "exit"]), 1.0);
    assert_eq!(value(&text, &["runner_run_duration_seconds_count", "job=\"good\""]), 1.0);
    let all = ["runner_run_duration_seconds_bucket", "job=\"good\"", "le=\"+Inf\""];
    assert_eq!(value(&text, &all), 1.0);
    assert_eq!(value(&text, &["runner_jobs_failing{"]), 1.0);
    assert!(value(&text, &["runner_job_last_success", "job=\"good\""]) > 0.0);
    assert!(value(&text, &["runner_night_opened_timestamp_seconds{"]) > 0.0);
    assert_eq!(value(&text, &["runner_night_worst_outcome{", "failed"]), 1.0);
    assert!(value(&text, &["runner_database_size_bytes", "file=\"database\""]) > 4_096.0);
    assert!(value(&text, &["runner_budget_used", "day", "calls"]) >= 0.0);
}

#[test]
fn metrics_need_no_database() {
    let fixture = Fixture::new();
    fixture.run(&["metrics"]).ends(0).expect_text("runner_metrics_timestamp_seconds");
}

/// Runs `promtool` with this input. Returns `None` if `promtool` is not installed.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let mut child = match Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(_missing) => {
            skip("promtool", "promtool is not installed");
            return None;
        }
    };
    let _closed = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn promtool_accepts_rules_and_their_tests() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let file = monitoring(arguments[2]);
        let Some((passed, said)) = promtool(&[arguments[0], arguments[1], &file], "") else {
            return;
        };
        assert!(passed, "{said}");
    }
}

#[test]
fn promtool_parses_the_metrics() {
    let Some((_, said)) = promtool(&["check", "metrics"], &metrics()) else { return };
    // Advice about metric names is not a format error.
    assert!(!said.contains("error while linting") && !said.contains("parse"), "{said}");
}

/// Returns the names of runner's metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("runner_")).map(str::to_owned).collect()
}

#[test]
fn rules_and_dashboard_name_existing_metrics() {
    let read = |file: &str| std::fs::read_to_string(monitoring(file)).unwrap();
    let source = concat!(
        include_str!("../../src/metrics/encode.rs"),
        "runner_runs_total runner_run_duration_seconds_bucket"
    );
    let known = names(source);
    assert!(known.len() > 20);
    for file in ["alerts.yml", "alerts_test.yml", "dashboard.json"] {
        let used = names(&read(file));
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(!used.is_empty() && unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
    assert!(panels.len() >= 10 && dashboard["schemaVersion"].is_u64());
}
