//! What runs may spend.

use super::*;

fn day(cap: Budget) -> Level {
    Level::new(
        DAY,
        "2026-11-21".to_owned(),
        "day 2026-11-21".to_owned(),
        cap,
    )
}

fn calls(n: u64) -> Budget {
    Budget {
        calls: Some(n),
        ..Budget::default()
    }
}

#[test]
fn budgets_hold_across_runs_and_fail_closed() {
    let mut house = house();
    let levels = [day(calls(5))];
    let first = house.requested("dream", "a");
    let second = house.requested("tidy", "b");
    assert!(matches!(
        house.admit(&first, calls(3), &levels).unwrap(),
        Admission::Admitted(_)
    ));
    let Admission::Declined(outcome) = house.admit(&second, calls(3), &levels).unwrap() else {
        panic!("the day was overspent")
    };
    assert_eq!(outcome.class(), Some(Class::OverBudget));
    // One call with unknown usage is charged as it was reserved; the rest comes back.
    let request = house
        .ledger
        .reserve_request(
            &first,
            "x",
            Amounts {
                calls: 1,
                ..Amounts::default()
            },
            now(),
        )
        .unwrap()
        .unwrap();
    house
        .ledger
        .settle_request(request, Spent::Unknown, None, "no usage", now())
        .unwrap();
    house
        .ledger
        .settle(
            &first,
            None,
            &Outcome::Succeeded,
            &Summary::default(),
            later(1),
        )
        .unwrap();
    assert_eq!(house.ledger.account("day", "2026-11-21").unwrap().calls, 1);
    assert_eq!(
        house.ledger.account("day", "2026-11-21").unwrap().seconds,
        60
    );
}

#[test]
fn a_request_beyond_the_runs_reservation_is_refused_before_it_is_made() {
    let mut house = house();
    let run = house.requested("dream", "a");
    house
        .admit(
            &run,
            Budget {
                calls: Some(1),
                tokens: Some(100),
                ..Budget::default()
            },
            &[],
        )
        .unwrap();
    let want = Amounts {
        calls: 1,
        tokens: 60,
        ..Amounts::default()
    };
    assert!(
        house
            .ledger
            .reserve_request(&run, "x", want, now())
            .unwrap()
            .is_ok()
    );
    let short = house
        .ledger
        .reserve_request(&run, "x", want, now())
        .unwrap()
        .unwrap_err();
    assert_eq!((short.unit, short.left), ("calls", 0));
    assert_eq!(house.ledger.left_of(&run).unwrap().tokens, 40);
}

#[test]
fn a_dead_run_is_charged_its_open_requests_in_full() {
    let mut house = house();
    let run = house.requested("dream", "a");
    let want = Budget {
        calls: Some(4),
        tokens: Some(1_000),
        ..Budget::default()
    };
    house.admit(&run, want, &[day(calls(9))]).unwrap();
    let asked = Amounts {
        calls: 1,
        tokens: 700,
        ..Amounts::default()
    };
    house
        .ledger
        .reserve_request(&run, "x", asked, now())
        .unwrap()
        .unwrap();
    let lost = Outcome::Lost {
        why: "killed".into(),
    };
    house
        .ledger
        .settle_dead(&run, &lost, &Summary::default(), None, later(2))
        .unwrap();
    let account = house.ledger.account("day", "2026-11-21").unwrap();
    assert_eq!(
        (account.calls, account.tokens, account.seconds),
        (1, 700, 60),
        "no more time than its timeout"
    );
}

#[test]
fn nobody_is_charged_more_time_than_was_allowed() {
    let mut house = house();
    let run = house.requested("dream", "a");
    let want = Budget {
        seconds: Some(90),
        ..Budget::default()
    };
    house.admit(&run, want, &[day(calls(99))]).unwrap();
    let lost = Outcome::Lost {
        why: "found eight hours later".into(),
    };
    house
        .ledger
        .settle_dead(&run, &lost, &Summary::default(), None, later(480))
        .unwrap();
    assert_eq!(
        house.ledger.account("day", "2026-11-21").unwrap().seconds,
        90
    );
}
