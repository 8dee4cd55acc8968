//! Small care: the log, the daily turn.

use super::*;
use crate::ledger::upkeep::LOG_CEILING;

fn events(ledger: &mut Ledger, count: usize, bytes: usize) {
    for _ in 0..count {
        let event = Event {
            at: now(),
            project: None,
            run: None,
            kind: "noise".to_owned(),
            detail: "x".repeat(bytes),
        };
        ledger.event(&event).unwrap();
    }
}

#[test]
fn a_log_that_a_reader_kept_growing_is_cut_as_soon_as_the_reader_is_gone() {
    let mut house = house();
    let path = house.ledger.path().to_owned();
    let reader = Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM events;")
        .unwrap();
    let _first: i64 = reader
        .query_row("SELECT count(*) FROM events", [], |row| row.get(0))
        .unwrap();
    events(&mut house.ledger, 70, 1 << 20);
    let grown = house.ledger.log_length();
    assert!(grown > LOG_CEILING, "{grown}");
    // Nobody waits for the reader, who still sees what it saw.
    house.ledger.cut_log(LOG_CEILING).unwrap();
    let seen: i64 = reader
        .query_row("SELECT count(*) FROM events", [], |row| row.get(0))
        .unwrap();
    assert_eq!(seen, 0);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(house.ledger.cut_log(LOG_CEILING).unwrap(), 0);
    house.ledger.check().unwrap();
}

#[test]
fn a_long_series_of_writes_keeps_the_log_short() {
    let mut house = house();
    let mut longest = 0;
    for _ in 0..40 {
        events(&mut house.ledger, 50, 40_000);
        house.ledger.cut_log(LOG_CEILING).unwrap();
        longest = longest.max(house.ledger.log_length());
    }
    assert!(longest <= LOG_CEILING, "{longest}");
}

#[test]
fn the_daily_care_is_one_callers_and_comes_again_when_it_was_not_finished() {
    let mut house = house();
    let path = house.ledger.path().to_owned();
    let mut other = Ledger::open(&path).unwrap();
    assert!(house.ledger.claim_care(now()).unwrap());
    assert!(!other.claim_care(now()).unwrap());
    assert!(!other.claim_care(later(59)).unwrap());
    assert!(other.claim_care(later(60)).unwrap(), "the first one died");
    other.cared("daily", "", later(61)).unwrap();
    assert!(!house.ledger.claim_care(later(60 * 24)).unwrap());
    assert!(house.ledger.claim_care(later(60 * 24 + 61)).unwrap());
    // A clock that ran ahead does not put care off for ever.
    other.cared("daily", "", later(60 * 24 * 900)).unwrap();
    assert!(house.ledger.claim_care(later(60 * 24 * 2)).unwrap());
}
