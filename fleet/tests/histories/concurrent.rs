//! Tests hosts working concurrently on a real PostgreSQL server that is killed while they work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use runner_fleet::{FleetError, FleetStore as _, HostInfo, Postgres, State};

use crate::call::{delivery, host, offer, request};
use crate::cluster::Cluster;
use crate::setting;
use crate::world::Random;

/// The fences under which each occurrence was published.
type Published = Arc<Mutex<BTreeMap<String, BTreeSet<i64>>>>;

const HOSTS: [&str; 3] = ["a", "b", "c"];

#[test]
fn concurrent_hosts_survive_a_killed_server() {
    let Some(cluster) = Cluster::start("concurrent hosts") else { return };
    let number = (300.0 * setting("RUNNER_TEST_SCALE").unwrap_or(1.0)).ceil() as usize;
    let mut store = cluster.fleet("concurrent");
    for index in 0..number {
        let (key, home) = (format!("k{index:05}"), HOSTS[index % 3]);
        let mut one = offer(&format!("o{index:05}"), &key, home);
        // Transactions that lock these levels in different orders would deadlock.
        let level = |name: String| (name, Budget { tokens: Some(1 << 40), ..Budget::default() });
        one.levels =
            BTreeMap::from([level(format!("z{}", index % 5)), level(format!("a{}", index % 7))]);
        one.lease = 400;
        one.most_lost = 1_000;
        if index % 4 == 0 {
            one.group = Some((format!("g{}", index % 3), 4));
        }
        store.offer(&one).unwrap();
    }
    let published = Published::default();
    let workers: Vec<_> = HOSTS
        .iter()
        .enumerate()
        .flat_map(|(index, name)| [(index, name, 0), (index, name, 1)])
        .map(|(index, name, thread)| {
            let (url, published) = (cluster.url("concurrent"), Arc::clone(&published));
            let info = host(name, 0);
            let seed = index as u64 * 2 + thread;
            thread::spawn(move || work(&url, &info, seed, &published))
        })
        .collect();
    for _ in 0..2 {
        cluster.crash();
    }
    for worker in workers {
        worker.join().unwrap();
    }
    let end = store.snapshot().or_else(|_| store.snapshot()).unwrap();
    assert_eq!(end.occurrences.len(), number);
    assert!(end.occurrences.iter().all(|row| row.state == State::Settled));
    assert_eq!(end.budget_errors(), Vec::<String>::new());
    assert!(end.budgets.iter().all(|row| row.held == [0; 5]));
    let published = published.lock().unwrap();
    assert_eq!(published.len(), number, "not every occurrence was published");
    for (occurrence, fences) in published.iter() {
        assert_eq!(fences.len(), 1, "{occurrence} was published with fences {fences:?}");
    }
    let lost = end.attempts.len() - number;
    println!("{number} occurrences, {} claims, {lost} of them lost", end.attempts.len());
}

/// Works until every occurrence is settled. One claim in four is abandoned, in some cases after its
/// lease was renewed.
fn work(url: &str, info: &HostInfo, seed: u64, published: &Published) {
    let mut store = Postgres::at(url).unwrap();
    let mut random = Random::new(seed);
    let mut joined = false;
    loop {
        match round(&mut store, info, (&mut random, &mut joined), published) {
            Ok(true) => return,
            Ok(false) => {}
            Err(FleetError::Unreachable(_)) => joined = false,
            Err(FleetError::Stale(_)) => {}
            Err(error) => panic!("{}: {error}", info.host),
        }
    }
}

fn round(
    store: &mut Postgres,
    info: &HostInfo,
    (random, joined): (&mut Random, &mut bool),
    published: &Published,
) -> Result<bool, FleetError> {
    if !*joined {
        store.join(info)?;
        *joined = true;
    }
    let (claims, _) = store.claim(&request(info, 1 + random.below(4) as u32))?;
    let idle = claims.is_empty();
    for claim in claims {
        match random.below(12) {
            0 | 1 => {}
            2 => {
                store.renew(&claim.occurrence, claim.fence, &info.worker)?;
            }
            _ => {
                let used = Amounts { tokens: 1, ..Amounts::default() };
                store.deliver(&delivery(&claim, &info.worker, used))?;
            }
        }
    }
    for one in store.deliveries(&info.host)? {
        // Both threads of a home host publish, as after a crash, so only the fence can prevent a
        // second publication.
        store.begin_publish(&one.occurrence, one.fence, &info.host)?;
        published.lock().unwrap().entry(one.occurrence.clone()).or_default().insert(one.fence);
        store.settle(&one.occurrence, one.fence, &info.host, &Outcome::Succeeded)?;
    }
    if !idle {
        return Ok(false);
    }
    let rows = store.snapshot()?.occurrences;
    Ok(rows.iter().all(|row| row.state == State::Settled))
}
