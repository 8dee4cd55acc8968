//! Tests the charges for usage that a program misstates, and the share of a usage window that a
//! pool keeps free.

use crate::fixture::{CommandOutput, Fixture};
use crate::testbed::{CANARY, link};

/// The reservation for one of five calls with a budget of 1,000,000 tokens and 10 dollars, in
/// tokens and micros.
const RESERVED: [i64; 2] = [200_000, 2_000_000];
/// The amount that remains for the only call of a run, in micros.
const LEFT: i64 = 10_000_000;

// The texts with which `runs show` describes a charge.
const UNSTATED: &str = "1 call charged at the reserved maximum";
const UNPRICED: &str = "1 call without a known price";
const LIMITED: &str =
    "1 call with a reported cost above the remaining budget, charged at the remaining budget";

/// A behaviour in one dialect, its charge in tokens and micros, and the description.
type Case = (&'static str, &'static str, [i64; 2], &'static str);

const CASES: [Case; 12] = [
    ("usage-negative", "claude", RESERVED, UNSTATED),
    ("usage-negative", "codex", RESERVED, UNSTATED),
    ("usage-fraction", "claude", RESERVED, UNSTATED),
    ("usage-fraction", "codex", RESERVED, UNSTATED),
    ("usage-words", "claude", RESERVED, UNSTATED),
    ("usage-words", "codex", RESERVED, UNSTATED),
    ("usage-none", "claude", RESERVED, UNSTATED),
    ("usage-none", "codex", RESERVED, UNSTATED),
    ("usage-huge", "claude", RESERVED, UNSTATED),
    ("usage-huge", "codex", RESERVED, UNSTATED),
    ("usage-dear", "claude", [13, LEFT], LIMITED),
    // Codex states no cost.
    ("usage-dear", "codex", [13, RESERVED[1]], UNPRICED),
];

fn fixture(behaviour: &str, dialect: &str, leave: &str) -> Fixture {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    let path = fixture.root().join("config/runner/config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}\n[pools.max]\n{leave}[pools.max.day]\ncalls = 100\n"))
        .unwrap();
    fixture.configure(&format!(
        "[backends.it]\ntype = \"{dialect}\"\nprogram = \"{}\"\nenv = [\"CANARY_KEY\"]\npool = \"max\"\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"it\"\nprompt = \"How are we doing?\"\nto = \"notes/answer.md\"\n\
         trigger = \"manual\"\nretries = 0\nbudget = {{ calls = 5, tokens = 1000000, money = 10.00 }}\n",
        link(&fixture, dialect, behaviour),
    ));
    fixture
}

/// Runs a command that must succeed, with the agent's key.
fn run(fixture: &Fixture, args: &[&str]) {
    let output = fixture.runner(args).env("CANARY_KEY", CANARY).output().unwrap();
    CommandOutput::of(output).ends(0);
}

#[test]
fn misstated_usage_has_the_expected_charge() {
    for (behaviour, dialect, [tokens, micros], why) in CASES {
        let name = format!("{behaviour} as {dialect}");
        let fixture = fixture(behaviour, dialect, "");
        run(&fixture, &["run", "ask"]);
        let charged = |unit: &str| {
            let level = "level = 'pool-day'";
            let at_level =
                fixture.count(&format!("SELECT sum({unit}) FROM budget_usage WHERE {level}"));
            let of_call = fixture.count(&format!("SELECT sum({unit}) FROM requests"));
            assert_eq!(at_level, of_call, "{name}: {unit}");
            of_call
        };
        assert_eq!([charged("tokens"), charged("micros")], [tokens, micros], "{name}");
        let runs = fixture.run(&["runs", "--json"]).ends(0).json();
        let id = runs[0]["id"].as_str().unwrap().to_owned();
        let shown = fixture.run(&["runs", "show", &id]).ends(0);
        assert!(shown.out.contains(why), "{name}: {}", shown.out);
        assert_eq!(fixture.count("SELECT count(*) FROM reservations WHERE open"), 0, "{name}");
    }
}

#[test]
fn runs_leave_a_part_of_the_window() {
    for (leave, waits) in [("leave = 0.25\n", true), ("leave = 0.15\n", false), ("", false)] {
        let fixture = fixture("window-nearly-used", "claude", leave);
        run(&fixture, &["run", "ask"]);
        assert!(fixture.path("notes/answer.md").exists(), "no answer was published");
        fixture.run(&["enqueue", "ask"]).ends(0);
        run(&fixture, &["tick"]);
        let asked = fixture.count("SELECT count(*) FROM requests");
        assert_eq!(asked, if waits { 1 } else { 2 }, "{leave}");
        let budget = fixture.run(&["budget"]).ends(0);
        let why = "80 % of the subscription's window is used, and the pool reserves 25 %";
        assert_eq!(budget.out.contains(why), waits, "{leave}: {}", budget.out);
    }
}
