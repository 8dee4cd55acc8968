//! Years of the real engine on a simulated host.
//!
//! `RUNNER_TEST_SCALE` multiplies the years (1: a thousand), `RUNNER_TEST_SEED` repeats a run and
//! `RUNNER_TEST_YEAR` one year of it. `docs/RELIABILITY.md` tells what is modelled.

// A test: it may stop at what it did not expect, and its figures are its result.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "simulated_years/accounts.rs"]
mod accounts;
#[path = "simulated_years/drivers.rs"]
mod drivers;
#[path = "simulated_years/host.rs"]
mod host;
#[path = "simulated_years/jobs.rs"]
mod jobs;
#[path = "simulated_years/perform.rs"]
mod perform;
#[path = "simulated_years/plants.rs"]
mod plants;
#[path = "simulated_years/random.rs"]
mod random;
#[path = "simulated_years/year.rs"]
mod year;

use std::io::Write as _;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use runner_engine::time::boot_time;

use plants::Bug;
use random::Random;
use year::Year;

/// The seed of an ordinary run.
const SEED: u64 = 0x7965_6172_73;
/// How many years there are at scale 1.
const YEARS: f64 = 1_000.0;
/// The scale of an ordinary run, which must stay short.
const SCALE: f64 = 0.03;

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub years: u64,
    pub occurrences: u64,
    pub missed: u64,
    pub moments: u64,
    pub runs: u64,
    pub ticks: u64,
    pub suspends: u64,
    pub jumps: u64,
    pub restarts: u64,
    pub reboots: u64,
    pub crashes: u64,
    pub blown: u64,
    pub killed: u64,
    pub hands: u64,
    pub pauses: u64,
    pub edits: u64,
    pub stale: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.years += other.years;
        self.occurrences += other.occurrences;
        self.missed += other.missed;
        self.moments += other.moments;
        self.runs += other.runs;
        self.ticks += other.ticks;
        self.suspends += other.suspends;
        self.jumps += other.jumps;
        self.restarts += other.restarts;
        self.reboots += other.reboots;
        self.crashes += other.crashes;
        self.blown += other.blown;
        self.killed += other.killed;
        self.hands += other.hands;
        self.pauses += other.pauses;
        self.edits += other.edits;
        self.stale += other.stale;
    }
}

/// A number from the environment, for a test that has no other caller.
#[allow(clippy::disallowed_methods)]
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text} is no number"),
    }
}

/// Lives one year, and says what is wrong with it.
fn live(seed: u64, number: u64, bug: Option<Bug>) -> Result<Counts, String> {
    let seed = Random(seed ^ (number << 32)).next();
    let folder = std::path::PathBuf::from("/no such folder");
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut year = Year::new(seed, bug, folder);
        year.live();
        year.account();
        year.counts
    }));
    lived.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "panicked".to_owned())
    })
}

/// Years that a planted bug has, at most, to be found in.
const PLANTED: u64 = 40;

#[test]
fn planted_bugs_are_found() {
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
    assert!(
        missed.is_empty(),
        "RUNNER_TEST_SEED={seed} not found: {missed:?}"
    );
}

#[test]
fn years_of_suspends_jumps_and_crashes_account_for_every_moment() {
    let began = boot_time();
    let seed: u64 = setting("RUNNER_TEST_SEED").unwrap_or(SEED);
    let scale: f64 = setting("RUNNER_TEST_SCALE").unwrap_or(SCALE);
    let only: Option<u64> = setting("RUNNER_TEST_YEAR");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let years = (YEARS * scale).ceil() as u64;
    let (from, to) = only.map_or((0, years), |year| (year, year + 1));

    let next = AtomicU64::new(from);
    let total = Mutex::new(Counts::default());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to || failures.lock().unwrap().len() > 3 {
                        return;
                    }
                    match live(seed, number, None) {
                        Ok(counts) => *total.lock().unwrap() += counts,
                        Err(why) => failures.lock().unwrap().push(format!(
                            "RUNNER_TEST_SEED={seed} RUNNER_TEST_YEAR={number}: {why}"
                        )),
                    }
                }
            });
        }
    });
    let counts = total.into_inner().unwrap();
    // Not captured: the figures belong in every log.
    writeln!(
        std::io::stderr(),
        "simulated years: {} years, {} occurrences ({} stretches of missed moments), {} moments \
         accounted for, {} runs, {} ticks, {} suspends, {} clock jumps ({} schedules started again), \
         {} reboots, {} crashes ({} between two transactions), {} killed at their deadline, {} asked \
         for by hand, {} pauses, {} edits, {} stale fences refused, {:.1} s, seed {seed}",
        counts.years,
        counts.occurrences,
        counts.missed,
        counts.moments,
        counts.runs,
        counts.ticks,
        counts.suspends,
        counts.jumps,
        counts.restarts,
        counts.reboots,
        counts.crashes + counts.blown,
        counts.blown,
        counts.killed,
        counts.hands,
        counts.pauses,
        counts.edits,
        counts.stale,
        (boot_time() - began).as_secs_f64(),
    )
    .unwrap();
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
