//! Tests of the metrics text output.

use runner_engine::store::{Night, NightId, NightRunReport};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn snapshot() -> Snapshot {
    let project: ProjectId = "01M5JT1KR00000000000000001".parse().unwrap();
    let total = |outcome: &str, class: &str, runs, last: &str| RunTotal {
        project: project.clone(),
        job: "dream".into(),
        kind: "dream".into(),
        outcome: outcome.into(),
        class: class.into(),
        runs,
        last: at(last),
    };
    let night = Night {
        id: NightId(1),
        project: project.clone(),
        name: "2026-11-22".into(),
        opens: at("2026-11-22T01:30:00Z"),
        closes: at("2026-11-22T09:30:00Z"),
        closed: None,
    };
    let reported = NightRunReport {
        headline: String::new(),
        worst: "failed".into(),
        folder: "2026-11-22".into(),
    };
    Snapshot {
        now: at("2026-11-22T07:00:00Z"),
        totals: vec![
            total("degraded", "", 2, "2026-11-21T02:00:00Z"),
            total("failed", "malformed", 1, "2026-11-22T02:00:00Z"),
            total("succeeded", "", 40, "2026-11-20T02:00:00Z"),
        ],
        durations: vec![RunDurations {
            project: project.clone(),
            job: "dream".into(),
            groups: [1, 0, 0, 40, 1, 0, 0, 0, 1],
            millis: 16_500_500,
        }],
        queues: vec![QueueDepth {
            project: project.clone(),
            runs: 3,
            oldest: Some(at("2026-11-22T06:30:00Z")),
        }],
        oldest_due: None,
        nights: [(project.clone(), LastNight { night, reported: Some(reported) })].into(),
        last_tick: Some(at("2026-11-22T06:59:00Z")),
        ticks: Some(4_096),
        fleets: Vec::new(),
        daemons: 0,
        live_runs: 1,
        database: vec![("database", 4_096), ("log", 0)],
        projects: vec![ProjectSample {
            id: project.to_string(),
            path: "/home/ada/a \"b\"\n\u{1b}[31m sk-ant-api03-0123456789abcdefghij".into(),
            next_due: Some(at("2026-11-23T01:30:00Z")),
            budgets: vec![BudgetSample {
                level: "day",
                used: Amounts { calls: 8, ..Amounts::default() },
                left: Budget { calls: Some(12), ..Budget::default() },
            }],
            alerts: 1,
            proposals: 2,
            stopped: 0,
            failing: 1,
        }],
    }
}

#[test]
fn metrics_match_snapshot() {
    insta::assert_snapshot!(text(snapshot()));
}

#[test]
fn labels_are_redacted_and_escaped() {
    let text = text(snapshot());
    assert!(!text.contains("0123456789abcdefghij") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains(r#"path="/home/ada/a \"b\"\n"#), "{text}");
}

#[test]
fn empty_database_has_metrics() {
    let text = text(Snapshot { now: at("2026-11-22T07:00:00Z"), ..Snapshot::default() });
    assert!(text.contains("runner_metrics_timestamp_seconds 1795330800"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}
