//! Jobs that are due when another one ends.

use super::*;

fn chained() -> House {
    let mut house = quick_house();
    house.jobs(&[
        job("fetch", Schedule::manual()),
        after("use", "fetch", On::Success),
        after("tell", "fetch", On::End),
        after("last", "use", On::Success),
    ]);
    house
}

/// Ends a fresh run of `fetch` and says what stands of the others.
fn ended(house: &mut House, outcome: &Outcome) -> [String; 3] {
    let run = house.requested("fetch", &OccurrenceId::new(now()).to_string());
    house.end(&run, outcome, later(1));
    house.check();
    ["use", "tell", "last"].map(|job| {
        let runs = house.runs_of(job);
        runs.last()
            .map_or("nothing".to_owned(), |run| match &run.outcome {
                Some(outcome) => outcome.to_string(),
                None => format!("{:?}", run.state),
            })
    })
}

#[test]
fn each_end_of_the_first_has_its_followers() {
    let queued = || "Queued".to_owned();
    let skip = |job: &str, what: &str| format!("skipped: {job} ended as {what}");
    let mut house = chained();
    assert_eq!(
        ended(&mut house, &Outcome::Succeeded),
        [queued(), queued(), "nothing".to_owned()]
    );
    for (outcome, told) in [
        (failed(Class::Auth), "failed (auth): x"),
        (
            Outcome::Cancelled {
                why: "by hand".to_owned(),
            },
            "cancelled: by hand",
        ),
    ] {
        let mut house = chained();
        let first = skip("fetch", told);
        let last = skip("use", &first);
        assert_eq!(ended(&mut house, &outcome), [first, queued(), last]);
    }
    let mut house = chained();
    let idle = Outcome::Skipped {
        why: "idle".to_owned(),
    };
    let found = ended(&mut house, &idle);
    assert_eq!(
        found[1],
        skip("fetch", "skipped: idle"),
        "it was not at work"
    );
    // A person was told to come again later.
    let mut house = chained();
    let put_off = Outcome::Deferred {
        until: later(15),
        why: "dirty".to_owned(),
    };
    let found = ended(&mut house, &put_off);
    assert!(
        found[0].starts_with("skipped") && found[1].starts_with("skipped"),
        "{found:?}"
    );
}

#[test]
fn attempts_that_are_not_the_last_have_none() {
    let mut house = chained();
    let run = house.enqueue("fetch");
    house.start(now());
    house.end(&run, &failed(Class::Crash), later(1));
    assert!(house.runs_of("tell").is_empty());
    let again = house.start(later(60)).remove(0);
    house.end(&again, &Outcome::Succeeded, later(61));
    let tell = house.runs_of("tell");
    assert_eq!((tell.len(), tell[0].origin), (1, Origin::Event));
    assert_eq!(tell[0].due, later(61));
}

#[test]
fn a_follower_belongs_to_the_night_while_it_is_open() {
    for closed in [false, true] {
        let mut house = chained();
        let night = house
            .ledger
            .open_night(&house.project, "2026-11-21", now(), later(60))
            .unwrap();
        let new = NewOccurrence {
            night: Some(night.id),
            ..house.wish("fetch", Origin::Clock)
        };
        let Recorded::New(run) = house.ledger.enter(&new, &house.me, now()).unwrap() else {
            panic!()
        };
        let report = house.id("tidy");
        if closed {
            let me = house.me.clone();
            house
                .ledger
                .close_night(night.id, report, &me, later(1))
                .unwrap();
        }
        house.end(&run, &Outcome::Succeeded, later(2));
        let expected = (!closed).then_some(night.id);
        assert_eq!(house.runs_of("use")[0].night, expected);
        let open = house.ledger.nights_to_close(later(2)).unwrap();
        assert!(open.is_empty(), "its follower is still to run: {open:?}");
        let me = house.me.clone();
        let started = house
            .ledger
            .start_ready(Some(night.id), &me, later(2))
            .unwrap();
        assert_eq!(started.len(), if closed { 0 } else { 2 });
    }
}

#[test]
fn a_job_that_clocks_may_not_start_follows_nothing() {
    let mut house = chained();
    let mut tell = after("tell", "fetch", On::End);
    tell.enabled = false;
    house.jobs(&[job("fetch", Schedule::manual()), tell]);
    assert_eq!(ended(&mut house, &Outcome::Succeeded)[1], "nothing");
}

#[test]
fn followers_get_their_second_chance_with_a_retry() {
    let mut house = chained();
    ended(&mut house, &failed(Class::Auth));
    let run = house.runs_of("fetch").remove(0).id;
    let again = house.ledger.retry(&run, later(5)).unwrap();
    house.start(later(5));
    house.end(&again, &Outcome::Succeeded, later(6));
    assert_eq!(house.runs_of("use").len(), 2);
    assert_eq!(house.runs_of("use")[1].outcome, None);
    house.check();
}
