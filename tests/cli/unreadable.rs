//! Tests that FIFOs and devices in place of regular files block no command and no other project.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::budgets::other;
use crate::fixture::{CommandOutput, Fixture, ended_within};

/// A time limit that only a blocked command exceeds.
const LIMIT: Duration = Duration::from_secs(60);

const JOB: &str = "[jobs.dream]\nenabled = false\n[jobs.say]\nkind = \"command\"\n\
                   program = \"sh\"\nargs = [\"-c\", \"echo said\"]\ntrigger = \"every 1h\"\n";

fn fifo(path: &Path) {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).unwrap();
    }
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Runs a command that must end by itself within the limit.
#[track_caller]
fn at(fixture: &Fixture, clock: &str, args: &[&str]) -> CommandOutput {
    fixture.set_clock(clock);
    let mut child = fixture
        .runner_with_clock(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if !ended_within(child.id(), LIMIT) {
        child.kill().unwrap();
        panic!("runner {args:?} did not end");
    }
    CommandOutput::of(child.wait_with_output().unwrap())
}

const BEGIN: &str = "2027-03-01T20:00:00Z";
const LATER: &str = "2027-03-01T21:30:00Z";

/// Creates two projects, each with a job that is due before [`LATER`].
fn two(more: &str) -> (Fixture, PathBuf) {
    let fixture = Fixture::new();
    at(&fixture, BEGIN, &["init"]).ends(0);
    fixture.configure(&format!("{JOB}{more}"));
    let healthy = other(&fixture, JOB);
    at(&fixture, BEGIN, &["tick"]).ends(0);
    (fixture, healthy)
}

/// Counts the successful runs of the healthy project's job.
fn healthy_runs(fixture: &Fixture, healthy: &Path) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job JOIN projects p ON p.id = j.project
         WHERE j.name = 'say' AND p.path = '{}' AND r.outcome ->> 'outcome' = 'succeeded'",
        healthy.display()
    );
    fixture.count(&sql)
}

#[test]
fn fifo_as_id_file_blocks_nothing() {
    let (fixture, healthy) = two("");
    let id = fixture.path(".git/runner-id");
    if id.exists() {
        fs::remove_file(&id).unwrap();
    }
    fifo(&id);
    at(&fixture, LATER, &["tick"]);
    assert_eq!(healthy_runs(&fixture, &healthy), 1);
    // The database records which project the folder belongs to.
    at(&fixture, LATER, &["run", "say"]).ends(0);
    let why = "it is a FIFO, not a regular file";
    at(&fixture, LATER, &["status"]).expect_text(why).ends(0);
}

#[test]
fn fifo_as_cycle_fails_only_that_job() {
    let (fixture, healthy) = two(
        "[jobs.lifecycle]\nkind = \"lifecycle\"\ntrigger = \"every 1h\"\ncycle = \"lifecycle.org\"\n",
    );
    fifo(&fixture.path("lifecycle.org"));
    at(&fixture, LATER, &["tick"]);
    assert_eq!(healthy_runs(&fixture, &healthy), 1);
    let why = "it is a FIFO, not a regular file";
    let reported = at(&fixture, LATER, &["run", "lifecycle"]).expect_text(why);
    assert_ne!(reported.code, 0);
    at(&fixture, LATER, &["status"]);
    at(&fixture, LATER, &["lifecycle", "show"]).expect_text(why);
}

#[test]
fn device_link_settings_stop_only_that_project() {
    for name in [".ctxrc", "runner.toml"] {
        let (fixture, healthy) = two("");
        let path = fixture.path(name);
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        symlink("/dev/zero", &path).unwrap();
        at(&fixture, LATER, &["tick"]);
        assert_eq!(healthy_runs(&fixture, &healthy), 1, "{name}");
        let reported = at(&fixture, LATER, &["run", "say"]).ends(78);
        if name == ".ctxrc" {
            reported.expect_text("it is a symbolic link, not a regular file");
        }
        at(&fixture, LATER, &["status"]);
    }
}
