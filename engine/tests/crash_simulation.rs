//! The crash simulation of publications: crashes at every operation, with every kind of damage, and
//! in every recovery.
//!
//! `RUNNER_TEST_SCALE` multiplies the number of random samples, and `RUNNER_TEST_SEED` repeats a
//! test run. `docs/RELIABILITY.md` describes the model.

// Tests may panic, and this one prints figures.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

#[path = "crash_simulation/crashes.rs"]
mod crashes;
#[path = "crash_simulation/damage.rs"]
mod damage;
#[path = "crash_simulation/disk.rs"]
mod disk;
#[path = "crash_simulation/editor.rs"]
mod editor;
#[path = "crash_simulation/faults.rs"]
mod faults;
#[path = "crash_simulation/marker.rs"]
mod marker;
#[path = "crash_simulation/real_disk.rs"]
mod real_disk;
#[path = "crash_simulation/scenarios.rs"]
mod scenarios;
#[path = "crash_simulation/trial.rs"]
mod trial;
#[path = "crash_simulation/unruly.rs"]
mod unruly;
#[path = "crash_simulation/world.rs"]
mod world;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use runner_engine::publish::{InjectedFault, inject};
use runner_engine::time::boot_time;
use strum::VariantArray as _;

use damage::Random;
use scenarios::{ALL, Prepared};
use trial::{Counts, SUITES, Trial};

/// The default seed. It is fixed, because failures should be found by enumeration rather than by
/// chance.
const SEED: u64 = 0x6e69_6768_7473;

/// Reads a number from an environment variable.
#[allow(clippy::disallowed_methods)]
fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Runs a scenario's suites until one fails. Returns the counts and the failure, if any.
fn examine(
    index: usize,
    plant: Option<InjectedFault>,
    seed: u64,
    scale: f64,
) -> (Counts, Option<String>) {
    let scenario = &ALL[index];
    let prepared = Prepared::new(scenario);
    let seed = Random(seed ^ (index as u64) << 32).next();
    inject(plant);
    let mut trial = Trial { prepared: &prepared, seed, scale, counts: Counts::default() };
    for (name, suite) in SUITES {
        // A panic, for example in an endless recovery, is reported as a failure.
        let verdict = catch_unwind(AssertUnwindSafe(|| suite(&mut trial)))
            .unwrap_or_else(|_| Err("panicked".to_owned()));
        if let Err(why) = verdict {
            return (trial.counts, Some(format!("scenario \"{}\", {name}: {why}", scenario.name)));
        }
    }
    (trial.counts, None)
}

/// Runs `work` for each number in `0..count` on two threads.
fn share(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    work(index);
                }
            });
        }
    });
}

#[test]
fn publications_survive_crashes_and_faults_are_detected() {
    let began = boot_time();
    let seed: u64 = setting("RUNNER_TEST_SEED", SEED);
    let scale: f64 = setting("RUNNER_TEST_SCALE", 1.0);

    let total = Mutex::new(Counts::default());
    let failures = Mutex::new(Vec::new());
    share(ALL.len(), |index| {
        let (counts, failure) = examine(index, None, seed, scale);
        *total.lock().unwrap() += counts;
        failures.lock().unwrap().extend(failure);
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "RUNNER_TEST_SEED={seed}\n{}", failures.join("\n"));
    let counts = total.into_inner().unwrap();

    let caught = Mutex::new(Vec::new());
    share(InjectedFault::VARIANTS.len(), |index| {
        let plant = InjectedFault::VARIANTS[index];
        let found = (0..ALL.len()).find_map(|index| examine(index, Some(plant), seed, scale).1);
        caught.lock().unwrap().push((plant, found));
    });
    let mut caught = caught.into_inner().unwrap();
    caught.sort_by_key(|(plant, _)| *plant);
    for (plant, found) in &caught {
        println!("{plant:?}: {}", found.as_deref().unwrap_or("NOT DETECTED"));
    }
    let missed: Vec<_> = caught.iter().filter(|(_, found)| found.is_none()).collect();
    assert!(missed.is_empty(), "RUNNER_TEST_SEED={seed}: {missed:?} were not detected");

    let line = format!(
        "crash simulation: {} points, {} cases, {} double crashes ({} different disks, chains of \
         up to {}), {} editor interleavings ({} in the window of old disks), {} fence take-overs, \
         {} errors, {} rotten files, {} unjournaled cuts, {} twins, {} unruly sequences, {}/{} \
         injected faults detected, {:.1} s, seed {seed}",
        counts.points,
        counts.cases,
        counts.doubles,
        counts.disks,
        counts.chain,
        counts.editor,
        counts.window,
        counts.fence,
        counts.errors,
        counts.rot,
        counts.unjournaled,
        counts.twins,
        counts.unruly,
        caught.len() - missed.len(),
        InjectedFault::VARIANTS.len(),
        (boot_time() - began).as_secs_f64(),
    );
    println!("{line}");
    // The test harness does not capture direct writes to stderr, so the line is always shown.
    writeln!(std::io::stderr(), "{line}").unwrap();
}
