//! Behaviours × tongues × budgets, in one table.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::Value;

use crate::house::{House, scaled, tell};
use crate::place::{CANARY, agent, differs, holding, link, picture};
use crate::table::{Ends, ROWS, Row, TONGUES};

/// Budgets that a run is given. The first has room for anything that behaves.
const BUDGETS: [&str; 3] = [
    "{ calls = 5, tokens = 1000000, money = 10.00 }",
    "{ calls = 5, tokens = 30000, money = 10.00 }",
    "{ calls = 5, tokens = 1000000, money = 0.02 }",
];

#[test]
fn the_table_has_every_behaviour_of_the_agent() {
    let listed = Command::new(agent()).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    let known: BTreeSet<&str> = ROWS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(listed, known);
    assert!(known.len() >= 40, "{} behaviours", known.len());
}

/// What one case came to.
struct Came {
    row: &'static Row,
    tongue: usize,
    budget: usize,
    outcome: String,
    wrong: Vec<String>,
    millis: u128,
}

#[test]
fn each_behaviour_ends_in_its_one_right_outcome() {
    let began = Instant::now();
    // All budgets only where time is no matter; every behaviour in every tongue always.
    let budgets = scaled(1).min(BUDGETS.len());
    let cases: Vec<(&'static Row, usize, usize)> = ROWS
        .iter()
        .flat_map(|row| {
            (0..TONGUES.len())
                .flat_map(move |tongue| (0..budgets).map(move |budget| (row, tongue, budget)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let came = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((row, tongue, budget)) =
                    cases.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let one = case(row, *tongue, *budget);
                    for what in &one.wrong {
                        tell(&format!(
                            "{} as {} ({} ms): {what}",
                            row.0, TONGUES[*tongue], one.millis
                        ));
                    }
                    if one.millis > 5_000 {
                        tell(&format!(
                            "{} as {}: {} ms",
                            row.0, TONGUES[*tongue], one.millis
                        ));
                    }
                    came.lock().unwrap().push(one);
                }
            });
        }
    });
    let mut came = came.into_inner().unwrap();
    came.sort_by_key(|one| {
        (
            ROWS.iter().position(|row| row.0 == one.row.0),
            one.budget,
            one.tongue,
        )
    });
    let mut wrong = 0;
    tell("behaviour            budget  command        claude         codex");
    for three in came.chunks(TONGUES.len()) {
        let cells: Vec<String> = three
            .iter()
            .map(|one| format!("{:<14}", one.outcome))
            .collect();
        tell(&format!(
            "{:<20} {:<7} {}",
            three[0].row.0,
            three[0].budget,
            cells.join(" ")
        ));
        for one in three {
            for what in &one.wrong {
                wrong += 1;
                tell(&format!(
                    "    WRONG ({}, {} ms): {what}",
                    TONGUES[one.tongue], one.millis
                ));
            }
        }
    }
    tell(&format!(
        "hostile agents: {} cases, {} behaviours, {:.0?}, {wrong} wrong",
        came.len(),
        ROWS.len(),
        began.elapsed()
    ));
    assert_eq!(wrong, 0);
}

fn case(row: &'static Row, tongue: usize, budget: usize) -> Came {
    let (name, expected, ends) = row;
    let began = Instant::now();
    let house = House::new();
    house.run(&["init"]).ends(0);
    let deadlines = match ends {
        Ends::Itself | Ends::Total => "",
        Ends::FirstByte => "first_byte = \"200ms\"\n",
        Ends::Idle => "idle = \"200ms\"\nfirst_byte = \"200ms\"\n",
    };
    let total = if *ends == Ends::Total { "1s" } else { "60s" };
    house.configure(&format!(
        "[backends.it]\ntype = \"{}\"\nprogram = \"{}\"\nenv = [\"CANARY_KEY\"]\noutput_cap = \"1MB\"\ngrace = \"200ms\"\n{deadlines}\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"it\"\nprompt = \"How are we doing?\"\nto = \"notes/answer.md\"\n\
         timeout = \"{total}\"\nretries = 0\nmax_file = \"16MB\"\nmax_folder = \"24MB\"\nbudget = {}\n",
        TONGUES[tongue],
        link(&house, TONGUES[tongue], name),
        BUDGETS[budget],
    ));
    house.write("precious.txt", "precious\n");
    house.write("notes/kept.md", "kept\n");
    fs::write(house.root().join("private"), "private\n").unwrap();
    let targets = [
        house.path("precious.txt"),
        house.path("runner.toml"),
        house.path(".git/config"),
        house.path(".git/hooks/pre-commit"),
        house.path("notes/kept.md"),
        house.path(".claude/settings.json"),
        house.root().join("private"),
        house.root().join("config/runner/config.toml"),
        house.state().join("ledger.sqlite"),
    ];
    let list: String = targets
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    fs::write(house.root().join("targets"), list).unwrap();
    let but = [
        "state",
        // The state of the agents, which runner makes for them.
        ".claude",
        ".codex",
        "project/notes/answer.md",
        "project/.runner",
        "project/.git/info",
    ];
    let before = picture(&house, &but);

    let said = crate::house::Said::of(
        house
            .runner(&["run", "ask", "--json"])
            .env("CANARY_KEY", CANARY)
            .output()
            .unwrap(),
    );
    let listed = house.run(&["runs", "--json"]).json();
    let runs: Vec<&Value> = listed.as_array().unwrap().iter().collect();
    let outcome = runs.first().map_or_else(String::new, |run| word(run));
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    check(
        outcome == expected[tongue],
        format!(
            "{outcome}, not {}: {} {}",
            expected[tongue],
            runs.first().map_or(&Value::Null, |run| &run["why"]),
            said.err
        ),
    );
    check(runs.len() == 1, format!("{} runs", runs.len()));
    check(
        (said.code == 0) == (outcome == "succeeded"),
        format!("exit {} for {outcome}", said.code),
    );
    let answered = house.path("notes/answer.md").exists();
    check(
        answered == (outcome == "succeeded"),
        format!("answer placed: {answered}, {outcome}"),
    );
    let survivors = house.survivors();
    check(survivors.is_empty(), format!("survivors: {survivors:?}"));
    let changed = differs(&before, &picture(&house, &but));
    check(changed.is_empty(), format!("changed: {changed:?}"));
    check(
        house.run(&["ledger", "check"]).code == 0,
        "the ledger is damaged".to_owned(),
    );
    // The run's folder is the agent's own to write in; what runner keeps there is not.
    let leaks: Vec<String> = holding(&house, CANARY)
        .into_iter()
        .filter(|path| !path.contains("/scratch/"))
        .collect();
    check(leaks.is_empty(), format!("the secret is in {leaks:?}"));
    let told = format!("{}{}", said.out, said.err);
    check(
        !told.contains(CANARY),
        format!("the secret was told: {told}"),
    );
    Came {
        row,
        tongue,
        budget,
        outcome,
        wrong,
        millis: began.elapsed().as_millis(),
    }
}

/// The outcome's word, or the class of a failure.
fn word(run: &Value) -> String {
    match run["outcome"].as_str() {
        Some("failed") => run["class"].as_str().unwrap_or("failed").to_owned(),
        Some(word) => word.to_owned(),
        None => run["outcome"].to_string(),
    }
}
