//! Tests how runner handles projects that have vanished, cannot be read or have been forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::{SMALL, at, committed, copy, pairs, standings, tick};
use crate::fixture::{CommandOutput, Fixture};

#[test]
fn vanished_project_is_reported_once() {
    let fixture = Fixture::new();
    tick(&fixture, "2026-11-21T20:00:00Z");
    fixture.run_with_clock(&["init"]).ends(0);
    fixture.configure(SMALL);
    tick(&fixture, "2026-11-21T20:01:00Z").ends(0);
    let away = fixture.root().join("away");
    fs::rename(fixture.project(), &away).unwrap();
    let project = fixture.project();
    fs::create_dir(fixture.root().join("here")).unwrap();
    let inside = |args: &[&str]| {
        let mut command = fixture.runner_with_clock(args);
        CommandOutput::of(command.current_dir(fixture.root().join("here")).output().unwrap())
    };
    let tick_away = |now: &str| {
        fixture.set_clock(now);
        inside(&["tick"])
    };
    tick_away("2026-11-21T20:02:00Z")
        .ends(78)
        .expect_text("the project is gone")
        .expect_text("projects move")
        .expect_text("projects forget");
    // Three more ticks, each with the job due, report no error. A single row records all missed
    // times.
    for now in ["20:16", "20:31", "20:50"] {
        let said = tick_away(&format!("2026-11-21T{now}:00Z")).ends(0);
        assert_eq!(said.err, "", "{now}");
    }
    let missed = "SELECT count(*) FROM occurrences WHERE missed";
    assert_eq!(fixture.count(missed), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 0);
    let status = inside(&["status", "--json"]).ends(0).json();
    let reported = &status["projects"][0];
    assert_eq!(reported["standing"], "vanished");
    assert_eq!(reported["next"], serde_json::Value::Null);
    assert_eq!(reported["missed_this_week"][0]["count"], 3, "{reported}");
    assert_eq!(
        reported["missed_this_week"][0]["why"],
        "the project is gone: its folder does not exist"
    );
    inside(&["status"])
        .ends(0)
        .expect_text("TROUBLE")
        .expect_text("projects forget")
        .expect_text("nothing until this is fixed");
    inside(&["projects"]).ends(0).expect_text("vanished");
    // The folder returns, and the project continues without catching up.
    fs::rename(&away, &project).unwrap();
    tick(&fixture, "2026-11-21T21:01:00Z").ends(0);
    assert_eq!(fixture.count(missed), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 1);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
}

#[test]
fn unreadable_project_is_not_reported_as_vanished() {
    if !rustix::process::geteuid().is_root() {
        crate::fixture::print_line("skipped 1: only root can switch to another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut fixture = Fixture::at(folder);
    let own = fixture.command("chown", &["-R", "65534:65534"]);
    let mut own = own;
    assert!(own.arg(fixture.root()).status().unwrap().success());
    fixture.uid = Some(65534);
    fixture.run(&["init"]).ends(0);
    fixture.configure(SMALL);
    fixture.run(&["tick"]).ends(0);
    fs::set_permissions(fixture.project(), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = |args: &[&str]| {
        let mut command = fixture.runner(args);
        command.current_dir(fixture.root());
        CommandOutput::of(command.output().unwrap())
    };
    outside(&["tick"]).ends(78).expect_text("cannot be read");
    outside(&["tick"]).ends(0);
    outside(&["projects"]).ends(0).expect_text("unreadable").expect_text("ls -ld");
    fs::set_permissions(fixture.project(), fs::Permissions::from_mode(0o755)).unwrap();
    outside(&["tick"]).ends(0);
    outside(&["projects"]).ends(0).expect_text("known");
    // The file is unchanged but no longer readable.
    let file = fixture.path("runner.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    outside(&["tick"]).ends(78).expect_text("runner.toml");
    outside(&["status"]).ends(0).expect_text("TROUBLE").expect_text("ls -l");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    outside(&["tick"]).ends(0);
}

#[test]
fn forget_removes_only_the_named_project() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    let other = copy(&fixture, "other");
    at(&fixture, &other, &["init", "--new-id"]).ends(0);
    at(&fixture, &other, &["night"]).ends(0);
    let kept: Vec<i64> = counts(&fixture, "AND 1");
    let plan = fixture.run(&["projects", "forget", "."]).ends(0);
    assert!(plan.out.contains("would forget") && plan.out.contains("1 night"), "{plan:?}");
    assert!(plan.out.contains("nothing was changed"), "{plan:?}");
    assert_eq!(counts(&fixture, "AND 1"), kept, "the plan changed something");
    let files = fixture.tree(".");
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(0).expect_text("forgotten");
    assert_eq!(fixture.tree("."), files, "the project's own files were changed");
    let other_path = other.display().to_string();
    assert_eq!(standings(&fixture), pairs(&[("other", "known")]));
    for (left, all) in counts(&fixture, "AND 1").into_iter().zip(kept) {
        assert!(left > 0 && left * 2 == all, "half of the rows should remain: {left} of {all}");
    }
    let runs = fs::read_dir(fixture.state().join("runs")).unwrap().count() as i64;
    assert_eq!(runs, fixture.count("SELECT count(*) FROM runs"));
    fixture.run(&["projects", "forget", &other_path, "--yes"]).ends(0);
    assert_eq!(counts(&fixture, "AND 1"), vec![0; 4]);
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(65).expect_text("no project");
    // The folder can become a new project.
    fixture.run(&["night"]).ends(0);
}

fn counts(fixture: &Fixture, also: &str) -> Vec<i64> {
    ["runs", "occurrences", "nights", "jobs"]
        .map(|table| fixture.count(&format!("SELECT count(*) FROM {table} WHERE 1 {also}")))
        .to_vec()
}

#[test]
fn project_with_live_run_is_not_forgotten() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo > began; cat fifo\"]\n",
    );
    fixture.write("began", "");
    assert!(fixture.command("mkfifo", &["fifo"]).status().unwrap().success());
    let mut child =
        fixture.runner(&["--quiet", "run", "wait"]).stderr(Stdio::null()).spawn().unwrap();
    // Opening the FIFO for writing blocks until the program reads it.
    let end = fs::File::options().write(true).open(fixture.path("fifo")).unwrap();
    fixture
        .run(&["projects", "forget", ".", "--yes"])
        .ends(75)
        .expect_text("some of its runs have not ended")
        .expect_text("runner cancel");
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let lock = &status["projects"][0]["locks"][0];
    assert_eq!(lock["job"], "wait", "{status}");
    assert_eq!(lock["run"], status["projects"][0]["live"][0]["run"]);
    assert_eq!(status["live_runs"], 1);
    fixture.run(&["status"]).ends(0).expect_text("locked").expect_text("wait by PID");
    drop(end);
    child.wait().unwrap();
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(0);
}
