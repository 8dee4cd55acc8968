//! Measures claims per second: `cargo run --release -p runner-fleet --example claims -- URL`. The
//! database must be empty. Each claim reserves budget at three levels that all claims share.
//! `tests/bench_fleet.sh` starts a database and compares the result with that of graphile_worker.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement")]

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use runner_engine::store::{Amounts, Budget};
use runner_fleet::{ClaimRequest, FleetError, FleetStore as _, HostInfo, Offer, Postgres};
use serde_json::json;

const OFFERS: usize = 12_000;
const WORKERS: usize = 3;

fn main() -> Result<(), FleetError> {
    let url = std::env::args().nth(1).unwrap_or_default();
    let mut store = Postgres::at(&url)?;
    store.init()?;
    let limit = Budget { tokens: Some(1 << 50), calls: Some(1 << 50), ..Budget::default() };
    for number in 0..OFFERS {
        let level = |name: &str| (name.to_owned(), limit);
        store.offer(&Offer {
            id: format!("o{number:06}"),
            project: "p".to_owned(),
            job: "dream".to_owned(),
            key: number.to_string(),
            home: "home".to_owned(),
            due: 0,
            group: None,
            tags: Vec::new(),
            levels: BTreeMap::from([level("day"), level("night"), level("project")]),
            want: Amounts { calls: 1, tokens: 100, ..Amounts::default() },
            lease: 600_000,
            most_lost: 3,
            source: json!({}),
        })?;
    }
    for (most, claims) in [(1, 2_000), (50, 6_000)] {
        let began = Instant::now();
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let url = url.clone();
                thread::spawn(move || claim(&url, worker, most, claims / WORKERS))
            })
            .collect();
        let mut made = 0;
        for worker in workers {
            made += worker
                .join()
                .map_err(|_| FleetError::Database("a worker panicked".to_owned()))??;
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{WORKERS} workers, {most} at once: {made} claims in {seconds:.2} s, {:.0} per second",
            made as f64 / seconds
        );
    }
    Ok(())
}

fn claim(url: &str, worker: usize, most: u32, wanted: usize) -> Result<usize, FleetError> {
    let mut store = Postgres::at(url)?;
    let host = format!("h{worker}");
    let info = HostInfo {
        host: host.clone(),
        worker: host.clone(),
        tags: Vec::new(),
        version: String::new(),
    };
    store.join(&info)?;
    let request =
        ClaimRequest { host: host.clone(), worker: host, tags: Vec::new(), most, home: None };
    let mut made = 0;
    while made < wanted {
        made += store.claim(&request)?.0.len();
    }
    Ok(made)
}
