//! Tests of automatic and requested retries.

use super::*;

/// Settles each attempt with `outcome` until no retry follows. Returns the delays between the
/// attempts.
fn attempts(fixture: &mut Fixture, first: RunId, outcome: &Outcome) -> Vec<SignedDuration> {
    let mut waits = Vec::new();
    let (mut run, mut at) = (first, now());
    loop {
        fixture.end(&run, outcome, at);
        fixture.check();
        let Some(next) = fixture
            .store
            .next_ready(at.saturating_sub(SignedDuration::from_millis(1)).unwrap())
            .unwrap()
        else {
            return waits;
        };
        waits.push(next.duration_since(at));
        at = next;
        run = fixture.start(at).remove(0);
    }
}

#[test]
fn failures_are_retried_within_the_backoff() {
    let crash = failed(Class::Crash);
    let late = Outcome::TimedOut { why: "x".to_owned() };
    for outcome in [crash, late] {
        for origin in [Origin::Clock, Origin::Event, Origin::Queue] {
            let mut fixture = in_memory_fixture();
            let wish = fixture.wish("dream", origin);
            fixture.store.enqueue(&wish, now(), None, now()).unwrap();
            let first = fixture.start(now()).remove(0);
            let waits = attempts(&mut fixture, first.clone(), &outcome);
            assert_eq!(waits.len(), 2, "{origin:?}");
            for (wait, longest) in waits.iter().zip([1, 5]) {
                let longest = SignedDuration::from_mins(longest);
                assert!(*wait >= SignedDuration::ZERO && *wait <= longest, "{waits:?}");
            }
            assert_eq!(fixture.stands(&first), Some(outcome.clone()));
            assert_eq!(fixture.store.streak(fixture.id("dream")).unwrap().failures, 1);
        }
    }
}

#[test]
fn skipped_retry_does_not_hide_the_failure() {
    let mut fixture = in_memory_fixture();
    let job = fixture.id("dream");
    let wish = fixture.wish("dream", Origin::Clock);
    fixture.store.enqueue(&wish, now(), None, now()).unwrap();
    let first = fixture.start(now()).remove(0);
    fixture.end(&first, &failed(Class::Crash), now());
    let again = fixture.start(later(2)).remove(0);
    let occurrence = fixture.row(&again).occurrence;
    assert_eq!(fixture.store.streak(job).unwrap().failures, 1);
    assert_eq!(fixture.store.streak_before(job, &occurrence).unwrap().failures, 0);
    let stopped = Outcome::skipped(SkipReason::Stopped, "stopped".to_owned());
    fixture.end(&again, &stopped, later(2));
    assert_eq!(fixture.stands(&first), Some(failed(Class::Crash)));
}

#[test]
fn failure_before_a_later_success_is_over() {
    let mut fixture = in_memory_fixture();
    let wish = fixture.wish("dream", Origin::Clock);
    fixture.store.enqueue(&wish, now(), None, now()).unwrap();
    let first = fixture.start(now()).remove(0);
    fixture.end(&first, &failed(Class::Crash), now());
    let manual = fixture.requested("dream", "manual");
    fixture.end(&manual, &Outcome::Succeeded, later(1));
    let again = fixture.start(later(2)).remove(0);
    let idle = Outcome::skipped(SkipReason::Idle, "nothing to do".to_owned());
    fixture.end(&again, &idle, later(2));
    assert_eq!(fixture.stands(&first), Some(idle));
}

#[test]
fn manual_and_permanent_failures_are_final() {
    let mut fixture = in_memory_fixture();
    let manual = fixture.requested("dream", "k");
    assert!(attempts(&mut fixture, manual, &failed(Class::Crash)).is_empty());
    for class in [Class::Auth, Class::NotInstalled, Class::OverBudget, Class::Guard] {
        let run = fixture.enqueue("dream");
        fixture.start(now());
        assert!(attempts(&mut fixture, run, &failed(class)).is_empty(), "{class}");
    }
}

#[test]
fn cancelled_runs_are_not_retried() {
    for outcome in [
        failed(Class::Crash),
        Outcome::TimedOut { why: "x".to_owned() },
        Outcome::Deferred { until: later(9), why: "quota".to_owned() },
    ] {
        let mut fixture = fixture();
        let run = fixture.enqueue("dream");
        fixture.start(now());
        fixture.admit(&run, Budget::default(), &[]).unwrap();
        fixture.store.cancel(&run, "manually", now()).unwrap();
        assert!(attempts(&mut fixture, run.clone(), &outcome).is_empty(), "{outcome}");
        assert!(fixture.stands(&run).is_some());
        if matches!(outcome, Outcome::Deferred { .. }) {
            assert_eq!(why(fixture.stands(&run)), "cancelled: manually");
        }
    }
}

#[test]
fn deferred_run_is_requeued_once() {
    let mut fixture = fixture();
    let run = fixture.enqueue("dream");
    fixture.start(now());
    let put_off = Outcome::Deferred { until: later(20), why: "dirty".to_owned() };
    fixture.end(&run, &put_off, later(1));
    assert_eq!(fixture.stands(&run), None);
    assert!(fixture.start(later(19)).is_empty());
    let again = fixture.start(later(20));
    assert_eq!(again.len(), 1);
    assert_eq!(fixture.row(&again[0]).attempt, 2);
    assert!(fixture.start(later(500)).is_empty());
    // A deferral is not a failure, so both retries remain.
    assert_eq!(attempts(&mut fixture, again[0].clone(), &failed(Class::Crash)).len(), 2);
}

#[test]
fn requested_retry_reopens_occurrence_once() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "k");
    assert!(fixture.store.retry(&run, now()).is_err(), "the occurrence is still open");
    fixture.end(&run, &failed(Class::Auth), now());
    let again = fixture.store.retry(&run, later(1)).unwrap();
    assert!(matches!(
        fixture.store.retry(&run, later(1)).unwrap_err(),
        StoreError::NotFound { .. }
    ));
    let row = fixture.row(&again);
    assert_eq!((row.attempt, row.state.name()), (2, "queued"));
    assert_eq!(fixture.stands(&run), None);
    // No user waits for a requested retry to finish, so the origin of its occurrence is the queue.
    // Therefore, a deferred retry is queued again, and it does not depend on the process that
    // requested it.
    assert_eq!((row.origin, row.manual()), (Origin::Queue, false));
    assert_eq!(fixture.start(later(1)), std::slice::from_ref(&again));
    let put_off = Outcome::Deferred { until: later(9), why: "dirty".to_owned() };
    fixture.end(&again, &put_off, later(2));
    let third = fixture.start(later(9)).remove(0);
    fixture.end(&third, &Outcome::Succeeded, later(10));
    assert_eq!(fixture.stands(&run), Some(Outcome::Succeeded));
    // An occurrence that succeeded can also be retried, through any of its attempts.
    let fourth = fixture.store.retry(&again, later(11)).unwrap();
    assert_eq!(fixture.row(&fourth).attempt, 4);
    fixture.check();
    let nobody = RunId::new(now());
    assert!(fixture.store.retry(&nobody, now()).is_err());
}

#[test]
fn requested_retry_ignores_start_deadline() {
    let mut fixture = fixture();
    let policy = Policy { start_within: Some(SignedDuration::from_mins(10)), ..Policy::default() };
    fixture.jobs(&[with("tidy", every(15), policy)]);
    let run = fixture.due("tidy", later(15)).remove(0);
    assert!(fixture.start(later(60)).is_empty());
    assert!(why(fixture.stands(&run)).contains("start deadline"));
    let again = fixture.store.retry(&run, later(61)).unwrap();
    assert_eq!(fixture.start(later(61)), [again]);
}

#[test]
fn breaker_ignores_many_skipped_runs() {
    let mut fixture = in_memory_fixture();
    for n in 0..3 {
        let run = fixture.requested("dream", &format!("failed {n}"));
        fixture.end(&run, &failed(Class::Crash), now());
    }
    for n in 0..120 {
        let run = fixture.requested("dream", &format!("skipped {n}"));
        let why = "stopped after 3 failures in a row".to_owned();
        fixture.end(&run, &Outcome::skipped(SkipReason::Idle, why), now());
    }
    assert_eq!(fixture.store.streak(fixture.id("dream")).unwrap().failures, 3);
}
