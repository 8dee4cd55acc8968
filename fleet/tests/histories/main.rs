//! Runs random histories of three hosts on the simulation and on a real PostgreSQL server.
//!
//! `RUNNER_TEST_SEED` repeats one history, and `RUNNER_TEST_SCALE` multiplies the number of
//! histories.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test program"
)]

mod call;
mod cluster;
mod concurrent;
mod conformance;
mod maintenance;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use runner_fleet::{FleetStore as _, InjectedBug, Postgres, Simulation, Snapshot};

use call::{Call, Reply};
use cluster::Cluster;
use world::{Target, World};

const START: i64 = 1_790_000_000_000;

/// Number of steps in a history.
const STEPS: usize = 60;

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn seeds(number: f64) -> std::ops::Range<u64> {
    if let Some(seed) = setting("RUNNER_TEST_SEED") {
        return seed as u64..seed as u64 + 1;
    }
    0..(number * setting("RUNNER_TEST_SCALE").unwrap_or(1.0)).ceil() as u64
}

/// The simulation alone.
struct Simulated(Simulation, i64);

impl Target for Simulated {
    fn run(&mut self, call: &Call) -> Reply {
        call::run(&mut self.0, call)
    }

    fn advance(&mut self, by: i64) {
        self.1 += by;
        self.0.set_clock(self.1);
    }

    fn restart(&mut self) {}

    fn snapshot(&mut self) -> Snapshot {
        self.0.snapshot().unwrap()
    }
}

/// Runs PostgreSQL and the simulation together, which must agree on every reply and every row.
struct Compared<'a> {
    simulated: Simulated,
    real: &'a mut Postgres,
    clock: &'a mut postgres::Client,
    cluster: &'a Cluster,
    restarts: &'a mut u32,
}

impl Target for Compared<'_> {
    fn run(&mut self, call: &Call) -> Reply {
        let real = call::run(self.real, call);
        let simulated = self.simulated.run(call);
        assert_eq!(real, simulated, "PostgreSQL and the simulation differ after {call:?}");
        let (rows, expected) = (self.real.snapshot().unwrap(), self.simulated.snapshot());
        assert_eq!(rows, expected, "the rows differ after {call:?}");
        real
    }

    fn advance(&mut self, by: i64) {
        self.simulated.advance(by);
        let at = self.simulated.1;
        self.clock.execute("UPDATE runner_fleet.test_clock SET at = $1", &[&at]).unwrap();
    }

    fn restart(&mut self) {
        // A restart takes half a second, so it is rare.
        if *self.restarts == 0 {
            return;
        }
        *self.restarts -= 1;
        self.cluster.crash();
        // This operation finds that the connection is lost, and the next one reconnects.
        assert!(self.real.snapshot().unwrap_err().is_transient());
        *self.clock = connect(self.cluster);
    }

    fn snapshot(&mut self) -> Snapshot {
        self.simulated.snapshot()
    }
}

fn connect(cluster: &Cluster) -> postgres::Client {
    postgres::Client::connect(&cluster.url("compared"), postgres::NoTls).unwrap()
}

/// Lets a test set the database's time.
pub const TEST_CLOCK: &str = "CREATE TABLE runner_fleet.test_clock (at bigint NOT NULL);
    INSERT INTO runner_fleet.test_clock VALUES (1790000000000);
    CREATE OR REPLACE FUNCTION runner_fleet.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
      'SELECT at FROM runner_fleet.test_clock'";

const EMPTY: &str = "DELETE FROM runner_fleet.attempts; DELETE FROM runner_fleet.occurrences;
    DELETE FROM runner_fleet.budgets; DELETE FROM runner_fleet.hosts;
    DELETE FROM runner_fleet.groups; UPDATE runner_fleet.test_clock SET at = 1790000000000";

#[test]
fn simulated_histories_keep_the_invariants() {
    let (mut calls, seeds) = (0, seeds(2_000.0));
    for seed in seeds.clone() {
        let done = history(seed, Simulation::at(START));
        calls += done.unwrap_or_else(|why| panic!("RUNNER_TEST_SEED={seed}: {why}"));
    }
    println!("{} simulated histories, {calls} operations", seeds.count());
}

/// Runs one history on a simulation, and returns the number of its operations.
fn history(seed: u64, simulation: Simulation) -> Result<u64, String> {
    let mut target = Simulated(simulation, START);
    let done = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(&mut target, seed);
        world.live(STEPS);
        world.calls
    }));
    done.map_err(|why| match why.downcast::<String>() {
        Ok(text) => *text,
        Err(why) => why.downcast_ref::<&str>().map_or_else(String::new, |&text| text.to_owned()),
    })
}

#[test]
fn every_injected_bug_is_caught() {
    let hook = std::panic::take_hook();
    // Thousands of panics are expected, so they are not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in InjectedBug::ALL {
        let caught =
            (0..3_000).find(|seed| history(*seed, Simulation::at(START).with_bug(bug)).is_err());
        match caught {
            Some(seed) => println!("{bug:?}: caught by history {seed}"),
            None => missed.push(bug),
        }
    }
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "no history catches {missed:?}");
}

#[test]
fn postgres_and_simulation_agree() {
    let Some(cluster) = Cluster::start("fleet histories") else { return };
    let mut real = cluster.fleet("compared");
    cluster.sql("compared", TEST_CLOCK);
    let mut clock = connect(&cluster);
    let (mut calls, seeds) = (0, seeds(40.0));
    let mut restarts = seeds.clone().count().div_ceil(10) as u32;
    for seed in seeds.clone() {
        clock.batch_execute(EMPTY).unwrap();
        let mut target = Compared {
            simulated: Simulated(Simulation::at(START), START),
            real: &mut real,
            clock: &mut clock,
            cluster: &cluster,
            restarts: &mut restarts,
        };
        println!("RUNNER_TEST_SEED={seed}");
        let mut world = World::new(&mut target, seed);
        world.live(STEPS);
        calls += world.calls;
    }
    println!("{} compared histories, {calls} operations", seeds.count());
}
