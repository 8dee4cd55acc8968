//! Tests of settling runs.

use super::*;

#[test]
fn stale_fence_cannot_settle_or_publish() {
    let mut fixture = fixture();
    let old = fixture.admitted("a");
    let fence = fixture.store.take_over(old.run()).unwrap();
    let refused = fixture
        .store
        .settle(old.run(), Some(old.fence()), &Outcome::Succeeded, &RunSummary::default(), later(1))
        .unwrap_err();
    assert!(matches!(refused, StoreError::StaleFence { .. }), "{refused}");
    let manifest = manifest(old.run(), old.fence());
    let mut log = fixture.store.publish_log(None, later(1));
    let refused = log.commit_manifest(old.run(), old.fence(), &manifest).unwrap_err();
    assert!(matches!(refused, LogError::StaleFence { .. }), "{refused}");
    // The process that took over the run can finish it.
    log.commit_manifest(old.run(), fence, &manifest).unwrap();
    log.commit_outcome(old.run(), fence).unwrap();
    assert!(matches!(log.commit_outcome(old.run(), fence), Err(LogError::Settled { .. })));
    assert_eq!(fixture.store.run(old.run()).unwrap().outcome(), Some(&Outcome::Succeeded));
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
fn recovered_publication_keeps_the_summary() {
    let mut fixture = fixture();
    let admitted = fixture.admitted("a");
    let summary = RunSummary { headline: "three proposals".to_owned(), ..RunSummary::default() };
    let mut log = fixture.store.publish_log(Some(&summary), later(1));
    log.commit_manifest(
        admitted.run(),
        admitted.fence(),
        &manifest(admitted.run(), admitted.fence()),
    )
    .unwrap();
    let fence = fixture.store.take_over(admitted.run()).unwrap();
    fixture.store.publish_log(None, later(2)).commit_outcome(admitted.run(), fence).unwrap();
    assert_eq!(fixture.store.run(admitted.run()).unwrap().summary.headline, "three proposals");
}

#[test]
fn a_run_is_settled_once() {
    let mut fixture = fixture();
    let admitted = fixture.admitted("a");
    let settle = |store: &mut Store, outcome: &Outcome| {
        store.settle(admitted.run(), None, outcome, &RunSummary::default(), later(1))
    };
    settle(&mut fixture.store, &Outcome::Succeeded).unwrap();
    assert!(settle(&mut fixture.store, &Outcome::Lost { why: "late".into() }).is_err());
    assert_eq!(fixture.store.run(admitted.run()).unwrap().outcome(), Some(&Outcome::Succeeded));
}

#[test]
fn only_admitted_runs_use_up_a_key() {
    const KEY: &str = "key monday";
    let mut fixture = fixture();
    let held = Outcome::Skipped { reason: SkipReason::Busy, why: "the lock is held".into() };
    let mut refused = Vec::new();
    for _ in 0..9 {
        let run = fixture.requested("dream", KEY);
        fixture.end(&run, &held, now());
        refused.push(run);
    }
    let admitted = fixture.admitted(KEY);
    let occurrence = fixture.row(admitted.run()).occurrence;
    assert_eq!(fixture.request("dream", KEY), Recorded::Known(occurrence.clone()));
    fixture.end(admitted.run(), &Outcome::Succeeded, later(1));
    assert_eq!(fixture.request("dream", KEY), Recorded::Known(occurrence));
    assert!(refused.iter().all(|run| fixture.outcome(run).as_ref() == Some(&held)));
    fixture.check();
}

#[test]
fn deferral_keeps_keyed_occurrence_open() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "key a");
    let facts = AdmissionFacts {
        dirty: vec!["ideas/a.md".into()],
        free_bytes: u64::MAX,
        ..AdmissionFacts::default()
    };
    let Admission::Declined(Outcome::Deferred { until, .. }) =
        fixture.admit_with(&run, Budget::default(), &[], &facts).unwrap()
    else {
        panic!("the run was not deferred")
    };
    let me = fixture.me.clone();
    assert!(fixture.store.start_ready(None, &me, now()).unwrap().is_empty());
    let again = fixture.store.start_ready(None, &me, until).unwrap();
    assert_eq!(again.len(), 1);
    assert!(
        fixture.store.start_ready(None, &me, until).unwrap().is_empty(),
        "the next attempt is started only once"
    );
    let row = fixture.store.run(&again[0]).unwrap();
    assert_eq!(row.attempt, 2);
    assert_eq!(fixture.store.occurrence(&row.occurrence).unwrap().outcome, None);
}

#[test]
fn lost_run_is_retried_in_same_occurrence() {
    let mut fixture = fixture();
    let admitted = fixture.admitted("a");
    let (lost, me) = (Outcome::Lost { why: "killed".into() }, fixture.me.clone());
    let again = fixture
        .store
        .settle_dead(admitted.run(), &lost, &RunSummary::default(), Some(&me), later(1))
        .unwrap()
        .unwrap();
    let row = fixture.store.run(&again).unwrap();
    assert_eq!(row.attempt, 2);
    assert_eq!(fixture.store.occurrence(&row.occurrence).unwrap().outcome, None);
    fixture
        .store
        .settle(
            &again,
            None,
            &Outcome::Cancelled { why: "x".into() },
            &RunSummary::default(),
            later(2),
        )
        .unwrap();
    assert!(fixture.store.occurrence(&row.occurrence).unwrap().outcome.is_some());
}

#[test]
fn failures_are_counted_since_the_last_success() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let outcomes = [
        Outcome::Failed { class: Class::Crash, why: String::new() },
        Outcome::Succeeded,
        Outcome::TimedOut { why: String::new() },
        Outcome::skipped(SkipReason::Idle, String::new()),
        Outcome::Lost { why: String::new() },
    ];
    for (index, outcome) in outcomes.iter().enumerate() {
        let at = later(i64::try_from(index).unwrap());
        let new = NewOccurrence::manual(job, format!("{index}"), at);
        let Recorded::New(run) = fixture.store.enter(&new, &fixture.me, at).unwrap() else {
            panic!()
        };
        fixture.store.settle(&run, None, outcome, &RunSummary::default(), at).unwrap();
    }
    assert_eq!(fixture.store.streak(job).unwrap().failures, 2);
}

#[test]
fn deferral_of_unkeyed_manual_run_is_final() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    let facts = AdmissionFacts {
        dirty: vec!["ideas/a.md".into()],
        free_bytes: u64::MAX,
        ..AdmissionFacts::default()
    };
    fixture.admit_with(&run, Budget::default(), &[], &facts).unwrap();
    let me = fixture.me.clone();
    assert!(fixture.store.start_ready(None, &me, later(600)).unwrap().is_empty());
    let occurrence = fixture.store.run(&run).unwrap().occurrence;
    let outcome = fixture.store.occurrence(&occurrence).unwrap().outcome;
    assert!(matches!(outcome, Some(Outcome::Deferred { .. })), "{outcome:?}");
}

#[test]
fn only_succeeded_run_can_be_degraded() {
    let mut fixture = fixture();
    let admitted = fixture.admitted("a");
    let run = admitted.run().clone();
    let degraded = Outcome::Degraded { why: "not committed".to_owned() };
    let summary = RunSummary::default();
    assert!(fixture.store.degrade(&run, &degraded, &summary).is_err(), "the run is not settled");
    let fence = Some(admitted.fence());
    fixture.store.settle(&run, fence, &Outcome::Succeeded, &summary, later(1)).unwrap();
    let before = fixture.store.run(&run).unwrap();
    fixture.store.degrade(&run, &degraded, &summary).unwrap();
    let after = fixture.store.run(&run).unwrap();
    assert_eq!(after.outcome(), Some(&degraded));
    assert_eq!(after.finished(), before.finished());
    let failed = fixture.admitted("b");
    let why = Outcome::TimedOut { why: "late".to_owned() };
    fixture.store.settle(failed.run(), Some(failed.fence()), &why, &summary, later(1)).unwrap();
    assert!(fixture.store.degrade(failed.run(), &degraded, &summary).is_err());
    assert_eq!(fixture.store.run(failed.run()).unwrap().outcome(), Some(&why));
}
