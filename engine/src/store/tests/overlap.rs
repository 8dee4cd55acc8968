//! Tests of scheduled times that arrive before an earlier run has finished.

use super::*;
use crate::policy::{Overlap, QUEUE};

fn overlapping(overlap: Overlap) -> Fixture {
    let mut fixture = in_memory_fixture();
    let policy = Policy { overlap, ..Policy::default() };
    fixture.jobs(&[with("tidy", every(15), policy), job("dream", Schedule::manual())]);
    fixture
}

#[test]
fn skip_names_the_earlier_run() {
    let mut fixture = overlapping(Overlap::Skip);
    let first = fixture.due("tidy", later(15)).remove(0);
    for (minute, state) in [(30, "queued"), (45, "requested"), (60, "running")] {
        let next = fixture.due("tidy", later(minute)).remove(0);
        let expected = format!(
            "skipped: an earlier run has not ended: run {first}, due {}, is {state}",
            later(15)
        );
        assert_eq!(why(fixture.stands(&next)), expected);
        match state {
            "queued" => assert_eq!(fixture.start(later(minute)), std::slice::from_ref(&first)),
            _ => drop(fixture.admit(&first, Budget::default(), &[])),
        }
    }
    fixture.end(&first, &Outcome::Succeeded, later(61));
    let next = fixture.due("tidy", later(75)).remove(0);
    assert_eq!(fixture.start(later(75)), [next]);
    fixture.check();
}

#[test]
fn waiting_retry_overlaps_the_next_time() {
    let mut fixture = overlapping(Overlap::Skip);
    let wished = fixture.enqueue("tidy");
    let first = fixture.due("tidy", later(15)).remove(0);
    assert_eq!(fixture.stands(&first), None, "a queued run requested by a user does not overlap");
    fixture.store.cancel(&wished, "x", now()).unwrap();
    fixture.start(later(15));
    fixture.end(&first, &failed(Class::Crash), later(29));
    let next = fixture.due("tidy", later(30)).remove(0);
    assert!(why(fixture.stands(&next)).contains("is queued"));
}

#[test]
fn queue_policy_keeps_order_up_to_cap() {
    let mut fixture = overlapping(Overlap::Queue);
    let mut runs = Vec::new();
    for n in 1..=i64::from(QUEUE) + 2 {
        runs.extend(fixture.due("tidy", later(15 * n)));
    }
    let far = later(15 * 200);
    for run in &runs[..QUEUE as usize] {
        assert_eq!(fixture.start(far), std::slice::from_ref(run));
        fixture.end(run, &Outcome::Succeeded, far);
    }
    for run in &runs[QUEUE as usize..] {
        let expected = format!("skipped: the queue is full: {QUEUE} earlier scheduled times");
        assert_eq!(why(fixture.stands(run)), expected);
    }
    assert!(fixture.start(far).is_empty());
    fixture.check();
}

#[test]
fn replace_cancels_waiting_and_awaits_running_runs() {
    let mut fixture = overlapping(Overlap::Replace);
    let first = fixture.due("tidy", later(15)).remove(0);
    let second = fixture.due("tidy", later(30)).remove(0);
    let replaced = |at| format!("cancelled: replaced by the run due {}", later(at));
    assert_eq!(why(fixture.stands(&first)), replaced(30), "the first run had not started");
    fixture.start(later(30));
    fixture.admit(&second, Budget::default(), &[]).unwrap();
    let third = fixture.due("tidy", later(45)).remove(0);
    assert_eq!(fixture.stands(&second), None);
    assert!(fixture.row(&second).cancel().is_some());
    assert!(fixture.start(later(45)).is_empty(), "a job has at most one live run");
    let gone = Outcome::Cancelled { why: "signal 15".to_owned() };
    fixture.end(&second, &gone, later(46));
    assert_eq!(why(fixture.stands(&second)), replaced(45));
    assert_eq!(fixture.start(later(46)), [third]);
    fixture.check();
}

#[test]
fn replaced_run_is_asked_to_end_in_same_tick() {
    let mut fixture = overlapping(Overlap::Replace);
    let first = fixture.due("tidy", later(15)).remove(0);
    fixture.start(later(15));
    fixture.admit(&first, Budget::default(), &[]).unwrap();
    let me = fixture.me.clone();
    let driver = crate::recover::Driver {
        world: Box::new(crate::recover::Host { state: std::path::Path::new("/nonexistent") }),
        me: &me,
        retries_lost: &|_| false,
        last_tick: None,
    };
    let now = ClockReading { wall: later(30), boot: Duration::from_secs(100) };
    let ticked = crate::tick::tick(&mut fixture.store, &driver, now).unwrap();
    assert_eq!(ticked.end, std::slice::from_ref(&first));
    assert!(ticked.start.is_empty());
    let deadline = fixture.deadline(&first);
    assert!(deadline < 100_000, "the deadline was not brought forward: {deadline}");
}
