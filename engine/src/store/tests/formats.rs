//! Tests that every released format can be opened.
//!
//! `tests/fixtures/format-N.db` is a database file that was saved when format N was released, and
//! `format-N.sql` contains the statements that insert its rows. `RUNNER_UPDATE_FIXTURES=1`
//! recreates the file for the current format, which is permitted only before that format is
//! released.

use std::fs;
use std::path::Path;

use super::*;
use crate::failpoint;
use crate::store::format::{PRESENT, STEPS, kept_as, migrate, migrate_file, read, schema_digest};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Copies the saved file of a format to a temporary folder. Returns the folder and the copy's path.
fn frozen(format: i64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    fs::copy(fixtures().join(format!("format-{format}.db")), &path).unwrap();
    (folder, path)
}

/// Returns all rows of a database as sorted lines of text.
fn content(db: &Connection) -> Vec<String> {
    let mut tables = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
        .unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let mut lines = Vec::new();
    for table in tables {
        let mut rows = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> =
                (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
            lines.push(format!("{table}: {}", cells.join(" ")));
        }
    }
    lines.sort();
    lines
}

/// Creates a file in format `format` from the migration steps and the saved rows.
fn made(format: usize, path: &Path) {
    let mut db = Connection::open(path).unwrap();
    db.pragma_update(None, "application_id", format::APPLICATION_ID).unwrap();
    migrate(&mut db, path, &STEPS[..format]).unwrap();
    let rows = fs::read_to_string(fixtures().join(format!("format-{format}.sql"))).unwrap();
    db.execute_batch(&format!("BEGIN; {rows} COMMIT; VACUUM")).unwrap();
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "an environment variable decides whether to recreate the fixture"
)]
fn migration_steps_reproduce_released_formats() {
    let update = std::env::var_os("RUNNER_UPDATE_FIXTURES").is_some();
    for format in 1..=STEPS.len() {
        let file = fixtures().join(format!("format-{format}.db"));
        if update && format == STEPS.len() {
            let _none_yet = fs::remove_file(&file);
            made(format, &file);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        made(format, &path);
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let old = Connection::open_with_flags(&file, flags).unwrap();
        assert_eq!(
            content(&old),
            content(&Connection::open(&path).unwrap()),
            "step {format} or an earlier step was changed after its release"
        );
    }
}

#[test]
fn every_released_format_opens() {
    for format in 1..=PRESENT {
        let (_folder, path) = frozen(format);
        let store = Store::open(&path).unwrap();
        store.check().unwrap();
        assert_eq!(read(&store.db, &path, STEPS).unwrap(), PRESENT);
        let runs = store.runs(&RunFilter::default()).unwrap();
        assert!(runs.len() > 10, "{}", runs.len());
        let names: std::collections::BTreeSet<&str> =
            runs.iter().filter_map(|run| Some(run.outcome()?.as_str())).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        for state in ["queued", "requested", "running"] {
            assert!(runs.iter().any(|run| run.state.name() == state), "{state}");
        }
        for project in store.projects().unwrap() {
            store.jobs(&project.id).unwrap();
            for night in store.nights(&project.id, 10).unwrap() {
                store.occurrences_of(night.id).unwrap();
            }
        }
        assert_eq!(
            kept_as(&path, format).exists(),
            format < PRESENT,
            "a copy of the old file is kept if and only if the file was migrated"
        );
    }
}

/// Returns the current steps and an additional step, which migrates to the next format.
fn next() -> Vec<&'static str> {
    let mut steps = STEPS.to_vec();
    steps.push("ALTER TABLE events ADD COLUMN weight INTEGER; UPDATE events SET weight = 1;");
    steps
}

#[test]
fn migration_keeps_all_rows_and_a_backup() {
    let (_folder, path) = frozen(PRESENT);
    let mut db = Connection::open(&path).unwrap();
    let before = content(&db);
    migrate_file(&mut db, &path, &next()).unwrap();
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, PRESENT + 1);
    let unweighed: i64 = db
        .query_row("SELECT count(*) FROM events WHERE weight IS NULL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(unweighed, 0);
    let kept = Connection::open(kept_as(&path, PRESENT)).unwrap();
    assert_eq!(content(&kept), before);
    let digest: String = db
        .query_row("SELECT detail FROM maintenance WHERE task = 'schema'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(digest, schema_digest(&next()));
    drop(db);
    // The file's format is now newer than this program supports.
    assert!(matches!(Store::open(&path).err().unwrap(), StoreError::Newer { .. }));
}

#[test]
fn failed_migration_changes_nothing() {
    let (_folder, path) = frozen(PRESENT);
    for bad in [
        "ALTER TABLE events ADD COLUMN weight INTEGER; UPDATE nothing SET x = 1;",
        "DELETE FROM projects;",
        "not SQL",
    ] {
        let mut db = Connection::open(&path).unwrap();
        let before = content(&db);
        let mut steps = next();
        steps.push(bad);
        migrate_file(&mut db, &path, &steps).unwrap_err();
        assert_eq!(content(&db), before, "{bad}");
        drop(db);
        Store::open(&path).unwrap().check().unwrap();
    }
}

#[test]
fn a_development_database_is_reported() {
    let (_folder, path) = frozen(PRESENT);
    for spoil in [
        "UPDATE maintenance SET detail = 'other' WHERE task = 'schema'",
        "DELETE FROM maintenance",
        "DROP TABLE maintenance",
    ] {
        Connection::open(&path).unwrap().execute_batch(spoil).unwrap();
        for error in [Store::open(&path).err().unwrap(), Store::read(&path).err().unwrap()] {
            assert!(matches!(error, StoreError::Stranger { .. }), "{spoil}: {error}");
        }
    }
}

/// Kills a migration before each durable step in turn. The test runs its own executable as the
/// process that dies.
#[test]
#[allow(clippy::disallowed_methods, reason = "an environment variable makes the child process die")]
fn killed_migration_leaves_old_or_new_format() {
    const STEP: &str = "RUNNER_TEST_DIE_AT";
    const PATH: &str = "RUNNER_TEST_LEDGER";
    if let (Some(step), Some(path)) = (std::env::var_os(STEP), std::env::var_os(PATH)) {
        let path = PathBuf::from(path);
        let mut db = Connection::open(&path).unwrap();
        failpoint::arm_steps(|name| (name == STEP).then(|| step.clone()));
        migrate_file(&mut db, &path, &next()).unwrap();
        return;
    }
    let mut died = 0;
    for step in 0..20 {
        let (_folder, path) = frozen(PRESENT);
        let before = content(&Connection::open(&path).unwrap());
        let name = "store::tests::formats::killed_migration_leaves_old_or_new_format";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(STEP, step.to_string())
            .env(PATH, &path)
            .output()
            .unwrap();
        let mut db = Connection::open(&path).unwrap();
        let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        if version == PRESENT {
            assert_eq!(content(&db), before, "step {step}");
            migrate_file(&mut db, &path, &next()).unwrap();
        }
        let kept = Connection::open(kept_as(&path, PRESENT)).unwrap();
        assert_eq!(content(&kept), before, "step {step}");
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), None, "step {step}: {output:?}");
        died += 1;
    }
    assert_eq!(died, 4);
}

#[test]
fn older_format_is_migrated_only_when_unused() {
    let (_folder, path) = frozen(PRESENT);
    let older = Store::open(&path).unwrap();
    let in_use = Store::open_with(&path, &next()).err().unwrap();
    assert!(matches!(in_use, StoreError::InUse { .. }), "{in_use}");
    drop(older);
    let reader = Store::read_with(&path, &next()).err().unwrap();
    assert!(matches!(reader, StoreError::Older { found: PRESENT, .. }), "{reader}");
    let migrated = Store::open_with(&path, &next()).unwrap();
    assert_eq!(read(&migrated.db, &path, &next()).unwrap(), PRESENT + 1);
    assert!(kept_as(&path, PRESENT).exists(), "a copy of the old file is kept");
    Store::read_with(&path, &next()).unwrap().check().unwrap();
}

#[test]
fn foreign_database_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE notes (text)").unwrap();
    db.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let opened = Store::open(&path).map(|_| ());
    assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{opened:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
