//! Clocks that were wrong and are set right: what was recorded in a false future is in nobody's way.

use super::*;
use crate::policy::{CatchUp, Which};

fn years() -> Timestamp {
    now()
        .saturating_add(SignedDuration::from_hours(5 * 365 * 24))
        .unwrap()
}

#[test]
fn what_waits_in_a_false_future_begins_again_from_now() {
    let mut house = quick_house();
    let first = house.due("tidy", years()).pop().unwrap();
    house.start(years());
    let until = years()
        .saturating_add(SignedDuration::from_hours(1))
        .unwrap();
    let why = "work is in progress".to_owned();
    house.end(&first, &Outcome::Deferred { until, why }, years());
    let night = house
        .ledger
        .open_night(&house.project.clone(), "2031-11-20", years(), until)
        .unwrap();
    let wish = house.wish("dream", Origin::Queue);
    let Recorded::New(wished) = house.ledger.enqueue(&wish, until, None, now()).unwrap() else {
        panic!("known")
    };
    let told = house.ledger.reset_waits_ahead(later(1)).unwrap().unwrap();
    assert!(told.contains("1 waiting run and 1 night"), "{told}");
    assert_eq!(house.start(later(2)).len(), 1, "the deferred one");
    assert_eq!(
        house.row(&wished).ready_at,
        Some(until),
        "a moment that a person chose stays"
    );
    assert_eq!(house.ledger.night(night.id).unwrap().opens, later(1));
    assert_eq!(house.ledger.reset_waits_ahead(later(3)).unwrap(), None);
}

#[test]
fn failures_in_a_false_future_are_made_good_by_a_success_now() {
    let mut house = quick_house();
    for at in [years(), years(), years()] {
        let new = NewOccurrence::by_hand(house.id("tidy"), OccurrenceId::new(at).to_string(), at);
        let me = house.me.clone();
        let Recorded::New(run) = house.ledger.enter(&new, &me, at).unwrap() else {
            panic!("known")
        };
        house.end(&run, &failed(Class::Crash), at);
    }
    let tidy = house.id("tidy");
    assert_eq!(house.ledger.failures_in_a_row(tidy).unwrap(), 3);
    let run = house.requested("tidy", "now");
    house.end(&run, &Outcome::Succeeded, now());
    assert_eq!(house.ledger.failures_in_a_row(tidy).unwrap(), 0);
}

#[test]
fn what_waits_for_a_job_that_clocks_may_not_start_any_more_is_skipped() {
    let mut house = quick_house();
    let run = house.due("tidy", later(15)).remove(0);
    let wished = house.enqueue("tidy");
    let mut tidy = job("tidy", every(15));
    tidy.enabled = false;
    house.jobs(&[tidy, job("dream", Schedule::manual())]);
    let why = "skipped: its job was disabled or removed while it waited";
    assert_eq!(house.stands(&run).unwrap().to_string(), why);
    assert_eq!(house.start(later(16)), [wished], "a person's wish stays");
    house.check();
}

#[test]
fn moments_that_are_caught_up_keep_their_order_when_one_is_tried_again() {
    let mut house = quick_house();
    let mut policy = Policy {
        catch_up: CatchUp {
            which: Which::All,
            stagger: SignedDuration::ZERO,
            ..CatchUp::default()
        },
        ..Policy::default()
    };
    policy.retry.backoff = vec![SignedDuration::from_hours(2)];
    house.jobs(&[
        with("tidy", every(15), policy),
        job("dream", Schedule::manual()),
    ]);
    let runs = house.due("tidy", later(45));
    assert_eq!(house.start(later(45)), runs[..1]);
    house.end(&runs[0], &failed(Class::Crash), later(46));
    let again = house.runs_of("tidy").pop().unwrap();
    let ready = again.ready_at.unwrap();
    if ready > later(47) {
        assert!(house.start(later(47)).is_empty(), "the older one waits");
    }
    assert_eq!(house.start(ready), std::slice::from_ref(&again.id));
    house.end(&again.id, &Outcome::Succeeded, ready);
    assert_eq!(house.start(ready), runs[1..2]);
}
