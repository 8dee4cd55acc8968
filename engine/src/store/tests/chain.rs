//! Tests of runs that wait for other runs to succeed.

use super::*;

#[test]
fn dependent_run_is_ready_after_predecessor_succeeds() {
    for outcome in [Outcome::Succeeded, Outcome::Degraded { why: "half".to_owned() }] {
        let mut fixture = fixture();
        let first = fixture.enqueue("dream");
        let behind = fixture.enqueue_after("tidy", Some(&first));
        assert_eq!(fixture.start(later(600)), std::slice::from_ref(&first));
        assert!(fixture.start(later(600)).is_empty());
        fixture.end(&first, &outcome, later(601));
        assert_eq!(fixture.row(&behind).ready_at(), Some(later(601)));
        assert_eq!(fixture.start(later(601)), [behind]);
    }
}

#[test]
fn dependent_run_keeps_later_start_time() {
    let mut fixture = fixture();
    let first = fixture.enqueue("dream");
    let occurrence = fixture.row(&first).occurrence;
    let wish = fixture.wish("tidy", Origin::Queue);
    fixture.store.enqueue(&wish, later(90), Some(&occurrence), now()).unwrap();
    fixture.end(&first, &Outcome::Succeeded, later(1));
    assert!(fixture.start(later(89)).is_empty());
    assert_eq!(fixture.start(later(90)).len(), 1);
}

#[test]
fn dependent_run_waits_for_retry() {
    let mut fixture = fixture();
    let first = fixture.enqueue("dream");
    let behind = fixture.enqueue_after("tidy", Some(&first));
    fixture.start(now());
    fixture.end(&first, &failed(Class::Crash), later(1));
    assert_eq!(fixture.outcome(&behind), None);
    let again = fixture.start(later(60)).remove(0);
    assert_eq!(fixture.row(&again).attempt, 2);
    assert_eq!(fixture.row(&behind).waits_for().unwrap().0, again);
    fixture.end(&again, &Outcome::Succeeded, later(61));
    assert_eq!(fixture.start(later(61)), [behind]);
}

#[test]
fn dependent_run_is_skipped_after_predecessor_failure() {
    for outcome in [
        failed(Class::Auth),
        Outcome::Lost { why: "x".to_owned() },
        Outcome::Cancelled { why: "manually".to_owned() },
        Outcome::skipped(SkipReason::Idle, "idle"),
    ] {
        let mut fixture = fixture();
        let first = fixture.enqueue("dream");
        let behind = fixture.enqueue_after("tidy", Some(&first));
        fixture.start(now());
        fixture.end(&first, &outcome, later(1));
        let expected = format!("skipped: the run before it ended as {outcome}");
        assert_eq!(why(fixture.outcome(&behind)), expected);
        // A run queued after its predecessor has ended is skipped immediately, for the same reason.
        let late = fixture.enqueue_after("tidy", Some(&first));
        assert_eq!(why(fixture.stands(&late)), expected);
        fixture.check();
    }
    let mut fixture = fixture();
    let first = fixture.requested("dream", "k");
    fixture.end(&first, &Outcome::Succeeded, now());
    let behind = fixture.enqueue_after("tidy", Some(&first));
    assert_eq!(fixture.start(now()), [behind]);
}

#[test]
fn long_chain_is_skipped_as_a_whole() {
    let mut fixture = in_memory_fixture();
    let first = fixture.enqueue("dream");
    let mut last = first.clone();
    for _ in 0..3_000 {
        last = fixture.enqueue_after("tidy", Some(&last));
    }
    fixture.start(now());
    fixture.end(&first, &failed(Class::Auth), later(1));
    assert_eq!(why(fixture.outcome(&last)), "skipped: the run before it ended as failed (auth): x");
    assert!(fixture.store.queued_of(&fixture.project).unwrap().is_empty());
    fixture.check();
}

#[test]
fn a_failed_transaction_skips_nothing() {
    let mut fixture = fixture();
    let first = fixture.enqueue("dream");
    let second = fixture.enqueue_after("tidy", Some(&first));
    let third = fixture.enqueue_after("tidy", Some(&second));
    fixture.start(now());
    let break_at = format!(
        "CREATE TEMP TRIGGER broken BEFORE UPDATE OF state ON main.runs WHEN old.id = '{third}'
         BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END"
    );
    fixture.store.db.execute_batch(&break_at).unwrap();
    let outcome = failed(Class::Auth);
    let settle = |fixture: &mut Fixture| {
        fixture.store.settle(&first, None, &outcome, &RunSummary::default(), later(1))
    };
    settle(&mut fixture).unwrap_err();
    for run in [&first, &second, &third] {
        assert_eq!(fixture.stands(run), None);
    }
    fixture.check();
    fixture.store.db.execute_batch("DROP TRIGGER broken").unwrap();
    settle(&mut fixture).unwrap();
    assert!(fixture.stands(&third).is_some());
    fixture.check();
}
