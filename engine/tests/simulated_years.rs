//! Simulates years of the real engine on a simulated host.
//!
//! `RUNNER_TEST_SCALE` multiplies the number of years, which is a thousand at scale 1.
//! `RUNNER_TEST_SEED` repeats a test run, and `RUNNER_TEST_YEAR` limits it to one of its years.
//! `docs/RELIABILITY.md` describes the model.

// Tests may panic, and this one prints figures.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

#[path = "simulated_years/audit.rs"]
mod audit;
#[path = "simulated_years/drivers.rs"]
mod drivers;
#[path = "simulated_years/execute.rs"]
mod execute;
#[path = "simulated_years/faults.rs"]
mod faults;
#[path = "simulated_years/host.rs"]
mod host;
#[path = "simulated_years/injected_bugs.rs"]
mod injected_bugs;
#[path = "simulated_years/jobs.rs"]
mod jobs;
#[path = "simulated_years/people.rs"]
mod people;
#[path = "simulated_years/random.rs"]
mod random;
#[path = "simulated_years/shares.rs"]
mod shares;
#[path = "simulated_years/year.rs"]
mod year;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use runner_engine::time::boot_time;

use injected_bugs::Bug;
use random::Random;
use shares::{Counts, ProcessReport};
use year::Year;

/// The default seed.
const SEED: u64 = 0x0079_6561_7273;
/// The number of years at scale 1.
const YEARS: f64 = 1_000.0;
/// The default scale, which keeps the test short.
const SCALE: f64 = 0.03;

/// Reads a number from an environment variable.
#[allow(clippy::disallowed_methods)]
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text} is not a number"),
    }
}

/// Simulates one year and returns its counts, or a description of the first problem.
fn live(seed: u64, number: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let seed = Random(seed ^ (number << 32)).next();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut year = Year::new(seed, bug);
        year.live();
        year.audit();
        year.counts
    }));
    lived.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "panicked".to_owned())
    })
}

/// The number of years within which each injected bug must be found.
const PLANTED: u64 = 40;

#[test]
fn injected_bugs_are_found() {
    let seed: u64 = setting("RUNNER_TEST_SEED").unwrap_or(SEED);
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let found =
            (0..PLANTED).find_map(|number| Some((number, live(seed, number, Some(bug)).err()?)));
        match found {
            Some((year, why)) => println!("{bug:?}: found in year {year}: {why:.200}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "RUNNER_TEST_SEED={seed}: {missed:?} were not found");
}

#[test]
fn simulated_years_account_for_every_scheduled_time() {
    let began = boot_time();
    let seed: u64 = setting("RUNNER_TEST_SEED").unwrap_or(SEED);
    let scale: f64 = setting("RUNNER_TEST_SCALE").unwrap_or(SCALE);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let years = (YEARS * scale).ceil() as u64;
    let share: Option<u64> = setting(shares::SHARE);
    let one = |number| live(seed, number, None);
    let ProcessReport { counts, failures } = match (setting("RUNNER_TEST_YEAR"), share) {
        (Some(year), _) => shares::all(std::iter::once(year), one),
        (None, Some(share)) => {
            let mine = (0..years).filter(|year| year % shares::SHARES == share);
            let reported = shares::all(mine, one);
            println!("\n{}", serde_json::to_string(&reported).unwrap());
            return;
        }
        (None, None) => shares::by_processes("simulated_years_account_for_every_scheduled_time"),
    };
    // The test harness does not capture direct writes to stderr, so the line is always shown.
    writeln!(
        std::io::stderr(),
        "simulated years: {} years, {} occurrences ({} stretches of missed scheduled times), {} scheduled times \
         accounted for, {} runs, {} ticks, {} suspensions, {} clock jumps ({} schedules restarted), \
         {} reboots, {} crashes ({} between two transactions), {} late actions, {} killed at their deadline, \
         {} requested manually, {} pauses, {} edits, {} stale fences refused, {:.1} s, seed {seed}",
        counts.years,
        counts.occurrences,
        counts.missed,
        counts.times,
        counts.runs,
        counts.ticks,
        counts.suspends,
        counts.jumps,
        counts.restarts,
        counts.reboots,
        counts.crashes + counts.blown,
        counts.blown,
        counts.late,
        counts.killed,
        counts.hands,
        counts.pauses,
        counts.edits,
        counts.stale,
        (boot_time() - began).as_secs_f64(),
    )
    .unwrap();
    assert!(failures.is_empty(), "RUNNER_TEST_SEED={seed}\n{}", failures.join("\n"));
}
