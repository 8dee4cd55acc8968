//! What goes and what stays.

use super::*;
use crate::ledger::retention::{Facts, Found, Kind, OldOccurrence, Retention};
use crate::ledger::steps::Steps;

fn retention() -> Retention {
    Retention {
        rows: SignedDuration::from_hours(90 * 24),
        logs: SignedDuration::from_hours(30 * 24),
        reports: None,
        backups: 2,
        recordings: Some(SignedDuration::from_hours(24 * 5)),
    }
}

fn days(count: i64) -> Timestamp {
    later(count * 24 * 60)
}

fn prune(house: &mut House, at: Timestamp) -> crate::ledger::PrunePlan {
    let facts = house.ledger.old_rows(&retention(), at).unwrap();
    let plan = retention().plan(facts, at);
    house
        .ledger
        .prune_rows(&plan, &mut Steps::default())
        .unwrap();
    assert_eq!(house.ledger.examine().unwrap().findings, []);
    plan
}

fn over(house: &mut House, key: &str, outcome: &Outcome) -> RunId {
    let admitted = house.admitted(key);
    let run = admitted.run().clone();
    let fence = Some(admitted.fence());
    house
        .ledger
        .settle(&run, fence, outcome, &Summary::default(), now())
        .unwrap();
    house.ledger.swept(&run).unwrap();
    run
}

#[test]
fn old_runs_go_and_the_newest_and_the_open_stay() {
    let mut house = house();
    let first = over(&mut house, "a", &Outcome::Succeeded);
    let second = over(&mut house, "b", &Outcome::Succeeded);
    let open = house.requested("tidy", "c");
    assert!(prune(&mut house, days(89)).is_empty());
    let plan = prune(&mut house, days(91));
    assert_eq!(plan.rows.runs, 1);
    assert!(house.ledger.run(&first).is_err());
    house.ledger.run(&second).unwrap();
    house.ledger.run(&open).unwrap();
    assert!(prune(&mut house, days(91)).is_empty(), "twice is once");
}

#[test]
fn what_the_breaker_counts_stays_however_old() {
    let mut house = house();
    over(&mut house, "a", &Outcome::Succeeded);
    let good = over(&mut house, "b", &Outcome::Succeeded);
    for key in ["c", "d", "e"] {
        over(&mut house, key, &failed(Class::Crash));
    }
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let before = house.ledger.failures_in_a_row(job).unwrap();
    let plan = prune(&mut house, days(400));
    assert_eq!((before, plan.rows.runs), (3, 1));
    assert_eq!(house.ledger.failures_in_a_row(job).unwrap(), 3);
    house.ledger.run(&good).unwrap();
}

#[test]
fn a_chain_of_deferrals_keeps_its_ends_and_goes_on_counting() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let new = NewOccurrence {
        origin: Origin::Queue,
        ..NewOccurrence::by_hand(job, "a".to_owned(), now())
    };
    house.ledger.enqueue(&new, now(), None, now()).unwrap();
    let defer = |house: &mut House, minute: i64| {
        let me = house.me.clone();
        let started = house.ledger.start_ready(None, &me, later(minute)).unwrap();
        let outcome = Outcome::Deferred {
            until: later(minute + 1),
            why: "quiet".to_owned(),
        };
        house
            .ledger
            .decline(&started[0], &outcome, later(minute))
            .unwrap();
    };
    for minute in 0..10 {
        defer(&mut house, minute);
    }
    assert!(
        prune(&mut house, later(20)).is_empty(),
        "not on the same day"
    );
    let plan = prune(&mut house, days(2));
    assert_eq!(plan.rows.deferrals.len(), 8);
    defer(&mut house, 60 * 48);
    let attempts: Vec<u32> = house
        .ledger
        .runs(&Filter::default())
        .unwrap()
        .iter()
        .map(|run| run.attempt)
        .collect();
    assert_eq!(attempts, [12, 11, 10, 1]);
}

#[test]
fn the_plan_keeps_what_is_needed_and_counts_backups_from_the_newest() {
    let found = |kind, below: &str, at, needed| Found {
        kind,
        root: PathBuf::from("/s"),
        below: PathBuf::from(below),
        at,
        needed,
    };
    let facts = Facts {
        occurrences: vec![OldOccurrence {
            id: OccurrenceId::new(now()),
            runs: Vec::new(),
            needed: Some("not over"),
        }],
        files: vec![
            found(Kind::Log, "runs/old", now(), None),
            found(Kind::Log, "runs/live", now(), Some("its run is not over")),
            found(Kind::Log, "runs/young", days(20), None),
            found(Kind::Report, "reports/x", now(), None),
            found(Kind::Backup, "backups/1", now(), None),
            found(Kind::Backup, "backups/2", days(1), None),
            found(Kind::Backup, "backups/3", days(2), None),
        ],
        ..Facts::default()
    };
    let plan = retention().plan(facts, days(40));
    let gone: Vec<&str> = plan
        .files
        .iter()
        .map(|file| file.below.to_str().unwrap())
        .collect();
    assert_eq!(gone, ["runs/old", "backups/1"]);
    assert!(plan.rows.occurrences.is_empty());
    assert_eq!(plan.kept.len(), 2, "{:?}", plan.kept);
}

#[test]
fn a_frozen_ledger_prunes_and_stays_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    let fixture =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.db");
    std::fs::copy(fixture, &path).unwrap();
    let mut ledger = Ledger::open(&path).unwrap();
    // The frozen rows have fences that their job never gave; the check sees that.
    assert_eq!(ledger.examine().unwrap().findings.len(), 2);
    ledger
        .db
        .execute_batch("UPDATE jobs SET fence = 9")
        .unwrap();
    assert_eq!(ledger.examine().unwrap().findings, []);
    let live = ledger.live().unwrap().len();
    let facts = ledger.old_rows(&retention(), days(200)).unwrap();
    let plan = retention().plan(facts, days(200));
    assert!(!plan.is_empty());
    ledger.prune_rows(&plan, &mut Steps::default()).unwrap();
    assert_eq!(ledger.examine().unwrap().findings, []);
    assert_eq!(ledger.live().unwrap().len(), live);
}

#[test]
fn an_acknowledgement_outlives_pruning() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    for key in ["c", "d", "e"] {
        over(&mut house, key, &failed(Class::Crash));
    }
    // the breaker's skip is the last run when somebody acknowledges
    let skip = house.requested("dream", "f");
    house
        .ledger
        .settle(
            &skip,
            None,
            &Outcome::Skipped {
                why: "stopped".into(),
            },
            &Summary::default(),
            now(),
        )
        .unwrap();
    let project = house.project.clone();
    assert_eq!(
        house
            .ledger
            .acknowledge(&project, job, "dream", "me", now())
            .unwrap(),
        3
    );
    assert_eq!(house.ledger.failures_in_a_row(job).unwrap(), 0);
    let later_skip = house.requested("dream", "g");
    house
        .ledger
        .settle(
            &later_skip,
            None,
            &Outcome::Skipped {
                why: "nothing to do".into(),
            },
            &Summary::default(),
            now(),
        )
        .unwrap();
    prune(&mut house, days(91));
    assert_eq!(house.ledger.failures_in_a_row(job).unwrap(), 0, "ack lost");
}

#[test]
fn an_acknowledgement_does_not_cover_a_run_that_goes_on() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    for key in ["c", "d", "e"] {
        over(&mut house, key, &failed(Class::Crash));
    }
    let open = house.requested("dream", "f");
    let project = house.project.clone();
    assert_eq!(
        house
            .ledger
            .acknowledge(&project, job, "dream", "me", now())
            .unwrap(),
        3
    );
    house
        .ledger
        .settle(
            &open,
            None,
            &failed(Class::Auth),
            &Summary::default(),
            now(),
        )
        .unwrap();
    assert_eq!(
        house.ledger.failures_in_a_row(job).unwrap(),
        1,
        "a later failure is not counted"
    );
}

#[test]
fn an_acknowledged_run_stays_whatever_it_came_to() {
    let mut house = house();
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    over(&mut house, "a", &failed(Class::Crash));
    // Once, the last run was named whatever it was.
    let skip = house.requested("dream", "b");
    let skipped = |why: &str| Outcome::Skipped { why: why.into() };
    let settle = |house: &mut House, run: &RunId, why: &str| {
        let ledger = &mut house.ledger;
        ledger
            .settle(run, None, &skipped(why), &Summary::default(), now())
            .unwrap();
    };
    settle(&mut house, &skip, "stopped");
    let sql = "INSERT INTO acks (job, run, at, who) VALUES (?1, ?2, 0, 'me')";
    let named = rusqlite::params![job.0, skip.as_str()];
    house.ledger.db.execute(sql, named).unwrap();
    let newest = house.requested("dream", "c");
    settle(&mut house, &newest, "nothing to do");
    prune(&mut house, days(91));
    house.ledger.run(&skip).unwrap();
    assert_eq!(house.ledger.failures_in_a_row(job).unwrap(), 0);
}

#[test]
fn what_was_granted_to_a_forgotten_project_is_granted_to_no_other() {
    let mut house = house();
    let project = house.project.clone();
    let night = house
        .ledger
        .open_night(&project, "2026-11-21", now(), days(1))
        .unwrap();
    let keys = [
        ("night", night.id.0.to_string()),
        ("day", format!("{project} 2026-11-21")),
        ("job", format!("{project} dream 2026-11-21")),
    ];
    for (level, key) in &keys {
        let grant = crate::ledger::Grant {
            level: (*level).to_owned(),
            key: key.clone(),
            made: now(),
            until: None,
            amounts: crate::ledger::Amounts {
                micros: 500_000_000,
                ..Default::default()
            },
            reason: "r".to_owned(),
            who: "w".to_owned(),
        };
        house.ledger.grant(&grant).unwrap();
        let sql = "INSERT INTO accounts (level, key, calls) VALUES (?1, ?2, 1)";
        let named = rusqlite::params![level, key];
        house.ledger.db.execute(sql, named).unwrap();
    }
    let plan = house.ledger.forgetting(&project).unwrap();
    house.ledger.forget(&plan).unwrap();
    for table in ["grants", "accounts"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let left: i64 = house
            .ledger
            .db
            .query_row(&sql, [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
    // One that an earlier program left is not taken over with the number either.
    let sql =
        "INSERT INTO grants (level, key, made, calls, tokens, micros, seconds, ideas, reason, who)
               VALUES ('night', ?1, 0, 9, 0, 0, 0, 0, 'r', 'w')";
    house.ledger.db.execute(sql, [&keys[0].1]).unwrap();
    let other = ProjectId::new(later(1));
    let row = Project {
        id: other.clone(),
        path: "/q".into(),
        node: Node::new(1, 9),
        config_stamp: String::new(),
        own: false,
    };
    house.ledger.register(&row, now()).unwrap();
    let next = house
        .ledger
        .open_night(&other, "2026-11-22", now(), days(1))
        .unwrap();
    assert_eq!(night.id, next.id, "the number is given again");
    let granted = house.ledger.grants("night", &keys[0].1).unwrap();
    assert!(granted.is_empty(), "{granted:?}");
}

#[test]
fn accounts_of_pools_and_unused_grants_go_with_their_time_and_what_is_drawn_on_stays() {
    let mut house = house();
    let opened = super::super::reserve::window_key("max", now());
    let old = [
        ("day", format!("{} 2026-11-21", house.project)),
        ("job", format!("{} dream 2026-11-21", house.project)),
        ("pool-day", "max 2026-11-21".to_owned()),
        ("pool-week", "max 2026-W47".to_owned()),
        ("pool-window", opened.clone()),
        ("pool-day", "no date".to_owned()),
    ];
    let db = &house.ledger.db;
    for (level, key) in &old {
        let named = rusqlite::params![level, key];
        db.execute(
            "INSERT OR IGNORE INTO accounts (level, key, calls) VALUES (?1, ?2, 1)",
            named,
        )
        .unwrap();
        db.execute(
            "INSERT INTO grants (level, key, made, calls, tokens, micros, seconds, ideas, reason, who)
               VALUES (?1, ?2 || 'x', 0, 9, 0, 0, 0, 0, 'r', 'w'), (?1, ?2, 0, 9, 0, 0, 0, 0, 'r', 'w')",
            named,
        )
        .unwrap();
    }
    // Only granted to, never drawn on.
    db.execute(
        "DELETE FROM accounts WHERE level = 'pool-day' AND key = 'max 2026-11-21'",
        [],
    )
    .unwrap();
    // The window that was open last may be asked about.
    db.execute(
        "INSERT INTO windows VALUES ('max', ?1, ?1)",
        [millis(now())],
    )
    .unwrap();
    let left = |house: &House, table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE key NOT LIKE '%x'");
        house
            .ledger
            .db
            .query_row(&sql, [], |row| row.get(0))
            .unwrap()
    };
    assert!(prune(&mut house, days(80)).rows.accounts.is_empty());
    let facts = house.ledger.old_rows(&retention(), days(120)).unwrap();
    let plan = retention().plan(facts, days(120));
    assert_eq!(plan.rows.accounts.len(), 4, "{:?}", plan.rows.accounts);
    // Somebody draws on one of them between the plan and its doing.
    let run = house.requested("dream", "late");
    let sql =
        "INSERT INTO reservations (run, level, key, calls, tokens, micros, seconds, ideas, open)
               VALUES (?1, 'pool-week', 'max 2026-W47', 0, 0, 0, 0, 0, 0)";
    house.ledger.db.execute(sql, [run.as_str()]).unwrap();
    house
        .ledger
        .prune_rows(&plan, &mut Steps::default())
        .unwrap();
    assert_eq!((left(&house, "accounts"), left(&house, "grants")), (3, 3));
    let sql = "DELETE FROM reservations WHERE level = 'pool-week'; UPDATE windows SET opened = 1";
    house.ledger.db.execute_batch(sql).unwrap();
    let plan = prune(&mut house, days(120));
    assert_eq!(plan.rows.accounts.len(), 2, "{:?}", plan.rows.accounts);
    assert_eq!(
        (left(&house, "accounts"), left(&house, "grants")),
        (1, 1),
        "what names no time"
    );
}
