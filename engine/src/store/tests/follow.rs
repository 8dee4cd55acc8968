//! Tests of jobs that follow other jobs.

use super::*;

fn chained() -> Fixture {
    let mut fixture = in_memory_fixture();
    fixture.jobs(&[
        job("fetch", Schedule::manual()),
        after("use", "fetch", On::Success),
        after("notify", "fetch", On::End),
        after("last", "use", On::Success),
    ]);
    fixture
}

/// Settles a new run of `fetch` with `outcome`. Returns the outcome of the newest run of each other
/// job, the run's state if it is not settled, or "nothing" if the job has no run.
fn ended(fixture: &mut Fixture, outcome: &Outcome) -> [String; 3] {
    let run = fixture.requested("fetch", &OccurrenceId::new(now()).to_string());
    fixture.admit(&run, Budget::default(), &[]).unwrap();
    after_end(fixture, &run, outcome)
}

/// Settles a run of `fetch`, and returns the same as [`ended`].
fn after_end(fixture: &mut Fixture, run: &RunId, outcome: &Outcome) -> [String; 3] {
    fixture.end(run, outcome, later(1));
    fixture.check();
    ["use", "notify", "last"].map(|job| {
        let runs = fixture.runs_of(job);
        runs.last().map_or("nothing".to_owned(), |run| match run.outcome() {
            Some(outcome) => outcome.to_string(),
            None => run.state.name().to_owned(),
        })
    })
}

#[test]
fn outcome_decides_which_followers_start() {
    let queued = || "queued".to_owned();
    let skip = |job: &str, what: &str| format!("skipped: {job} ended as {what}");
    let mut fixture = chained();
    assert_eq!(
        ended(&mut fixture, &Outcome::Succeeded),
        [queued(), queued(), "nothing".to_owned()]
    );
    for (outcome, reported) in [
        (failed(Class::Auth), "failed (auth): x"),
        (Outcome::Cancelled { why: "manually".to_owned() }, "cancelled: manually"),
    ] {
        let mut fixture = chained();
        let first = skip("fetch", reported);
        let last = skip("use", &first);
        assert_eq!(ended(&mut fixture, &outcome), [first, queued(), last]);
    }
    let mut fixture = chained();
    let idle = Outcome::skipped(SkipReason::Idle, "idle");
    let found = ended(&mut fixture, &idle);
    assert_eq!(found[1], skip("fetch", "skipped: idle"), "a skipped run starts no follower");
    // A deferral of a manual run is final, so its followers are skipped.
    let mut fixture = chained();
    let put_off = Outcome::Deferred { until: later(15), why: "dirty".to_owned() };
    let found = ended(&mut fixture, &put_off);
    assert!(found[0].starts_with("skipped") && found[1].starts_with("skipped"), "{found:?}");
}

#[test]
fn runs_that_never_began_start_no_followers() {
    let why = || "manually".to_owned();
    for outcome in [Outcome::Cancelled { why: why() }, Outcome::Lost { why: why() }] {
        let mut fixture = chained();
        let run = fixture.requested("fetch", "k");
        let found = after_end(&mut fixture, &run, &outcome);
        assert_eq!(found[1], format!("skipped: fetch ended as {outcome}"));
    }
}

#[test]
fn retried_attempts_start_no_followers() {
    let mut fixture = chained();
    let run = fixture.enqueue("fetch");
    fixture.start(now());
    fixture.end(&run, &failed(Class::Crash), later(1));
    assert!(fixture.runs_of("notify").is_empty());
    let again = fixture.start(later(60)).remove(0);
    fixture.end(&again, &Outcome::Succeeded, later(61));
    let runs = fixture.runs_of("notify");
    assert_eq!((runs.len(), runs[0].origin), (1, Origin::Event));
    assert_eq!(runs[0].due, later(61));
}

#[test]
fn follower_joins_only_an_open_night() {
    for closed in [false, true] {
        let mut fixture = chained();
        let night =
            fixture.store.open_night(&fixture.project, "2026-11-21", now(), later(60)).unwrap();
        let new = NewOccurrence { night: Some(night.id), ..fixture.wish("fetch", Origin::Clock) };
        let Recorded::New(run) = fixture.store.enter(&new, &fixture.me, now()).unwrap() else {
            panic!()
        };
        let report = fixture.id("tidy");
        if closed {
            let me = fixture.me.clone();
            fixture.store.close_night(night.id, report, &me, later(1)).unwrap();
        }
        fixture.end(&run, &Outcome::Succeeded, later(2));
        let expected = (!closed).then_some(night.id);
        assert_eq!(fixture.runs_of("use")[0].night, expected);
        let open = fixture.store.nights_to_close(later(2)).unwrap();
        assert!(open.is_empty(), "the night is closed or waits for its followers: {open:?}");
        let me = fixture.me.clone();
        let started = fixture.store.start_ready(Some(night.id), &me, later(2)).unwrap();
        assert_eq!(started.len(), if closed { 0 } else { 2 });
    }
}

#[test]
fn disabled_job_is_not_started_as_follower() {
    let mut fixture = chained();
    let mut notify = after("notify", "fetch", On::End);
    notify.enabled = false;
    fixture.jobs(&[job("fetch", Schedule::manual()), notify]);
    assert_eq!(ended(&mut fixture, &Outcome::Succeeded)[1], "nothing");
}

#[test]
fn followers_run_again_after_a_retry() {
    let mut fixture = chained();
    ended(&mut fixture, &failed(Class::Auth));
    let run = fixture.runs_of("fetch").remove(0).id;
    let again = fixture.store.retry(&run, later(5)).unwrap();
    fixture.start(later(5));
    fixture.end(&again, &Outcome::Succeeded, later(6));
    assert_eq!(fixture.runs_of("use").len(), 2);
    assert_eq!(fixture.runs_of("use")[1].outcome(), None);
    fixture.check();
}
