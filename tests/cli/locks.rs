//! One run of a job at a time, whatever happens to it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{House, Said, ended_within, scaled, tell};

/// A job that says that it runs and then waits for a word.
fn waiting() -> House {
    let house = House::with(
        "[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo x >> began; echo up > up.fifo; read word < go.fifo; echo done > finished\"]\n",
    );
    house
        .command("mkfifo", &["up.fifo", "go.fifo"])
        .status()
        .unwrap();
    house
}

fn holder(house: &House) -> u32 {
    let owner: String = house
        .ledger()
        .query_row(
            "SELECT owner FROM runs WHERE state = 'running'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let owner: serde_json::Value = serde_json::from_str(&owner).unwrap();
    u32::try_from(owner["pid"].as_u64().unwrap()).unwrap()
}

fn kill(pid: u32) {
    kill_process(
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
}

#[test]
fn further_runs_say_who_holds_the_lock() {
    let house = waiting();
    let mut first = house
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("up.fifo")).unwrap(),
        "up\n"
    );
    let pid = holder(&house);
    let (others, began) = (scaled(199), Instant::now());
    let mut left = others;
    while left > 0 {
        let batch = left.min(8);
        let children: Vec<_> = (0..batch)
            .map(|_| {
                let mut command = house.runner(&["run", "wait"]);
                command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in children {
            Said::of(child.wait_with_output().unwrap())
                .ends(0)
                .says(&format!("skipped: lock held by PID {pid} since"));
        }
        left -= batch;
    }
    tell(&format!(
        "locks: {others} further runs turned away with the holder's PID, {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    std::fs::write(house.path("go.fifo"), "go\n").unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(house.read("finished"), "done\n");
    let skipped =
        house.count("SELECT count(*) FROM occurrences WHERE outcome LIKE '%\"skipped\"%'");
    assert_eq!(skipped, i64::try_from(others).unwrap());
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state <> 'settled'"),
        0
    );
}

#[test]
fn a_killed_holder_neither_blocks_nor_doubles_the_next() {
    let house = waiting();
    let mut first = house
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("up.fifo")).unwrap(),
        "up\n"
    );
    let pid = holder(&house);
    kill(first.id());
    first.wait().unwrap();
    kill(pid);
    assert!(ended_within(pid, Duration::from_secs(10)));
    // The program that it had started waits on. The next run settles it first: its budget comes
    // back, and there are never two at once.
    let mut second = house
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("up.fifo")).unwrap(),
        "up\n"
    );
    std::fs::write(house.path("go.fifo"), "go\n").unwrap();
    assert!(second.wait().unwrap().success());
    assert_eq!(house.count("SELECT count(*) FROM runs"), 2);
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE outcome LIKE '%\"lost\"%'"),
        1
    );
    assert_eq!(house.read("began"), "x\nx\n");
    assert_eq!(house.survivors(), Vec::<String>::new());
    assert!(
        house
            .path(".runner")
            .join("failed/wait.json")
            .symlink_metadata()
            .is_err()
    );
}

#[test]
fn a_run_that_another_process_began_is_left_to_it() {
    let house = waiting();
    let mut first = house
        .runner(&["run", "wait"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("up.fifo")).unwrap(),
        "up\n"
    );
    let run: String = house
        .ledger()
        .query_row("SELECT id FROM runs WHERE state = 'running'", [], |row| {
            row.get(0)
        })
        .unwrap();
    // As if a tick had adopted it a moment before it began.
    house.run(&["perform", &run]).ends(0);
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state = 'running'"),
        1
    );
    std::fs::write(house.path("go.fifo"), "go\n").unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(
        house.run(&["runs", "--json"]).json()[0]["outcome"],
        "succeeded"
    );
}

#[test]
fn the_starter_settles_a_run_whose_process_is_killed() {
    let house = waiting();
    let first = house
        .runner(&["run", "wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(house.path("up.fifo")).unwrap(),
        "up\n"
    );
    kill(holder(&house));
    Said::of(first.wait_with_output().unwrap())
        .ends(1)
        .says("lost")
        .says("died before it could settle");
    assert_eq!(house.survivors(), Vec::<String>::new());
    assert_eq!(
        house.count("SELECT count(*) FROM runs"),
        1,
        "a command is not tried again by itself"
    );
}
