//! Ending runs in each of their states.

use super::*;

fn cancel(house: &mut House, run: &RunId) -> Cancelled {
    house.ledger.cancel(run, "by hand", later(1)).unwrap()
}

#[test]
fn what_has_not_begun_is_settled_at_once() {
    for started in [false, true] {
        let mut house = house();
        let run = house.enqueue("dream");
        let behind = house.enqueue_after("tidy", Some(&run));
        if started {
            assert_eq!(house.start(now()), std::slice::from_ref(&run));
        }
        let Cancelled::Settled(settled) = cancel(&mut house, &run) else {
            panic!()
        };
        assert_eq!(settled, run);
        assert_eq!(why(house.stands(&run)), "cancelled: by hand");
        assert!(why(house.stands(&behind)).starts_with("skipped"));
        assert!(house.start(later(60)).is_empty());
        // Its process comes too late.
        let late = house.admit(&run, Budget::default(), &[]).unwrap_err();
        assert!(matches!(late, LedgerError::NotFound { .. }), "{late}");
        house.check();
    }
}

#[test]
fn what_waits_for_another_is_settled_alone() {
    let mut house = house();
    let run = house.enqueue("dream");
    let behind = house.enqueue_after("tidy", Some(&run));
    assert!(matches!(cancel(&mut house, &behind), Cancelled::Settled(_)));
    assert_eq!(house.stands(&run), None);
    house.start(now());
    house.end(&run, &Outcome::Succeeded, later(2));
    assert!(house.start(later(9)).is_empty());
    house.check();
}

#[test]
fn what_runs_is_asked_and_keeps_the_first_reason() {
    let mut house = house();
    let run = house.admitted("k").run().clone();
    let Cancelled::Asked(row) = cancel(&mut house, &run) else {
        panic!()
    };
    assert_eq!(
        (row.id, row.cancel),
        (run.clone(), Some("by hand".to_owned()))
    );
    house.ledger.cancel(&run, "once more", later(2)).unwrap();
    let gone = Outcome::Cancelled {
        why: "signal 15".to_owned(),
    };
    house.end(&run, &gone, later(3));
    assert_eq!(why(house.stands(&run)), "cancelled: by hand");
}

#[test]
fn what_succeeded_meanwhile_has_succeeded() {
    let mut house = house();
    let run = house.admitted("k").run().clone();
    cancel(&mut house, &run);
    house.end(&run, &Outcome::Succeeded, later(1));
    assert_eq!(house.stands(&run), Some(Outcome::Succeeded));
}

#[test]
fn what_is_over_is_left_alone() {
    let mut house = house();
    let run = house.requested("dream", "k");
    house.end(&run, &Outcome::Succeeded, now());
    let Cancelled::Over(outcome) = cancel(&mut house, &run) else {
        panic!()
    };
    assert_eq!(outcome, Outcome::Succeeded);
    let nobody = RunId::new(now());
    let error = house.ledger.cancel(&nobody, "x", now()).unwrap_err();
    assert!(matches!(error, LedgerError::NotFound { .. }), "{error}");
}

#[test]
fn an_earlier_attempt_names_the_one_that_is_to_come() {
    let mut house = house();
    let run = house.enqueue("dream");
    house.start(now());
    house.end(&run, &failed(Class::Crash), now());
    let Cancelled::Settled(second) = cancel(&mut house, &run) else {
        panic!()
    };
    assert_ne!(second, run);
    assert_eq!(why(house.stands(&run)), "cancelled: by hand");
    assert!(house.start(later(60)).is_empty());
}

#[test]
fn its_deadline_is_brought_forward_once() {
    let mut house = house();
    let run = house.admitted("k").run().clone();
    cancel(&mut house, &run);
    let first = house.row(&run).deadline.unwrap();
    house
        .ledger
        .hasten(&house.row(&run), Duration::from_secs(110))
        .unwrap();
    let hastened = house.row(&run).deadline.unwrap();
    // Killed when the grace of recovery is over too: twenty seconds from now.
    let killed = Duration::from_millis(hastened) + crate::recover::OVERRUN_GRACE;
    assert_eq!(killed, Duration::from_secs(110) + CANCEL_GRACE);
    assert!(hastened < first);
    house
        .ledger
        .hasten(&house.row(&run), Duration::from_secs(500))
        .unwrap();
    assert_eq!(house.row(&run).deadline, Some(hastened));
}
