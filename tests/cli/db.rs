//! Tests database maintenance from outside: checks, backups, restores, pruning, and kills during
//! each of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::fixture::{CommandOutput, Fixture, Random, print_line, scaled};

const JOBS: &str = r#"
[jobs.note]
kind = "command"
program = "sh"
args = ["-c", "echo hello > \"$RUNNER_OUT/n\""]
artifacts = [{ from = "n", to = "notes/n" }]
trigger = "every 1h"

[jobs.late]
kind = "command"
program = "true"
trigger = "manual"
"#;

/// A fixture whose clock is a file.
struct Aged {
    fixture: Fixture,
    clock: PathBuf,
}

impl Aged {
    fn new() -> Self {
        let fixture = Fixture::new();
        let clock = fixture.root().join("clock");
        let aged = Self { fixture, clock };
        aged.at("2026-01-10T12:00:00Z");
        aged.run(&["init"]).ends(0);
        aged.fixture.configure(JOBS);
        // A schedule starts when a tick sees it for the first time.
        aged.run(&["tick"]).ends(0);
        aged
    }

    /// Sets both clocks to this time.
    fn at(&self, time: &str) {
        let at: jiff::Timestamp = time.parse().unwrap();
        fs::write(&self.clock, format!("{at}\n{}\n", at.as_second())).unwrap();
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.fixture.runner(args);
        command.env("RUNNER_TEST_CLOCK", &self.clock);
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.fixture.state().join("database.sqlite")
    }

    fn backups(&self) -> Vec<PathBuf> {
        names(&self.fixture.state().join("backups"))
    }
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// Returns all rows of a database file, except those about its own maintenance.
fn content(path: &Path) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let mut lines = Vec::new();
    for table in ["projects", "jobs", "occurrences", "runs", "events", "budget_usage"] {
        let mut rows = db
            .prepare(&format!("SELECT * FROM {table} ORDER BY rowid"))
            .unwrap_or_else(|_| db.prepare(&format!("SELECT * FROM {table}")).unwrap());
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> =
                (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
            lines.push(format!("{table} {}", cells.join(" ")));
        }
    }
    lines
}

#[test]
fn healthy_database_passes_check_and_backup() {
    let aged = Aged::new();
    aged.run(&["db", "path"]).ends(0).expect_text("state/runner/database.sqlite");
    aged.run(&["run", "note"]).ends(0);
    let health = aged.run(&["db", "check", "--json"]).ends(0).json();
    assert_eq!(health["findings"].as_array().unwrap().len(), 0, "{health}");
    let format: i64 =
        aged.fixture.store().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(health["format"], format);
    assert_eq!(health["rows"]["runs"], 1);
    let target = aged.fixture.root().join("copy.db");
    let name = target.to_str().unwrap();
    let said = aged.run(&["db", "backup", name, "--json"]).ends(0);
    assert_eq!(said.json()["file"], name);
    let mode = fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&target).unwrap();
    aged.run(&["db", "backup", name]).ends(73).expect_text("already exists");
    assert_eq!(fs::read(&target).unwrap(), before);
    assert_eq!(content(&target), content(&aged.store()));
    aged.run(&["db", "vacuum", "--json"]).ends(0);
    aged.run(&["db", "check"]).ends(0).expect_text("ok");
}

#[test]
fn check_reports_inconsistent_rows() {
    let aged = Aged::new();
    aged.run(&["run", "note"]).ends(0);
    let sound = fs::read(aged.store()).unwrap();
    for (spoil, what) in [
        ("UPDATE occurrences SET outcome = NULL, settled = NULL", "an occurrence is open and none"),
        ("UPDATE runs SET finished = NULL", "an outcome goes with the time"),
        ("UPDATE runs SET outcome = '{\"outcome\":\"splendid\"}'", "makes no sense"),
        ("UPDATE reservations SET open = 1", "a reservation is open"),
        ("UPDATE runs SET fence = 99", "a fence that its job has not reached"),
        ("PRAGMA foreign_keys = 0; UPDATE runs SET job = 99", "it refers to a row"),
        ("INSERT INTO budget_usage VALUES ('day', 'x', -1, 0, 0, 0, 0)", "below nothing"),
        ("UPDATE jobs SET policy = '{'", "its policy makes no sense"),
    ] {
        let db = aged.fixture.store();
        db.execute_batch(spoil).unwrap();
        drop(db);
        aged.run(&["db", "check"]).ends(70).expect_text(what).expect_text(match what {
            // A dangling reference is damage of the file itself.
            "it refers to a row" => "fix: runner db restore",
            _ => "a restore would lose more",
        });
        fs::write(aged.store(), &sound).unwrap();
    }
    aged.run(&["db", "check"]).ends(0);
}

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
    assert_eq!(aged.fixture.count(runs), 2, "the next scheduled time did not run");
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

/// Truncates or overwrites the database in each round, and checks that the damage is found.
#[test]
fn a_backup_restores_a_damaged_database() {
    let mut dice = Random::new("a_backup_restores_a_damaged_database");
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
        // Every third truncation leaves a log with a commit that has not been written back.
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
            // The removed part was also in the log, or held only zeros.
            (true, 0) if !whole.is_empty() => {
                assert_eq!(content(&aged.store()), whole, "round {round}: rows are missing");
                unseen += 1;
            }
            (true, 0) => panic!("round {round}: the damage was not found: {check:?}"),
            (_, 0) => unseen += 1,
            _ => seen += 1,
        }
        if check.code == 70 {
            // A tick detects the damage even where ordinary reads do not reach it.
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
        "{rounds} cuts, {} pages of noise, {} flipped bits: {seen} seen, {unseen} that SQLite cannot see, {} s",
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
        // A reader never creates a database and never sees a half-restored one.
        let seen = aged.run(&["runs", "--json"]);
        assert!([0, 75].contains(&seen.code), "step {step}: {seen:?}");
        // The next process that writes finishes the restore or continues with the old database.
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

/// Creates a fixture with a year of history: old runs, old logs, and a link that points outside.
fn old_house() -> Aged {
    let aged = Aged::new();
    for month in ["01-11", "02-11", "03-11"] {
        aged.at(&format!("2026-{month}T13:00:30Z"));
        aged.run(&["tick"]).ends(0);
        aged.run(&["run", "late", "--key", month]).ends(0);
    }
    let runs = aged.fixture.state().join("runs");
    let outside = aged.fixture.root().join("outside");
    fs::create_dir_all(outside.join("precious")).unwrap();
    symlink(&outside, runs.join("01K00000000000000000000000")).unwrap();
    aged.at("2026-12-01T12:00:00Z");
    aged
}

#[test]
fn pruning_dry_run_matches_real_run() {
    let aged = old_house();
    let jobs = "SELECT count(DISTINCT job) FROM runs";
    let ran = aged.fixture.count(jobs);
    let before = content(&aged.store());
    let plan = aged.run(&["db", "prune", "--dry-run", "--json"]).ends(0).json();
    assert_eq!(content(&aged.store()), before, "a dry run changed the database");
    let gone = plan["rows"]["occurrences"].as_array().unwrap().len();
    assert!(gone >= 4, "{plan}");
    let done = aged.run(&["db", "prune", "--json"]).ends(0).json();
    assert_eq!(plan["rows"], done["rows"]);
    assert_eq!(plan["files"], done["files"]);
    aged.run(&["db", "check"]).ends(0);
    // The newest run of each job is kept, and links to other folders are not followed.
    assert_eq!(aged.fixture.count(jobs), ran, "{plan}");
    assert!(aged.fixture.root().join("outside/precious").is_dir());
    let again = aged.run(&["db", "prune", "--dry-run", "--json"]).ends(0).json();
    assert_eq!(again["rows"]["occurrences"].as_array().unwrap().len(), 0);
    assert_eq!(again["files"].as_array().unwrap().len(), 0, "{again}");
    // A key is known as long as its row exists.
    aged.run(&["run", "late", "--key", "01-11"]).ends(0);
    assert_eq!(
        aged.fixture.count(
            "SELECT count(*) FROM occurrences WHERE key LIKE '%01-11' AND recorded > 1790000000000"
        ),
        1
    );
}

#[test]
fn next_pruning_completes_a_killed_one() {
    let mut steps = 0;
    for step in 0..60 {
        let aged = old_house();
        let output = aged
            .command(&["db", "prune"])
            .env("RUNNER_TEST_DIE_AT", step.to_string())
            .output()
            .unwrap();
        aged.run(&["db", "check"]).ends(0);
        aged.run(&["db", "prune"]).ends(0);
        let again = aged.run(&["db", "prune", "--dry-run"]).ends(0);
        assert!(again.out.contains("nothing to remove"), "step {step}: {again:?}");
        if output.status.code() == Some(0) {
            steps = step;
            break;
        }
    }
    assert!(steps > 4, "{steps} steps");
    print_line(&format!("a pruning was killed before each of its {steps} steps"));
}

#[test]
fn unsupported_database_formats_are_reported() {
    let aged = Aged::new();
    let path = aged.store();
    let sound = fs::read(&path).unwrap();
    aged.fixture.store().pragma_update(None, "user_version", 99).unwrap();
    aged.run(&["tick"]).ends(78).expect_text("has format 99").expect_text("newer runner");
    fs::write(&path, &sound).unwrap();
    aged.fixture.store().execute_batch("DROP TABLE maintenance; DROP TABLE pause").unwrap();
    for command in [&["tick"][..], &["status"], &["db", "check"]] {
        aged.run(command).ends(78).expect_text("development build").expect_text("mkdir");
    }
    let fresh = aged.fixture.root().join("fresh");
    fs::create_dir(&fresh).unwrap();
    assert!(
        aged.fixture
            .command("git", &["init", "-q", fresh.to_str().unwrap()])
            .status()
            .unwrap()
            .success()
    );
    aged.run(&["init", fresh.to_str().unwrap()]).ends(78).expect_text("development build");
    assert!(!fresh.join("runner.toml").exists() && !fresh.join("ideas").exists());
    fs::write(&path, &sound).unwrap();
    aged.run(&["db", "check"]).ends(0);
}

#[test]
fn read_only_database_is_reported() {
    let mut aged = Aged::new();
    let root = aged.fixture.root().to_owned();
    let given = std::process::Command::new("chown")
        .args(["-R", "65534:65534"])
        .arg(&root)
        .stderr(std::process::Stdio::null())
        .status();
    if !given.is_ok_and(|status| status.success()) {
        print_line("skipped 1: files cannot be given to another user here");
        return;
    }
    aged.fixture.uid = Some(65_534);
    aged.run(&["tick"]).ends(0);
    for (path, closed, open) in [(aged.store(), 0o400, 0o600), (aged.fixture.state(), 0o500, 0o700)]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(closed)).unwrap();
        let said = aged.run(&["pause", "late"]).ends(73);
        assert!(said.err.contains("cannot write the database"), "{said:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        // SQLite has copied the file's mode to the files that it created beside the file.
        for ending in ["-wal", "-shm"] {
            let beside = format!("{}{ending}", aged.store().display());
            let _absent = fs::set_permissions(beside, fs::Permissions::from_mode(0o600));
        }
        aged.run(&["pause", "late"]).ends(0);
    }
}

#[test]
fn full_disk_prevents_database_creation() {
    let Some(full) = Tmpfs::mount("4m") else {
        print_line("skipped 1: a small file system cannot be mounted here");
        return;
    };
    let aged = Aged::new();
    let state = full.path.join("runner");
    fs::create_dir_all(&state).unwrap();
    let mut rest = fs::File::create(full.path.join("rest")).unwrap();
    use std::io::Write as _;
    while rest.write_all(&[0; 4096]).is_ok() {}
    let mut command = aged.command(&["tick"]);
    command.env("XDG_STATE_HOME", &full.path);
    let said = CommandOutput::of(command.output().unwrap()).ends(73);
    assert!(said.err.contains("cannot"), "{said:?}");
    assert!(!state.join("database.sqlite").exists());
    drop(rest);
    fs::remove_file(full.path.join("rest")).unwrap();
    let mut command = aged.command(&["tick"]);
    command.env("XDG_STATE_HOME", &full.path);
    CommandOutput::of(command.output().unwrap()).ends(0);
}

struct Tmpfs {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full");
        fs::create_dir(&path).unwrap();
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "none"])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status();
        done.is_ok_and(|status| status.success()).then_some(Self { path, _folder: folder })
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.path).status();
    }
}

#[test]
fn one_unremovable_file_does_not_stop_pruning() {
    let aged = old_house();
    let runs = aged.fixture.state().join("runs");
    // Even root cannot remove an immutable file.
    let first = names(&runs).into_iter().find(|run| run.is_dir() && !run.is_symlink()).unwrap();
    let held = |how: &str| {
        std::process::Command::new("chattr")
            .args([how, first.to_str().unwrap()])
            .output()
            .is_ok_and(|done| done.status.success())
    };
    if !held("+i") {
        print_line("skipped 1: no file can be made immutable here");
        return;
    }
    let before = aged.backups().len();
    let last = names(&runs).len();
    aged.run(&["tick"]).expect_text("cannot remove");
    let once = aged.backups().len();
    aged.at("2026-12-01T14:00:00Z");
    aged.run(&["tick"]).expect_text("cannot remove");
    let twice = aged.backups().len();
    let left = names(&runs).len();
    assert!(held("-i"));
    assert_eq!(once, twice, "{before} before");
    assert!(left < last, "{left} of {last}");
    aged.at("2026-12-01T16:00:00Z");
    aged.run(&["tick"]);
    assert!(!first.exists());
}

#[test]
fn pruning_dry_run_creates_no_state() {
    let fixture = Fixture::new();
    let plan = CommandOutput::of(fixture.runner(&["db", "prune", "--dry-run"]).output().unwrap());
    plan.ends(0).expect_text("nothing to remove");
    assert!(!fixture.state().exists());
}

#[test]
fn missing_database_is_not_silently_recreated() {
    let aged = Aged::new();
    aged.run(&["run", "late"]).ends(0);
    aged.run(&["db", "backup"]).ends(0);
    for ending in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(format!("{}{ending}", aged.store().display()));
    }
    let backups = aged.backups().len();
    for command in [
        &["tick"][..],
        &["night"],
        &["run", "late"],
        &["daemon"],
        &["init"],
        &["status"],
        &["db", "check"],
        &["db", "prune"],
    ] {
        aged.run(command)
            .ends(70)
            .expect_text("is gone")
            .expect_text("runner db restore")
            .expect_text("mkdir");
        assert!(!aged.store().exists(), "{command:?}");
    }
    assert_eq!(aged.backups().len(), backups);
    aged.run(&["db", "restore", "--yes"]).ends(0);
    aged.run(&["tick"]).ends(0);
    // A person who wants an empty database moves the old files aside.
    let state = aged.fixture.state();
    for ending in ["", "-wal", "-shm"] {
        let _absent = fs::remove_file(format!("{}{ending}", aged.store().display()));
    }
    for folder in ["backups", "runs"] {
        fs::rename(state.join(folder), state.join(format!("{folder}.aside"))).unwrap();
    }
    aged.run(&["init"]).ends(0);
    aged.run(&["tick"]).ends(0);
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

#[test]
fn damage_reports_leave_the_database_unchanged() {
    let aged = Aged::new();
    aged.run(&["db", "backup"]).ends(0);
    aged.run(&["db", "restore"])
        .ends(0)
        .expect_text("there is nothing to fix")
        .expect_text("0 runs");
    let file = aged.backups()[0].display().to_string();
    aged.run(&["db", "backup", &file]).ends(73).expect_text("already exists");
    fs::write(aged.store(), "no database at all, whatever its name may say\n".repeat(400)).unwrap();
    for ending in ["-wal", "-shm"] {
        let _absent = fs::remove_file(format!("{}{ending}", aged.store().display()));
    }
    let before = fs::read(aged.store()).unwrap();
    let health = aged.run(&["db", "check", "--json"]).ends(70).json();
    assert_eq!(health["whole"], false, "{health}");
    assert_eq!(health["hint"], "runner db restore", "{health}");
    assert!(health["findings"][0]["place"].is_string(), "{health}");
    assert_eq!(fs::read(aged.store()).unwrap(), before);
    let said = aged.run(&["status"]).ends(70);
    assert_eq!(said.err.matches("is damaged").count(), 1, "{said:?}");
    let plan = aged.run(&["db", "restore"]).ends(0);
    assert!(plan.out.contains("cannot be listed"), "{plan:?}");
    assert!(!plan.out.contains("nothing to fix"), "{plan:?}");
}

#[test]
fn pruning_removes_old_undo_folders() {
    let aged = Aged::new();
    let backup = |at: &str| {
        let at: jiff::Timestamp = at.parse().unwrap();
        let run = runner_engine::ids::RunId::new(at);
        let folder = format!("dreams/.undo/p-1/{run}");
        aged.fixture.write(&format!("{folder}/act.json"), "{}");
        aged.fixture.path(&folder)
    };
    let (old, young) = (backup("2026-01-10T12:00:00Z"), backup("2026-03-10T12:00:00Z"));
    aged.at("2026-04-20T12:00:00Z");
    aged.run(&["db", "prune", "--dry-run"]).ends(0).expect_text("kind undo");
    assert!(old.exists() && young.exists());
    aged.run(&["db", "prune"]).ends(0);
    assert!(!old.exists() && young.exists());
    aged.at("2026-06-20T12:00:00Z");
    aged.run(&["db", "prune"]).ends(0);
    assert!(!aged.fixture.path("dreams/.undo/p-1").exists(), "the empty folder is still there");
}
