//! Tests the facts that prevent a run, the order of the checks, and the checks that a manual run
//! skips.

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap()
}

fn healthy() -> AdmissionFacts {
    AdmissionFacts { free_bytes: u64::MAX, ..AdmissionFacts::default() }
}

fn decision(facts: &AdmissionFacts) -> String {
    match decide(facts, Ok(Amounts::default()), now()) {
        Decision::Admit(_) => "admit".to_owned(),
        Decision::Decline(outcome) => outcome.to_string(),
    }
}

#[test]
fn a_healthy_run_is_admitted() {
    assert_eq!(decision(&healthy()), "admit");
}

#[test]
fn blocking_facts_stop_the_run() {
    let later = now().saturating_add(SignedDuration::from_hours(1)).unwrap();
    let cases = [
        (AdmissionFacts { paused_until: Some(later), ..healthy() }, "deferred until"),
        (
            AdmissionFacts {
                streak: Streak { started: BREAKER, ..Streak::default() },
                ..healthy()
            },
            "skipped: stopped after 3",
        ),
        (AdmissionFacts { free_bytes: 10, ..healthy() }, "failed (environment)"),
        (
            AdmissionFacts { preflight: Some((Class::Auth, "no key".into())), ..healthy() },
            "failed (auth)",
        ),
        (AdmissionFacts { dirty: vec!["ideas/a.md".into()], ..healthy() }, "deferred until"),
        (
            AdmissionFacts { nothing_to_do: Some("no delta".into()), ..healthy() },
            "skipped: no delta",
        ),
    ];
    for (facts, expected) in cases {
        let found = decision(&facts);
        assert!(found.starts_with(expected), "{facts:?} gave {found}");
    }
}

fn ago(minutes: i64) -> Option<Timestamp> {
    Some(now() - SignedDuration::from_mins(minutes))
}

fn on_battery(percent: u8, min_battery: u8) -> AdmissionFacts {
    AdmissionFacts {
        battery: Some(Battery { percent, discharging: true }),
        min_battery,
        ..healthy()
    }
}

fn busy(load: u32, most: u32) -> AdmissionFacts {
    AdmissionFacts { load_per_core: Some(load), max_load: Some(most), ..healthy() }
}

fn spaced(began: Option<Timestamp>) -> AdmissionFacts {
    AdmissionFacts {
        last_began: began,
        min_interval: Some(SignedDuration::from_hours(6)),
        ..healthy()
    }
}

/// Returns facts that close one gate each, with the start of the expected outcome. The gates are
/// those that a job's settings configure.
fn closed() -> Vec<(AdmissionFacts, &'static str)> {
    vec![
        (
            AdmissionFacts { start_by: ago(90), ..healthy() },
            "skipped: its start deadline, 2026-09-21T12:43:20Z, passed 1h 30m ago",
        ),
        (
            AdmissionFacts { quiet_until: ago(-60), ..healthy() },
            "deferred until 2026-09-21T15:13:20Z: the job is in its quiet hours",
        ),
        (spaced(ago(61)), "skipped: it ran 1h 1m ago, and its minimum interval is 6h"),
        (
            on_battery(19, 20),
            "deferred until 2026-09-21T14:28:20Z: the host is on battery power at 19 %",
        ),
        (on_battery(100, 100), "deferred until"),
        (
            busy(1510, 1500),
            "deferred until 2026-09-21T14:18:20Z: the host is busy: the load per core is 1.51, and the job needs 1.5",
        ),
    ]
}

#[test]
fn gates_stop_scheduled_but_not_manual_runs() {
    for (facts, expected) in closed() {
        let found = decision(&facts);
        assert!(found.starts_with(expected), "{facts:?} gave {found}");
        let manual = AdmissionFacts { manual: true, ..facts };
        assert_eq!(decision(&manual), "admit", "{manual:?}");
    }
}

#[test]
fn open_gates_admit_the_run() {
    let mains = AdmissionFacts {
        battery: Some(Battery { percent: 3, discharging: false }),
        min_battery: 100,
        ..healthy()
    };
    for facts in [
        AdmissionFacts { start_by: ago(0), ..healthy() },
        AdmissionFacts { quiet_until: ago(0), ..healthy() },
        spaced(None),
        spaced(ago(360)),
        // The clock has been set back since the last run.
        spaced(ago(-30)),
        on_battery(20, 20),
        on_battery(0, 0),
        mains,
        busy(1500, 1500),
        AdmissionFacts { load_per_core: None, ..busy(0, 0) },
    ] {
        assert_eq!(decision(&facts), "admit", "{facts:?}");
    }
}

#[test]
fn checks_run_in_documented_order() {
    let late = AdmissionFacts { start_by: ago(1), paused_until: ago(-60), ..healthy() };
    assert!(decision(&late).starts_with("skipped: its start deadline"));
    let broken =
        AdmissionFacts { preflight: Some((Class::Auth, "no key".into())), ..busy(9000, 1) };
    assert!(decision(&broken).starts_with("failed (auth)"));
}

#[test]
fn manual_run_skips_gates_but_not_checks() {
    let mut facts = AdmissionFacts {
        manual: true,
        paused_until: ago(-60),
        streak: Streak { failures: 9, started: 9, ..Streak::default() },
        ..healthy()
    };
    assert_eq!(decision(&facts), "admit");
    facts.dirty = (0..7).map(|n| format!("ideas/{n}.md")).collect();
    assert!(decision(&facts).contains("ideas/4.md and 2 more"));
    facts.preflight = Some((Class::Auth, "no key".into()));
    assert!(decision(&facts).starts_with("failed (auth)"));
    facts.free_bytes = 10;
    assert!(decision(&facts).starts_with("failed (environment)"));
}

#[test]
fn budget_shortfall_declines_the_run() {
    let short = Shortfall { level: "day 2026-11-21".into(), unit: "calls", wanted: 5, left: 2 };
    let Decision::Decline(outcome) = decide(&healthy(), Err(short), now()) else {
        panic!("the run was admitted without enough budget");
    };
    assert_eq!(outcome.class(), Some(Class::OverBudget));
    assert!(outcome.to_string().contains("2 calls left"), "{outcome}");
}
