//! Tests decisions on proposals, including killed ones, and programs that answer a dream.

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

use crate::fixture::{Fixture, Random, ended_within, print_line, scaled, skip};

const DONE: &str = "# Retry policy with jitter\n\n## Proposal\n\n- Add jitter to every wait\n";
const OPEN: &str = "# Offline maps\n\n## Problem\n\nOn a train there is no network, and the map stays grey.\n\n\
    ## Proposal\n\n- Download the tiles of a region before leaving\n- Show how old each tile is\n";

/// Creates a project with ideas, and runs a pass over them.
fn proposed() -> Fixture {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("ideas/retry.md", DONE);
    fixture.write("ideas/maps.md", OPEN);
    fixture.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    fixture.run(&["dream", "run"]).ends(0);
    fixture
}

fn ids(fixture: &Fixture) -> BTreeMap<String, String> {
    let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let one = |item: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&item["targets"][0]), text(&item["id"]))
    };
    listed.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn decisions_can_be_made_and_undone() {
    let fixture = proposed();
    let ids = ids(&fixture);
    let before = fixture.tree("ideas");
    let (maps, coffee) = (&ids["ideas/maps.md"], &ids["ideas/coffee.md"]);
    fixture
        .run(&["dream", "show", maps])
        .ends(0)
        .expect_text("Download the tiles")
        .expect_text("accept: ");
    let reported = fixture
        .run(&["dream", "amend", maps, "--action", "archive", "--note", "done", "--json"])
        .ends(0)
        .json();
    assert_eq!(
        (&reported["decision"], &reported["note"], &reported["already"]),
        (&"amended".into(), &"done".into(), &false.into())
    );
    assert_eq!(fixture.read("ideas/done/maps.md"), OPEN);
    fixture
        .run(&["dream", "amend", maps, "--action", "archive"])
        .ends(0)
        .expect_text("already amended");
    fixture.run(&["dream", "reject", maps]).ends(75).expect_text("runner dream undo");
    fixture.run(&["dream", "reject", coffee, "--note", "no"]).ends(0);
    fixture.run(&["dream", "skip", &ids["ideas/retry.md"][..8]]).ends(0);
    fixture.run(&["dream", "list"]).ends(0).expect_text("no undecided proposals");
    let all = fixture.run(&["dream", "list", "--all", "--json"]).ends(0).json();
    assert_eq!(all.as_array().unwrap().len(), 3);
    assert_eq!(
        fixture.run(&["dream", "list", "--all", "--action", "merge", "--json"]).ends(0).json(),
        serde_json::json!([])
    );
    // `runs` lists decisions only if they are requested.
    assert_eq!(fixture.run(&["runs", "--json"]).ends(0).json().as_array().unwrap().len(), 1);
    let acts = fixture.run(&["runs", "--job", "dream:review", "--json"]).ends(0).json();
    assert_eq!(acts.as_array().unwrap().len(), 3);
    assert_eq!(acts[2]["outcome"], "succeeded");
    fixture.run(&["retry", acts[0]["id"].as_str().unwrap()]).ends(2);
    fixture.run(&["dream", "undo", maps]).ends(0);
    assert_eq!(fixture.tree("ideas"), before);
    fixture.run(&["dream", "undo", maps]).ends(65);
    fixture.run(&["dream", "show", "nobody"]).ends(65).expect_text("dream list");
    fixture.write("ideas/maps.md", "something else\n");
    fixture.run(&["dream", "accept", maps]).ends(75).expect_text("--force");
    fixture.git(&["add", "ideas/maps.md"]);
    fixture
        .run(&["dream", "amend", maps, "--action", "archive", "--force"])
        .ends(0)
        .expect_text("changed ideas/done/maps.md");
    fixture.run(&["dream", "amend", maps, "--action", "delete"]).ends(2);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled'"), 0);
}

#[test]
fn repeated_amendment_needs_the_same_destination() {
    let fixture = proposed();
    let coffee = &ids(&fixture)["ideas/coffee.md"];
    let merge =
        |into: &str| fixture.run(&["dream", "amend", coffee, "--action", "merge", "--into", into]);
    merge("ideas/maps.md").ends(0);
    merge("ideas/maps.md").ends(0).expect_text("already amended");
    merge("ideas/retry.md").ends(75).expect_text("runner dream undo");
    assert!(!fixture.read("ideas/retry.md").contains("Coffee"));
}

#[test]
fn review_without_terminal_suggests_list_json() {
    let fixture = proposed();
    fixture.run(&["dream", "review"]).ends(2).expect_text("runner dream list --json");
}

/// Opens a pseudo-terminal and returns the test's end and the program's end.
pub fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let mut open = File::options();
    let theirs = open.read(true).write(true);
    // Without `NOCTTY`, the terminal would become the test's controlling terminal and send it HUP.
    let theirs = theirs
        .custom_flags(i32::try_from(OFlags::NOCTTY.bits()).unwrap())
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).unwrap();
    (ours.into(), theirs)
}

#[test]
fn review_ends_on_key_hangup_or_signal() {
    let fixture = proposed();
    // Each case has typed input, an optional signal, and the expected exit code.
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
        let mut child = fixture
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
            // Closing this terminal sends no signal, because no session has it as its controlling
            // terminal.
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
        assert!(ended, "{typed:?} {signal:?}: the review did not end");
        assert_eq!(was.code(), Some(code), "{typed:?} {signal:?}");
        let mut complaints = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut complaints).unwrap();
        assert_eq!(complaints, "", "{typed:?} {signal:?}: there is output on stderr");
        drop(ours);
    }
}

#[test]
fn max_option_limits_the_pass() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    for name in ["a", "b", "c"] {
        fixture.write(&format!("ideas/{name}.md"), format!("The thought {name}.\n"));
    }
    let reported = fixture.run(&["dream", "run", "--max", "2", "--json"]).ends(0).json();
    assert_eq!(
        (&reported["facts"]["shown"], &reported["facts"]["waiting"]),
        (&2.into(), &1.into())
    );
    fixture.run(&["dream", "run", "--max", "0"]).ends(2);
}

#[test]
fn several_dream_jobs_require_job_option() {
    let fixture = Fixture::with(
        "[jobs.other]\nkind = \"dream\"\nideas = \"notes\"\ndreams = \"dreams/other\"\n",
    );
    fixture.run(&["dream", "list"]).ends(2).expect_text("--job");
    fixture.run(&["dream", "list", "--job", "other"]).ends(0);
    fixture.run(&["dream", "list", "--job", "none"]).ends(78);
}

#[test]
fn three_deferrals_create_a_failmark() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("ideas/a.md", "tracked\n");
    fixture.git(&["add", "ideas/a.md"]);
    fixture.git(&["commit", "--quiet", "-m", "An idea"]);
    fixture.write("ideas/a.md", "tracked, and at work\n");
    for time in 1..=3 {
        assert!(!fixture.path("dreams/.failed").exists(), "{time}");
        fixture.run(&["dream", "run"]).ends(0).expect_text("work is in progress");
    }
    let mark: Value = serde_json::from_str(&fixture.read("dreams/.failed")).unwrap();
    assert_eq!(mark["class"], "deferred");
    assert!(mark["message"].as_str().unwrap().contains("ideas/a.md"), "{mark}");
    fixture.git(&["commit", "--quiet", "-am", "The work"]);
    fixture.run(&["dream", "run"]).ends(0);
    assert!(!fixture.path("dreams/.failed").exists());
}

/// Creates a fixture whose dream asks this program.
fn answered_by(program: &str) -> Fixture {
    let fixture = Fixture::with(
        "[backends.mine]\ntype = \"command\"\nprogram = \"./executor\"\n[jobs.dream]\nbackend = \"mine\"\n",
    );
    let path = fixture.root().join("bin");
    std::fs::create_dir_all(&path).unwrap();
    let path = path.join("executor");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let toml = fixture.read("runner.toml").replace("./executor", &path.display().to_string());
    fixture.write("runner.toml", toml);
    fixture.write("ideas/coffee.md", "Coffee is better in the morning.\n");
    fixture
}

#[test]
fn exit_0_without_proposals_is_a_failure() {
    let fixture = answered_by("#!/bin/sh\ncat > /dev/null\nexit 0\n");
    for time in 1..=3 {
        let said = fixture.run(&["dream", "run"]);
        assert_eq!(said.code, 1, "{time}: {said:?}");
        assert!(fixture.path("dreams/.failed").exists());
        assert!(!fixture.path("dreams/state.json").exists());
    }
    // The output is not an answer, so nothing is quarantined.
    let said = fixture.run(&["dream", "run", "--retry-parked"]);
    assert_eq!(said.code, 1, "{said:?}");
}

#[test]
fn guide_example_executor_works() {
    let page = include_str!("../../docs/guide/executors.md");
    let (_, rest) = page.split_once("<<'END'\n").unwrap();
    let (program, _) = rest.split_once("END\n").unwrap();
    assert!(program.lines().count() <= 25, "the program is too long");
    let fixture = Fixture::new();
    if fixture.command("python3", &["-c", ""]).output().is_err() {
        skip("python3", "python3 is not installed");
        return;
    }
    let fixture = answered_by(program);
    fixture.write("ideas/maps.md", OPEN);
    fixture.run(&["dream", "run"]).ends(0);
    let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2);
    for item in listed {
        assert_eq!(item["rationale"], "by the example's rule");
    }
}

#[test]
fn killed_decisions_are_all_or_nothing() {
    let fixture = proposed();
    let mut dice = Random::new("killed acts");
    let (rounds, began) = (scaled(40), Instant::now());
    let id = ids(&fixture)["ideas/maps.md"].clone();
    let before = fixture.tree("ideas");
    let accept = ["dream", "amend", id.as_str(), "--action", "archive"];
    let undo = ["dream", "undo", id.as_str()];
    let calibrate = Instant::now();
    fixture.run(&accept).ends(0);
    let whole = u64::try_from(calibrate.elapsed().as_micros()).unwrap();
    let after = fixture.tree("ideas");
    let (mut decided, mut landed, mut changed) = (true, 0, 0);
    for round in 0..rounds {
        let line: &[&str] = if decided { &undo } else { &accept };
        let mut child = fixture
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
        // A tick or the next decision command completes an interrupted decision.
        if dice.roll(2) == 0 {
            fixture.run(&["tick"]).ends(0);
        } else {
            fixture.run(&["dream", "undo", "nobody"]).ends(65);
        }
        let was = decided;
        decided = !ids(&fixture).contains_key("ideas/maps.md");
        changed += usize::from(was != decided);
        let wanted = if decided { &after } else { &before };
        assert_eq!(&fixture.tree("ideas"), wanted, "round {round}, decided {decided}");
        let status = |path: &str| -> Value {
            let state: Value = serde_json::from_str(&fixture.read("dreams/state.json")).unwrap();
            let all = state.as_array().unwrap().clone();
            all.into_iter().find(|it| it["path"] == path).unwrap()["status"].clone()
        };
        assert_eq!(status("ideas/maps.md") == "archived", decided);
    }
    fixture.run(&["tick"]).ends(0);
    assert_eq!(
        fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL"),
        0
    );
    print_line(&format!(
        "killed acts: {rounds} rounds, {landed} killed in flight, {changed} took effect, {} rolled forward; {:.0} s",
        fixture.count("SELECT count(DISTINCT run) FROM events WHERE kind = 'recovered'"),
        began.elapsed().as_secs_f64()
    ));
}
