//! Tests combinations of behaviours, dialects and budgets.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::fixture::{Fixture, print_line, scaled};
use crate::table::{DIALECTS, Ends, ROWS, Row};
use crate::testbed::{CANARY, agent, differs, holding, link, picture};

/// The budgets of a run. The first is sufficient for any well-behaved agent.
const BUDGETS: [&str; 3] = [
    "{ calls = 5, tokens = 1000000, money = 10.00 }",
    "{ calls = 5, tokens = 30000, money = 10.00 }",
    "{ calls = 5, tokens = 1000000, money = 0.02 }",
];

#[test]
fn table_lists_every_agent_behaviour() {
    let listed = Command::new(agent()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let listed: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split('\t').next()).collect();
    let known: BTreeSet<&str> = ROWS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(listed, known);
    assert!(known.len() >= 40, "{} behaviours", known.len());
}

struct CaseResult {
    row: &'static Row,
    dialect: usize,
    budget: usize,
    outcome: String,
    wrong: Vec<String>,
    millis: u128,
}

#[test]
fn each_behaviour_has_the_expected_outcome() {
    let began = Instant::now();
    // An ordinary test run tries one budget, but every behaviour in every dialect.
    let budgets = scaled(1).min(BUDGETS.len());
    let cases: Vec<(&'static Row, usize, usize)> = ROWS
        .iter()
        .flat_map(|row| {
            (0..DIALECTS.len())
                .flat_map(move |dialect| (0..budgets).map(move |budget| (row, dialect, budget)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let came = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((row, dialect, budget)) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let one = case(row, *dialect, *budget);
                    for what in &one.wrong {
                        print_line(&format!(
                            "{} as {} ({} ms): {what}",
                            row.0, DIALECTS[*dialect], one.millis
                        ));
                    }
                    if one.millis > 5_000 {
                        print_line(&format!(
                            "{} as {}: {} ms",
                            row.0, DIALECTS[*dialect], one.millis
                        ));
                    }
                    came.lock().unwrap().push(one);
                }
            });
        }
    });
    let mut came = came.into_inner().unwrap();
    came.sort_by_key(|one| {
        (ROWS.iter().position(|row| row.0 == one.row.0), one.budget, one.dialect)
    });
    let mut wrong = 0;
    print_line("behaviour            budget  command        claude         codex");
    for three in came.chunks(DIALECTS.len()) {
        let cells: Vec<String> = three.iter().map(|one| format!("{:<14}", one.outcome)).collect();
        print_line(&format!("{:<20} {:<7} {}", three[0].row.0, three[0].budget, cells.join(" ")));
        for one in three {
            for what in &one.wrong {
                wrong += 1;
                print_line(&format!(
                    "    WRONG ({}, {} ms): {what}",
                    DIALECTS[one.dialect], one.millis
                ));
            }
        }
    }
    print_line(&format!(
        "hostile agents: {} cases, {} behaviours, {:.0?}, {wrong} wrong",
        came.len(),
        ROWS.len(),
        began.elapsed()
    ));
    assert_eq!(wrong, 0);
}

fn case(row: &'static Row, dialect: usize, budget: usize) -> CaseResult {
    let (name, expected, ends) = row;
    let began = Instant::now();
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    let deadlines = match ends {
        Ends::Itself | Ends::Total => "",
        Ends::FirstByte => "first_byte = \"200ms\"\n",
        Ends::Idle => "idle = \"200ms\"\nfirst_byte = \"200ms\"\n",
    };
    let total = if *ends == Ends::Total { "1s" } else { "60s" };
    fixture.configure(&format!(
        "[backends.it]\ntype = \"{}\"\nprogram = \"{}\"\nenv = [\"CANARY_KEY\"]\noutput_cap = \"1MB\"\ngrace = \"200ms\"\n{deadlines}\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"it\"\nprompt = \"How are we doing?\"\nto = \"notes/answer.md\"\n\
         timeout = \"{total}\"\nretries = 0\nmax_file = \"16MB\"\nmax_folder = \"24MB\"\nbudget = {}\n",
        DIALECTS[dialect],
        link(&fixture, DIALECTS[dialect], name),
        BUDGETS[budget],
    ));
    fixture.write("precious.txt", "precious\n");
    fixture.write("notes/kept.md", "kept\n");
    fs::write(fixture.root().join("private"), "private\n").unwrap();
    let targets = [
        fixture.path("precious.txt"),
        fixture.path("runner.toml"),
        fixture.path(".git/config"),
        fixture.path(".git/hooks/pre-commit"),
        fixture.path("notes/kept.md"),
        fixture.path(".claude/settings.json"),
        fixture.root().join("private"),
        fixture.root().join("config/runner/config.toml"),
        fixture.state().join("database.sqlite"),
    ];
    let list: String = targets.iter().map(|path| format!("{}\n", path.display())).collect();
    fs::write(fixture.root().join("targets"), list).unwrap();
    let but = [
        "state",
        // The agents' state folders, which runner creates for them.
        ".claude",
        ".codex",
        "project/notes/answer.md",
        "project/.runner",
        "project/.git/info",
    ];
    let before = picture(&fixture, &but);

    let said = crate::fixture::CommandOutput::of(
        fixture.runner(&["run", "ask", "--json"]).env("CANARY_KEY", CANARY).output().unwrap(),
    );
    let listed = fixture.run(&["runs", "--json"]).json();
    let runs: Vec<&Value> = listed.as_array().unwrap().iter().collect();
    let outcome = runs.first().map_or_else(String::new, |run| outcome_name(run));
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    check(
        outcome == expected[dialect],
        format!(
            "{outcome}, not {}: {} {}",
            expected[dialect],
            runs.first().map_or(&Value::Null, |run| &run["why"]),
            said.err
        ),
    );
    check(runs.len() == 1, format!("{} runs", runs.len()));
    check(
        (said.code == 0) == (outcome == "succeeded"),
        format!("exit {} for {outcome}", said.code),
    );
    let answered = fixture.path("notes/answer.md").exists();
    check(answered == (outcome == "succeeded"), format!("answer published: {answered}, {outcome}"));
    let survivors = fixture.survivors();
    check(survivors.is_empty(), format!("survivors: {survivors:?}"));
    let changed = differs(&before, &picture(&fixture, &but));
    check(changed.is_empty(), format!("changed: {changed:?}"));
    check(fixture.run(&["db", "check"]).code == 0, "the database is damaged".to_owned());
    // The agent may write the secret to the run's scratch folder.
    let leaks: Vec<String> =
        holding(&fixture, CANARY).into_iter().filter(|path| !path.contains("/scratch/")).collect();
    check(leaks.is_empty(), format!("the secret is in {leaks:?}"));
    let reported = format!("{}{}", said.out, said.err);
    check(!reported.contains(CANARY), format!("the secret was printed: {reported}"));
    CaseResult { row, dialect, budget, outcome, wrong, millis: began.elapsed().as_millis() }
}

/// Returns the name of the outcome, or the class of a failure.
fn outcome_name(run: &Value) -> String {
    match run["outcome"].as_str() {
        Some("failed") => run["class"].as_str().unwrap_or("failed").to_owned(),
        Some(word) => word.to_owned(),
        None => run["outcome"].to_string(),
    }
}
