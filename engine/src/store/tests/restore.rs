//! Tests of backups and restores.

use super::*;

#[test]
fn restore_ends_runs_live_in_backup() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let running = fixture.admitted("a").run().clone();
    let requested = fixture.requested("dream", "b");
    let job = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let soon = NewOccurrence {
        origin: Origin::Queue,
        ..NewOccurrence::manual(job, "c".to_owned(), now())
    };
    let Recorded::New(ahead) = fixture.store.enqueue(&soon, later(600), None, now()).unwrap()
    else {
        panic!("the key was already recorded");
    };
    let copy = path.with_file_name("copy");
    let made = fixture.store.backup(&copy, now()).unwrap();
    assert_eq!(made.made, Some(now()));
    let again = fixture.store.backup(&copy, now());
    assert!(matches!(again.unwrap_err(), StoreError::CannotWrite { .. }));
    let plan = plan_restore(&path, &copy, later(120)).unwrap();
    let busy = plan.carry_out(later(120));
    assert!(matches!(busy.unwrap_err(), StoreError::InUse { .. }));
    drop(fixture.store);
    let reported = plan.carry_out(later(120)).unwrap();
    assert_eq!((reported.skipped, reported.ended, reported.missed), (1, 1, 8));
    let store = Store::open(&path).unwrap();
    assert!(store.examine().unwrap().findings.is_empty());
    let row = store.run(&running).unwrap();
    assert!(row.cancel().unwrap().contains("was restored from a backup"));
    let row = store.run(&requested).unwrap();
    assert!(why(row.outcome().cloned()).contains("it is not known whether it has run since"));
    let row = store.run(&ahead).unwrap();
    assert!(row.ready_at().is_some(), "the queued run stays queued");
    let tidy = store.job(&fixture.project, "tidy").unwrap();
    assert!(tidy.next_due.unwrap() > later(120));
    assert!(store.due_jobs(later(120)).unwrap().is_empty());
}

#[test]
fn invalid_backups_are_refused() {
    let fixture = fixture();
    let path = fixture.store.path().to_owned();
    let bad = path.with_file_name("bad");
    assert!(matches!(plan_restore(&path, &bad, now()).unwrap_err(), StoreError::NoBackup { .. }));
    let sound = std::fs::read(&path).unwrap();
    for content in [Vec::new(), b"no database".to_vec(), sound[..sound.len() / 2].to_vec()] {
        std::fs::write(&bad, content).unwrap();
        plan_restore(&path, &bad, now()).unwrap_err();
    }
}

#[test]
fn backup_is_consistent_during_writes() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let (begun, wait) = std::sync::mpsc::channel();
    let writing = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut store = Store::open(&path).unwrap();
            for round in 0..60 {
                // Each transaction inserts two rows, so a consistent copy contains both or neither.
                store
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
        fixture.store.backup(&copy, now()).unwrap();
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
fn restore_counts_losses_and_keeps_pauses() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let job = |name: &str| fixture.store.job(&fixture.project, name).unwrap().id;
    let (dream, tidy) = (job("dream"), job("tidy"));
    fixture.store.pause(Some(tidy), later(500)).unwrap();
    let copy = path.with_file_name("copy");
    fixture.store.backup(&copy, now()).unwrap();
    let none = plan_restore(&path, &copy, later(1)).unwrap().since.unwrap();
    let counts = |it: &RestoreLoss| (it.runs, it.breaker_resets, it.grants, it.limits, it.pauses);
    assert_eq!(counts(&none), (0, 0, 0, 0, 1));
    fixture.store.resume(Some(tidy), later(2)).unwrap();
    fixture.store.pause(Some(dream), later(900)).unwrap();
    fixture.store.pause(None, later(800)).unwrap();
    fixture.requested("dream", "since");
    let last = fixture.store.last_change().unwrap();
    let plan = plan_restore(&path, &copy, later(120)).unwrap();
    assert_eq!(counts(plan.since.as_ref().unwrap()), (1, 0, 0, 0, 2));
    drop(fixture.store);
    // A file that appears at the planned path must not be overwritten.
    let planned = plan.keep.clone().unwrap();
    std::fs::write(&planned, "kept").unwrap();
    let reported = plan.carry_out(later(120)).unwrap();
    assert_eq!(std::fs::read(&planned).unwrap(), b"kept");
    assert!(reported.kept.is_some() && reported.kept != plan.keep, "{reported:?}");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.paused_until(later(121)).unwrap(), Some(later(800)));
    let own = store.own_pauses(later(121)).unwrap();
    let own: Vec<_> = own.iter().map(|it| (it.job.as_str(), it.until)).collect();
    assert_eq!(own, [("dream", later(900))], "the ended pause stays ended");
    // No change number is reused, and a reader of the changes detects the gap.
    for known in [last - 1, last] {
        let after = store.changes_after(known, 100).unwrap();
        assert!(matches!(after, ChangesAfter::Lost { last: now } if now > last + 1), "{known}");
    }
    drop(store);
    // If the database cannot be read, the loss is unknown.
    std::fs::write(&path, "damaged").unwrap();
    assert_eq!(plan_restore(&path, &copy, later(130)).unwrap().since, None);
    std::fs::rename(&path, path.with_extension("sqlite-wal")).unwrap();
    let plan = plan_restore(&path, &copy, later(140)).unwrap();
    assert!(plan.keep.is_some() && plan.since.is_none(), "{plan:?}");
}

#[test]
fn repeated_restore_keeps_pauses() {
    let mut fixture = fixture();
    let path = fixture.store.path().to_owned();
    let dream = fixture.store.job(&fixture.project, "dream").unwrap().id;
    let copy = path.with_file_name("copy");
    fixture.store.backup(&copy, now()).unwrap();
    fixture.store.pause(Some(dream), later(900)).unwrap();
    drop(fixture.store);
    plan_restore(&path, &copy, later(1)).unwrap().carry_out(later(1)).unwrap();
    // The first restore was interrupted before its draft was renamed.
    let draft = path.with_extension("restored");
    std::fs::rename(&path, &draft).unwrap();
    let intent = serde_json::json!({"draft": draft, "keep": path.with_extension("damaged-x")});
    std::fs::write(path.with_extension("restoring"), intent.to_string()).unwrap();
    let plan = plan_restore(&path, &copy, later(2)).unwrap();
    assert!(plan.unfinished);
    plan.carry_out(later(2)).unwrap();
    let paused = Store::open(&path).unwrap().own_pauses(later(3)).unwrap();
    assert_eq!(paused.iter().map(|it| it.until).collect::<Vec<_>>(), [later(900)]);
}
