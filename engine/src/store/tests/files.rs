//! Tests of opening and creating the database file.

use super::*;

#[test]
fn damaged_and_foreign_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    for content in [
        &b""[..],
        b"not a database at all, but long enough to be inspected as one ................",
    ] {
        std::fs::write(&path, content).unwrap();
        let error = Store::open(&path).err().unwrap();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    assert!(matches!(Store::open(&path).err().unwrap(), StoreError::Damaged { .. }));
}

#[test]
fn readers_create_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    assert!(matches!(Store::read(&path).err().unwrap(), StoreError::Missing { .. }));
    let store = Store::open(&path).unwrap();
    store.db.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    for error in [Store::open(&path).err().unwrap(), Store::read(&path).err().unwrap()] {
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    }
}

#[test]
fn an_interrupted_creation_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("database.sqlite");
    std::fs::write(path.with_extension("new"), b"half a database").unwrap();
    Store::open(&path).unwrap().check().unwrap();
}

#[test]
fn invalid_value_errors_name_the_row() {
    let mut fixture = fixture();
    let run = fixture.requested("dream", "a");
    fixture
        .store
        .db
        .execute("UPDATE runs SET requested = 9223372036854775807 WHERE id = ?1", [run.as_str()])
        .unwrap();
    let StoreError::Nonsense { why, .. } = fixture.store.run(&run).unwrap_err() else {
        panic!("an out-of-range time was accepted");
    };
    let place = format!("runs.requested in the row whose runs.id is {run}: ");
    assert!(why.starts_with(&place), "{why}");
    let unknown: OccurrenceId = OccurrenceId::new(now());
    assert!(fixture.store.occurrence(&unknown).is_err());
}
