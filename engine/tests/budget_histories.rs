//! Random histories of two projects that spend from one pool.
//!
//! Runs are admitted, make requests, receive answers, escalate, die at any point and are recovered.
//! Grants are added, days and windows pass, and databases are reopened. After each step, the
//! database is compared with a model of the actual spending. `RUNNER_TEST_SCALE` multiplies the
//! number of histories, which is 1,000 by default. `RUNNER_TEST_SEED` repeats a test run, and
//! `RUNNER_TEST_HISTORY` limits it to one of its histories.

// Tests may panic, and this one prints figures.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

#[path = "budget_histories/history.rs"]
mod history;
#[path = "budget_histories/operations.rs"]
mod operations;
// Another test uses more items of this shared module.
#[path = "simulated_years/random.rs"]
#[allow(unused)]
mod random;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use runner_engine::time::boot_time;

use history::{Bug, Counts, History};
use random::Random;

/// The default seed.
const SEED: u64 = 0x62_7564_6765_7473;
/// The number of histories at scale 1.
const HISTORIES: f64 = 1_000.0;
/// The number of histories within which each injected bug must be found.
const PLANTED: u64 = 100;

#[allow(clippy::disallowed_methods)]
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text} is not a number"),
    }
}

fn live(seed: u64, number: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let seed = Random(seed ^ (number << 32)).next();
    catch_unwind(AssertUnwindSafe(|| History::new(seed, bug).live())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "panicked".to_owned())
    })
}

#[test]
fn injected_bugs_are_found() {
    let seed: u64 = setting("RUNNER_TEST_SEED").unwrap_or(SEED);
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let found =
            (0..PLANTED).find_map(|number| Some((number, live(seed, number, Some(bug)).err()?)));
        match found {
            Some((number, why)) => {
                writeln!(std::io::stderr(), "{bug:?}: found in history {number}: {why:.160}")
                    .unwrap();
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "RUNNER_TEST_SEED={seed}: {missed:?} were not found");
}

#[test]
fn random_histories_keep_budget_invariants() {
    let began = boot_time();
    let seed: u64 = setting("RUNNER_TEST_SEED").unwrap_or(SEED);
    let scale: f64 = setting("RUNNER_TEST_SCALE").unwrap_or(1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let histories = (HISTORIES * scale).ceil() as u64;
    let numbers = match setting("RUNNER_TEST_HISTORY") {
        Some(one) => one..one + 1,
        None => 0..histories,
    };
    let mut all = Counts::default();
    let mut failures = Vec::new();
    for number in numbers {
        match live(seed, number, None) {
            Ok(counts) => all.add(counts),
            Err(why) => failures.push(format!("RUNNER_TEST_HISTORY={number}: {why}")),
        }
    }
    // The test harness does not capture direct writes to stderr, so the line is always shown.
    writeln!(
        std::io::stderr(),
        "budget histories: {} histories, {} steps, {} runs ({} escalations), {} refused, {} requests \
         ({} with unknown usage, {} over the reservation), {} deaths ({} between two transactions), {} \
         grants, {} reopened, {:.1} s, seed {seed}",
        all.histories,
        all.steps,
        all.runs,
        all.escalations,
        all.refused,
        all.requests,
        all.unknown,
        all.over,
        all.deaths,
        all.blown,
        all.grants,
        all.reopened,
        (boot_time() - began).as_secs_f64(),
    )
    .unwrap();
    assert!(failures.is_empty(), "RUNNER_TEST_SEED={seed}\n{}", failures.join("\n"));
    assert!(all.runs > 0 && all.refused > 0 && all.over > 0 && all.escalations > 0);
}
