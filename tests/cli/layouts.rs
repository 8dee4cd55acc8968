//! Tests that each action can be accepted and undone in every layout of the ideas and the specs: as
//! files that git tracks, ignores, or neither.

use std::fs;

use crate::fixture::{CommandOutput, Fixture};

/// The relation of a folder to git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Tracked,
    Ignored,
    Untracked,
}

use Layout::{Ignored, Tracked, Untracked};

const ALL: [Layout; 3] = [Tracked, Ignored, Untracked];
const ACTIONS: [&str; 5] = ["archive", "merge", "promote", "mark-blog", "keep"];

/// Creates a project with this layout, two ideas and the proposals of a pass over them. Returns the
/// id of the proposal for `ideas/a.md`.
fn proposed(ideas: Layout, specs: Layout) -> (Fixture, String) {
    let fixture = Fixture::with("[jobs.dream]\nquiet_minutes = 0\n");
    fixture.write("ideas/a.md", "# Offline maps\n\nKeep the tiles of a region on the phone.\n");
    fixture.write("ideas/b.md", "# Tile cache\n\nLimit the size of the cache.\n");
    fixture.write("specs/old.md", "# Old\n");
    for (folder, layout) in [("ideas", ideas), ("specs", specs)] {
        match layout {
            Tracked => {
                fixture.git(&["add", folder]);
            }
            Ignored => {
                let exclude = fixture.path(".git/info/exclude");
                let text = fs::read_to_string(&exclude).unwrap();
                fs::write(exclude, format!("{text}/{folder}/\n")).unwrap();
            }
            Untracked => {}
        }
    }
    if ideas == Tracked || specs == Tracked {
        fixture.git(&["commit", "--quiet", "-m", "Keep notes"]);
    }
    fixture.run(&["dream", "run"]).ends(0);
    let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let listed = listed.as_array().unwrap();
    let own = listed.iter().find(|it| it["targets"][0] == "ideas/a.md").unwrap();
    (fixture, own["id"].as_str().unwrap().to_owned())
}

fn amend(fixture: &Fixture, id: &str, action: &str, publish: bool) -> CommandOutput {
    let mut words = vec!["dream", "amend", id, "--action", action];
    if action == "merge" {
        words.extend(["--into", "ideas/b.md"]);
    }
    if publish {
        words.push("--publish");
    }
    fixture.run(&words)
}

/// The files of the person, and the staged changes.
type State = (Vec<(String, Vec<u8>)>, String);

fn state(fixture: &Fixture) -> State {
    let files = [fixture.tree("ideas"), fixture.tree("specs")].concat();
    (files, fixture.git(&["diff", "--cached", "--stat"]))
}

#[test]
fn every_action_works_in_every_layout() {
    for ideas in ALL {
        for specs in ALL {
            let (fixture, id) = proposed(ideas, specs);
            let before = state(&fixture);
            let commits = fixture.git(&["rev-list", "--all"]);
            for action in ACTIONS {
                let case = format!("ideas {ideas:?}, specs {specs:?}, {action}");
                // Only a promotion takes text out of the ideas folder.
                let exposes = action == "promote" && ideas == Ignored && specs != Ignored;
                if exposes {
                    let refused = amend(&fixture, &id, action, false);
                    assert_eq!(refused.code, 1, "{case}: {refused:?}");
                    assert!(refused.err.contains("specs/a.md"), "{case}: {refused:?}");
                    assert!(refused.err.contains("--publish"), "{case}: {refused:?}");
                    assert_eq!(state(&fixture), before, "{case}");
                    let shown = fixture.run(&["dream", "show", &id, "--json"]).ends(0).json();
                    assert_eq!(shown["would_not"], serde_json::Value::Null, "{case}");
                }
                let accepted = amend(&fixture, &id, action, exposes);
                assert_eq!(accepted.code, 0, "{case}: {accepted:?}");
                let there = match action {
                    "archive" | "merge" => "ideas/done/a.md",
                    "promote" => "specs/a.md",
                    _ => "ideas/a.md",
                };
                assert!(fixture.path(there).is_file(), "{case}");
                if action != "keep" {
                    assert_ne!(state(&fixture), before, "{case}");
                    assert!(accepted.out.contains(&format!("changed {there}")), "{accepted:?}");
                }
                // Nothing is staged or committed, and the edit does not defer the next pass.
                assert_eq!(state(&fixture).1, before.1, "{case}");
                assert_eq!(fixture.git(&["rev-list", "--all"]), commits, "{case}");
                let pass = fixture.run(&["dream", "run", "--dry-run"]).ends(0);
                assert!(!pass.out.contains("work is in progress"), "{case}: {pass:?}");
                let undone = fixture.run(&["dream", "undo", &id]);
                assert_eq!(undone.code, 0, "{case}: {undone:?}");
                assert_eq!(state(&fixture), before, "{case}");
            }
        }
    }
}

#[test]
fn own_edits_do_not_defer_a_pass_but_later_ones_do() {
    let (fixture, id) = proposed(Tracked, Tracked);
    amend(&fixture, &id, "mark-blog", false).ends(0);
    fixture.write("ideas/c.md", "Use another colour.\n");
    fixture.run(&["dream", "run"]).ends(0).expect_text("succeeded");
    let text = fixture.read("ideas/a.md");
    fixture.write("ideas/a.md", format!("{text}and more\n"));
    fixture.run(&["dream", "run"]).ends(0).expect_text("deferred").expect_text("ideas/a.md");
}

#[test]
fn privacy_follows_git_or_the_setting() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0).expect_text("are not private");
    fixture.run(&["init", "--private-notes"]).ends(0).expect_text("are private");
    let (fixture, id) = proposed(Untracked, Untracked);
    fixture.configure("[dream]\nprivate = true\n");
    let refused = amend(&fixture, &id, "promote", false).ends(1);
    assert!(refused.err.contains("--action promote --publish"), "{refused:?}");
    amend(&fixture, &id, "promote", true).ends(0);
}
