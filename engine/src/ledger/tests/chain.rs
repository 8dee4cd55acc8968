//! Runs that wait for others to succeed.

use super::*;

#[test]
fn it_is_ready_when_the_other_has_succeeded() {
    for outcome in [
        Outcome::Succeeded,
        Outcome::Degraded {
            why: "half".to_owned(),
        },
    ] {
        let mut house = house();
        let first = house.enqueue("dream");
        let behind = house.enqueue_after("tidy", Some(&first));
        assert_eq!(house.start(later(600)), std::slice::from_ref(&first));
        assert!(house.start(later(600)).is_empty());
        house.end(&first, &outcome, later(601));
        assert_eq!(house.row(&behind).ready_at, Some(later(601)));
        assert_eq!(house.start(later(601)), [behind]);
    }
}

#[test]
fn its_own_moment_counts_when_it_is_later() {
    let mut house = house();
    let first = house.enqueue("dream");
    let occurrence = house.row(&first).occurrence;
    let wish = house.wish("tidy", Origin::Queue);
    house
        .ledger
        .enqueue(&wish, later(90), Some(&occurrence), now())
        .unwrap();
    house.end(&first, &Outcome::Succeeded, later(1));
    assert!(house.start(later(89)).is_empty());
    assert_eq!(house.start(later(90)).len(), 1);
}

#[test]
fn a_retry_of_the_other_is_waited_for() {
    let mut house = house();
    let first = house.enqueue("dream");
    let behind = house.enqueue_after("tidy", Some(&first));
    house.start(now());
    house.end(&first, &failed(Class::Crash), later(1));
    assert_eq!(house.outcome(&behind), None);
    let again = house.start(later(60)).remove(0);
    assert_eq!(house.row(&again).attempt, 2);
    assert_eq!(house.row(&behind).waits_for_run.unwrap().0, again);
    house.end(&again, &Outcome::Succeeded, later(61));
    assert_eq!(house.start(later(61)), [behind]);
}

#[test]
fn it_is_skipped_when_the_other_does_not_succeed() {
    for outcome in [
        failed(Class::Auth),
        Outcome::Lost {
            why: "x".to_owned(),
        },
        Outcome::Cancelled {
            why: "by hand".to_owned(),
        },
        Outcome::Skipped {
            why: "idle".to_owned(),
        },
    ] {
        let mut house = house();
        let first = house.enqueue("dream");
        let behind = house.enqueue_after("tidy", Some(&first));
        house.start(now());
        house.end(&first, &outcome, later(1));
        let expected = format!("skipped: what it was to follow ended as {outcome}");
        assert_eq!(why(house.outcome(&behind)), expected);
        // One that comes later is told the same at once, and one after a success goes.
        let late = house.enqueue_after("tidy", Some(&first));
        assert_eq!(why(house.stands(&late)), expected);
        house.check();
    }
    let mut house = house();
    let first = house.requested("dream", "k");
    house.end(&first, &Outcome::Succeeded, now());
    let behind = house.enqueue_after("tidy", Some(&first));
    assert_eq!(house.start(now()), [behind]);
}

#[test]
fn a_long_chain_falls_as_one() {
    let mut house = quick_house();
    let first = house.enqueue("dream");
    let mut last = first.clone();
    for _ in 0..3_000 {
        last = house.enqueue_after("tidy", Some(&last));
    }
    house.start(now());
    house.end(&first, &failed(Class::Auth), later(1));
    assert_eq!(
        why(house.outcome(&last)),
        "skipped: what it was to follow ended as failed (auth): x"
    );
    assert!(house.ledger.queued_of(&house.project).unwrap().is_empty());
    house.check();
}

#[test]
fn what_falls_half_way_falls_not_at_all() {
    let mut house = house();
    let first = house.enqueue("dream");
    let second = house.enqueue_after("tidy", Some(&first));
    let third = house.enqueue_after("tidy", Some(&second));
    house.start(now());
    let break_at = format!(
        "CREATE TEMP TRIGGER broken BEFORE UPDATE OF state ON main.runs WHEN old.id = '{third}'
         BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END"
    );
    house.ledger.db.execute_batch(&break_at).unwrap();
    let outcome = failed(Class::Auth);
    let settle = |house: &mut House| {
        house
            .ledger
            .settle(&first, None, &outcome, &Summary::default(), later(1))
    };
    settle(&mut house).unwrap_err();
    for run in [&first, &second, &third] {
        assert_eq!(house.stands(run), None);
    }
    house.check();
    house
        .ledger
        .db
        .execute_batch("DROP TRIGGER broken")
        .unwrap();
    settle(&mut house).unwrap();
    assert!(house.stands(&third).is_some());
    house.check();
}
