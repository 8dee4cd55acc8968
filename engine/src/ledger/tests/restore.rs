//! Copies and what a restored ledger knows.

use super::*;
use crate::ledger::steps::Steps;

#[test]
fn what_lived_in_a_backup_is_ended_and_never_tried_again() {
    let mut house = house();
    let path = house.ledger.path().to_owned();
    let running = house.admitted("a").run().clone();
    let requested = house.requested("dream", "b");
    let job = house.ledger.job(&house.project, "dream").unwrap().id;
    let soon = NewOccurrence {
        origin: Origin::Queue,
        ..NewOccurrence::by_hand(job, "c".to_owned(), now())
    };
    let Recorded::New(ahead) = house
        .ledger
        .enqueue(&soon, later(600), None, now())
        .unwrap()
    else {
        panic!("known");
    };
    let copy = path.with_file_name("copy");
    let made = house
        .ledger
        .backup(&copy, now(), &mut Steps::default())
        .unwrap();
    assert_eq!(made.made, Some(now()));
    let again = house.ledger.backup(&copy, now(), &mut Steps::default());
    assert!(matches!(
        again.unwrap_err(),
        LedgerError::CannotWrite { .. }
    ));
    let plan = plan_restore(&path, &copy, later(120)).unwrap();
    let busy = plan.carry_out(later(120), &mut Steps::default());
    assert!(matches!(busy.unwrap_err(), LedgerError::InUse { .. }));
    drop(house.ledger);
    let told = plan.carry_out(later(120), &mut Steps::default()).unwrap();
    assert_eq!((told.skipped, told.ended, told.missed), (1, 1, 8));
    let ledger = Ledger::open(&path).unwrap();
    assert!(ledger.examine().unwrap().findings.is_empty());
    let row = ledger.run(&running).unwrap();
    assert!(row.cancel.unwrap().contains("was restored from a backup"));
    let row = ledger.run(&requested).unwrap();
    assert!(why(row.outcome).contains("whether it ran since is not known"));
    let row = ledger.run(&ahead).unwrap();
    assert_eq!(row.state, RunState::Queued, "its moment lies ahead");
    let tidy = ledger.job(&house.project, "tidy").unwrap();
    assert!(tidy.next_due.unwrap() > later(120));
    assert!(ledger.due_jobs(later(120)).unwrap().is_empty());
}

#[test]
fn what_is_no_backup_is_refused_before_anything_moves() {
    let house = house();
    let path = house.ledger.path().to_owned();
    let bad = path.with_file_name("bad");
    assert!(matches!(
        plan_restore(&path, &bad, now()).unwrap_err(),
        LedgerError::NoBackup { .. }
    ));
    let sound = std::fs::read(&path).unwrap();
    for content in [
        Vec::new(),
        b"no database".to_vec(),
        sound[..sound.len() / 2].to_vec(),
    ] {
        std::fs::write(&bad, content).unwrap();
        plan_restore(&path, &bad, now()).unwrap_err();
    }
}

#[test]
fn a_copy_is_of_one_moment_while_others_write() {
    let mut house = house();
    let path = house.ledger.path().to_owned();
    let (begun, wait) = std::sync::mpsc::channel();
    let writing = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut ledger = Ledger::open(&path).unwrap();
            for round in 0..60 {
                // Two rows of one transaction: a copy has both or none.
                ledger
                    .write(|tx| {
                        for half in ["left", "right"] {
                            tx.execute(
                                "INSERT INTO events (at, kind, detail) VALUES (?1, ?2, '')",
                                rusqlite::params![round, half],
                            )?;
                        }
                        Ok(())
                    })
                    .unwrap();
                let _nobody_waits_any_more = begun.send(());
            }
        }
    });
    for round in 0..5 {
        wait.recv().unwrap();
        let copy = path.with_file_name(format!("copy-{round}"));
        house
            .ledger
            .backup(&copy, now(), &mut Steps::default())
            .unwrap();
        let db = Connection::open(&copy).unwrap();
        let torn: i64 = db
            .query_row(
                "SELECT count(*) FROM (SELECT 1 FROM events GROUP BY at HAVING count(*) <> 2)",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(torn, 0);
    }
    writing.join().unwrap();
}

#[test]
fn what_was_decided_since_a_copy_is_counted_and_pauses_are_carried_over() {
    let mut house = house();
    let path = house.ledger.path().to_owned();
    let job = |name: &str| house.ledger.job(&house.project, name).unwrap().id;
    let (dream, tidy) = (job("dream"), job("tidy"));
    house.ledger.pause(Some(tidy), later(500)).unwrap();
    let copy = path.with_file_name("copy");
    let dying = &mut Steps::default();
    house.ledger.backup(&copy, now(), dying).unwrap();
    let none = plan_restore(&path, &copy, later(1)).unwrap().since.unwrap();
    let counts = |it: &Since| (it.runs, it.acks, it.grants, it.limits, it.pauses);
    assert_eq!(counts(&none), (0, 0, 0, 0, 1));
    house.ledger.resume(Some(tidy), later(2)).unwrap();
    house.ledger.pause(Some(dream), later(900)).unwrap();
    house.ledger.pause(None, later(800)).unwrap();
    house.requested("dream", "since");
    let plan = plan_restore(&path, &copy, later(120)).unwrap();
    assert_eq!(counts(plan.since.as_ref().unwrap()), (1, 0, 0, 0, 2));
    drop(house.ledger);
    // What the plan names may be taken by then, and is somebody's.
    let planned = plan.keep.clone().unwrap();
    std::fs::write(&planned, "kept").unwrap();
    let told = plan.carry_out(later(120), dying).unwrap();
    assert_eq!(std::fs::read(&planned).unwrap(), b"kept");
    assert!(told.kept.is_some() && told.kept != plan.keep, "{told:?}");
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.paused_until(later(121)).unwrap(), Some(later(800)));
    let own = ledger.own_pauses(later(121)).unwrap();
    let own: Vec<_> = own.iter().map(|it| (it.job.as_str(), it.until)).collect();
    assert_eq!(
        own,
        [("dream", later(900))],
        "and the one that ended has ended"
    );
    drop(ledger);
    // Of what cannot be read nothing can be told.
    std::fs::write(&path, "damaged").unwrap();
    assert_eq!(plan_restore(&path, &copy, later(130)).unwrap().since, None);
}
