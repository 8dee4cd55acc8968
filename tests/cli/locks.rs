//! Tests that a job has at most one run at a time, even if processes are killed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{CommandOutput, Fixture, ended_within, print_line, scaled};

/// Creates a fixture with a job that signals that it is running and then waits for input.
fn waiting() -> Fixture {
    let fixture = Fixture::with(
        "[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> began; echo up > up.fifo; read word < go.fifo; echo done > finished\"]\n",
    );
    fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status().unwrap();
    // At the sandbox level `files-only`, a job cannot create files in the project's top folder.
    for name in ["began", "finished"] {
        fixture.write(name, "");
    }
    fixture
}

fn holder(fixture: &Fixture) -> u32 {
    let owner: String = fixture
        .store()
        .query_row("SELECT owner FROM runs WHERE state = 'running'", [], |row| row.get(0))
        .unwrap();
    let owner: serde_json::Value = serde_json::from_str(&owner).unwrap();
    u32::try_from(owner["pid"].as_u64().unwrap()).unwrap()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn skipped_run_does_not_use_its_key() {
    let fixture = waiting();
    let mut first = fixture.runner(&["run", "wait"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    for _ in 0..9 {
        let held = fixture.run(&["run", "wait", "--key", "monday"]).ends(0);
        held.expect_text("skipped: lock held by PID");
    }
    std::fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(first.wait().unwrap().success());
    // The next run does not block on the pipes, because the test keeps both ends of each pipe open.
    let both = |name: &str| {
        std::fs::File::options().read(true).write(true).open(fixture.path(name)).unwrap()
    };
    let (_up, mut go) = (both("up.fifo"), both("go.fifo"));
    std::io::Write::write_all(&mut go, b"go\n").unwrap();
    fixture.run(&["run", "wait", "--key", "monday"]).ends(0);
    assert_eq!(fixture.read("began"), "x\nx\n");
    let again = fixture.run(&["run", "wait", "--key", "monday"]).ends(0);
    again.expect_text("already requested with this key");
    assert_eq!(fixture.read("began"), "x\nx\n");
}

#[test]
fn further_runs_name_the_lock_holder() {
    let fixture = waiting();
    let mut first = fixture.runner(&["run", "wait"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let pid = holder(&fixture);
    let (others, began) = (scaled(199), Instant::now());
    let mut left = others;
    while left > 0 {
        let batch = left.min(8);
        let children: Vec<_> = (0..batch)
            .map(|_| {
                let mut command = fixture.runner(&["run", "wait"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for child in children {
            CommandOutput::of(child.wait_with_output().unwrap())
                .ends(0)
                .expect_text(&format!("skipped: lock held by PID {pid} since"));
        }
        left -= batch;
    }
    print_line(&format!(
        "locks: {others} further runs skipped with the holder's PID, {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    std::fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(fixture.read("finished"), "done\n");
    let skipped =
        fixture.count("SELECT count(*) FROM occurrences WHERE outcome LIKE '%\"skipped\"%'");
    assert_eq!(skipped, i64::try_from(others).unwrap());
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled'"), 0);
}

#[test]
fn killed_holder_does_not_block_next_run() {
    let fixture = waiting();
    let mut first = fixture
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let pid = holder(&fixture);
    kill(first.id());
    first.wait().unwrap();
    kill(pid);
    assert!(ended_within(pid, Duration::from_secs(10)));
    // The program that the killed run started may still be waiting. The next run settles the killed
    // run before it starts its own program.
    let mut second = fixture.runner(&["run", "wait"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    std::fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(second.wait().unwrap().success());
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 2);
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE outcome LIKE '%\"lost\"%'"), 1);
    assert_eq!(fixture.read("began"), "x\nx\n");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    assert!(fixture.path(".runner").join("failed/wait.json").symlink_metadata().is_err());
}

#[test]
fn execute_leaves_a_started_run_alone() {
    let fixture = waiting();
    let mut first = fixture.runner(&["run", "wait"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    let run: String = fixture
        .store()
        .query_row("SELECT id FROM runs WHERE state = 'running'", [], |row| row.get(0))
        .unwrap();
    // A tick may start a second process for a run that has just begun.
    fixture.run(&["execute", &run]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state = 'running'"), 1);
    std::fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(fixture.run(&["runs", "--json"]).json()[0]["outcome"], "succeeded");
}

#[test]
fn starter_settles_its_killed_run() {
    let fixture = waiting();
    let first = fixture
        .runner(&["run", "wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    kill(holder(&fixture));
    CommandOutput::of(first.wait_with_output().unwrap())
        .ends(1)
        .expect_text("lost")
        .expect_text("died before the run finished");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    assert_eq!(
        fixture.count("SELECT count(*) FROM runs"),
        1,
        "a command was retried automatically"
    );
}
