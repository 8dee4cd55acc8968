//! The ledger against the promises that others build on.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;

use super::*;
use crate::admission::Facts;
use crate::ids::{Fence, OccurrenceId, ProjectId, RunId};
use crate::outcome::{Class, Outcome};
use crate::owner::Owner;
use crate::placement::{LogError, Manifest, PlacementLog as _, RelPath};
use crate::policy::{CatchUp, Policy, Which};
use crate::schedule::{Schedule, Trigger};
use crate::time::Moment;

struct House {
    _folder: tempfile::TempDir,
    ledger: Ledger,
    project: ProjectId,
    me: Owner,
}

fn now() -> Timestamp {
    "2026-11-21T22:00:00Z".parse().unwrap()
}

fn later(minutes: i64) -> Timestamp {
    now()
        .saturating_add(SignedDuration::from_mins(minutes))
        .unwrap()
}

fn house() -> House {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::open(&folder.path().join("ledger.sqlite")).unwrap();
    let project = ProjectId::new(now());
    let row = Project {
        id: project.clone(),
        path: PathBuf::from("/p"),
        device: u64::MAX,
        inode: 7,
        config_stamp: String::new(),
    };
    ledger.register(&row, now()).unwrap();
    let jobs = [job("dream", Schedule::manual()), job("tidy", every(15))];
    ledger
        .project_jobs(&project, "stamp", &jobs, now())
        .unwrap();
    House {
        _folder: folder,
        ledger,
        project,
        me: Owner::me(),
    }
}

fn job(name: &str, schedule: Schedule) -> NewJob {
    NewJob {
        name: name.to_owned(),
        kind: "command".to_owned(),
        schedule,
        policy: Policy::default(),
        enabled: true,
    }
}

fn every(minutes: i64) -> Schedule {
    Schedule {
        trigger: Trigger::Every(SignedDuration::from_mins(minutes)),
        ..Schedule::manual()
    }
}

impl House {
    fn request(&mut self, name: &str, key: &str) -> Recorded {
        let job = self.ledger.job(&self.project, name).unwrap().id;
        let new = NewOccurrence::by_hand(job, key.to_owned(), now());
        self.ledger.enter(&new, &self.me, now()).unwrap()
    }

    fn requested(&mut self, name: &str, key: &str) -> RunId {
        match self.request(name, key) {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("{key} was known"),
        }
    }

    fn admit(&mut self, run: &RunId, want: Budget, levels: &[Level]) -> Result<Admission> {
        self.admit_with(
            run,
            want,
            levels,
            &Facts {
                free_bytes: u64::MAX,
                ..Facts::default()
            },
        )
    }

    fn admit_with(
        &mut self,
        run: &RunId,
        want: Budget,
        levels: &[Level],
        facts: &Facts,
    ) -> Result<Admission> {
        self.ledger.admit(&Enter {
            run,
            owner: &self.me,
            facts,
            want,
            levels,
            total: Duration::from_secs(60),
            staging: ".runner/staging/x",
            now: Moment {
                wall: now(),
                boot: Duration::from_secs(100),
            },
        })
    }

    fn admitted(&mut self, key: &str) -> Admitted {
        let run = self.requested("dream", key);
        match self.admit(&run, Budget::default(), &[]).unwrap() {
            Admission::Admitted(admitted) => admitted,
            Admission::Declined(outcome) => panic!("declined: {outcome}"),
        }
    }
}

fn day(cap: Budget) -> Level {
    Level {
        level: "day",
        key: "2026-11-21".to_owned(),
        label: "day 2026-11-21".to_owned(),
        cap,
    }
}

fn calls(n: u64) -> Budget {
    Budget {
        calls: Some(n),
        ..Budget::default()
    }
}

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
fn clocks_record_moments_once_and_missed_ones_as_one_row() {
    let mut house = house();
    let due_at = later(50);
    let due_job = house.ledger.due_jobs(due_at).unwrap().remove(0);
    let due = due_job
        .job
        .schedule
        .due(due_job.watermark, due_at, &CatchUp::default())
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
        .project_jobs(&house.project, "s2", &jobs, later(30))
        .unwrap();
    assert_eq!(
        house.ledger.job(&house.project, "tidy").unwrap().next_due,
        Some(later(90))
    );
    assert!(!house.ledger.job(&house.project, "dream").unwrap().enabled);
    house
        .ledger
        .project_jobs(&house.project, "s3", &jobs, later(80))
        .unwrap();
    assert_eq!(
        house.ledger.job(&house.project, "tidy").unwrap().next_due,
        Some(later(90)),
        "unchanged"
    );
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
        .settle_request(request, Spent::Unknown, "no usage", now())
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
        (1, 700, 120)
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
        .project_jobs(&house.project, "two", &jobs, now())
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
        .queued(9)
        .unwrap()
        .into_iter()
        .map(|run| run.ready_at)
        .collect();
    assert!(ready.iter().all(|one| *one == ready[0]), "{ready:?}");
    assert!(ready[0] > Some(at), "spread");
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
fn damage_and_strangers_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    for content in [
        &b""[..],
        b"not a database at all, but long enough to be looked at as one ................",
    ] {
        std::fs::write(&path, content).unwrap();
        let error = Ledger::open(&path).err().unwrap();
        assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    assert!(matches!(
        Ledger::open(&path).err().unwrap(),
        LedgerError::Damaged { .. }
    ));
}

#[test]
fn a_newer_ledger_is_refused_and_a_missing_one_is_not_made_by_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    assert!(matches!(
        Ledger::read(&path).err().unwrap(),
        LedgerError::Missing { .. }
    ));
    let ledger = Ledger::open(&path).unwrap();
    ledger.db.pragma_update(None, "user_version", 99).unwrap();
    drop(ledger);
    for error in [
        Ledger::open(&path).err().unwrap(),
        Ledger::read(&path).err().unwrap(),
    ] {
        assert!(
            matches!(error, LedgerError::Newer { found: 99, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_birth_that_was_interrupted_leaves_nothing_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    std::fs::write(path.with_extension("new"), b"half a ledger").unwrap();
    Ledger::open(&path).unwrap().check().unwrap();
}

#[test]
fn ids_in_the_ledger_are_ids() {
    let mut house = house();
    let run = house.requested("dream", "a");
    house
        .ledger
        .db
        .execute(
            "UPDATE runs SET requested = 9223372036854775807 WHERE id = ?1",
            [run.as_str()],
        )
        .unwrap();
    assert!(matches!(
        house.ledger.run(&run).unwrap_err(),
        LedgerError::Nonsense { .. }
    ));
    let unknown: OccurrenceId = OccurrenceId::new(now());
    assert!(house.ledger.occurrence(&unknown).is_err());
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
