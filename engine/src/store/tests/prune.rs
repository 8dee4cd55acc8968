//! Tests of the rows and files that pruning deletes and keeps.

use super::*;
use crate::store::retention::{FileKind, OldOccurrence, PrunableFile, PruneFacts, Retention};

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

/// Deletes the rows that [`retention`] no longer keeps at `at`, and checks the database. Returns
/// the plan.
pub(super) fn prune(fixture: &mut Fixture, at: Timestamp) -> crate::store::PrunePlan {
    let facts = fixture.store.old_rows(&retention(), at).unwrap();
    let plan = retention().plan(facts, at);
    fixture.store.prune_rows(&plan).unwrap();
    assert_eq!(fixture.store.examine().unwrap().findings, []);
    plan
}

fn over(fixture: &mut Fixture, key: &str, outcome: &Outcome) -> RunId {
    let admitted = fixture.admitted(key);
    let run = admitted.run().clone();
    let fence = Some(admitted.fence());
    fixture.store.settle(&run, fence, outcome, &RunSummary::default(), now()).unwrap();
    fixture.store.swept(&run).unwrap();
    run
}

#[test]
fn old_runs_are_pruned_except_newest_and_open() {
    let mut fixture = fixture();
    let first = over(&mut fixture, "a", &Outcome::Succeeded);
    let second = over(&mut fixture, "b", &Outcome::Succeeded);
    let open = fixture.requested("tidy", "c");
    assert!(prune(&mut fixture, days(89)).is_empty());
    let plan = prune(&mut fixture, days(91));
    assert_eq!(plan.rows.runs, 1);
    assert!(fixture.store.run(&first).is_err());
    fixture.store.run(&second).unwrap();
    fixture.store.run(&open).unwrap();
    assert!(prune(&mut fixture, days(91)).is_empty(), "nothing is left to prune");
}

#[test]
fn runs_counted_by_breaker_are_kept() {
    let mut fixture = fixture();
    over(&mut fixture, "a", &Outcome::Succeeded);
    let good = over(&mut fixture, "b", &Outcome::Succeeded);
    for key in ["c", "d", "e"] {
        over(&mut fixture, key, &failed(Class::Crash));
    }
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let before = fixture.store.streak(job).unwrap().failures;
    let plan = prune(&mut fixture, days(400));
    assert_eq!((before, plan.rows.runs), (3, 1));
    assert_eq!(fixture.store.streak(job).unwrap().failures, 3);
    fixture.store.run(&good).unwrap();
}

#[test]
fn deferral_chain_keeps_ends_and_attempt_numbers() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let new = NewOccurrence {
        origin: Origin::Queue,
        ..NewOccurrence::manual(job, "a".to_owned(), now())
    };
    fixture.store.enqueue(&new, now(), None, now()).unwrap();
    let defer = |fixture: &mut Fixture, minute: i64| {
        let me = fixture.me.clone();
        let started = fixture.store.start_ready(None, &me, later(minute)).unwrap();
        let outcome = Outcome::Deferred { until: later(minute + 1), why: "quiet".to_owned() };
        fixture.store.decline(&started[0], &outcome, later(minute)).unwrap();
    };
    for minute in 0..10 {
        defer(&mut fixture, minute);
    }
    assert!(prune(&mut fixture, later(20)).is_empty(), "deferrals of the same day are kept");
    let plan = prune(&mut fixture, days(2));
    assert_eq!(plan.rows.deferrals.len(), 8);
    defer(&mut fixture, 60 * 48);
    let attempts: Vec<u32> =
        fixture.store.runs(&RunFilter::default()).unwrap().iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [12, 11, 10, 1]);
}

#[test]
fn plan_keeps_needed_files_and_newest_backups() {
    let found = |kind, below: &str, at, needed| PrunableFile {
        kind,
        root: PathBuf::from("/s"),
        below: PathBuf::from(below),
        at,
        needed,
    };
    let facts = PruneFacts {
        occurrences: vec![OldOccurrence {
            id: OccurrenceId::new(now()),
            runs: Vec::new(),
            needed: Some("not finished".to_owned()),
        }],
        files: vec![
            found(FileKind::Log, "runs/old", now(), None),
            found(FileKind::Log, "runs/live", now(), Some("with an unfinished run")),
            found(FileKind::Log, "runs/young", days(20), None),
            found(FileKind::Report, "reports/x", now(), None),
            found(FileKind::Backup, "backups/1", now(), None),
            found(FileKind::Backup, "backups/2", days(1), None),
            found(FileKind::Backup, "backups/3", days(2), None),
        ],
        ..PruneFacts::default()
    };
    let plan = retention().plan(facts, days(40));
    let gone: Vec<&str> = plan.files.iter().map(|file| file.below.to_str().unwrap()).collect();
    assert_eq!(gone, ["runs/old", "backups/1"]);
    assert!(plan.rows.occurrences.is_empty());
    assert_eq!(plan.kept.len(), 2, "{:?}", plan.kept);
}

#[test]
fn saved_database_stays_consistent_after_pruning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    let fixture =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.db");
    std::fs::copy(fixture, &path).unwrap();
    let mut store = Store::open(&path).unwrap();
    // The saved runs have fences above their jobs' fences, which the check reports.
    assert_eq!(store.examine().unwrap().findings.len(), 2);
    store.db.execute_batch("UPDATE jobs SET fence = 9").unwrap();
    assert_eq!(store.examine().unwrap().findings, []);
    let live = store.live().unwrap().len();
    let facts = store.old_rows(&retention(), days(200)).unwrap();
    let plan = retention().plan(facts, days(200));
    assert!(!plan.is_empty());
    store.prune_rows(&plan).unwrap();
    assert_eq!(store.examine().unwrap().findings, []);
    assert_eq!(store.live().unwrap().len(), live);
}

#[test]
fn acknowledgement_survives_pruning() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    for key in ["c", "d", "e"] {
        over(&mut fixture, key, &failed(Class::Crash));
    }
    // The newest run before the reset is a skipped run.
    let skip = fixture.requested("dream", "f");
    fixture
        .store
        .settle(
            &skip,
            None,
            &Outcome::skipped(SkipReason::Idle, "stopped"),
            &RunSummary::default(),
            now(),
        )
        .unwrap();
    let project = fixture.project.clone();
    assert_eq!(fixture.store.acknowledge(&project, job, "dream", "me", now()).unwrap(), 3);
    assert_eq!(fixture.store.streak(job).unwrap().failures, 0);
    let later_skip = fixture.requested("dream", "g");
    fixture
        .store
        .settle(
            &later_skip,
            None,
            &Outcome::skipped(SkipReason::Idle, "nothing to do"),
            &RunSummary::default(),
            now(),
        )
        .unwrap();
    prune(&mut fixture, days(91));
    assert_eq!(fixture.store.streak(job).unwrap().failures, 0, "pruning lost the breaker reset");
}

#[test]
fn acknowledgement_does_not_cover_a_live_run() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    for key in ["c", "d", "e"] {
        over(&mut fixture, key, &failed(Class::Crash));
    }
    let open = fixture.requested("dream", "f");
    let project = fixture.project.clone();
    assert_eq!(fixture.store.acknowledge(&project, job, "dream", "me", now()).unwrap(), 3);
    fixture.store.settle(&open, None, &failed(Class::Auth), &RunSummary::default(), now()).unwrap();
    assert_eq!(
        fixture.store.streak(job).unwrap().failures,
        1,
        "only the failure after the reset counts"
    );
}

#[test]
fn acknowledged_run_is_not_pruned() {
    let mut fixture = fixture();
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    over(&mut fixture, "a", &failed(Class::Crash));
    // In earlier versions, a breaker reset could refer to a skipped run.
    let skip = fixture.requested("dream", "b");
    let skipped = |why: &str| Outcome::skipped(SkipReason::Idle, why);
    let settle = |fixture: &mut Fixture, run: &RunId, why: &str| {
        let store = &mut fixture.store;
        store.settle(run, None, &skipped(why), &RunSummary::default(), now()).unwrap();
    };
    settle(&mut fixture, &skip, "stopped");
    let sql = "INSERT INTO breaker_resets (job, run, at, who) VALUES (?1, ?2, 0, 'me')";
    let named = rusqlite::params![job.0, skip.as_str()];
    fixture.store.db.execute(sql, named).unwrap();
    let newest = fixture.requested("dream", "c");
    settle(&mut fixture, &newest, "nothing to do");
    prune(&mut fixture, days(91));
    fixture.store.run(&skip).unwrap();
    assert_eq!(fixture.store.streak(job).unwrap().failures, 0);
}

#[test]
fn grants_of_deleted_projects_are_deleted() {
    let mut fixture = fixture();
    let project = fixture.project.clone();
    let night = fixture.store.open_night(&project, "2026-11-21", now(), days(1)).unwrap();
    let keys = [
        ("night", night.id.0.to_string()),
        ("day", format!("{project} 2026-11-21")),
        ("job", format!("{project} dream 2026-11-21")),
    ];
    for (level, key) in &keys {
        let grant = crate::store::Grant {
            level: (*level).to_owned(),
            key: key.clone(),
            made: now(),
            until: None,
            amounts: crate::store::Amounts { micros: 500_000_000, ..Default::default() },
            reason: "r".to_owned(),
            who: "w".to_owned(),
        };
        fixture.store.grant(&grant).unwrap();
        let sql = "INSERT INTO budget_usage (level, key, calls) VALUES (?1, ?2, 1)";
        let named = rusqlite::params![level, key];
        fixture.store.db.execute(sql, named).unwrap();
    }
    let plan = fixture.store.forgetting(&project).unwrap();
    fixture.store.forget(&plan).unwrap();
    for table in ["grants", "budget_usage"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let left: i64 = fixture.store.db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{table}");
    }
    // An earlier version may have left a grant behind. Such a grant must not apply to a new night
    // with the same number.
    let sql =
        "INSERT INTO grants (level, key, made, calls, tokens, micros, seconds, ideas, reason, who)
               VALUES ('night', ?1, 0, 9, 0, 0, 0, 0, 'r', 'w')";
    fixture.store.db.execute(sql, [&keys[0].1]).unwrap();
    let other = ProjectId::new(later(1));
    let row = Project {
        id: other.clone(),
        path: "/q".into(),
        node: Node::new(1, 9),
        config_stamp: String::new(),
        own: false,
    };
    fixture.store.register(&row, now()).unwrap();
    let next = fixture.store.open_night(&other, "2026-11-22", now(), days(1)).unwrap();
    assert_eq!(night.id, next.id, "the night's number is reused");
    let granted = fixture.store.grants("night", &keys[0].1).unwrap();
    assert!(granted.is_empty(), "{granted:?}");
}

#[test]
fn only_unused_old_usage_is_deleted() {
    let mut fixture = fixture();
    let opened = super::super::reserve::window_key("max", now());
    let old = [
        ("day", format!("{} 2026-11-21", fixture.project)),
        ("job", format!("{} dream 2026-11-21", fixture.project)),
        ("pool-day", "max 2026-11-21".to_owned()),
        ("pool-week", "max 2026-W47".to_owned()),
        ("pool-window", opened.clone()),
        ("pool-day", "no date".to_owned()),
    ];
    let db = &fixture.store.db;
    for (level, key) in &old {
        let named = rusqlite::params![level, key];
        db.execute(
            "INSERT OR IGNORE INTO budget_usage (level, key, calls) VALUES (?1, ?2, 1)",
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
    // One level has grants but no usage.
    db.execute("DELETE FROM budget_usage WHERE level = 'pool-day' AND key = 'max 2026-11-21'", [])
        .unwrap();
    // The last window of a pool may still be open, so its usage is kept.
    db.execute("INSERT INTO windows VALUES ('max', ?1, ?1)", [millis(now())]).unwrap();
    let left = |fixture: &Fixture, table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE key NOT LIKE '%x'");
        fixture.store.db.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert!(prune(&mut fixture, days(80)).rows.budget_usage.is_empty());
    let facts = fixture.store.old_rows(&retention(), days(120)).unwrap();
    let plan = retention().plan(facts, days(120));
    assert_eq!(plan.rows.budget_usage.len(), 4, "{:?}", plan.rows.budget_usage);
    // After the plan has been made, a run appears that has a reservation at one of these levels.
    let run = fixture.requested("dream", "late");
    let sql =
        "INSERT INTO reservations (run, level, key, calls, tokens, micros, seconds, ideas, open)
               VALUES (?1, 'pool-week', 'max 2026-W47', 0, 0, 0, 0, 0, 0)";
    fixture.store.db.execute(sql, [run.as_str()]).unwrap();
    fixture.store.prune_rows(&plan).unwrap();
    assert_eq!((left(&fixture, "budget_usage"), left(&fixture, "grants")), (3, 3));
    let sql = "DELETE FROM reservations WHERE level = 'pool-week'; UPDATE windows SET opened = 1";
    fixture.store.db.execute_batch(sql).unwrap();
    let plan = prune(&mut fixture, days(120));
    assert_eq!(plan.rows.budget_usage.len(), 2, "{:?}", plan.rows.budget_usage);
    assert_eq!(
        (left(&fixture, "budget_usage"), left(&fixture, "grants")),
        (1, 1),
        "a key without a date is kept"
    );
}
