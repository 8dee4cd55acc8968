//! Tests backups and restores, including damaged databases and kills before each step.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{Aged, content, names};
use crate::fixture::{Fixture, Random, print_line, scaled};

#[test]
fn ticks_keep_seven_daily_backups() {
    let aged = Aged::new();
    for day in 10..=20 {
        for hour in ["13:10", "17:10"] {
            aged.at(&format!("2026-01-{day}T{hour}:00Z"));
            aged.run(&["tick"]).ends(0);
        }
    }
    let backups = aged.backups();
    assert_eq!(backups.len(), 7, "{backups:?}");
    assert!(backups[6].to_str().unwrap().contains("20260120T"), "{backups:?}");
}

#[test]
fn restore_reports_lost_runs() {
    let aged = Aged::new();
    aged.at("2026-01-10T13:00:30Z");
    aged.run(&["tick"]).ends(0).expect_text("note");
    aged.run(&["enqueue", "late"]).ends(0);
    aged.run(&["db", "backup"]).ends(0);
    for hour in 14..18 {
        aged.at(&format!("2026-01-10T{hour}:00:30Z"));
        aged.run(&["tick"]).ends(0);
    }
    let runs = "SELECT count(*) FROM runs WHERE started IS NOT NULL";
    assert_eq!(aged.fixture.count(runs), 6, "expected five hourly runs and one queued run");
    // Showing the plan changes nothing.
    let before = content(&aged.store());
    aged.run(&["db", "restore"]).ends(0).expect_text("run again with --yes to restore");
    assert_eq!(content(&aged.store()), before);
    let newest = aged
        .backups()
        .into_iter()
        .find(|path| path.to_str().unwrap().contains("T130030Z"))
        .unwrap();
    aged.at("2026-01-10T17:30:00Z");
    let file = newest.to_str().unwrap();
    let reported = aged.run(&["db", "restore", file, "--yes", "--json"]).ends(0).json();
    assert_eq!(reported["told"]["missed"], 4, "{reported}");
    assert_eq!(reported["told"]["skipped"], 1, "{reported}");
    let kept = PathBuf::from(reported["kept"].as_str().unwrap());
    assert_eq!(content(&kept), before, "the old database was not kept");
    aged.run(&["tick"]).ends(0);
    assert_eq!(aged.fixture.count(runs), 1, "a run was repeated");
    let missed = "SELECT count(*) FROM occurrences WHERE outcome ->> 'outcome' = 'missed'
                  AND outcome ->> 'why' LIKE 'the database was restored from a backup of 2026-01-10T13:00:30Z'";
    assert_eq!(aged.fixture.count(missed), 1);
    assert_eq!(aged.fixture.count("SELECT count(*) FROM events WHERE kind = 'restored'"), 1);
    aged.at("2026-01-10T18:00:30Z");
    aged.run(&["tick"]).ends(0).expect_text("note");
    assert_eq!(aged.fixture.count(runs), 2, "the job did not run at its next scheduled time");
    aged.run(&["db", "check"]).ends(0);
}

#[test]
fn restore_keeps_pauses_of_newer_jobs() {
    let aged = Aged::new();
    aged.at("2026-01-10T13:00:30Z");
    aged.run(&["db", "backup"]).ends(0);
    let job = "\n[jobs.later]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 10m\"\n";
    aged.fixture.configure(job);
    aged.run(&["tick"]).ends(0);
    aged.run(&["pause", "later"]).ends(0);
    aged.run(&["db", "restore", "--yes"]).ends(0).expect_text("current pauses are kept (1)");
    aged.at("2026-01-10T15:00:30Z");
    aged.run(&["tick"]).ends(0);
    let runs = "SELECT count(*) FROM runs r JOIN occurrences o ON o.id = r.occurrence
                JOIN jobs j ON j.id = o.job WHERE j.name = 'later'";
    assert_eq!(aged.fixture.count(runs), 0, "the restore ended a pause");
    aged.run(&["resume", "later"]).ends(0);
    aged.at("2026-01-10T16:00:30Z");
    aged.run(&["tick"]).ends(0);
    assert_eq!(aged.fixture.count(runs), 1, "the resumed job did not run");
    aged.run(&["db", "check"]).ends(0);
}

#[test]
fn restore_refuses_an_open_database() {
    let aged = Aged::new();
    aged.run(&["db", "backup"]).ends(0);
    let lock = fs::File::open(aged.fixture.state().join("database.lock")).unwrap();
    lock.lock_shared().unwrap();
    let before = fs::read(aged.store()).unwrap();
    let me = std::process::id().to_string();
    aged.run(&["db", "restore", "--yes"])
        .ends(75)
        .expect_text(&format!("PID {me}"))
        .expect_text("nothing was changed");
    assert_eq!(fs::read(aged.store()).unwrap(), before);
    drop(lock);
    aged.run(&["db", "restore", "--yes"]).ends(0);
}

/// Truncates the database, overwrites a page or flips a bit in each round, and checks that the
/// damage is detected, unless SQLite itself cannot detect it.
#[test]
fn backup_restores_a_damaged_database() {
    let mut dice = Random::new("backup_restores_a_damaged_database");
    let began = std::time::Instant::now();
    let aged = Aged::new();
    aged.run(&["run", "note"]).ends(0);
    aged.run(&["db", "backup"]).ends(0);
    aged.run(&["db", "vacuum"]).ends(0);
    let sound = fs::read(aged.store()).unwrap();
    let log = aged.fixture.state().join("database.sqlite-wal");
    let (mut seen, mut unseen) = (0, 0);
    let rounds = scaled(50);
    for round in 0..rounds * 2 {
        for ending in ["-wal", "-shm"] {
            let _absent = fs::remove_file(format!("{}{ending}", aged.store().display()));
        }
        let mut bytes = sound.clone();
        let length = bytes.len() as u64;
        let cut = round < rounds;
        let mut must = true;
        let mut whole = Vec::new();
        if cut {
            let at = match round {
                0 => 0,
                1 => 50,
                n if n % 3 == 0 => dice.roll(length / 4096) * 4096,
                _ => dice.roll(length),
            };
            bytes.truncate(usize::try_from(at).unwrap());
        } else if round % 2 == 0 {
            let page = usize::try_from(dice.roll(length / 4096) * 4096).unwrap();
            bytes[page..page + 4096].fill(0xa5);
        } else {
            let at = usize::try_from(dice.roll(length)).unwrap();
            bytes[at] ^= 1 << dice.roll(8);
            must = !integral(&bytes, aged.fixture.root());
        }
        fs::write(aged.store(), &bytes).unwrap();
        // Every third truncation leaves a write-ahead log with a commit that is not in the database
        // file.
        if cut && round % 3 == 1 && round > 1 {
            fs::write(aged.store(), &sound).unwrap();
            let held = aged.fixture.store();
            held.execute_batch(
                "PRAGMA wal_autocheckpoint = 0; UPDATE projects SET created = created + 1",
            )
            .unwrap();
            let kept = fs::read(&log).unwrap();
            whole = content(&aged.store());
            drop(held);
            fs::write(aged.store(), &bytes).unwrap();
            fs::write(&log, kept).unwrap();
        }
        let made = inode(&aged.store());
        let check = aged.run(&["db", "check"]);
        let found = [0, 70, 78].contains(&check.code);
        assert!(found, "round {round}: {check:?}");
        match (must, check.code) {
            // The log contained the removed rows, or the removed part contained none.
            (true, 0) if !whole.is_empty() => {
                assert_eq!(content(&aged.store()), whole, "round {round}: rows are missing");
                unseen += 1;
            }
            (true, 0) => panic!("round {round}: the damage was not found: {check:?}"),
            (_, 0) => unseen += 1,
            _ => seen += 1,
        }
        // A flipped bit may leave an intact file with contradictory rows. A tick does not refuse
        // such a database.
        let contradictory = check.err.contains("is intact, but some of its rows");
        if check.code == 70 && !contradictory {
            // A tick detects the damage even in pages that it would not read otherwise.
            aged.run(&["tick"]).ends(70).expect_text("runner db restore");
            assert_eq!(inode(&aged.store()), made, "round {round}: the file was replaced");
            let logged = cut && round % 3 == 1;
            let left = fs::read(aged.store()).unwrap() == bytes;
            assert!(left || logged, "round {round}: the file was modified");
        }
        if round % 10 == 0 && check.code == 70 {
            aged.run(&["db", "restore", "--yes"]).ends(0);
            aged.run(&["db", "check"]).ends(0);
            aged.run(&["tick"]).ends(0);
            assert!(!aged.fixture.state().join("damaged.json").exists());
        }
    }
    print_line(&format!(
        "{rounds} truncations, {} overwritten pages, {} flipped bits: {seen} detected, {unseen} not detected, {} s",
        rounds / 2,
        rounds / 2,
        began.elapsed().as_secs()
    ));
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().ino()
}

fn integral(bytes: &[u8], folder: &Path) -> bool {
    let path = folder.join("looked-at");
    fs::write(&path, bytes).unwrap();
    let db = Connection::open(&path).unwrap();
    let said = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    let whole = said.is_ok_and(|said| said == "ok");
    drop(db);
    for ending in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(format!("{}{ending}", path.display()));
    }
    whole
}

#[test]
fn killed_restore_leaves_old_or_new_database() {
    let mut steps = 0;
    for step in 0..40 {
        let aged = Aged::new();
        aged.run(&["db", "backup"]).ends(0);
        aged.run(&["run", "note"]).ends(0);
        let old = content(&aged.store());
        let output = aged
            .command(&["db", "restore", "--yes"])
            .env("RUNNER_TEST_DIE_AT", step.to_string())
            .output()
            .unwrap();
        if output.status.code() == Some(0) {
            steps = step;
            break;
        }
        assert_eq!(output.status.code(), None, "step {step}: {output:?}");
        // A reader never sees a partially restored database.
        let seen = aged.run(&["runs", "--json"]);
        assert!([0, 75].contains(&seen.code), "step {step}: {seen:?}");
        // The next writing process completes the restore or continues with the old database.
        aged.run(&["pause", "late"]).ends(0);
        aged.run(&["resume", "late"]).ends(0);
        let runs = aged.fixture.count("SELECT count(*) FROM runs");
        let restored = aged.fixture.count("SELECT count(*) FROM events WHERE kind = 'restored'");
        match restored {
            0 => assert_eq!((runs, content(&aged.store()).len()), (1, old.len()), "step {step}"),
            _ => assert_eq!(runs, 0, "step {step}"),
        }
        aged.run(&["db", "restore", "--yes"]).ends(0);
        aged.run(&["db", "check"]).ends(0);
        assert_eq!(aged.fixture.count("SELECT count(*) FROM runs"), 0, "step {step}");
        let kept = names(&aged.fixture.state())
            .into_iter()
            .filter(|path| path.to_str().unwrap().contains("database.damaged-"))
            .any(|path| path.extension().is_some() && content_or_none(&path) == Some(old.len()));
        assert!(kept, "step {step}: the old database was not kept");
    }
    assert!(steps > 8, "{steps} steps");
    print_line(&format!("a restore was killed before each of its {steps} steps"));
}

fn content_or_none(path: &Path) -> Option<usize> {
    let name = path.to_str()?;
    (!name.ends_with("-wal") && !name.ends_with("-shm")).then(|| content(path).len())
}

#[test]
fn killed_backup_publishes_no_partial_file() {
    let mut steps = 0;
    for step in 0..20 {
        let aged = Aged::new();
        let output = aged
            .command(&["db", "backup"])
            .env("RUNNER_TEST_DIE_AT", step.to_string())
            .output()
            .unwrap();
        for backup in aged.backups() {
            if !backup.file_name().unwrap().to_str().unwrap().starts_with('.') {
                let file = backup.to_str().unwrap();
                aged.run(&["db", "restore", file, "--yes"]).ends(0);
            }
        }
        aged.run(&["db", "check"]).ends(0);
        if output.status.code() == Some(0) {
            steps = step;
            break;
        }
        aged.run(&["db", "backup"]).ends(0);
    }
    assert!(steps >= 5, "{steps} steps");
    print_line(&format!("a backup was killed before each of its {steps} steps"));
}

#[test]
fn night_after_restore_keeps_earlier_report() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n",
    );
    fixture.run(&["tick"]).ends(0);
    fixture.run(&["db", "backup"]).ends(0);
    fixture.run(&["night"]).ends(0);
    let reports = fixture.path(".runner/reports");
    let first = names(&reports);
    let [lost] = first.as_slice() else { panic!("{first:?}") };
    let reported = fs::read(lost.join("report.json")).unwrap();
    fixture.run(&["db", "restore", "--yes"]).ends(0);
    let said = fixture.run(&["night"]).ends(0);
    assert_eq!(fs::read(lost.join("report.json")).unwrap(), reported);
    let both = names(&reports);
    assert_eq!(both.len(), 2, "{both:?}");
    let new = both.iter().find(|path| *path != lost).unwrap();
    assert!(said.err.contains(new.to_str().unwrap()), "{said:?}");
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let night = &status["projects"][0]["last_night"];
    assert_eq!(night["report"].as_str(), new.join("report.md").to_str(), "{night}");
    assert_eq!(night["worst"], "succeeded", "{night}");
}
