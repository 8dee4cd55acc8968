//! How runs end.

use super::*;

#[test]
fn a_stale_fence_is_refused_everywhere() {
    let mut house = house();
    let old = house.admitted("a");
    let fence = house.ledger.take_over(old.run()).unwrap();
    let refused = house
        .ledger
        .settle(
            old.run(),
            Some(old.fence()),
            &Outcome::Succeeded,
            &Summary::default(),
            later(1),
        )
        .unwrap_err();
    assert!(
        matches!(refused, LedgerError::StaleFence { .. }),
        "{refused}"
    );
    let manifest = manifest(old.run(), old.fence());
    let mut log = house.ledger.placement_log(None, later(1));
    let refused = log
        .commit_manifest(old.run(), old.fence(), &manifest)
        .unwrap_err();
    assert!(matches!(refused, LogError::StaleFence { .. }), "{refused}");
    // The one who took it over may still finish it.
    log.commit_manifest(old.run(), fence, &manifest).unwrap();
    log.commit_outcome(old.run(), fence).unwrap();
    assert!(matches!(
        log.commit_outcome(old.run(), fence),
        Err(LogError::Settled { .. })
    ));
    assert_eq!(
        house.ledger.run(old.run()).unwrap().outcome,
        Some(Outcome::Succeeded)
    );
}

fn manifest(run: &RunId, fence: Fence) -> Manifest {
    Manifest {
        run: run.clone(),
        fence,
        staging: RelPath::new(".runner/staging/x").unwrap(),
        entries: Vec::new(),
        outcome: Outcome::Succeeded,
    }
}

#[test]
fn a_placement_keeps_the_summary_of_a_run_that_dies_after_it() {
    let mut house = house();
    let admitted = house.admitted("a");
    let summary = Summary {
        headline: "three proposals".to_owned(),
        ..Summary::default()
    };
    let mut log = house.ledger.placement_log(Some(&summary), later(1));
    log.commit_manifest(
        admitted.run(),
        admitted.fence(),
        &manifest(admitted.run(), admitted.fence()),
    )
    .unwrap();
    let fence = house.ledger.take_over(admitted.run()).unwrap();
    house
        .ledger
        .placement_log(None, later(2))
        .commit_outcome(admitted.run(), fence)
        .unwrap();
    assert_eq!(
        house.ledger.run(admitted.run()).unwrap().summary.headline,
        "three proposals"
    );
}

#[test]
fn settled_means_settled() {
    let mut house = house();
    let admitted = house.admitted("a");
    let settle = |ledger: &mut Ledger, outcome: &Outcome| {
        ledger.settle(admitted.run(), None, outcome, &Summary::default(), later(1))
    };
    settle(&mut house.ledger, &Outcome::Succeeded).unwrap();
    assert!(settle(&mut house.ledger, &Outcome::Lost { why: "late".into() }).is_err());
    assert_eq!(
        house.ledger.run(admitted.run()).unwrap().outcome,
        Some(Outcome::Succeeded)
    );
}

#[test]
fn a_deferral_keeps_its_occurrence_open_until_its_time() {
    let mut house = house();
    let run = house.requested("dream", "key a");
    let facts = Facts {
        dirty: vec!["ideas/a.md".into()],
        free_bytes: u64::MAX,
        ..Facts::default()
    };
    let Admission::Declined(Outcome::Deferred { until, .. }) = house
        .admit_with(&run, Budget::default(), &[], &facts)
        .unwrap()
    else {
        panic!("not deferred")
    };
    let me = house.me.clone();
    assert!(
        house
            .ledger
            .start_ready(None, &me, now())
            .unwrap()
            .is_empty()
    );
    let again = house.ledger.start_ready(None, &me, until).unwrap();
    assert_eq!(again.len(), 1);
    assert!(
        house
            .ledger
            .start_ready(None, &me, until)
            .unwrap()
            .is_empty(),
        "taken once"
    );
    let row = house.ledger.run(&again[0]).unwrap();
    assert_eq!(row.attempt, 2);
    assert_eq!(
        house.ledger.occurrence(&row.occurrence).unwrap().outcome,
        None
    );
}

#[test]
fn a_lost_run_is_tried_again_in_the_same_occurrence() {
    let mut house = house();
    let admitted = house.admitted("a");
    let (lost, me) = (
        Outcome::Lost {
            why: "killed".into(),
        },
        house.me.clone(),
    );
    let again = house
        .ledger
        .settle_dead(
            admitted.run(),
            &lost,
            &Summary::default(),
            Some(&me),
            later(1),
        )
        .unwrap()
        .unwrap();
    let row = house.ledger.run(&again).unwrap();
    assert_eq!(row.attempt, 2);
    assert_eq!(
        house.ledger.occurrence(&row.occurrence).unwrap().outcome,
        None
    );
    house
        .ledger
        .settle(
            &again,
            None,
            &Outcome::Cancelled { why: "x".into() },
            &Summary::default(),
            later(2),
        )
        .unwrap();
    assert!(
        house
            .ledger
            .occurrence(&row.occurrence)
            .unwrap()
            .outcome
            .is_some()
    );
}

#[test]
fn failures_are_counted_since_the_last_success() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let outcomes = [
        Outcome::Failed {
            class: Class::Crash,
            why: String::new(),
        },
        Outcome::Succeeded,
        Outcome::TimedOut { why: String::new() },
        Outcome::Skipped { why: String::new() },
        Outcome::Lost { why: String::new() },
    ];
    for (index, outcome) in outcomes.iter().enumerate() {
        let at = later(i64::try_from(index).unwrap());
        let new = NewOccurrence::by_hand(job, format!("{index}"), at);
        let Recorded::New(run) = house.ledger.enter(&new, &house.me, at).unwrap() else {
            panic!()
        };
        house
            .ledger
            .settle(&run, None, outcome, &Summary::default(), at)
            .unwrap();
    }
    assert_eq!(house.ledger.failures_in_a_row(job).unwrap(), 2);
}

#[test]
fn a_deferral_that_a_person_was_told_does_not_come_back() {
    let mut house = house();
    let run = house.requested("dream", "a");
    let facts = Facts {
        dirty: vec!["ideas/a.md".into()],
        free_bytes: u64::MAX,
        ..Facts::default()
    };
    house
        .admit_with(&run, Budget::default(), &[], &facts)
        .unwrap();
    let me = house.me.clone();
    assert!(
        house
            .ledger
            .start_ready(None, &me, later(600))
            .unwrap()
            .is_empty()
    );
    let occurrence = house.ledger.run(&run).unwrap().occurrence;
    let outcome = house.ledger.occurrence(&occurrence).unwrap().outcome;
    assert!(
        matches!(outcome, Some(Outcome::Deferred { .. })),
        "{outcome:?}"
    );
}

#[test]
fn what_falls_short_after_its_end_is_degraded_and_nothing_else_changes() {
    let mut house = house();
    let admitted = house.admitted("a");
    let run = admitted.run().clone();
    let degraded = Outcome::Degraded {
        why: "not committed".to_owned(),
    };
    let summary = Summary::default();
    assert!(
        house.ledger.degrade(&run, &degraded, &summary).is_err(),
        "not over"
    );
    let fence = Some(admitted.fence());
    house
        .ledger
        .settle(&run, fence, &Outcome::Succeeded, &summary, later(1))
        .unwrap();
    let before = house.ledger.run(&run).unwrap();
    house.ledger.degrade(&run, &degraded, &summary).unwrap();
    let after = house.ledger.run(&run).unwrap();
    assert_eq!(after.outcome, Some(degraded.clone()));
    assert_eq!(
        (after.state, after.finished),
        (before.state, before.finished)
    );
    let failed = house.admitted("b");
    let why = Outcome::TimedOut {
        why: "late".to_owned(),
    };
    house
        .ledger
        .settle(failed.run(), Some(failed.fence()), &why, &summary, later(1))
        .unwrap();
    assert!(
        house
            .ledger
            .degrade(failed.run(), &degraded, &summary)
            .is_err()
    );
    assert_eq!(house.ledger.run(failed.run()).unwrap().outcome, Some(why));
}
