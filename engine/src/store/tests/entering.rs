//! Tests of recording occurrences and requesting their runs.

use super::*;

#[test]
fn an_occurrence_is_recorded_once() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "k");
    let Recorded::Known(occurrence) = fixture.request("dream", "k") else {
        panic!("the occurrence was recorded twice")
    };
    assert_eq!(fixture.store.run(&run).unwrap().occurrence, occurrence);
    fixture.requested("tidy", "k");
    assert_eq!(fixture.store.live().unwrap().len(), 2);
}

#[test]
fn concurrent_writers_record_each_key_once() {
    let fixture = fixture();
    let path = fixture.store.path().to_owned();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (path, me) = (path.clone(), fixture.me.clone());
            std::thread::spawn(move || {
                let mut store = Store::open(&path).unwrap();
                (0..25)
                    .filter(|key| {
                        let new = NewOccurrence {
                            origin: Origin::Clock,
                            ..NewOccurrence::manual(job, format!("{key}"), now())
                        };
                        matches!(store.enter(&new, &me, now()).unwrap(), Recorded::New(_))
                    })
                    .count()
            })
        })
        .collect();
    let won: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(won, 25, "each key is recorded exactly once");
    assert_eq!(fixture.store.live().unwrap().len(), 25);
}

#[test]
fn run_is_admitted_once_and_fence_grows() {
    let mut fixture = fixture();
    let first = fixture.admitted("a");
    let again = fixture.admit(first.run(), Budget::default(), &[]).unwrap_err();
    assert!(matches!(again, StoreError::NotFound { .. }), "{again}");
    fixture
        .store
        .settle(
            first.run(),
            Some(first.fence()),
            &Outcome::Succeeded,
            &RunSummary::default(),
            later(1),
        )
        .unwrap();
    let second = fixture.admitted("b");
    assert!(second.fence() > first.fence());
    assert_ne!(first.seed(), second.seed());
}

#[test]
fn missed_times_are_merged_into_one_row() {
    let mut fixture = fixture();
    let due_at = later(50);
    let due_job = fixture.store.due_jobs(due_at).unwrap().remove(0);
    let due = due_job
        .job
        .schedule
        .due(due_job.watermark, due_at, &crate::policy::CatchUp::default())
        .unwrap();
    let run = fixture
        .store
        .enter_due(&due_job, &due, MissedReasons::default(), None, due_at)
        .unwrap()
        .remove(0);
    assert_eq!(fixture.store.run(&run).unwrap().due, later(45));
    assert_eq!(
        fixture.store.enter_due(&due_job, &due, MissedReasons::default(), None, due_at).unwrap(),
        [],
        "recording the same times again adds nothing"
    );
    assert!(fixture.store.due_jobs(due_at).unwrap().is_empty());
    assert_eq!(fixture.store.job(&fixture.project, "tidy").unwrap().next_due, Some(later(60)));
    let missed: String = fixture
        .store
        .db
        .query_row("SELECT outcome FROM occurrences WHERE outcome IS NOT NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    let missed: Outcome = serde_json::from_str(&missed).unwrap();
    let expected = Outcome::Missed {
        first: later(15),
        last: later(30),
        count: 2,
        why: "nothing was running to start it".to_owned(),
    };
    assert_eq!(missed, expected);
}

#[test]
fn edited_schedule_restarts_and_removed_job_is_disabled() {
    let mut fixture = fixture();
    let jobs = [job("tidy", every(60))];
    fixture.store.project_jobs(&fixture.project, "s2", "", &jobs, later(30)).unwrap();
    assert_eq!(fixture.store.job(&fixture.project, "tidy").unwrap().next_due, Some(later(90)));
    assert!(!fixture.store.job(&fixture.project, "dream").unwrap().enabled);
    fixture.store.project_jobs(&fixture.project, "s3", "", &jobs, later(80)).unwrap();
    assert_eq!(
        fixture.store.job(&fixture.project, "tidy").unwrap().next_due,
        Some(later(90)),
        "an unchanged schedule keeps its next due time"
    );
}

#[test]
fn night_names_are_never_reused() {
    let mut fixture = fixture();
    let mut open = || {
        let (project, until) = (&fixture.project, later(480));
        fixture.store.open_night(project, "2026-11-21", now(), until).unwrap()
    };
    let (first, _, third) = (open(), open(), open());
    assert_eq!(third.name, "2026-11-21-3");
    // The first night is pruned, so fewer nights remain than names have been used.
    fixture.store.db.execute("DELETE FROM nights WHERE id = ?1", [first.id.0]).unwrap();
    let (project, until) = (&fixture.project, later(480));
    let next = fixture.store.open_night(project, "2026-11-21", now(), until).unwrap();
    assert_eq!(next.name, "2026-11-21-4");
}

#[test]
fn night_closes_once_when_work_is_settled() {
    let mut fixture = fixture();
    let night =
        fixture.store.open_night(&fixture.project, "2026-11-21", now(), later(480)).unwrap();
    let second =
        fixture.store.open_night(&fixture.project, "2026-11-21", now(), later(480)).unwrap();
    assert_eq!(second.name, "2026-11-21-2");
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let new = NewOccurrence {
        night: Some(night.id),
        origin: Origin::Clock,
        ..NewOccurrence::manual(job, "n".into(), now())
    };
    let Recorded::New(run) = fixture.store.enter(&new, &fixture.me, now()).unwrap() else {
        panic!()
    };
    assert!(fixture.store.nights_to_close(now()).unwrap().is_empty());
    fixture
        .store
        .settle(&run, None, &Outcome::Succeeded, &RunSummary::default(), later(1))
        .unwrap();
    let ready: Vec<_> =
        fixture.store.nights_to_close(later(1)).unwrap().iter().map(|n| n.id).collect();
    assert_eq!(ready, [night.id], "an empty night stays open until its closing time");
    let report = fixture.store.job(&fixture.project, "tidy").unwrap().id;
    let me = fixture.me.clone();
    assert!(fixture.store.close_night(night.id, report, &me, later(1)).unwrap().is_some());
    assert!(fixture.store.close_night(night.id, report, &me, later(1)).unwrap().is_none());
    assert_eq!(
        fixture.store.nights_to_close(later(480)).unwrap().len(),
        1,
        "the empty night closes at its closing time"
    );
}

#[test]
fn clock_night_waits_for_jobs_due_later_in_it() {
    let mut fixture = fixture();
    let length = SignedDuration::from_hours(8);
    let daily = |hour| Schedule {
        trigger: Trigger::Daily(jiff::civil::time(hour, 30, 0, 0)),
        night: Some(length),
        ..Schedule::manual()
    };
    fixture.jobs(&[
        job("dream", daily(22)),
        job("tidy", daily(23)),
        job("report", Schedule::manual()),
    ]);
    let mut troubles = Vec::new();
    let record = |fixture: &mut Fixture, minutes, troubles: &mut Vec<String>| {
        let at = (Some(later(minutes - 1)), later(minutes));
        crate::tick::record_due(&mut fixture.store, None, at, troubles).unwrap();
        let me = fixture.me.clone();
        let runs = fixture.store.start_ready(None, &me, later(minutes)).unwrap();
        for run in &runs {
            let done = Outcome::Succeeded;
            fixture.store.settle(run, None, &done, &RunSummary::default(), later(minutes)).unwrap();
        }
        runs.len()
    };
    assert_eq!(record(&mut fixture, 31, &mut troubles), 1);
    let night = fixture.store.nights(&fixture.project, 9).unwrap()[0].clone();
    let closing = |fixture: &Fixture| fixture.store.nights_to_close(later(32)).unwrap().len();
    assert_eq!(closing(&fixture), 0, "tidy is due an hour later");
    let tidy = Some(fixture.id("tidy"));
    fixture.store.pause(tidy, later(600)).unwrap();
    assert_eq!(closing(&fixture), 1, "the night does not wait for a paused job");
    fixture.store.resume(tidy, later(32)).unwrap();
    // Work that the user starts while the night is open belongs to the same night.
    let joined = fixture.store.open_or_join_night(&fixture.project, "x", later(40), later(520));
    assert_eq!(joined.unwrap().id, night.id);
    assert_eq!(record(&mut fixture, 91, &mut troubles), 1);
    let nights = fixture.store.nights(&fixture.project, 9).unwrap();
    assert_eq!(nights.len(), 1, "both jobs belong to the same night");
    assert_eq!(fixture.store.occurrences_of(night.id).unwrap().len(), 2);
    assert_eq!(fixture.store.nights_to_close(later(92)).unwrap().len(), 1);
    assert!(troubles.is_empty(), "{troubles:?}");
}

#[test]
fn caught_up_runs_share_one_stagger() {
    let mut fixture = fixture();
    let catch_up = CatchUp {
        which: CatchUpScope::All,
        stagger: SignedDuration::from_hours(1),
        ..CatchUp::default()
    };
    let mut tidy = job("tidy", every(15));
    tidy.policy.catch_up = catch_up.clone();
    let jobs = [job("dream", Schedule::manual()), tidy];
    fixture.store.project_jobs(&fixture.project, "two", "", &jobs, now()).unwrap();
    // The scheduled times are 35, 20 and 5 minutes old, so the first is late.
    let at = later(50);
    let due_job = fixture.store.due_jobs(at).unwrap().remove(0);
    let due = due_job.job.schedule.due(due_job.watermark, at, &catch_up).unwrap();
    assert_eq!(due.fire, [later(15), later(30), later(45)]);
    fixture.store.enter_due(&due_job, &due, MissedReasons::default(), None, at).unwrap();
    let ready: Vec<_> = fixture
        .store
        .queued_of(&fixture.project)
        .unwrap()
        .into_iter()
        .map(|run| run.ready_at())
        .collect();
    assert!(ready.iter().all(|one| *one == ready[0]), "{ready:?}");
    assert!(ready[0] > Some(at), "the start is staggered");
}
