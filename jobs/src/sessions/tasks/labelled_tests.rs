//! Sessions written for these tests and labelled with the phase, trust and loops that a human
//! reader would identify.

use super::phases::Phase::{self, Building, Exploring, Orientation, Verifying, Wrapping};
use super::*;
use crate::sessions::event::Collector;
use crate::sessions::transcript::{SessionEvent, SessionEventKind};

/// Creates a session from one word per event: `r` reads, `e` edits, `t` tests, `T` runs a failing
/// test, `x` runs a failing command, `l` lists a folder, `L` lists a missing folder, `h` runs a
/// test that hides its errors, `w` updates the model's to-do list, `d` makes a call that the user
/// refuses, `c` commits, `p` prompts, and `a` answers. A digit after a word selects the file or
/// command.
fn session(script: &str) -> crate::sessions::event::Session {
    let mut collector = Collector::default();
    let mut line = 0;
    for (at, word) in script.split_whitespace().enumerate() {
        let (kind, which) = word.split_at(1);
        let mut add = |what| {
            line += 1;
            collector.take(SessionEvent {
                line,
                at: None,
                cwd: None,
                branch: None,
                sidechain: false,
                row: None,
                what,
            });
        };
        let (tool, target, failure) = match kind {
            "p" => {
                add(SessionEventKind::Prompt("Please go on".into()));
                continue;
            }
            "a" => {
                add(SessionEventKind::Answer("Done.".into()));
                continue;
            }
            "r" => ("Read", format!("src/f{which}.rs"), None),
            "e" => ("Edit", format!("src/f{which}.rs"), None),
            "t" => ("Bash", "cargo test".to_owned(), None),
            "T" => ("Bash", "cargo test".to_owned(), Some(format!("test a::t{which} ... FAILED"))),
            "x" => {
                let host = ["", "alpha", "beta", "gamma"][which.parse::<usize>().unwrap()];
                ("Bash", format!("deploy {host}"), Some(format!("error: {host} is down")))
            }
            "l" => ("Bash", format!("ls /srv/{which}"), None),
            "L" => {
                let why = format!("ls: /srv/{which}: No such file or directory");
                ("Bash", format!("ls /srv/{which}"), Some(why))
            }
            "h" => ("Bash", "cargo test 2>/dev/null | head".to_owned(), None),
            "w" => ("TodoWrite", String::new(), None),
            "d" => {
                ("Bash", format!("publish {which}"), Some("The tool use was rejected".to_owned()))
            }
            "c" => ("Bash", "git commit -m 'Add a thing'".to_owned(), None),
            other => panic!("{other}"),
        };
        let id = at.to_string();
        add(SessionEventKind::Call {
            id: id.clone(),
            tool: tool.into(),
            target,
            written: String::new(),
        });
        add(SessionEventKind::Outcome {
            id,
            failed: failure.is_some(),
            text: failure.unwrap_or_default(),
        });
    }
    collector.done()
}

fn phases(script: &str) -> Vec<Phase> {
    let found = Findings::of(&session(script), &[]);
    found.phase_arc.iter().map(|span| span.phase).collect()
}

#[test]
fn phases_match_their_labels() {
    for (script, expected) in [
        ("p r1 r2 r3 r4 r5 r6 r7 r8", vec![Orientation, Exploring]),
        ("p r1 r2 r3 r4 r5 r6 e1 e2 e1 e3 e1 e2 e3", vec![Orientation, Exploring, Building]),
        ("p r1 e1 e2 e1 e2 e1 e2 t e1 t e1 t t t t", vec![Orientation, Building, Verifying]),
        (
            "p r1 r2 r3 r4 r5 r6 e1 e2 e1 e2 e1 e2 t t t t c c c c",
            vec![Orientation, Exploring, Building, Verifying, Wrapping],
        ),
        // A single edit does not begin a phase.
        ("p r1 r2 r3 r4 r5 r6 r7 e1 r8 r9 r1 r2 r3 r4 r5", vec![Orientation, Exploring]),
        ("p r1 r2", vec![Orientation]),
        ("", vec![]),
    ] {
        assert_eq!(phases(script), expected, "{script}");
    }
}

#[test]
fn trust_and_debt_match_their_labels() {
    for (script, trust, debt) in [
        ("p r1 r2 e1 t", 100, 0),
        ("p e1 e2 e3", 100, 3),
        ("p e1 T1", 95, 1),
        // Repeating an error costs 10, and a passing check restores 5.
        ("p e1 T1 e1 T1 e1 t", 90, 0),
        ("p d1 d2", 80, 0),
        // The third refusal of the same command is a loop.
        ("p d1 d1 d1", 55, 0),
        ("p x1 x2 x3 r1", 85, 0),
        ("p x1 x1 x1 x1 x1 x1 x1 x1 x1 x1", 0, 0),
        ("p t t t t", 100, 0),
    ] {
        let session = session(script);
        let last = *signals::signals(&session.events).last().unwrap();
        assert_eq!((last.trust, last.debt), (trust, debt), "{script}");
    }
}

#[test]
fn loops_match_their_labels() {
    for (script, expected) in [
        ("p x1 x1 x1", vec![("repeated-call", false)]),
        ("p x1 x1 x1 e1 t", vec![("repeated-call", true)]),
        ("p x1 r1 x1 r2 x1", vec![("repeated-call", false)]),
        ("p r1 r1 r1 r1 r1", vec![("repeated-read", false)]),
        ("p r1 r1 r1 r1 r1 e1", vec![("repeated-read", true)]),
        ("p d1 d1 d1 c", vec![("repeated-call", true)]),
        // Repetitive work that makes progress is not a loop.
        ("p e1 t e1 t e1 t e1 t", vec![]),
        ("p e1 e1 e1 e1 e1 e1", vec![]),
        ("p T1 e1 T2 e1 T3 e1 t", vec![]),
        ("p r1 r2 r3 r4 r5 r6 r7", vec![]),
        ("p r1 e1 r1 e1 r1 e1 r1 e1 r1", vec![]),
        ("p x1 x2 x3", vec![]),
        ("p x1 x1 e1 e2 e3 e1 x1", vec![]),
    ] {
        let found = loops::loops(&session(script).events);
        let found: Vec<(&str, bool)> =
            found.iter().map(|it| (it.rule.as_str(), it.resolved)).collect();
        assert_eq!(found, expected, "{script}");
    }
}

#[test]
fn repairs_need_a_change_and_lasting_success() {
    let found = |script: &str| Findings::of(&session(script), &[]).repairs;
    let repaired = found("p T1 r1 e1 t a");
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0].steps, ["read src/f1.rs", "edit src/f1.rs", "run `cargo test`"]);
    assert_eq!(repaired[0].fix.as_deref(), Some("edit src/f1.rs"));
    assert_eq!(repaired[0].evidence, [2, 8]);
    // There is no repair without a change, without a success at the end, or if the error returns.
    assert!(found("p T1 t").is_empty());
    assert!(found("p T1 r1 t").is_empty());
    assert!(found("p T1 e1").is_empty());
    assert!(found("p T1 e1 t T1").is_empty());
    // Reading elsewhere and running a command that hides its errors are not repairs, and updating
    // the model's to-do list is not a step.
    assert!(found("p L1 r1 l2").is_empty());
    assert!(found("p T1 e1 h").is_empty());
    assert_eq!(found("p T1 w r1 e1 w t")[0].steps, repaired[0].steps);
}

#[test]
fn calls_that_were_always_denied_suggest_a_rule() {
    let found = Findings::of(&session("p d1 d1 r1 x1 t t"), &[]).commands;
    let rules: Vec<&str> = found.iter().filter_map(|it| it.rule.as_deref()).collect();
    assert_eq!(rules, ["permissions.deny += \"Bash(publish 1:*)\""]);
    assert_eq!(found.iter().find(|it| it.subject == "cargo test").unwrap().count, 2);
}

#[test]
fn files_changed_in_the_same_turns_are_related() {
    let found = Findings::of(&session("p e1 e2 p e1 e2 e3 p e3"), &[]).co_change;
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].files[0].as_str(), found[0].files[1].as_str()),
        ("src/f1.rs", "src/f2.rs")
    );
}

#[test]
fn skipped_tasks_find_nothing() {
    let all = session("p T1 r1 e1 t x1 x1 x1 d1 d1 c");
    let found = Findings::of(&all, &[Task::ErrorClusters, Task::Loops, Task::TrustTrajectory]);
    assert!(found.errors.is_empty() && found.loops.is_empty() && found.trust.is_empty());
    assert!(!found.phase_arc.is_empty() && !found.repairs.is_empty() && !found.commands.is_empty());
}
