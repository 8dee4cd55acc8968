//! What an agent may leave in a project instead of a file: nothing waits for it, nothing reads it
//! without end, and the other projects still get their runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::budgets::other;
use crate::house::{House, Said, ended_within};

/// Nobody waits this long for a file that never answers; the commands take a few seconds at most.
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
fn at(house: &House, clock: &str, args: &[&str]) -> Said {
    let path = house.root().join("clock");
    fs::write(&path, clock).unwrap();
    let mut child = house
        .runner(args)
        .env("RUNNER_TEST_CLOCK", &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    if !ended_within(child.id(), LIMIT) {
        child.kill().unwrap();
        panic!("runner {args:?} did not end");
    }
    Said::of(child.wait_with_output().unwrap())
}

const BEGIN: &str = "2027-03-01T20:00:00Z";
const LATER: &str = "2027-03-01T21:30:00Z";

/// Two projects with a job that is due at [`LATER`].
fn two(more: &str) -> (House, PathBuf) {
    let house = House::new();
    at(&house, BEGIN, &["init"]).ends(0);
    house.configure(&format!("{JOB}{more}"));
    let healthy = other(&house, JOB);
    at(&house, BEGIN, &["tick"]).ends(0);
    (house, healthy)
}

/// How many runs of the healthy project's job succeeded.
fn healthy_runs(house: &House, healthy: &Path) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM runs r JOIN jobs j ON j.id = r.job JOIN projects p ON p.id = j.project
         WHERE j.name = 'say' AND p.path = '{}' AND r.outcome ->> 'outcome' = 'succeeded'",
        healthy.display()
    );
    house.count(&sql)
}

#[test]
fn a_fifo_as_the_projects_id_stops_nobody() {
    let (house, healthy) = two("");
    let id = house.path(".git/runner-id");
    if id.exists() {
        fs::remove_file(&id).unwrap();
    }
    fifo(&id);
    at(&house, LATER, &["tick"]);
    assert_eq!(healthy_runs(&house, &healthy), 1);
    // The database knows which project the folder is.
    at(&house, LATER, &["run", "say"]).ends(0);
    let why = "it is a FIFO, not a regular file";
    at(&house, LATER, &["status"]).says(why).ends(0);
}

#[test]
fn a_fifo_as_the_cycle_fails_only_that_job() {
    let (house, healthy) = two(
        "[jobs.lifecycle]\nkind = \"lifecycle\"\ntrigger = \"every 1h\"\ncycle = \"lifecycle.org\"\n",
    );
    fifo(&house.path("lifecycle.org"));
    at(&house, LATER, &["tick"]);
    assert_eq!(healthy_runs(&house, &healthy), 1);
    let why = "it is a FIFO, not a regular file";
    let told = at(&house, LATER, &["run", "lifecycle"]).says(why);
    assert_ne!(told.code, 0);
    at(&house, LATER, &["status"]);
    at(&house, LATER, &["lifecycle", "show"]).says(why);
}

#[test]
fn a_link_to_a_device_as_settings_stops_only_that_project() {
    for name in [".ctxrc", "runner.toml"] {
        let (house, healthy) = two("");
        let path = house.path(name);
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        symlink("/dev/zero", &path).unwrap();
        at(&house, LATER, &["tick"]);
        assert_eq!(healthy_runs(&house, &healthy), 1, "{name}");
        let told = at(&house, LATER, &["run", "say"]).ends(78);
        if name == ".ctxrc" {
            told.says("it is a symbolic link, not a regular file");
        }
        at(&house, LATER, &["status"]);
    }
}
