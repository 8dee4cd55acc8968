//! Moments that come while an earlier one is not over.

use super::*;
use crate::policy::{Overlap, QUEUE};

fn overlapping(overlap: Overlap) -> House {
    let mut house = quick_house();
    let policy = Policy {
        overlap,
        ..Policy::default()
    };
    house.jobs(&[
        with("tidy", every(15), policy),
        job("dream", Schedule::manual()),
    ]);
    house
}

#[test]
fn skip_tells_of_the_one_that_is_in_the_way() {
    let mut house = overlapping(Overlap::Skip);
    let first = house.due("tidy", later(15)).remove(0);
    for (minute, state) in [(30, "queued"), (45, "requested"), (60, "running")] {
        let next = house.due("tidy", later(minute)).remove(0);
        let expected = format!(
            "skipped: an earlier one is not over: run {first}, due {}, is {state}",
            later(15)
        );
        assert_eq!(why(house.stands(&next)), expected);
        match state {
            "queued" => assert_eq!(house.start(later(minute)), std::slice::from_ref(&first)),
            _ => drop(house.admit(&first, Budget::default(), &[])),
        }
    }
    house.end(&first, &Outcome::Succeeded, later(61));
    let next = house.due("tidy", later(75)).remove(0);
    assert_eq!(house.start(later(75)), [next]);
    house.check();
}

#[test]
fn a_retry_that_waits_is_in_the_way_and_a_wish_is_not() {
    let mut house = overlapping(Overlap::Skip);
    let wished = house.enqueue("tidy");
    let first = house.due("tidy", later(15)).remove(0);
    assert_eq!(house.stands(&first), None, "the wish only waits");
    house.ledger.cancel(&wished, "x", now()).unwrap();
    house.start(later(15));
    house.end(&first, &failed(Class::Crash), later(29));
    let next = house.due("tidy", later(30)).remove(0);
    assert!(why(house.stands(&next)).contains("is queued"));
}

#[test]
fn queue_keeps_their_order_up_to_its_cap() {
    let mut house = overlapping(Overlap::Queue);
    let mut runs = Vec::new();
    for n in 1..=i64::from(QUEUE) + 2 {
        runs.extend(house.due("tidy", later(15 * n)));
    }
    let far = later(15 * 200);
    for run in &runs[..QUEUE as usize] {
        assert_eq!(house.start(far), std::slice::from_ref(run));
        house.end(run, &Outcome::Succeeded, far);
    }
    for run in &runs[QUEUE as usize..] {
        let expected = format!("skipped: as many wait as may: {QUEUE} earlier moments");
        assert_eq!(why(house.stands(run)), expected);
    }
    assert!(house.start(far).is_empty());
    house.check();
}

#[test]
fn replace_ends_the_earlier_ones_and_waits_for_those_that_run() {
    let mut house = overlapping(Overlap::Replace);
    let first = house.due("tidy", later(15)).remove(0);
    let second = house.due("tidy", later(30)).remove(0);
    let replaced = |at| format!("cancelled: replaced by the one due {}", later(at));
    assert_eq!(why(house.stands(&first)), replaced(30), "it had not begun");
    house.start(later(30));
    house.admit(&second, Budget::default(), &[]).unwrap();
    let third = house.due("tidy", later(45)).remove(0);
    assert_eq!(house.stands(&second), None);
    assert!(house.row(&second).cancel.is_some());
    assert!(
        house.start(later(45)).is_empty(),
        "one job runs once at a time"
    );
    let gone = Outcome::Cancelled {
        why: "signal 15".to_owned(),
    };
    house.end(&second, &gone, later(46));
    assert_eq!(why(house.stands(&second)), replaced(45));
    assert_eq!(house.start(later(46)), [third]);
    house.check();
}

#[test]
fn what_is_replaced_is_asked_to_end_by_the_same_tick() {
    let mut house = overlapping(Overlap::Replace);
    let first = house.due("tidy", later(15)).remove(0);
    house.start(later(15));
    house.admit(&first, Budget::default(), &[]).unwrap();
    let me = house.me.clone();
    let driver = crate::recover::Driver {
        world: Box::new(crate::recover::Host {
            state: std::path::Path::new("/nonexistent"),
        }),
        me: &me,
        retries_lost: &|_| false,
    };
    let now = Moment {
        wall: later(30),
        boot: Duration::from_secs(100),
    };
    let ticked = crate::tick::tick(&mut house.ledger, &driver, now).unwrap();
    assert_eq!(ticked.end, std::slice::from_ref(&first));
    assert!(ticked.start.is_empty());
    let deadline = house.row(&first).deadline.unwrap();
    assert!(deadline < 100_000, "brought forward: {deadline}");
}
