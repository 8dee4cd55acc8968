//! Tests that random kills leave no unsettled run, partial publication or live process.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

use crate::fixture::{Fixture, Random, ended_within, print_line, scaled_from};

/// Kills the leader of a process group, its children, or all of them.
pub fn kill_some(leader: u32, dice: &mut Random) {
    match dice.roll(3) {
        // Kill the command and its run's process.
        0 => kill_process_group(pid(leader), Signal::KILL).unwrap(),
        // Kill only the command.
        1 => kill_process(pid(leader), Signal::KILL).unwrap(),
        // Kill only the run's process.
        _ => kill_children(leader),
    }
}

/// Kills the children of `parent`, but no process that reuses the PID of a child.
fn kill_children(parent: u32) {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    for word in children.unwrap_or_default().split_whitespace() {
        let child: u32 = word.parse().unwrap();
        // The handle is opened before the check, so a reused PID is detected.
        let Ok(handle) = pidfd_open(pid(child), PidfdFlags::empty()) else {
            continue;
        };
        if parent_of(child) == Some(parent) {
            let _gone = pidfd_send_signal(&handle, Signal::KILL);
        }
    }
}

fn parent_of(child: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
    // The name, in parentheses, may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn pid(raw: u32) -> Pid {
    Pid::from_raw(i32::try_from(raw).unwrap()).unwrap()
}

#[test]
fn random_kills_leave_no_unsettled_run() {
    let fixture = Fixture::with(
        "[jobs.make]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"n=$(cat counter); echo $n > $RUNNER_OUT/a.txt; echo $n > $RUNNER_OUT/b.txt\"]\n\
         artifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }, { from = \"b.txt\", to = \"out/b.txt\" }]\n",
    );
    let mut dice = Random::new("kills");
    let (kills, began) = (scaled_from(1_000, 0.2), Instant::now());
    // The random delays cover the duration of an undisturbed run.
    let calibrate = Instant::now();
    fixture.write("counter", "0");
    fixture.run(&["run", "make"]).ends(0);
    let whole = u64::try_from(calibrate.elapsed().as_micros()).unwrap();
    let (mut landed, mut number) = (0, 0);
    while landed < kills {
        number += 1;
        assert!(number < 10 * kills + 10, "only {landed} of {number} kills came in time");
        fixture.write("counter", number.to_string());
        let mut run = fixture
            .runner(&["run", "make"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let delay = Duration::from_micros(dice.roll(whole));
        if !ended_within(run.id(), delay) {
            landed += 1;
            kill_some(run.id(), &mut dice);
        }
        run.wait().unwrap();
        if number % 10 == 0 || landed == kills {
            settle(&fixture);
        }
    }
    let settled = fixture.count("SELECT count(*) FROM occurrences WHERE settled IS NOT NULL");
    // A command that died before it recorded anything leaves no occurrence.
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences"), settled);
    let words = |word: &str| {
        fixture.count(&format!("SELECT count(*) FROM runs WHERE outcome LIKE '%\"{word}\"%'"))
    };
    print_line(&format!(
        "kills: {number} runs, {landed} killed in flight; {} succeeded, {} lost, {} skipped; {:.0} s",
        words("succeeded"),
        words("lost"),
        words("skipped"),
        began.elapsed().as_secs_f64()
    ));
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    fixture.run(&["run", "make"]).ends(0);
}

/// Ticks until every run has ended, then checks the results.
fn settle(fixture: &Fixture) {
    // A run whose command was killed continues on its own and keeps its lock until it ends.
    while fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL")
        > 0
    {
        let owners: Vec<u32> = {
            let db = fixture.store();
            let mut statement = db
                .prepare("SELECT coalesce(owner, starter) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL")
                .unwrap();
            statement
                .query_map([], |row| row.get::<_, String>(0))
                .unwrap()
                .map(|owner| {
                    let owner: serde_json::Value = serde_json::from_str(&owner.unwrap()).unwrap();
                    u32::try_from(owner["pid"].as_u64().unwrap()).unwrap()
                })
                .collect()
        };
        for owner in owners {
            assert!(
                ended_within(owner, Duration::from_secs(60)),
                "the run of PID {owner} did not end"
            );
        }
        fixture.run(&["tick"]).ends(0);
    }
    // Both artifacts of a run are published, or neither.
    assert_eq!(fixture.read("out/a.txt"), fixture.read("out/b.txt"));
    assert_eq!(fixture.count("SELECT count(*) FROM reservations WHERE open"), 0);
    let staging = std::fs::read_dir(fixture.path(".runner/staging")).map_or(0, Iterator::count);
    assert_eq!(staging, 0, "the staging folder is not empty");
}
