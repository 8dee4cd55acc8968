//! The file itself.

use super::*;

#[test]
fn damage_and_strangers_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    for content in [
        &b""[..],
        b"not a database at all, but long enough to be looked at as one ................",
    ] {
        std::fs::write(&path, content).unwrap();
        let error = Ledger::open(&path).err().unwrap();
        assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    assert!(matches!(
        Ledger::open(&path).err().unwrap(),
        LedgerError::Damaged { .. }
    ));
}

#[test]
fn a_newer_ledger_is_refused_and_a_missing_one_is_not_made_by_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    assert!(matches!(
        Ledger::read(&path).err().unwrap(),
        LedgerError::Missing { .. }
    ));
    let ledger = Ledger::open(&path).unwrap();
    ledger.db.pragma_update(None, "user_version", 99).unwrap();
    drop(ledger);
    for error in [
        Ledger::open(&path).err().unwrap(),
        Ledger::read(&path).err().unwrap(),
    ] {
        assert!(
            matches!(error, LedgerError::Newer { found: 99, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_birth_that_was_interrupted_leaves_nothing_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.sqlite");
    std::fs::write(path.with_extension("new"), b"half a ledger").unwrap();
    Ledger::open(&path).unwrap().check().unwrap();
}

#[test]
fn ids_in_the_ledger_are_ids() {
    let mut house = house();
    let run = house.requested("dream", "a");
    house
        .ledger
        .db
        .execute(
            "UPDATE runs SET requested = 9223372036854775807 WHERE id = ?1",
            [run.as_str()],
        )
        .unwrap();
    assert!(matches!(
        house.ledger.run(&run).unwrap_err(),
        LedgerError::Nonsense { .. }
    ));
    let unknown: OccurrenceId = OccurrenceId::new(now());
    assert!(house.ledger.occurrence(&unknown).is_err());
}
