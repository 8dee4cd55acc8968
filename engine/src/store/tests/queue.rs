//! Tests for the order and start times of waiting runs.

use super::*;
use crate::policy::ConcurrencyGroup;

fn grouped(name: &str, slots: u32) -> NewJob {
    let policy =
        Policy { group: ConcurrencyGroup { name: "heavy".to_owned(), slots }, ..Policy::default() };
    with(name, Schedule::manual(), policy)
}

#[test]
fn runs_start_by_priority_then_age() {
    let mut fixture = fixture();
    fixture.jobs(&["a", "b", "c", "d"].map(|name| grouped(name, 1)));
    let mut runs = Vec::new();
    for (job, priority, due) in [("a", 0, 3), ("b", 5, 2), ("c", 0, 1), ("d", -1, 0)] {
        let wish = NewOccurrence {
            priority: Some(priority),
            due: later(due),
            ..fixture.wish(job, Origin::Queue)
        };
        let Recorded::New(run) = fixture.store.enqueue(&wish, now(), None, now()).unwrap() else {
            panic!()
        };
        runs.push(run);
    }
    for expected in [1, 2, 0, 3] {
        let started = fixture.start(later(9));
        assert_eq!(started, [runs[expected].clone()]);
        assert!(fixture.start(later(9)).is_empty(), "the group is full");
        fixture.end(&started[0], &Outcome::Succeeded, later(9));
    }
    fixture.check();
}

#[test]
fn manual_runs_use_slots_across_projects() {
    let mut fixture = fixture();
    fixture.jobs(&[grouped("a", 2), grouped("b", 2)]);
    let other = ProjectId::new(now());
    let row = Project {
        id: other.clone(),
        path: PathBuf::from("/q"),
        node: Node::new(1, 8),
        config_stamp: String::new(),
        own: false,
    };
    fixture.store.register(&row, now()).unwrap();
    fixture.store.project_jobs(&other, "s", "", &[grouped("a", 2)], now()).unwrap();
    let manual = fixture.requested("a", "k");
    let job = fixture.store.job(&other, "a").unwrap().id;
    let elsewhere = NewOccurrence {
        origin: Origin::Queue,
        ..NewOccurrence::manual(job, "k".to_owned(), now())
    };
    fixture.store.enqueue(&elsewhere, now(), None, now()).unwrap();
    fixture.enqueue("b");
    assert_eq!(fixture.start(later(1)).len(), 1);
    assert!(fixture.start(later(1)).is_empty());
    fixture.end(&manual, &Outcome::Succeeded, later(1));
    assert_eq!(fixture.start(later(1)).len(), 1);
}

#[test]
fn waiting_runs_of_a_manual_night_use_no_slot() {
    let mut fixture = fixture();
    fixture.jobs(&["a", "b", "c"].map(|name| grouped(name, 1)));
    let night = fixture.store.open_night(&fixture.project, "2026-11-21", now(), later(60)).unwrap();
    let [first, _] = ["a", "b"].map(|job| {
        let new = NewOccurrence { night: Some(night.id), ..fixture.wish(job, Origin::Manual) };
        match fixture.store.enter(&new, &fixture.me, now()).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!(),
        }
    });
    let other = fixture.enqueue("c");
    let me = fixture.me.clone();
    fixture.store.spawned(&first, &me, Duration::from_secs(9)).unwrap();
    assert!(fixture.start(later(1)).is_empty());
    fixture.end(&first, &Outcome::Succeeded, later(1));
    assert_eq!(fixture.start(later(1)), [other]);
}

#[test]
fn job_has_at_most_one_live_run() {
    let mut fixture = fixture();
    let (first, second) = (fixture.enqueue("dream"), fixture.enqueue("dream"));
    assert_eq!(fixture.start(later(1)), std::slice::from_ref(&first));
    assert!(fixture.start(later(1)).is_empty());
    fixture.end(&first, &Outcome::Succeeded, later(1));
    assert_eq!(fixture.start(later(1)), [second]);
}

#[test]
fn concurrent_drivers_start_each_run_once() {
    let mut fixture = fixture();
    let names: Vec<String> = (0..12).map(|n| format!("j{n}")).collect();
    let jobs: Vec<NewJob> = names.iter().map(|name| grouped(name, 100)).collect();
    fixture.jobs(&jobs);
    for name in &names {
        fixture.enqueue(name);
    }
    let path = fixture.store.path().to_owned();
    let drivers: Vec<_> = (0..6)
        .map(|_| {
            let (path, me) = (path.clone(), fixture.me.clone());
            std::thread::spawn(move || {
                let mut store = Store::open(&path).unwrap();
                store.start_ready(None, &me, later(1)).unwrap()
            })
        })
        .collect();
    let mut all: Vec<RunId> =
        drivers.into_iter().flat_map(|driver| driver.join().unwrap()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12);
}

#[test]
fn queued_settings_are_kept() {
    let mut fixture = fixture();
    let policy = Policy { priority: 7, ..Policy::default() };
    fixture.jobs(&[with("dream", Schedule::manual(), policy)]);
    let plain = fixture.enqueue("dream");
    assert_eq!(fixture.row(&plain).priority, 7, "the job's priority applies");
    let wish = NewOccurrence {
        priority: Some(-2),
        due: later(30),
        settings: vec![("timeout".to_owned(), "5m".to_owned())],
        ..fixture.wish("dream", Origin::Queue)
    };
    let Recorded::New(run) = fixture.store.enqueue(&wish, later(30), None, now()).unwrap() else {
        panic!()
    };
    let row = fixture.row(&run);
    assert_eq!((row.priority, row.ready_at()), (-2, Some(later(30))));
    assert_eq!(row.settings, wish.settings);
    assert!(!row.manual());
    fixture.start(now());
    fixture.end(&plain, &Outcome::Succeeded, later(1));
    assert!(fixture.start(later(29)).is_empty());
    assert_eq!(fixture.store.next_ready(later(29)).unwrap(), Some(later(30)));
    assert_eq!(fixture.store.next_moment(later(29)).unwrap(), Some(later(30)));
    assert_eq!(fixture.start(later(30)), std::slice::from_ref(&run));
    assert_eq!(fixture.store.next_ready(later(30)).unwrap(), None);
    // An occurrence is identified by its key, so it is not queued again with another start time.
    let again = fixture.store.enqueue(&wish, now(), None, now()).unwrap();
    assert_eq!(again, Recorded::Known(fixture.row(&run).occurrence));
}

#[test]
fn start_deadlines_apply_only_to_scheduled_runs() {
    let mut fixture = fixture();
    let policy = Policy { start_within: Some(SignedDuration::from_mins(10)), ..Policy::default() };
    fixture.jobs(&[
        with("dream", Schedule::manual(), policy.clone()),
        with("tidy", every(15), policy),
    ]);
    let wished = fixture.enqueue("dream");
    let due = fixture.due("tidy", later(15)).remove(0);
    assert_eq!(fixture.start(later(40)), [wished]);
    assert!(why(fixture.outcome(&due)).starts_with("skipped: its start deadline passed at"));
    // After one attempt of an occurrence has started, later attempts have no start deadline.
    let due = fixture.due("tidy", later(45)).remove(0);
    assert_eq!(fixture.start(later(50)), std::slice::from_ref(&due));
    fixture.admit(&due, Budget::default(), &[]).unwrap();
    fixture.end(&due, &failed(Class::Crash), later(51));
    assert_eq!(fixture.start(later(300)).len(), 1);
    fixture.check();
}

#[test]
fn waiting_runs_are_listed_in_order() {
    let mut fixture = fixture();
    let first = fixture.enqueue("dream");
    let behind = fixture.enqueue_after("tidy", Some(&first));
    let wish = fixture.wish("dream", Origin::Queue);
    fixture.store.enqueue(&wish, later(5), None, now()).unwrap();
    let queued = fixture.store.queued_of(&fixture.project).unwrap();
    let ids: Vec<&RunId> = queued.iter().map(|run| &run.id).collect();
    assert_eq!((ids[0], ids[2], ids.len()), (&first, &behind, 3));
    let waits_for = (first, "dream".to_owned());
    assert_eq!(queued[2].waits_for(), Some(&waits_for));
}
