//! Tests for cancelling runs in each state.

use super::*;

fn cancel(fixture: &mut Fixture, run: &RunId) -> Cancelled {
    fixture.store.cancel(run, "manually", later(1)).unwrap()
}

#[test]
fn waiting_run_is_cancelled_immediately() {
    for started in [false, true] {
        let mut fixture = fixture();
        let run = fixture.enqueue("dream");
        let behind = fixture.enqueue_after("tidy", Some(&run));
        if started {
            assert_eq!(fixture.start(now()), std::slice::from_ref(&run));
        }
        let Cancelled::Settled(settled) = cancel(&mut fixture, &run) else { panic!() };
        assert_eq!(settled, run);
        assert_eq!(why(fixture.stands(&run)), "cancelled: manually");
        assert!(why(fixture.stands(&behind)).starts_with("skipped"));
        assert!(fixture.start(later(60)).is_empty());
        // The cancelled run's process requests admission too late.
        let late = fixture.admit(&run, Budget::default(), &[]).unwrap_err();
        assert!(matches!(late, StoreError::NotFound { .. }), "{late}");
        fixture.check();
    }
}

#[test]
fn cancelling_a_waiting_run_keeps_its_predecessor() {
    let mut fixture = fixture();
    let run = fixture.enqueue("dream");
    let behind = fixture.enqueue_after("tidy", Some(&run));
    assert!(matches!(cancel(&mut fixture, &behind), Cancelled::Settled(_)));
    assert_eq!(fixture.stands(&run), None);
    fixture.start(now());
    fixture.end(&run, &Outcome::Succeeded, later(2));
    assert!(fixture.start(later(9)).is_empty());
    fixture.check();
}

#[test]
fn the_first_cancellation_reason_is_kept() {
    let mut fixture = fixture();
    let run = fixture.admitted("k").run().clone();
    let Cancelled::Asked(row) = cancel(&mut fixture, &run) else { panic!() };
    assert_eq!((&row.id, row.cancel()), (&run, Some("manually")));
    fixture.store.cancel(&run, "once more", later(2)).unwrap();
    let gone = Outcome::Cancelled { why: "signal 15".to_owned() };
    fixture.end(&run, &gone, later(3));
    assert_eq!(why(fixture.stands(&run)), "cancelled: manually");
}

#[test]
fn a_late_cancellation_keeps_the_success() {
    let mut fixture = fixture();
    let run = fixture.admitted("k").run().clone();
    cancel(&mut fixture, &run);
    fixture.end(&run, &Outcome::Succeeded, later(1));
    assert_eq!(fixture.stands(&run), Some(Outcome::Succeeded));
}

#[test]
fn cancelling_a_settled_run_changes_nothing() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "k");
    fixture.end(&run, &Outcome::Succeeded, now());
    let Cancelled::Over(outcome) = cancel(&mut fixture, &run) else { panic!() };
    assert_eq!(outcome, Outcome::Succeeded);
    let nobody = RunId::new(now());
    let error = fixture.store.cancel(&nobody, "x", now()).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

#[test]
fn cancelling_an_attempt_cancels_its_retry() {
    let mut fixture = fixture();
    let run = fixture.enqueue("dream");
    fixture.start(now());
    fixture.end(&run, &failed(Class::Crash), now());
    let Cancelled::Settled(second) = cancel(&mut fixture, &run) else { panic!() };
    assert_ne!(second, run);
    assert_eq!(why(fixture.stands(&run)), "cancelled: manually");
    assert!(fixture.start(later(60)).is_empty());
}

#[test]
fn cancellation_shortens_the_deadline_once() {
    let mut fixture = fixture();
    let run = fixture.admitted("k").run().clone();
    cancel(&mut fixture, &run);
    let first = fixture.deadline(&run);
    fixture.store.hasten(&fixture.row(&run), Duration::from_secs(110)).unwrap();
    let hastened = fixture.deadline(&run);
    // Recovery adds its own grace period to the deadline. It kills the run `CANCEL_GRACE` after the
    // boot time passed to `hasten`.
    let killed = Duration::from_millis(hastened) + crate::recover::OVERRUN_GRACE;
    assert_eq!(killed, Duration::from_secs(110) + CANCEL_GRACE);
    assert!(hastened < first);
    fixture.store.hasten(&fixture.row(&run), Duration::from_secs(500)).unwrap();
    assert_eq!(fixture.deadline(&run), hastened);
}
