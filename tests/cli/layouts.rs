//! Tests that each action can be accepted and undone in every layout of the ideas and the specs:
//! tracked by git, ignored by git, or neither.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

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
    prepare(&fixture, ideas, specs);
    fixture.run(&["dream", "run"]).ends(0);
    let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let listed = listed.as_array().unwrap();
    let own = listed.iter().find(|it| it["targets"][0] == "ideas/a.md").unwrap();
    let id = own["id"].as_str().unwrap().to_owned();
    (fixture, id)
}

/// Writes two ideas and a spec in this layout.
fn prepare(fixture: &Fixture, ideas: Layout, specs: Layout) {
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

/// The user's files and the staged changes.
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
fn only_user_edits_defer_a_pass() {
    let (fixture, id) = proposed(Tracked, Tracked);
    amend(&fixture, &id, "mark-blog", false).ends(0);
    fixture.write("ideas/c.md", "Use another colour.\n");
    fixture.run(&["dream", "run"]).ends(0).expect_text("succeeded");
    let text = fixture.read("ideas/a.md");
    fixture.write("ideas/a.md", format!("{text}and more\n"));
    fixture.run(&["dream", "run"]).ends(0).expect_text("deferred").expect_text("ideas/a.md");
}

/// A program that answers every request with these proposals.
const PROPOSES: &str = r#"#!/bin/sh
cat > /dev/null
echo '[
{"id": "x", "targets": ["ideas/a.md"], "status": "meritorious", "action": "promote",
 "evidence": "it is worth building", "confidence": "high", "rationale": "r"},
{"id": "y", "targets": ["ideas/b.md"], "status": "blog-candidate", "action": "mark-blog",
 "evidence": "it reads well", "confidence": "high", "rationale": "r"}]'
"#;

#[test]
fn proposals_work_in_every_layout() {
    for ideas in ALL {
        for specs in ALL {
            let fixture = Fixture::with(
                "[jobs.dream]\nquiet_minutes = 0\nbackend = \"mine\"\n\
                 [backends.mine]\ntype = \"command\"\nprogram = \"propose\"\n",
            );
            prepare(&fixture, ideas, specs);
            let program = fixture.root().join("propose");
            fs::write(&program, PROPOSES).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            fixture.run(&[
                "config",
                "set",
                "backends.mine.program",
                &program.display().to_string(),
            ]);
            let pass = fixture.run(&["dream", "run"]).ends(0);
            // The pass reports whether the notes are private.
            assert!(pass.out.contains(privacy(ideas)), "{ideas:?}: {pass:?}");
            let before = state(&fixture);
            let listed = fixture.run(&["dream", "list", "--json"]).ends(0).json();
            for (target, action) in [("ideas/a.md", "promote"), ("ideas/b.md", "mark-blog")] {
                let case = format!("ideas {ideas:?}, specs {specs:?}, {action}");
                let mut all = listed.as_array().unwrap().iter();
                let item = all.find(|it| it["targets"][0] == target).unwrap();
                assert_eq!(item["action"], action, "{case}");
                let id = item["id"].as_str().unwrap();
                let exposes = action == "promote" && ideas == Ignored && specs != Ignored;
                if exposes {
                    let refused = fixture.run(&["dream", "accept", id]).ends(1);
                    assert!(refused.err.contains("accept"), "{case}: {refused:?}");
                }
                let publish: &[&str] = if exposes { &["--publish"] } else { &[] };
                let accepted = fixture.run(&[&["dream", "accept", id], publish].concat());
                assert_eq!(accepted.code, 0, "{case}: {accepted:?}");
                assert_ne!(state(&fixture), before, "{case}");
                // The person commits the change before undoing it.
                let tracked = ideas == Tracked || specs == Tracked;
                if tracked {
                    fixture.git(&["add", "--update"]);
                    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "Accept it"]);
                }
                fixture.run(&["dream", "undo", id]).ends(0);
                assert_eq!(state(&fixture).0, before.0, "{case}");
                if tracked {
                    fixture.git(&["add", "--update"]);
                    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "Undo it"]);
                }
            }
        }
    }
}

/// Returns the statement about the privacy of notes in this layout.
fn privacy(ideas: Layout) -> &'static str {
    match ideas {
        Tracked => "the notes in ideas/ are not private (git tracks files in the folder)",
        Ignored => "the notes in ideas/ are private (git ignores the folder)",
        Untracked => "the notes in ideas/ are not private (git does not ignore the folder)",
    }
}

#[test]
fn init_reports_the_privacy_of_every_layout() {
    for ideas in ALL {
        let (fixture, _) = proposed(ideas, Untracked);
        let reported = fixture.run(&["init"]).ends(0).err;
        assert!(reported.contains(privacy(ideas)), "{ideas:?}: {reported}");
        let hint = match ideas {
            Tracked => Some("git rm -r --cached ideas/"),
            Ignored => None,
            Untracked => Some("runner init --private-notes makes git ignore ideas/"),
        };
        assert_eq!(hint.is_some(), reported.contains("--private-notes"), "{ideas:?}: {reported}");
        assert!(hint.is_none_or(|hint| reported.contains(hint)), "{ideas:?}: {reported}");
        let json = fixture.run(&["init", "--json"]).ends(0).json();
        assert!(json["privacy"][0].as_str().unwrap().starts_with(privacy(ideas)), "{json}");
    }
    // `--private-notes` also ignores a notes folder with another name.
    let fixture = Fixture::with("[jobs.dream]\nideas = \"notes\"\n");
    fixture.write("notes/a.md", "# A\n");
    fixture
        .run(&["init", "--private-notes"])
        .ends(0)
        .expect_text("the notes in notes/ are private");
    assert!(fixture.git(&["status", "--porcelain", "notes"]).is_empty());
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
