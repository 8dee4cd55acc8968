//! Tests database checks and backups, and databases that cannot be used.

mod prune;
mod restore;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::fixture::{CommandOutput, Fixture, print_line};

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

/// A fixture whose wall clock and boot clock are set together.
struct Aged {
    fixture: Fixture,
}

impl Aged {
    fn new() -> Self {
        let aged = Self { fixture: Fixture::new() };
        aged.at("2026-01-10T12:00:00Z");
        aged.run(&["init"]).ends(0);
        aged.fixture.configure(JOBS);
        // A schedule starts at the first tick that reads it.
        aged.run(&["tick"]).ends(0);
        aged
    }

    /// Sets both clocks to this time.
    fn at(&self, time: &str) {
        let at: jiff::Timestamp = time.parse().unwrap();
        self.fixture.set_clock(format!("{at}\n{}\n", at.as_second()));
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        self.fixture.runner_with_clock(args)
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        self.fixture.run_with_clock(args)
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

/// Returns the rows of a database file's main tables.
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
        (
            "UPDATE occurrences SET outcome = NULL, settled = NULL",
            "an occurrence is open, but none",
        ),
        ("UPDATE runs SET finished = NULL", "an outcome has no time"),
        ("UPDATE runs SET outcome = '{\"outcome\":\"splendid\"}'", "is invalid"),
        ("UPDATE reservations SET open = 1", "a reservation is open"),
        ("UPDATE runs SET fence = 99", "a higher fence than its job"),
        ("PRAGMA foreign_keys = 0; UPDATE runs SET job = 99", "the row refers to a missing row"),
        ("INSERT INTO budget_usage VALUES ('day', 'x', -1, 0, 0, 0, 0)", "an amount is negative"),
        ("UPDATE jobs SET policy = '{'", "the value of policy is invalid"),
    ] {
        let db = aged.fixture.store();
        db.execute_batch(spoil).unwrap();
        drop(db);
        aged.run(&["db", "check"]).ends(70).expect_text(what).expect_text(match what {
            // A dangling reference means that the file itself is damaged.
            "the row refers to a missing row" => "fix: runner db restore",
            _ => "a restore would lose more",
        });
        fs::write(aged.store(), &sound).unwrap();
    }
    aged.run(&["db", "check"]).ends(0);
}

#[test]
fn unsupported_database_formats_are_reported() {
    let aged = Aged::new();
    let path = aged.store();
    let sound = fs::read(&path).unwrap();
    aged.fixture.store().pragma_update(None, "user_version", 99).unwrap();
    aged.run(&["tick"]).ends(78).expect_text("has format 99").expect_text("runner db restore");
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
        // SQLite has copied the database file's mode to the side files that it created.
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
    // Another thread's child may still have the file open, so removing it might free no space.
    rest.set_len(0).unwrap();
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
            .expect_text("is missing, but runner still has")
            .expect_text("runner db restore")
            .expect_text("mkdir");
        assert!(!aged.store().exists(), "{command:?}");
    }
    assert_eq!(aged.backups().len(), backups);
    aged.run(&["db", "restore", "--yes"]).ends(0);
    aged.run(&["tick"]).ends(0);
    // Without any old file, runner creates an empty database.
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
