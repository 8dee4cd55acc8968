//! Tests of truncating the write-ahead log and of daily maintenance.

use super::*;
use crate::store::maintenance::LOG_CEILING;

fn events(store: &mut Store, count: usize, bytes: usize) {
    for _ in 0..count {
        let event = Event {
            at: now(),
            project: None,
            run: None,
            kind: "noise".to_owned(),
            detail: "x".repeat(bytes),
        };
        store.event(&event).unwrap();
    }
}

#[test]
fn log_is_truncated_after_readers_finish() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    let _first: i64 =
        reader.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    events(&mut fixture.store, 70, 1 << 20);
    let grown = fixture.store.log_length();
    assert!(grown > LOG_CEILING, "{grown}");
    // The truncation does not wait for the reader, whose snapshot stays unchanged.
    fixture.store.cut_log(LOG_CEILING).unwrap();
    let seen: i64 = reader.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 0);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(fixture.store.cut_log(LOG_CEILING).unwrap(), 0);
    fixture.store.check().unwrap();
}

#[test]
fn repeated_truncation_keeps_the_log_short() {
    let mut fixture = fixture();
    let mut longest = 0;
    for _ in 0..40 {
        events(&mut fixture.store, 50, 40_000);
        fixture.store.cut_log(LOG_CEILING).unwrap();
        longest = longest.max(fixture.store.log_length());
    }
    assert!(longest <= LOG_CEILING, "{longest}");
}

#[test]
fn daily_maintenance_has_one_claimant() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let mut other = Store::open(&path).unwrap();
    assert!(fixture.store.claim_maintenance(now()).unwrap());
    assert!(!other.claim_maintenance(now()).unwrap());
    assert!(!other.claim_maintenance(later(59)).unwrap());
    assert!(other.claim_maintenance(later(60)).unwrap(), "the first claim has expired");
    other.record_maintenance(Task::Daily, "", later(61)).unwrap();
    assert!(!fixture.store.claim_maintenance(later(60 * 24)).unwrap());
    assert!(fixture.store.claim_maintenance(later(60 * 24 + 61)).unwrap());
    // A time in the future, recorded with a wrong clock, does not postpone maintenance.
    other.record_maintenance(Task::Daily, "", later(60 * 24 * 900)).unwrap();
    assert!(fixture.store.claim_maintenance(later(60 * 24 * 2)).unwrap());
}
