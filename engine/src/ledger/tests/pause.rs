//! Pauses of a job and of everything.

use super::*;
use crate::recover::{Driver, Host};
use crate::tick::{Tick, tick};

fn ticked(house: &mut House, at: Timestamp) -> Tick {
    let me = house.me.clone();
    let driver = Driver {
        world: Box::new(Host {
            state: std::path::Path::new("/nonexistent"),
        }),
        me: &me,
        retries_lost: &|_| false,
    };
    let now = Moment {
        wall: at,
        boot: Duration::from_secs(100),
    };
    tick(&mut house.ledger, &driver, now).unwrap()
}

fn missed(house: &House) -> Vec<(Timestamp, Timestamp, u64, String)> {
    let rows = house.ledger.missed_since(&house.project, now()).unwrap();
    rows.into_iter()
        .rev()
        .map(|(_, outcome)| match outcome {
            Outcome::Missed {
                first,
                last,
                count,
                why,
            } => (first, last, count, why),
            other => panic!("{other}"),
        })
        .collect()
}

/// Both pauses: of the one job, and of everything.
fn both(test: impl Fn(House, Option<JobId>)) {
    test(quick_house(), None);
    let of_one = quick_house();
    let tidy = of_one.id("tidy");
    test(of_one, Some(tidy));
}

#[test]
fn its_moments_are_one_missed_row_and_not_caught_up() {
    both(|mut house, job| {
        house.ledger.pause(job, later(100)).unwrap();
        for minute in [15, 31, 99] {
            assert_eq!(ticked(&mut house, later(minute)), Tick::default());
        }
        assert_eq!(
            house.ledger.next_moment(later(50)).unwrap(),
            Some(later(100))
        );
        assert!(ticked(&mut house, later(100)).start.is_empty());
        let expected = (later(15), later(90), 6, "paused".to_owned());
        assert_eq!(missed(&house), [expected]);
        assert_eq!(
            house.ledger.next_moment(later(100)).unwrap(),
            Some(later(105))
        );
        assert_eq!(ticked(&mut house, later(105)).start.len(), 1);
        assert_eq!(missed(&house).len(), 1);
    });
}

#[test]
fn what_is_due_after_it_is_run_by_the_same_tick() {
    both(|mut house, job| {
        house.ledger.pause(job, later(20)).unwrap();
        // Nothing was there from its end to now: that is another stretch, with a catch-up.
        let started = ticked(&mut house, later(61)).start;
        assert_eq!(started.len(), 1);
        assert_eq!(house.row(&started[0]).due, later(60));
        assert_eq!(
            missed(&house),
            [
                (later(15), later(15), 1, "paused".to_owned()),
                (
                    later(30),
                    later(45),
                    2,
                    "nothing was running to start it".to_owned()
                )
            ]
        );
    });
}

#[test]
fn what_waits_is_held_and_goes_on() {
    both(|mut house, job| {
        let run = house.enqueue("tidy");
        let other = house.enqueue("dream");
        house.ledger.pause(job, FOREVER).unwrap();
        let held = if job.is_some() { vec![other] } else { vec![] };
        assert_eq!(house.start(later(600)), held);
        assert!(house.ledger.resume(job, later(600)).unwrap());
        assert!(house.start(later(600)).contains(&run));
    });
}

#[test]
fn a_pause_may_be_given_anew_and_ended_early() {
    both(|mut house, job| {
        assert!(!house.ledger.resume(job, now()).unwrap(), "there is none");
        house.ledger.pause(job, later(500)).unwrap();
        house.ledger.pause(job, later(20)).unwrap();
        let until = |house: &House| {
            house
                .ledger
                .job(&house.project, "tidy")
                .unwrap()
                .paused_until
        };
        assert_eq!(until(&house), Some(later(20)), "the last word counts");
        house.ledger.pause(job, FOREVER).unwrap();
        assert_eq!(until(&house), Some(FOREVER));
        assert_eq!(
            house.ledger.next_moment(later(1)).unwrap(),
            None,
            "no end to wait for"
        );
        assert!(house.ledger.resume(job, later(50)).unwrap());
        assert!(!house.ledger.resume(job, later(51)).unwrap());
        assert_eq!(house.ledger.paused_until(later(51)).unwrap(), None);
        ticked(&mut house, later(59));
        assert_eq!(
            missed(&house),
            [(later(15), later(45), 3, "paused".to_owned())]
        );
    });
}

#[test]
fn one_pause_may_outlast_the_other() {
    let mut house = house();
    let tidy = house.id("tidy");
    house.ledger.pause(Some(tidy), later(20)).unwrap();
    house.ledger.pause(None, later(40)).unwrap();
    assert!(house.ledger.resume(Some(tidy), later(1)).unwrap());
    let run = house.enqueue("tidy");
    assert!(house.start(later(39)).is_empty());
    assert_eq!(house.start(later(40)), [run]);
    ticked(&mut house, later(44));
    assert_eq!(
        missed(&house),
        [(later(15), later(30), 2, "paused".to_owned())]
    );
}

#[test]
fn a_night_by_hand_goes_on() {
    let mut house = house();
    house.ledger.pause(None, FOREVER).unwrap();
    let night = house
        .ledger
        .open_night(&house.project, "2026-11-21", now(), later(60))
        .unwrap();
    let wish = NewOccurrence {
        night: Some(night.id),
        ..house.wish("dream", Origin::Event)
    };
    house.ledger.enqueue(&wish, now(), None, now()).unwrap();
    let me = house.me.clone();
    assert!(house.start(later(1)).is_empty());
    let started = house
        .ledger
        .start_ready(Some(night.id), &me, later(1))
        .unwrap();
    assert_eq!(started.len(), 1);
}
