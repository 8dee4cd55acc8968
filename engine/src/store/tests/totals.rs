//! Tests of the counts of settled runs, the lengths of queues and the oldest due times.

use rusqlite::Connection;

use super::*;

/// Counts the rows of settled runs by job, outcome and failure class.
fn counted(db: &Connection) -> Vec<(i64, String, String, i64)> {
    rows(
        db,
        "SELECT job, outcome ->> 'outcome', coalesce(outcome ->> 'class', ''), count(*)
         FROM runs WHERE state = 'settled' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    )
}

/// Returns the stored counts, which are kept when runs are pruned.
fn maintained(db: &Connection) -> Vec<(i64, String, String, i64)> {
    rows(db, "SELECT job, outcome, class, runs FROM run_totals WHERE runs > 0 ORDER BY 1, 2, 3")
}

fn rows(db: &Connection, sql: &str) -> Vec<(i64, String, String, i64)> {
    let mut statement = db.prepare(sql).unwrap();
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn counts_match_settled_runs() {
    let mut fixture = fixture();
    let outcomes = [
        Outcome::Succeeded,
        Outcome::Degraded { why: "x".into() },
        failed(Class::Auth),
        failed(Class::Silent),
        failed(Class::Auth),
        Outcome::skipped(SkipReason::Idle, "no"),
        Outcome::Cancelled { why: "x".into() },
        Outcome::Lost { why: "x".into() },
        Outcome::Succeeded,
    ];
    for (at, outcome) in outcomes.iter().enumerate() {
        let key = format!("key {at}");
        let minutes = i64::try_from(at).unwrap();
        if matches!(outcome, Outcome::Skipped { .. }) {
            let run = fixture.requested("dream", &key);
            assert!(fixture.store.decline(&run, outcome, later(minutes)).unwrap());
        } else {
            let admitted = fixture.admitted(&key);
            let run = admitted.run().clone();
            fixture
                .store
                .settle(&run, None, outcome, &RunSummary::default(), later(minutes))
                .unwrap();
            if at == 8 {
                let why = Outcome::Degraded { why: "found later".into() };
                fixture.store.degrade(&run, &why, &RunSummary::default()).unwrap();
            }
        }
        assert_eq!(maintained(&fixture.store.db), counted(&fixture.store.db), "{outcome}");
    }
    let durations = fixture.store.run_durations().unwrap();
    // The runs were admitted in minute 0 and settled in minutes 0 to 8. The run settled in minute 5
    // was skipped, so it has no duration.
    assert_eq!(durations[0].groups, [1, 0, 0, 1, 3, 3, 0, 0, 0]);
    assert_eq!(durations[0].millis, (1 + 2 + 3 + 4 + 6 + 7 + 8) * 60_000);
    let totals = fixture.store.run_totals().unwrap();
    let auth = totals.iter().find(|total| total.class == "auth").unwrap();
    assert_eq!((auth.runs, auth.last, auth.job.as_str()), (2, later(4), "dream"));
    // The counts remain after the rows are deleted.
    let before = maintained(&fixture.store.db);
    for table in ["requests", "reservations", "publications", "events", "runs"] {
        fixture.store.db.execute(&format!("DELETE FROM {table}"), []).unwrap();
    }
    assert_eq!(maintained(&fixture.store.db), before);
}

#[test]
fn migration_counts_existing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs_copy(&fixtures.join("format-3.db"), &path);
    let store = Store::open(&path).unwrap();
    assert_eq!(maintained(&store.db), counted(&store.db));
    assert!(maintained(&store.db).len() > 4);
    let sum: i64 = rows_sum(&store.db, "SELECT sum(runs) FROM run_durations");
    let started = "SELECT count(*) FROM runs WHERE state = 'settled' AND started IS NOT NULL";
    assert_eq!(sum, rows_sum(&store.db, started));
}

fn fs_copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::write(to, crate::files::read_host(from, crate::files::RECORD).unwrap()).unwrap();
}

fn rows_sum(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn queued_runs_and_oldest_due_time_are_reported() {
    let mut fixture = fixture();
    assert_eq!(fixture.store.queue_depths().unwrap(), []);
    let first = fixture.enqueue("dream");
    fixture.enqueue_after("tidy", Some(&first));
    let depth = fixture.store.queue_depths().unwrap().remove(0);
    assert_eq!((depth.runs, depth.oldest), (2, Some(now())));
    assert_eq!(fixture.store.oldest_due(later(14)).unwrap(), None);
    assert_eq!(fixture.store.oldest_due(later(20)).unwrap(), Some(later(15)));
    fixture.store.pause(None, later(60)).unwrap();
    assert_eq!(fixture.store.oldest_due(later(20)).unwrap(), None);
}
