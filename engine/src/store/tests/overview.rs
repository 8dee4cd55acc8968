//! Tests of the overview of all projects, of missing projects, and of moving and deleting projects.

use std::path::Path;

use super::*;
use crate::store::gone;
use crate::tick::record_due;

fn failed() -> Outcome {
    Outcome::Failed { class: Class::Crash, why: "no".to_owned() }
}

#[test]
fn next_and_failing_jobs_are_found() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let next = fixture.store.next_due(&[], now()).unwrap();
    assert_eq!(next[&project].job, "tidy");
    assert!(fixture.store.has_clocks().unwrap());
    assert_eq!(fixture.store.failing_jobs(None).unwrap(), []);
    let run = fixture.requested("dream", "one");
    fixture.store.settle(&run, None, &failed(), &RunSummary::default(), now()).unwrap();
    let dream = fixture.store.job(&project, "dream").unwrap().id;
    assert_eq!(fixture.store.failing_jobs(None).unwrap(), [dream]);
    let tidy = fixture.store.job(&project, "tidy").unwrap().id;
    fixture.store.pause(Some(tidy), later(60)).unwrap();
    assert!(fixture.store.next_due(&[], now()).unwrap().is_empty());
    let pauses = fixture.store.own_pauses(now()).unwrap();
    assert_eq!((pauses.len(), pauses[0].job.as_str()), (1, "tidy"));
    assert!(fixture.store.own_pauses(later(60)).unwrap().is_empty());
}

#[test]
fn equal_due_times_are_ordered_by_name() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let jobs = [job("b", every(15)), job("a", every(15)), job("c", every(5))];
    fixture.store.project_jobs(&project, "stamp", "kept", &jobs, now()).unwrap();
    let next = |fixture: &Fixture| {
        let next = fixture.store.next_due(&[], now()).unwrap();
        next.get(&project).map(|next| (next.job.clone(), next.at))
    };
    assert_eq!(next(&fixture), Some(("c".to_owned(), later(5))));
    for (paused, then) in [("c", Some("a")), ("a", Some("b")), ("b", None)] {
        let job = fixture.store.job(&project, paused).unwrap().id;
        fixture.store.pause(Some(job), later(60)).unwrap();
        assert_eq!(next(&fixture), then.map(|job| (job.to_owned(), later(15))));
    }
}

#[test]
fn skipped_runs_do_not_end_failures() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let id = |fixture: &Fixture, job| fixture.store.job(&project, job).unwrap().id;
    let (dream, tidy) = (id(&fixture, "dream"), id(&fixture, "tidy"));
    let skipped = Outcome::skipped(SkipReason::Idle, "no");
    let steps = [
        ("tidy", failed(), vec![tidy]),
        ("dream", failed(), vec![dream, tidy]),
        // A skipped run does not end the streak of failures.
        ("tidy", skipped, vec![dream, tidy]),
        ("tidy", Outcome::Succeeded, vec![dream]),
        ("dream", failed(), vec![dream]),
        ("dream", Outcome::Succeeded, vec![]),
        ("tidy", failed(), vec![tidy]),
    ];
    for (at, (job, outcome, expected)) in steps.into_iter().enumerate() {
        let run = fixture.requested(job, &format!("key {at}"));
        fixture.store.settle(&run, None, &outcome, &RunSummary::default(), now()).unwrap();
        let mut found = fixture.store.failing_jobs(None).unwrap();
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "step {at}");
        let mut own = fixture.store.failing_jobs(Some(&fixture.project)).unwrap();
        own.sort();
        assert_eq!(own, expected, "step {at}");
        let stranger = ProjectId::new(now());
        assert_eq!(fixture.store.failing_jobs(Some(&stranger)).unwrap(), []);
    }
}

#[test]
fn latest_job_projection_is_returned() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let kept = |fixture: &Fixture, only| fixture.store.projections(only).unwrap().remove(&project);
    for (stamp, text) in [("one", "a"), ("two", "b")] {
        fixture.store.project_jobs(&project, stamp, text, &[], now()).unwrap();
        assert_eq!(kept(&fixture, None).as_deref(), Some(text));
        assert_eq!(kept(&fixture, Some(&project)).as_deref(), Some(text));
    }
    // The stored projection is still returned while the project is missing.
    fixture.store.set_config_stamp(&project, &gone("away")).unwrap();
    assert_eq!(kept(&fixture, None).as_deref(), Some("b"));
    assert_eq!(kept(&fixture, Some(&ProjectId::new(later(1)))), None);
}

#[test]
fn last_night_is_the_latest_opened() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    assert!(fixture.store.last_nights().unwrap().is_empty());
    let mut last = None;
    // With ten or more nights on one date, names no longer sort by opening time.
    for minute in 0..12 {
        let opens = later(minute);
        let night = fixture.store.open_night(&project, "2026-11-21", opens, later(500));
        last = Some(night.unwrap());
    }
    let found = fixture.store.last_nights().unwrap();
    assert_eq!(Some(&found[&project].night), last.as_ref());
    assert_eq!(found[&project].reported, None);
}

#[test]
fn missing_project_has_one_missed_stretch() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    fixture.store.set_config_stamp(&project, &gone("it is away")).unwrap();
    let mut troubles = Vec::new();
    for minute in [15, 16, 30, 75] {
        record_due(&mut fixture.store, None, (None, later(minute)), &mut troubles).unwrap();
    }
    let missed = fixture.store.all_missed_since(now()).unwrap();
    assert_eq!(missed.len(), 1, "{missed:?}");
    let Outcome::Missed { first, last, count, why } = &missed[0].outcome else {
        panic!("{missed:?}");
    };
    assert_eq!((*first, *last, *count), (later(15), later(75), 5));
    assert_eq!(why, "it is away");
    assert!(fixture.store.runs(&RunFilter::default()).unwrap().is_empty());
    // The project is back, so the next scheduled time runs and the missed stretch ends.
    let jobs = [job("dream", Schedule::manual()), job("tidy", every(15))];
    fixture.store.project_jobs(&project, "stamp", "", &jobs, later(76)).unwrap();
    record_due(&mut fixture.store, None, (None, later(90)), &mut troubles).unwrap();
    assert_eq!(fixture.store.runs(&RunFilter::default()).unwrap().len(), 1);
    fixture.store.set_config_stamp(&project, &gone("it is away")).unwrap();
    record_due(&mut fixture.store, None, (None, later(105)), &mut troubles).unwrap();
    let missed = fixture.store.all_missed_since(now()).unwrap();
    assert_eq!(missed.len(), 2, "a run ends the stretch");
    assert_eq!(troubles, Vec::<String>::new());
}

#[test]
fn deletion_requires_a_current_plan() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let run = fixture.requested("dream", "one");
    let plan = fixture.store.forgetting(&project).unwrap();
    assert_eq!(plan.live, std::slice::from_ref(&run));
    assert!(fixture.store.forget(&plan).is_err(), "the project has live runs");
    fixture.store.settle(&run, None, &failed(), &RunSummary::default(), now()).unwrap();
    assert!(fixture.store.forget(&plan).is_err(), "the plan is outdated");
    assert!(fixture.store.project(&project).unwrap().is_some());
    let plan = fixture.store.forgetting(&project).unwrap();
    fixture.store.forget(&plan).unwrap();
    assert!(fixture.store.every_project().unwrap().is_empty());
    assert!(fixture.store.runs(&RunFilter::default()).unwrap().is_empty());
    fixture.store.check().unwrap();
}

#[test]
fn a_project_moves_only_to_free_paths() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let other = Project {
        id: ProjectId::new(later(1)),
        path: "/q".into(),
        node: Node::new(1, 2),
        config_stamp: String::new(),
        own: false,
    };
    fixture.store.register(&other, now()).unwrap();
    let to = |fixture: &mut Fixture, path: &str| {
        fixture.store.relocate(&project, Path::new(path), Node::new(3, 4))
    };
    assert!(to(&mut fixture, "/q").is_err());
    to(&mut fixture, "/r").unwrap();
    let row = fixture.store.project_at(Path::new("/r")).unwrap().unwrap();
    assert_eq!((row.id, row.node), (project.clone(), Node::new(3, 4)));
    assert_eq!(fixture.store.project_at(Path::new("/p")).unwrap(), None);
    // A project that is registered at another project's path displaces that project.
    let third = Project { id: ProjectId::new(later(2)), path: "/r".into(), ..other };
    fixture.store.register(&third, now()).unwrap();
    let displaced = fixture.store.project(&project).unwrap().unwrap();
    assert_eq!(displaced.displaced_from(), Some("/r".into()));
    assert_eq!(fixture.store.projects().unwrap().len(), 2);
    assert_eq!(fixture.store.every_project().unwrap().len(), 3);
}
