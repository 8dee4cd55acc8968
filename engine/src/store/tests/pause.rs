//! Tests for pausing one job and all jobs.

use super::*;
use crate::recover::{Driver, Host};
use crate::tick::{Tick, tick};

fn ticked(fixture: &mut Fixture, at: Timestamp) -> Tick {
    let me = fixture.me.clone();
    let driver = Driver {
        world: Box::new(Host { state: std::path::Path::new("/nonexistent") }),
        me: &me,
        retries_lost: &|_| false,
        last_tick: None,
    };
    let now = ClockReading { wall: at, boot: Duration::from_secs(100) };
    tick(&mut fixture.store, &driver, now).unwrap()
}

fn missed(fixture: &Fixture) -> Vec<(Timestamp, Timestamp, u64, String)> {
    let rows = fixture.store.all_missed_since(now()).unwrap();
    rows.into_iter()
        .rev()
        .map(|stretch| match stretch.outcome {
            Outcome::Missed { first, last, count, why } => (first, last, count, why),
            other => panic!("{other}"),
        })
        .collect()
}

/// Calls `test` twice: with `None`, to pause all jobs, and with the id of the job `tidy`, to pause
/// only that job.
fn both(test: impl Fn(Fixture, Option<JobId>)) {
    test(in_memory_fixture(), None);
    let of_one = in_memory_fixture();
    let tidy = of_one.id("tidy");
    test(of_one, Some(tidy));
}

#[test]
fn paused_times_share_one_missed_row() {
    both(|mut fixture, job| {
        fixture.store.pause(job, later(100)).unwrap();
        for minute in [15, 31, 99] {
            assert_eq!(ticked(&mut fixture, later(minute)), Tick::default());
        }
        assert_eq!(fixture.store.next_moment(later(50)).unwrap(), Some(later(100)));
        assert!(ticked(&mut fixture, later(100)).start.is_empty());
        let expected = (later(15), later(90), 6, "paused".to_owned());
        assert_eq!(missed(&fixture), [expected]);
        assert_eq!(fixture.store.next_moment(later(100)).unwrap(), Some(later(105)));
        assert_eq!(ticked(&mut fixture, later(105)).start.len(), 1);
        assert_eq!(missed(&fixture).len(), 1);
    });
}

#[test]
fn time_at_the_end_of_a_pause_runs() {
    both(|mut fixture, job| {
        fixture.store.pause(job, later(30)).unwrap();
        let started = ticked(&mut fixture, later(30)).start;
        assert_eq!(started.len(), 1);
        assert_eq!(missed(&fixture), [(later(15), later(15), 1, "paused".to_owned())]);
    });
}

#[test]
fn times_after_pause_run_in_same_tick() {
    both(|mut fixture, job| {
        fixture.store.pause(job, later(20)).unwrap();
        // No tick runs until long after the pause has ended. The scheduled times that were missed
        // after the pause form a separate stretch, and the last scheduled time starts a run.
        let started = ticked(&mut fixture, later(61)).start;
        assert_eq!(started.len(), 1);
        assert_eq!(fixture.row(&started[0]).due, later(60));
        assert_eq!(
            missed(&fixture),
            [
                (later(15), later(15), 1, "paused".to_owned()),
                (later(30), later(45), 2, "nothing was running to start it".to_owned())
            ]
        );
    });
}

#[test]
fn waiting_runs_of_paused_jobs_do_not_start() {
    both(|mut fixture, job| {
        let run = fixture.enqueue("tidy");
        let other = fixture.enqueue("dream");
        fixture.store.pause(job, FOREVER).unwrap();
        let held = if job.is_some() { vec![other] } else { vec![] };
        assert_eq!(fixture.start(later(600)), held);
        assert!(fixture.store.resume(job, later(600)).unwrap());
        assert!(fixture.start(later(600)).contains(&run));
    });
}

#[test]
fn a_pause_can_change_and_end() {
    both(|mut fixture, job| {
        assert!(!fixture.store.resume(job, now()).unwrap(), "no pause is set");
        fixture.store.pause(job, later(500)).unwrap();
        fixture.store.pause(job, later(20)).unwrap();
        let until =
            |fixture: &Fixture| fixture.store.job(&fixture.project, "tidy").unwrap().paused_until;
        assert_eq!(until(&fixture), Some(later(20)), "the newer pause replaces the older pause");
        fixture.store.pause(job, FOREVER).unwrap();
        assert_eq!(until(&fixture), Some(FOREVER));
        assert_eq!(fixture.store.next_moment(later(1)).unwrap(), None, "the pause has no end");
        assert!(fixture.store.resume(job, later(50)).unwrap());
        assert!(!fixture.store.resume(job, later(51)).unwrap());
        assert_eq!(fixture.store.paused_until(later(51)).unwrap(), None);
        ticked(&mut fixture, later(59));
        assert_eq!(missed(&fixture), [(later(15), later(45), 3, "paused".to_owned())]);
    });
}

#[test]
fn global_pause_outlasts_job_pause() {
    let mut fixture = fixture();
    let tidy = fixture.id("tidy");
    fixture.store.pause(Some(tidy), later(20)).unwrap();
    fixture.store.pause(None, later(40)).unwrap();
    assert!(fixture.store.resume(Some(tidy), later(1)).unwrap());
    let run = fixture.enqueue("tidy");
    assert!(fixture.start(later(39)).is_empty());
    assert_eq!(fixture.start(later(40)), [run]);
    ticked(&mut fixture, later(44));
    assert_eq!(missed(&fixture), [(later(15), later(30), 2, "paused".to_owned())]);
}

#[test]
fn manual_night_ignores_the_pause() {
    let mut fixture = fixture();
    fixture.store.pause(None, FOREVER).unwrap();
    let night = fixture.store.open_night(&fixture.project, "2026-11-21", now(), later(60)).unwrap();
    let wish = NewOccurrence { night: Some(night.id), ..fixture.wish("dream", Origin::Event) };
    fixture.store.enqueue(&wish, now(), None, now()).unwrap();
    assert!(fixture.start(later(1)).is_empty());
    let manual = NewOccurrence { night: Some(night.id), ..fixture.wish("tidy", Origin::Manual) };
    fixture.store.enter(&manual, &fixture.me, now()).unwrap();
    // The user requested a run in a night that also has scheduled runs.
    let set = "UPDATE occurrences SET origin = ?2 WHERE origin = ?1";
    fixture.store.db.execute(set, ["event", "clock"]).unwrap();
    let me = fixture.me.clone();
    assert!(fixture.store.start_ready(Some(night.id), &me, later(1)).unwrap().is_empty());
    fixture.store.db.execute(set, ["clock", "event"]).unwrap();
    // Only the process of the night starts runs during a pause.
    assert!(fixture.start(later(1)).is_empty());
    assert_eq!(fixture.store.start_ready(Some(night.id), &me, later(1)).unwrap().len(), 1);
}
