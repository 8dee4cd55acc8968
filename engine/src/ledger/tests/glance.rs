//! Looking at all projects at once, missing what is due of one that is gone, forgetting one.

use std::path::Path;

use super::*;
use crate::ledger::gone;
use crate::tick::record_due;

fn failed() -> Outcome {
    Outcome::Failed {
        class: Class::Crash,
        why: "no".to_owned(),
    }
}

#[test]
fn what_is_next_and_what_fails_is_found_by_set() {
    let mut house = house();
    let project = house.project.clone();
    let next = house.ledger.next_due(now()).unwrap();
    assert_eq!(next[&project].job, "tidy");
    assert!(house.ledger.has_clocks().unwrap());
    assert_eq!(house.ledger.failing_jobs().unwrap(), []);
    let run = house.requested("dream", "one");
    house
        .ledger
        .settle(&run, None, &failed(), &Summary::default(), now())
        .unwrap();
    let dream = house.ledger.job(&project, "dream").unwrap().id;
    assert_eq!(house.ledger.failing_jobs().unwrap(), [dream]);
    let tidy = house.ledger.job(&project, "tidy").unwrap().id;
    house.ledger.pause(Some(tidy), later(60)).unwrap();
    assert!(house.ledger.next_due(now()).unwrap().is_empty());
    let pauses = house.ledger.own_pauses(now()).unwrap();
    assert_eq!((pauses.len(), pauses[0].job.as_str()), (1, "tidy"));
    assert!(house.ledger.own_pauses(later(60)).unwrap().is_empty());
}

#[test]
fn the_first_by_name_is_next_where_several_are_due_at_once() {
    let mut house = house();
    let project = house.project.clone();
    let jobs = [job("b", every(15)), job("a", every(15)), job("c", every(5))];
    house
        .ledger
        .project_jobs(&project, "stamp", "kept", &jobs, now())
        .unwrap();
    let next = |house: &House| {
        let next = house.ledger.next_due(now()).unwrap();
        next.get(&project).map(|next| (next.job.clone(), next.at))
    };
    assert_eq!(next(&house), Some(("c".to_owned(), later(5))));
    for (paused, then) in [("c", Some("a")), ("a", Some("b")), ("b", None)] {
        let job = house.ledger.job(&project, paused).unwrap().id;
        house.ledger.pause(Some(job), later(60)).unwrap();
        assert_eq!(next(&house), then.map(|job| (job.to_owned(), later(15))));
    }
}

#[test]
fn a_job_fails_as_long_as_its_last_attempt_that_tried_came_to_nothing() {
    let mut house = house();
    let project = house.project.clone();
    let id = |house: &House, job| house.ledger.job(&project, job).unwrap().id;
    let (dream, tidy) = (id(&house, "dream"), id(&house, "tidy"));
    let skipped = Outcome::Skipped {
        why: "no".to_owned(),
    };
    let steps = [
        ("tidy", failed(), vec![tidy]),
        ("dream", failed(), vec![dream, tidy]),
        // What did not try makes nothing good.
        ("tidy", skipped, vec![dream, tidy]),
        ("tidy", Outcome::Succeeded, vec![dream]),
        ("dream", failed(), vec![dream]),
        ("dream", Outcome::Succeeded, vec![]),
        ("tidy", failed(), vec![tidy]),
    ];
    for (at, (job, outcome, expected)) in steps.into_iter().enumerate() {
        let run = house.requested(job, &format!("key {at}"));
        house
            .ledger
            .settle(&run, None, &outcome, &Summary::default(), now())
            .unwrap();
        let mut found = house.ledger.failing_jobs().unwrap();
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "step {at}");
    }
}

#[test]
fn a_projection_is_of_the_files_that_the_jobs_were_read_from() {
    let mut house = house();
    let project = house.project.clone();
    let kept = |house: &House, only| house.ledger.projections(only).unwrap().remove(&project);
    for (stamp, text) in [("one", "a"), ("two", "b")] {
        house
            .ledger
            .project_jobs(&project, stamp, text, &[], now())
            .unwrap();
        assert_eq!(kept(&house, None).as_deref(), Some(text));
        assert_eq!(kept(&house, Some(&project)).as_deref(), Some(text));
    }
    // What was read last is looked at until the project is back.
    house.ledger.mark_gone(&project, &gone("away")).unwrap();
    assert_eq!(kept(&house, None).as_deref(), Some("b"));
    assert_eq!(kept(&house, Some(&ProjectId::new(later(1)))), None);
}

#[test]
fn the_last_night_is_the_one_that_opened_last() {
    let mut house = house();
    let project = house.project.clone();
    assert!(house.ledger.last_nights().unwrap().is_empty());
    let mut last = None;
    // Ten and more of one date: their names do not sort as they opened.
    for minute in 0..12 {
        let opens = later(minute);
        let night = house
            .ledger
            .open_night(&project, "2026-11-21", opens, later(500));
        last = Some(night.unwrap());
    }
    let found = house.ledger.last_nights().unwrap();
    assert_eq!(Some(&found[&project].night), last.as_ref());
    assert_eq!(found[&project].reported, None);
}

#[test]
fn what_is_due_of_a_project_that_is_gone_is_one_missed_stretch() {
    let mut house = house();
    let project = house.project.clone();
    house
        .ledger
        .mark_gone(&project, &gone("it is away"))
        .unwrap();
    let mut troubles = Vec::new();
    for minute in [15, 16, 30, 75] {
        record_due(&mut house.ledger, None, later(minute), &mut troubles).unwrap();
    }
    let missed = house.ledger.all_missed_since(now()).unwrap();
    assert_eq!(missed.len(), 1, "{missed:?}");
    let Outcome::Missed {
        first,
        last,
        count,
        why,
    } = &missed[0].outcome
    else {
        panic!("{missed:?}");
    };
    assert_eq!((*first, *last, *count), (later(15), later(75), 5));
    assert_eq!(why, "it is away");
    assert!(house.ledger.runs(&Filter::default()).unwrap().is_empty());
    // It is back: what comes now is run, and the stretch is over.
    let jobs = [job("dream", Schedule::manual()), job("tidy", every(15))];
    house
        .ledger
        .project_jobs(&project, "stamp", "", &jobs, later(76))
        .unwrap();
    record_due(&mut house.ledger, None, later(90), &mut troubles).unwrap();
    assert_eq!(house.ledger.runs(&Filter::default()).unwrap().len(), 1);
    house
        .ledger
        .mark_gone(&project, &gone("it is away"))
        .unwrap();
    record_due(&mut house.ledger, None, later(105), &mut troubles).unwrap();
    let missed = house.ledger.all_missed_since(now()).unwrap();
    assert_eq!(
        missed.len(),
        2,
        "a stretch does not reach over what was run"
    );
    assert_eq!(troubles, Vec::<String>::new());
}

#[test]
fn forgetting_does_what_was_planned_or_nothing() {
    let mut house = house();
    let project = house.project.clone();
    let run = house.requested("dream", "one");
    let plan = house.ledger.forgetting(&project).unwrap();
    assert_eq!(plan.live, std::slice::from_ref(&run));
    assert!(house.ledger.forget(&plan).is_err(), "it lives");
    house
        .ledger
        .settle(&run, None, &failed(), &Summary::default(), now())
        .unwrap();
    assert!(house.ledger.forget(&plan).is_err(), "the plan is old");
    assert!(house.ledger.project(&project).unwrap().is_some());
    let plan = house.ledger.forgetting(&project).unwrap();
    house.ledger.forget(&plan).unwrap();
    assert!(house.ledger.every_project().unwrap().is_empty());
    assert!(house.ledger.runs(&Filter::default()).unwrap().is_empty());
    house.ledger.check().unwrap();
}

#[test]
fn a_project_is_bound_to_another_folder_only_where_none_is() {
    let mut house = house();
    let project = house.project.clone();
    let other = Project {
        id: ProjectId::new(later(1)),
        path: "/q".into(),
        node: Node::new(1, 2),
        config_stamp: String::new(),
        own: false,
    };
    house.ledger.register(&other, now()).unwrap();
    let to = |house: &mut House, path: &str| {
        house
            .ledger
            .relocate(&project, Path::new(path), Node::new(3, 4))
    };
    assert!(to(&mut house, "/q").is_err());
    to(&mut house, "/r").unwrap();
    let row = house.ledger.project_at(Path::new("/r")).unwrap().unwrap();
    assert_eq!((row.id, row.node), (project.clone(), Node::new(3, 4)));
    assert_eq!(house.ledger.project_at(Path::new("/p")).unwrap(), None);
    // One that takes the place of another displaces it, and both are listed.
    let third = Project {
        id: ProjectId::new(later(2)),
        path: "/r".into(),
        ..other
    };
    house.ledger.register(&third, now()).unwrap();
    let displaced = house.ledger.project(&project).unwrap().unwrap();
    assert_eq!(displaced.displaced_from(), Some("/r".into()));
    assert_eq!(house.ledger.projects().unwrap().len(), 2);
    assert_eq!(house.ledger.every_project().unwrap().len(), 3);
}
