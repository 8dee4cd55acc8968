//! The total counts over many years, and the distribution of the years across processes.
//!
//! SQLite's page cache has a process-wide lock, so two threads are hardly faster than one. The test
//! therefore runs its own executable in two processes.

use std::ops::AddAssign;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The number of processes.
pub const SHARES: u64 = 2;
/// The environment variable that specifies a process's share.
pub const SHARE: &str = "RUNNER_TEST_SHARE";
/// The number of failures after which a process stops.
const ENOUGH: usize = 3;

macro_rules! counts {
    ($($name:ident),*) => {
        /// Counts of simulated events.
        #[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
        pub struct Counts { $(pub $name: u64),* }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
counts!(
    years,
    occurrences,
    missed,
    times,
    runs,
    ticks,
    suspends,
    jumps,
    restarts,
    reboots,
    crashes,
    blown,
    killed,
    hands,
    pauses,
    edits,
    stale,
    late
);

/// The results of one process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    pub counts: Counts,
    pub failures: Vec<String>,
}

/// Simulates the years in sequence until [`ENOUGH`] of them have failed.
pub fn all(
    years: impl Iterator<Item = u64>,
    live: impl Fn(u64) -> Result<Counts, String>,
) -> ProcessReport {
    let mut reported = ProcessReport::default();
    for year in years {
        match live(year) {
            Ok(counts) => reported.counts += counts,
            Err(why) => reported.failures.push(format!("RUNNER_TEST_YEAR={year}: {why}")),
        }
        if reported.failures.len() >= ENOUGH {
            break;
        }
    }
    reported
}

/// Runs the test `test` in one process per share and adds up the results.
pub fn by_processes(test: &str) -> ProcessReport {
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..SHARES)
        .map(|share| {
            Command::new(&program)
                .args([test, "--exact", "--nocapture"])
                .env(SHARE, share.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut all = ProcessReport::default();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let reported = text.lines().find_map(|line| Some(&line[line.find("{\"counts\"")?..]));
        let reported =
            reported.unwrap_or_else(|| panic!("a process died: {}: {text}", output.status));
        let reported: ProcessReport = serde_json::from_str(reported).unwrap();
        all.counts += reported.counts;
        all.failures.extend(reported.failures);
    }
    all
}
