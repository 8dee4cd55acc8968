//! Tests of budgets and reservations.

use super::*;

fn day(cap: Budget) -> BudgetLevel {
    BudgetLevel::new(DAY, "2026-11-21".to_owned(), "day 2026-11-21".to_owned(), cap)
}

fn calls(n: u64) -> Budget {
    Budget { calls: Some(n), ..Budget::default() }
}

#[test]
fn shared_budget_is_charged_for_unknown_usage() {
    let mut fixture = fixture();
    let levels = [day(calls(5))];
    let first = fixture.requested("dream", "a");
    let second = fixture.requested("tidy", "b");
    assert!(matches!(fixture.admit(&first, calls(3), &levels).unwrap(), Admission::Admitted(_)));
    let Admission::Declined(outcome) = fixture.admit(&second, calls(3), &levels).unwrap() else {
        panic!("the run was admitted beyond the day's budget")
    };
    assert_eq!(outcome.class(), Some(Class::OverBudget));
    // A call with unknown usage is charged the amounts that it reserved. The rest of the run's
    // reservation is released.
    let request = fixture
        .store
        .reserve_request(&first, "x", Amounts { calls: 1, ..Amounts::default() }, now())
        .unwrap()
        .unwrap();
    fixture.store.settle_request(request, RequestUsage::Unknown, None, "no usage", now()).unwrap();
    fixture
        .store
        .settle(&first, None, &Outcome::Succeeded, &RunSummary::default(), later(1))
        .unwrap();
    assert_eq!(fixture.store.account("day", "2026-11-21").unwrap().calls, 1);
    assert_eq!(fixture.store.account("day", "2026-11-21").unwrap().seconds, 60);
}

#[test]
fn a_request_beyond_the_reservation_is_refused() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    fixture
        .admit(&run, Budget { calls: Some(1), tokens: Some(100), ..Budget::default() }, &[])
        .unwrap();
    let want = Amounts { calls: 1, tokens: 60, ..Amounts::default() };
    assert!(fixture.store.reserve_request(&run, "x", want, now()).unwrap().is_ok());
    let short = fixture.store.reserve_request(&run, "x", want, now()).unwrap().unwrap_err();
    assert_eq!((short.unit, short.left), ("calls", 0));
    assert_eq!(fixture.store.left_of(&run).unwrap().tokens, 40);
}

#[test]
fn dead_run_is_charged_for_open_requests() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    let want = Budget { calls: Some(4), tokens: Some(1_000), ..Budget::default() };
    fixture.admit(&run, want, &[day(calls(9))]).unwrap();
    let asked = Amounts { calls: 1, tokens: 700, ..Amounts::default() };
    fixture.store.reserve_request(&run, "x", asked, now()).unwrap().unwrap();
    let lost = Outcome::Lost { why: "killed".into() };
    fixture.store.settle_dead(&run, &lost, &RunSummary::default(), None, later(2)).unwrap();
    let account = fixture.store.account("day", "2026-11-21").unwrap();
    assert_eq!(
        (account.calls, account.tokens, account.seconds),
        (1, 700, 60),
        "a run is charged no more time than its timeout"
    );
}

#[test]
fn charged_time_never_exceeds_the_reservation() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    let want = Budget { seconds: Some(90), ..Budget::default() };
    fixture.admit(&run, want, &[day(calls(99))]).unwrap();
    let lost = Outcome::Lost { why: "found eight hours later".into() };
    fixture.store.settle_dead(&run, &lost, &RunSummary::default(), None, later(480)).unwrap();
    assert_eq!(fixture.store.account("day", "2026-11-21").unwrap().seconds, 90);
}
