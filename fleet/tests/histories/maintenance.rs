//! Tests the overview that each tick reads, the removal of old rows, and notifications, on a real
//! PostgreSQL server.

use std::collections::BTreeMap;
use std::time::Duration;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use runner_fleet::{FleetError, FleetStore as _, Initialized, Postgres, Pruned, State};
use serde_json::json;

use crate::TEST_CLOCK;
use crate::call::{delivery, host, offer, request};
use crate::cluster::Cluster;

const DAY: i64 = 24 * 3_600_000;

/// Offers an occurrence with a source, at the budget level of a day.
fn offered(store: &mut Postgres, id: &str, day: &str, content: &[u8]) {
    let mut one = offer(id, id, "a");
    one.levels = BTreeMap::from([(format!("day {day}"), Budget::default())]);
    one.source = json!({"files": [{"content": store.put_blob(content).unwrap()}]});
    store.offer(&one).unwrap();
}

/// Claims, delivers and settles the first claimable occurrence, with a file as its result.
fn settled(store: &mut Postgres, content: &[u8]) {
    let claim = store.claim(&request(&host("a", 0), 1)).unwrap().0.remove(0);
    let mut result = delivery(&claim, "a.0", Amounts { tokens: 5, ..Amounts::default() });
    result.manifest = json!([{"after": store.put_blob(content).unwrap()}]);
    store.deliver(&result).unwrap();
    store.settle(&claim.occurrence, claim.fence, "a", &Outcome::Succeeded).unwrap();
}

#[test]
fn upgrade_keeps_blobs_and_adds_parts() {
    let Some(cluster) = Cluster::start("fleet upgrade") else { return };
    let mut store = cluster.fleet("upgrade");
    let small = store.put_blob(b"small").unwrap();
    // Format 1 had no parts.
    cluster.sql(
        "upgrade",
        "ALTER TABLE runner_fleet.blobs DROP COLUMN part;
         ALTER TABLE runner_fleet.blobs ADD PRIMARY KEY (digest);
         UPDATE runner_fleet.format SET version = 1",
    );
    let found = store.check_format();
    assert!(matches!(found, Err(FleetError::Format { found: 1, known: 2 })), "{found:?}");
    assert_eq!(store.init().unwrap(), Initialized::Upgraded);
    assert_eq!(store.init().unwrap(), Initialized::Unchanged);
    assert_eq!(store.blob(small).unwrap(), b"small");
    let empty = store.put_blob(b"").unwrap();
    assert_eq!(store.blob(empty).unwrap(), b"");
    // Parts of 16 MiB: two full ones, and one of a single byte.
    let large: Vec<u8> = (0..(32 << 20) + 1_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..2 {
        let digest = store.put_blob(&large).unwrap();
        assert!(store.blob(digest).unwrap() == large, "the parts were joined in the wrong order");
    }
    cluster
        .sql("upgrade", "DO $$ BEGIN ASSERT (SELECT count(*) FROM runner_fleet.blobs) = 5; END $$");
}

#[test]
fn pruning_keeps_sums_and_references() {
    let Some(cluster) = Cluster::start("fleet pruning") else { return };
    let mut store = cluster.fleet("pruning");
    cluster.sql("pruning", TEST_CLOCK);
    let later = |days: i64| {
        let sql = format!("UPDATE runner_fleet.test_clock SET at = at + {}", days * DAY);
        cluster.sql("pruning", &sql);
    };
    store.join(&host("a", 0)).unwrap();
    for (id, day, source, result) in
        [("o1", "one", &b"shared"[..], &b"r1"[..]), ("o2", "two", b"s2", b"r2")]
    {
        offered(&mut store, id, day, source);
        settled(&mut store, result);
    }
    later(10);
    // The day `two` has an occurrence that is not old, so its sums are kept.
    offered(&mut store, "o3", "two", b"shared");
    settled(&mut store, b"r3");
    store.put_blob(b"about to be offered").unwrap();
    let removed = store.prune(5 * DAY).unwrap();
    assert_eq!(removed, Pruned { occurrences: 1, blobs: 1 }, "only o1 and its result are removed");
    let rows = store.snapshot().unwrap();
    assert_eq!(rows.occurrences.iter().map(|row| &row.id).collect::<Vec<_>>(), ["o2", "o3"]);
    assert_eq!(rows.budgets.iter().map(|row| &row.level).collect::<Vec<_>>(), ["day two"]);
    assert_eq!(rows.budget_errors(), Vec::<String>::new());
    let content = |text: &[u8]| runner_engine::digest::Digest::of(text);
    assert_eq!(store.blob(content(b"shared")).unwrap(), b"shared", "o3 refers to it");
    assert!(store.blob(content(b"r1")).is_err());
    later(10);
    offered(&mut store, "o4", "three", b"s4");
    let removed = store.prune(5 * DAY).unwrap();
    assert_eq!(removed, Pruned { occurrences: 2, blobs: 5 }, "the open occurrence is kept");
    assert_eq!(store.snapshot().unwrap().occurrences.len(), 1);
}

#[test]
fn overview_counts_claims_and_the_day() {
    let Some(cluster) = Cluster::start("fleet overview") else { return };
    let mut store = cluster.fleet("overview");
    cluster.sql("overview", TEST_CLOCK);
    for name in ["a", "b"] {
        store.join(&host(name, 0)).unwrap();
    }
    assert_eq!(store.overview().unwrap().day, None);
    for id in ["o1", "o2"] {
        // The test's clock is set to 2026-09-21.
        offered(&mut store, id, "2026-09-21", b"source");
    }
    store.claim(&request(&host("b", 0), 1)).unwrap();
    let found = store.overview().unwrap();
    let hosts: Vec<_> = found.hosts.iter().map(|(row, claims)| (&*row.host, *claims)).collect();
    assert_eq!(hosts, [("a", 0), ("b", 1)]);
    assert_eq!(found.open, BTreeMap::from([(State::Pending, 1), (State::Claimed, 1)]));
    assert_eq!(found.day.unwrap().held[1], 20);
    store.set_host_state("a", runner_fleet::HostState::Left).unwrap();
    assert_eq!(store.overview().unwrap().hosts.len(), 1);
}

#[test]
fn offers_and_results_wake_listeners() {
    let Some(cluster) = Cluster::start("fleet signals") else { return };
    let mut store = cluster.fleet("signals");
    store.join(&host("a", 0)).unwrap();
    let mut signals = store.listen().unwrap();
    let (long, none) = (Duration::from_secs(60), Duration::ZERO);
    assert!(!signals.wait(none).unwrap());
    offered(&mut store, "o1", "one", b"source");
    assert!(signals.wait(long).unwrap(), "an offer notifies");
    let claim = store.claim(&request(&host("a", 0), 1)).unwrap().0.remove(0);
    store.deliver(&delivery(&claim, "a.0", Amounts::default())).unwrap();
    assert!(signals.wait(long).unwrap(), "a result notifies");
    cluster.crash();
    assert!(signals.wait(long).is_err(), "the connection is lost");
}
