//! What is recorded, and by whom it is begun.

use super::*;

#[test]
fn an_occurrence_is_recorded_once_whoever_asks() {
    let mut house = house();
    let run = house.requested("dream", "k");
    let Recorded::Known(occurrence) = house.request("dream", "k") else {
        panic!("recorded twice")
    };
    assert_eq!(house.ledger.run(&run).unwrap().occurrence, occurrence);
    house.requested("tidy", "k");
    assert_eq!(house.ledger.live().unwrap().len(), 2);
}

#[test]
fn many_writers_record_one_occurrence() {
    let house = house();
    let path = house.ledger.path().to_owned();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (path, me) = (path.clone(), house.me.clone());
            std::thread::spawn(move || {
                let mut ledger = Ledger::open(&path).unwrap();
                (0..25)
                    .filter(|key| {
                        let new = NewOccurrence {
                            origin: Origin::Clock,
                            ..NewOccurrence::by_hand(job, format!("{key}"), now())
                        };
                        matches!(ledger.enter(&new, &me, now()).unwrap(), Recorded::New(_))
                    })
                    .count()
            })
        })
        .collect();
    let won: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(won, 25, "each key is won exactly once");
    assert_eq!(house.ledger.live().unwrap().len(), 25);
}

#[test]
fn a_run_is_admitted_once_and_its_fence_grows() {
    let mut house = house();
    let first = house.admitted("a");
    let again = house
        .admit(first.run(), Budget::default(), &[])
        .unwrap_err();
    assert!(matches!(again, LedgerError::NotFound { .. }), "{again}");
    house
        .ledger
        .settle(
            first.run(),
            Some(first.fence()),
            &Outcome::Succeeded,
            &Summary::default(),
            later(1),
        )
        .unwrap();
    let second = house.admitted("b");
    assert!(second.fence() > first.fence());
    assert_ne!(first.seed(), second.seed());
}

#[test]
fn clocks_record_moments_once_and_missed_ones_as_one_row() {
    let mut house = house();
    let due_at = later(50);
    let due_job = house.ledger.due_jobs(due_at).unwrap().remove(0);
    let due = due_job
        .job
        .schedule
        .due(
            due_job.watermark,
            due_at,
            &crate::policy::CatchUp::default(),
        )
        .unwrap();
    let run = house
        .ledger
        .enter_due(&due_job, &due, None, None, due_at)
        .unwrap()
        .remove(0);
    assert_eq!(house.ledger.run(&run).unwrap().due, later(45));
    assert_eq!(
        house
            .ledger
            .enter_due(&due_job, &due, None, None, due_at)
            .unwrap(),
        [],
        "another driver"
    );
    assert!(house.ledger.due_jobs(due_at).unwrap().is_empty());
    assert_eq!(
        house.ledger.job(&house.project, "tidy").unwrap().next_due,
        Some(later(60))
    );
    let missed: String = house
        .ledger
        .db
        .query_row(
            "SELECT outcome FROM occurrences WHERE outcome IS NOT NULL",
            [],
            |row| row.get(0),
        )
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
fn an_edited_schedule_starts_now_and_a_lost_job_is_never_due() {
    let mut house = house();
    let jobs = [job("tidy", every(60))];
    house
        .ledger
        .project_jobs(&house.project, "s2", "", &jobs, later(30))
        .unwrap();
    assert_eq!(
        house.ledger.job(&house.project, "tidy").unwrap().next_due,
        Some(later(90))
    );
    assert!(!house.ledger.job(&house.project, "dream").unwrap().enabled);
    house
        .ledger
        .project_jobs(&house.project, "s3", "", &jobs, later(80))
        .unwrap();
    assert_eq!(
        house.ledger.job(&house.project, "tidy").unwrap().next_due,
        Some(later(90)),
        "unchanged"
    );
}

#[test]
fn a_night_closes_once_when_its_work_is_settled() {
    let mut house = house();
    let night = house
        .ledger
        .open_night(&house.project, "2026-11-21", now(), later(480))
        .unwrap();
    let second = house
        .ledger
        .open_night(&house.project, "2026-11-21", now(), later(480))
        .unwrap();
    assert_eq!(second.name, "2026-11-21-2");
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let new = NewOccurrence {
        night: Some(night.id),
        origin: Origin::Clock,
        ..NewOccurrence::by_hand(job, "n".into(), now())
    };
    let Recorded::New(run) = house.ledger.enter(&new, &house.me, now()).unwrap() else {
        panic!()
    };
    assert!(house.ledger.nights_to_close(now()).unwrap().is_empty());
    house
        .ledger
        .settle(
            &run,
            None,
            &Outcome::Succeeded,
            &Summary::default(),
            later(1),
        )
        .unwrap();
    let ready: Vec<_> = house
        .ledger
        .nights_to_close(later(1))
        .unwrap()
        .iter()
        .map(|n| n.id)
        .collect();
    assert_eq!(ready, [night.id], "the empty night waits for its end");
    let report = house.ledger.job(&house.project, "tidy").unwrap().id;
    let me = house.me.clone();
    assert!(
        house
            .ledger
            .close_night(night.id, report, &me, later(1))
            .unwrap()
            .is_some()
    );
    assert!(
        house
            .ledger
            .close_night(night.id, report, &me, later(1))
            .unwrap()
            .is_none()
    );
    assert_eq!(
        house.ledger.nights_to_close(later(480)).unwrap().len(),
        1,
        "time closes the other"
    );
}

#[test]
fn moments_that_are_caught_up_together_wait_together() {
    let mut house = house();
    let catch_up = CatchUp {
        which: Which::All,
        stagger: SignedDuration::from_hours(1),
        ..CatchUp::default()
    };
    let mut tidy = job("tidy", every(15));
    tidy.policy.catch_up = catch_up.clone();
    let jobs = [job("dream", Schedule::manual()), tidy];
    house
        .ledger
        .project_jobs(&house.project, "two", "", &jobs, now())
        .unwrap();
    // Due 35, 20 and 5 minutes ago: only the last is on time.
    let at = later(50);
    let due_job = house.ledger.due_jobs(at).unwrap().remove(0);
    let due = due_job
        .job
        .schedule
        .due(due_job.watermark, at, &catch_up)
        .unwrap();
    assert_eq!(due.fire, [later(15), later(30), later(45)]);
    house
        .ledger
        .enter_due(&due_job, &due, None, None, at)
        .unwrap();
    let ready: Vec<_> = house
        .ledger
        .queued_of(&house.project)
        .unwrap()
        .into_iter()
        .map(|run| run.ready_at)
        .collect();
    assert!(ready.iter().all(|one| *one == ready[0]), "{ready:?}");
    assert!(ready[0] > Some(at), "spread");
}
