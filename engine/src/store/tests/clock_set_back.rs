//! Tests of records whose times are in the future because the clock was set back. Such records must
//! not block work. Also tests runs of disabled jobs and the order of caught-up scheduled times.

use super::*;
use crate::policy::{CatchUp, CatchUpScope};

fn years() -> Timestamp {
    now().saturating_add(SignedDuration::from_hours(5 * 365 * 24)).unwrap()
}

#[test]
fn future_waits_restart_now() {
    let mut fixture = in_memory_fixture();
    let first = fixture.due("tidy", years()).pop().unwrap();
    fixture.start(years());
    let until = years().saturating_add(SignedDuration::from_hours(1)).unwrap();
    let why = "work is in progress".to_owned();
    fixture.end(&first, &Outcome::Deferred { until, why }, years());
    let night =
        fixture.store.open_night(&fixture.project.clone(), "2031-11-20", years(), until).unwrap();
    let wish = fixture.wish("dream", Origin::Queue);
    let Recorded::New(wished) = fixture.store.enqueue(&wish, until, None, now()).unwrap() else {
        panic!("known")
    };
    let reported = fixture.store.reset_waits_ahead(later(1)).unwrap().unwrap();
    assert!(reported.contains("1 waiting run and 1 night"), "{reported}");
    assert_eq!(fixture.start(later(2)).len(), 1, "only the deferred run starts");
    assert_eq!(fixture.row(&wished).ready_at(), Some(until), "a requested start time is kept");
    assert_eq!(fixture.store.night(night.id).unwrap().opens, later(1));
    assert_eq!(fixture.store.reset_waits_ahead(later(3)).unwrap(), None);
}

#[test]
fn success_ends_future_dated_failures() {
    let mut fixture = in_memory_fixture();
    for at in [years(), years(), years()] {
        let new = NewOccurrence::manual(fixture.id("tidy"), OccurrenceId::new(at).to_string(), at);
        let me = fixture.me.clone();
        let Recorded::New(run) = fixture.store.enter(&new, &me, at).unwrap() else {
            panic!("known")
        };
        fixture.end(&run, &failed(Class::Crash), at);
    }
    let tidy = fixture.id("tidy");
    assert_eq!(fixture.store.streak(tidy).unwrap().failures, 3);
    let run = fixture.requested("tidy", "now");
    fixture.end(&run, &Outcome::Succeeded, now());
    assert_eq!(fixture.store.streak(tidy).unwrap().failures, 0);
}

#[test]
fn runs_of_disabled_jobs_are_skipped() {
    let mut fixture = in_memory_fixture();
    let run = fixture.due("tidy", later(15)).remove(0);
    let wished = fixture.enqueue("tidy");
    let mut tidy = job("tidy", every(15));
    tidy.enabled = false;
    fixture.jobs(&[tidy, job("dream", Schedule::manual())]);
    let why = "skipped: its job was disabled or removed while it waited";
    assert_eq!(fixture.stands(&run).unwrap().to_string(), why);
    assert_eq!(fixture.start(later(16)), [wished], "a requested run still starts");
    fixture.check();
}

#[test]
fn caught_up_times_keep_their_order() {
    let mut fixture = in_memory_fixture();
    let mut policy = Policy {
        catch_up: CatchUp {
            which: CatchUpScope::All,
            stagger: SignedDuration::ZERO,
            ..CatchUp::default()
        },
        ..Policy::default()
    };
    policy.retry.backoff = vec![SignedDuration::from_hours(2)];
    fixture.jobs(&[with("tidy", every(15), policy), job("dream", Schedule::manual())]);
    let runs = fixture.due("tidy", later(45));
    assert_eq!(fixture.start(later(45)), runs[..1]);
    fixture.end(&runs[0], &failed(Class::Crash), later(46));
    let again = fixture.runs_of("tidy").pop().unwrap();
    let ready = again.ready_at().unwrap();
    if ready > later(47) {
        assert!(fixture.start(later(47)).is_empty(), "later runs wait for the older run's retry");
    }
    assert_eq!(fixture.start(ready), std::slice::from_ref(&again.id));
    fixture.end(&again.id, &Outcome::Succeeded, ready);
    assert_eq!(fixture.start(ready), runs[1..2]);
}
