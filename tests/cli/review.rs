//! `runner dream` from outside: decisions by command, what a kill leaves, what a program that answers
//! has to do.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::house::{Dice, House, ended_within, scaled, skip, tell};

const DONE: &str = "# Retry policy with jitter\n\n## Proposal\n\n- Add jitter to every wait\n";
const OPEN: &str = "# Offline maps\n\n## Problem\n\nOn a train there is no network, and the map stays grey.\n\n\
    ## Proposal\n\n- Download the tiles of a region before leaving\n- Show how old each tile is\n";

/// A project with ideas and a pass over them.
fn proposed() -> House {
    let house = House::new();
    house.run(&["init"]).ends(0);
    house.write("ideas/retry.md", DONE);
    house.write("ideas/maps.md", OPEN);
    house.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    house.run(&["dream", "run"]).ends(0);
    house
}

fn ids(house: &House) -> BTreeMap<String, String> {
    let listed = house.run(&["dream", "list", "--json"]).ends(0).json();
    let one = |item: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&item["targets"][0]), text(&item["id"]))
    };
    listed.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn decisions_are_made_and_undone_by_command() {
    let house = proposed();
    let ids = ids(&house);
    let before = house.tree("ideas");
    let (maps, coffee) = (&ids["ideas/maps.md"], &ids["ideas/coffee.md"]);
    house
        .run(&["dream", "show", maps])
        .ends(0)
        .says("Download the tiles")
        .says("accept: ");
    let told = house
        .run(&[
            "dream", "amend", maps, "--action", "archive", "--note", "done", "--json",
        ])
        .ends(0)
        .json();
    assert_eq!(
        (&told["decision"], &told["note"], &told["already"]),
        (&"amended".into(), &"done".into(), &false.into())
    );
    assert_eq!(house.read("ideas/done/maps.md"), OPEN);
    house
        .run(&["dream", "amend", maps, "--action", "archive"])
        .ends(0)
        .says("before");
    house
        .run(&["dream", "reject", maps])
        .ends(75)
        .says("runner dream undo");
    house
        .run(&["dream", "reject", coffee, "--note", "no"])
        .ends(0);
    house
        .run(&["dream", "skip", &ids["ideas/retry.md"][..8]])
        .ends(0);
    house
        .run(&["dream", "list"])
        .ends(0)
        .says("nothing is left to decide");
    let all = house
        .run(&["dream", "list", "--all", "--json"])
        .ends(0)
        .json();
    assert_eq!(all.as_array().unwrap().len(), 3);
    assert_eq!(
        house
            .run(&["dream", "list", "--all", "--action", "merge", "--json"])
            .ends(0)
            .json(),
        serde_json::json!([])
    );
    // Lists of runs are not filled with decisions; who wants to know asks.
    assert_eq!(
        house
            .run(&["runs", "--json"])
            .ends(0)
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let acts = house
        .run(&["runs", "--job", "dream:review", "--json"])
        .ends(0)
        .json();
    assert_eq!(acts.as_array().unwrap().len(), 3);
    assert_eq!(acts[2]["outcome"], "succeeded");
    house
        .run(&["retry", acts[0]["id"].as_str().unwrap()])
        .ends(2);
    house.run(&["dream", "undo", maps]).ends(0);
    assert_eq!(house.tree("ideas"), before);
    house.run(&["dream", "undo", maps]).ends(65);
    house
        .run(&["dream", "show", "nobody"])
        .ends(65)
        .says("dream list");
    house.write("ideas/maps.md", "something else\n");
    house
        .run(&["dream", "accept", maps])
        .ends(75)
        .says("--force");
    house.git(&["add", "ideas/maps.md"]);
    house
        .run(&["dream", "amend", maps, "--action", "archive", "--force"])
        .ends(1)
        .says("tracked by git");
    house
        .run(&["dream", "amend", maps, "--action", "delete"])
        .ends(2);
    house.run(&["tick"]).ends(0);
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state <> 'settled'"),
        0
    );
}

#[test]
fn without_a_terminal_a_review_names_the_way_for_scripts() {
    let house = proposed();
    house
        .run(&["dream", "review"])
        .ends(2)
        .says("runner dream list --json");
}

/// A terminal of our own: our end, and the program's.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let mut open = File::options();
    let theirs = open.read(true).write(true);
    // One that became ours by being opened would send HUP to the tests as well.
    let theirs = theirs
        .custom_flags(i32::try_from(OFlags::NOCTTY.bits()).unwrap())
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&theirs, size).unwrap();
    (ours.into(), theirs)
}

#[test]
fn a_review_ends_with_its_terminal_and_with_a_signal() {
    let house = proposed();
    // What a person types, or what happens to the terminal or to the program; and the exit code.
    let cases: [(&[u8], Option<Signal>, i32); 6] = [
        (b"q", None, 0),
        (b"\x03", None, 130),
        (b"", None, 130),
        (b"", Some(Signal::TERM), 130),
        (b"", Some(Signal::HUP), 130),
        (b"", Some(Signal::INT), 130),
    ];
    for (typed, signal, code) in cases {
        let (mut ours, theirs) = terminal();
        let mut child = house
            .runner(&["dream", "review"])
            .env("TERM", "xterm")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seen = String::new();
        while !seen.contains("coffee") {
            let mut bytes = [0; 4096];
            let count = ours.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        let ours = if let Some(signal) = signal {
            kill_process(Pid::from_child(&child), signal).unwrap();
            Some(ours)
        } else if typed.is_empty() {
            // Nobody sends a signal: it is no terminal of a session.
            drop(ours);
            None
        } else {
            ours.write_all(typed).unwrap();
            Some(ours)
        };
        let ended = ended_within(child.id(), Duration::from_secs(30));
        if !ended {
            child.kill().unwrap();
        }
        let was = child.wait().unwrap();
        assert!(ended, "{typed:?} {signal:?}: it goes on for ever");
        assert_eq!(was.code(), Some(code), "{typed:?} {signal:?}");
        let mut complaints = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut complaints).unwrap();
        assert_eq!(
            complaints, "",
            "{typed:?} {signal:?}: nobody is there to be told"
        );
        drop(ours);
    }
}

#[test]
fn a_pass_over_a_few_is_a_pass_over_a_few() {
    let house = House::new();
    house.run(&["init"]).ends(0);
    for name in ["a", "b", "c"] {
        house.write(
            &format!("ideas/{name}.md"),
            format!("The thought {name}.\n"),
        );
    }
    let told = house
        .run(&["dream", "run", "--max", "2", "--json"])
        .ends(0)
        .json();
    assert_eq!(
        (&told["facts"]["shown"], &told["facts"]["waiting"]),
        (&2.into(), &1.into())
    );
    house.run(&["dream", "run", "--max", "0"]).ends(2);
}

#[test]
fn several_dream_jobs_are_told_apart() {
    let house = House::with(
        "[jobs.other]\nkind = \"dream\"\nideas = \"notes\"\ndreams = \"dreams/other\"\n",
    );
    house.run(&["dream", "list"]).ends(2).says("--job");
    house.run(&["dream", "list", "--job", "other"]).ends(0);
    house.run(&["dream", "list", "--job", "none"]).ends(78);
}

#[test]
fn three_deferrals_in_a_row_raise_a_failmark_and_a_pass_removes_it() {
    let house = House::new();
    house.run(&["init"]).ends(0);
    house.write("ideas/a.md", "tracked\n");
    house.git(&["add", "ideas/a.md"]);
    house.git(&["commit", "--quiet", "-m", "An idea"]);
    house.write("ideas/a.md", "tracked, and at work\n");
    for time in 1..=3 {
        assert!(!house.path("dreams/.failed").exists(), "{time}");
        house
            .run(&["dream", "run"])
            .ends(0)
            .says("work is in progress");
    }
    let mark: Value = serde_json::from_str(&house.read("dreams/.failed")).unwrap();
    assert_eq!(mark["class"], "deferred");
    assert!(
        mark["message"].as_str().unwrap().contains("ideas/a.md"),
        "{mark}"
    );
    house.git(&["commit", "--quiet", "-am", "The work"]);
    house.run(&["dream", "run"]).ends(0);
    assert!(!house.path("dreams/.failed").exists());
}

/// A house whose dream asks this program.
fn answered_by(program: &str) -> House {
    let house = House::with(
        "[backends.mine]\ntype = \"command\"\nprogram = \"./executor\"\n[jobs.dream]\nbackend = \"mine\"\n",
    );
    let path = house.root().join("bin");
    std::fs::create_dir_all(&path).unwrap();
    let path = path.join("executor");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let toml = house
        .read("runner.toml")
        .replace("./executor", &path.display().to_string());
    house.write("runner.toml", toml);
    house.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    house
}

#[test]
fn exit_0_without_proposals_is_told_and_asked_again() {
    let house = answered_by("#!/bin/sh\ncat > /dev/null\nexit 0\n");
    for time in 1..=3 {
        let said = house.run(&["dream", "run"]);
        assert_eq!(said.code, 1, "{time}: {said:?}");
        assert!(house.path("dreams/.failed").exists());
        assert!(!house.path("dreams/state.json").exists());
    }
    // It is no answer: nothing is set aside for it.
    let said = house.run(&["dream", "run", "--retry-parked"]);
    assert_eq!(said.code, 1, "{said:?}");
}

#[test]
fn the_executor_of_the_guide_works_as_it_stands_there() {
    let page = include_str!("../../docs/guide/executors.md");
    let (_, rest) = page.split_once("```python\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();
    assert!(program.lines().count() <= 25, "it is short");
    let house = House::new();
    if house.command("python3", &["-c", ""]).output().is_err() {
        skip("python3", "there is no python3");
        return;
    }
    let house = answered_by(program);
    house.write("ideas/maps.md", OPEN);
    house.run(&["dream", "run"]).ends(0);
    let listed = house.run(&["dream", "list", "--json"]).ends(0).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2);
    for item in listed {
        assert_eq!(item["rationale"], "by hand of the example");
    }
}

#[test]
fn killed_acts_leave_all_or_nothing() {
    let house = proposed();
    let mut dice = Dice::new("killed acts");
    let (rounds, began) = (scaled(40), Instant::now());
    let id = ids(&house)["ideas/maps.md"].clone();
    let before = house.tree("ideas");
    let accept = ["dream", "amend", id.as_str(), "--action", "archive"];
    let undo = ["dream", "undo", id.as_str()];
    let calibrate = Instant::now();
    house.run(&accept).ends(0);
    let whole = u64::try_from(calibrate.elapsed().as_micros()).unwrap();
    let after = house.tree("ideas");
    let (mut decided, mut landed, mut changed) = (true, 0, 0);
    for round in 0..rounds {
        let line: &[&str] = if decided { &undo } else { &accept };
        let mut child = house
            .runner(line)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        if !ended_within(child.id(), Duration::from_micros(dice.roll(2 * whole))) {
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process_group(group, Signal::KILL).unwrap();
            landed += 1;
        }
        child.wait().unwrap();
        // What is half done is finished by a tick, or by the next who decides.
        if dice.roll(2) == 0 {
            house.run(&["tick"]).ends(0);
        } else {
            house.run(&["dream", "undo", "nobody"]).ends(65);
        }
        let was = decided;
        decided = !ids(&house).contains_key("ideas/maps.md");
        changed += usize::from(was != decided);
        let wanted = if decided { &after } else { &before };
        assert_eq!(
            &house.tree("ideas"),
            wanted,
            "round {round}, decided {decided}"
        );
        let status = |path: &str| -> Value {
            let state: Value = serde_json::from_str(&house.read("dreams/state.json")).unwrap();
            let all = state.as_array().unwrap().clone();
            all.into_iter().find(|it| it["path"] == path).unwrap()["status"].clone()
        };
        assert_eq!(status("ideas/maps.md") == "archived", decided);
    }
    house.run(&["tick"]).ends(0);
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL"),
        0
    );
    tell(&format!(
        "killed acts: {rounds} rounds, {landed} killed in flight, {changed} took effect, {} rolled forward; {:.0} s",
        house.count("SELECT count(DISTINCT run) FROM events WHERE kind = 'recovered'"),
        began.elapsed().as_secs_f64()
    ));
}
