//! Tests `runner init`, and copies, clones and worktrees of a project.

mod identity;
mod missing;

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::{CommandOutput, Fixture};

const SMALL: &str = "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 15m\"\n";

/// Creates a fixture whose `runner.toml` is committed, so that clones contain it.
fn committed() -> Fixture {
    let fixture = Fixture::with(SMALL);
    fixture.git(&["add", "runner.toml"]);
    fixture.git(&["commit", "--quiet", "-m", "Look after it"]);
    fixture
}

fn at(fixture: &Fixture, folder: &Path, args: &[&str]) -> CommandOutput {
    let mut all = vec!["-C", folder.to_str().unwrap()];
    all.extend(args);
    fixture.run(&all)
}

fn copy(fixture: &Fixture, to: &str) -> PathBuf {
    let to = fixture.root().join(to);
    let done = fixture.command("cp", &["-a"]).arg(fixture.project()).arg(&to).status().unwrap();
    assert!(done.success());
    to
}

fn standings(fixture: &Fixture) -> Vec<(String, String)> {
    let list = fixture.run(&["projects", "--json"]).ends(0).json();
    let mut found: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let path = Path::new(it["path"].as_str().unwrap());
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, it["standing"].as_str().unwrap().to_owned())
        })
        .collect();
    found.sort();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, standing): &(&str, &str)| ((*name).to_owned(), (*standing).to_owned());
    expected.iter().map(own).collect()
}

fn tick(fixture: &Fixture, now: &str) -> CommandOutput {
    fixture.run_at(now, &["tick"])
}

#[test]
fn init_lists_files_and_writes_once() {
    let fixture = Fixture::new();
    fixture
        .run(&["init"])
        .ends(0)
        .expect_text("wrote   runner.toml")
        .expect_text("git folder (runner-id)")
        .expect_text("created ideas/")
        .expect_text("ignored /dreams/ and /.runner/ and /.warden/ and /_steps.jsonl and /daydreams.json in .git/info/exclude");
    let before = fixture.tree(".");
    let id = fixture.read(".git/runner-id");
    fixture.run(&["init"]).ends(0).expect_text("nothing was written");
    assert_eq!(fixture.tree("."), before);
    assert_eq!(fixture.read(".git/runner-id"), id);
    // A project that was created by a version without id files gets an id file.
    fs::remove_file(fixture.path(".git/runner-id")).unwrap();
    fixture.run(&["tick"]).ends(0);
    fixture.run(&["init"]).ends(0).expect_text("runner-id");
    assert_eq!(fixture.read(".git/runner-id"), id);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
}

#[test]
fn failed_init_writes_nothing() {
    let fixture = Fixture::new();
    let untouched = |fixture: &Fixture, code: i32, words: &str| {
        let before = fixture.tree(".");
        let exclude = fixture.read(".git/info/exclude");
        fixture.run(&["init"]).ends(code).expect_text(words);
        assert_eq!(fixture.tree("."), before, "{words}");
        assert_eq!(fixture.read(".git/info/exclude"), exclude, "{words}");
        assert!(!fixture.path(".git/runner-id").exists(), "{words}");
    };
    fixture.write("dreams", "a file\n");
    untouched(&fixture, 65, "is not a folder");
    fs::remove_file(fixture.path("dreams")).unwrap();
    fixture.write("runner.toml", "[nigth]\nat = \"01:00\"\n");
    untouched(&fixture, 78, "nigth");
    fs::remove_file(fixture.path("runner.toml")).unwrap();
    let user = fixture.root().join("config/runner/config.toml");
    let good = fs::read(&user).unwrap();
    fs::write(&user, "[defaults]\nretires = 1\n").unwrap();
    untouched(&fixture, 78, "retires");
    fs::write(&user, good).unwrap();
    // The database cannot be created, because a file is in place of the state folder.
    fs::write(fixture.root().join("state"), "").unwrap();
    untouched(&fixture, 73, "state");
    fs::remove_file(fixture.root().join("state")).unwrap();
    fixture.run(&["init"]).ends(0);
}

#[test]
fn config_set_does_not_duplicate_tables() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.run(&["config", "set", "jobs.dream.max_ideas", "7"]).ends(0);
    // Even a commented-out second table is an error, because a person may uncomment it.
    let text = fixture.read("runner.toml");
    let tables = text.lines().filter(|line| line.contains("[jobs.dream]"));
    assert_eq!(tables.count(), 1, "{text}");
}

#[test]
fn copied_project_needs_a_new_id() {
    let fixture = committed();
    let copy = copy(&fixture, "copy");
    at(&fixture, &copy, &["night"])
        .ends(78)
        .expect_text("one of them is a copy")
        .expect_text("runner init --new-id");
    // Plain `init` does not guess which of the two is the copy.
    at(&fixture, &copy, &["init"]).ends(78).expect_text("--new-id");
    let committed = fs::read(copy.join("runner.toml")).unwrap();
    at(&fixture, &copy, &["init", "--new-id"]).ends(0);
    assert_eq!(fs::read(copy.join("runner.toml")).unwrap(), committed);
    at(&fixture, &copy, &["night"]).ends(0);
    fixture.run(&["night"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("copy", "known"), ("project", "known")]));
    assert_eq!(fixture.count("SELECT count(DISTINCT project) FROM nights"), 2);
}

#[test]
fn clones_and_worktrees_need_plain_init() {
    let fixture = committed();
    let clone = fixture.root().join("clone");
    fixture.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    let tree = fixture.root().join("tree");
    fixture.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    let ids: Vec<String> = [&clone, &tree]
        .into_iter()
        .map(|folder| {
            at(&fixture, folder, &["night"])
                .ends(78)
                .expect_text("another clone or worktree")
                .expect_text(&format!("runner init {}", folder.display()));
            at(&fixture, folder, &["init"]).ends(0);
            at(&fixture, folder, &["init"]).ends(0).expect_text("nothing was written");
            at(&fixture, folder, &["night"]).ends(0);
            let changed = fixture.git(&["-C", folder.to_str().unwrap(), "status", "--porcelain"]);
            assert!(!changed.contains("runner.toml"), "{changed}");
            let status = at(&fixture, folder, &["status", "--json"]).ends(0).json();
            assert_eq!(status["projects"].as_array().unwrap().len(), 1);
            status["projects"][0]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let seed = fixture.read(".git/runner-id").trim().to_owned();
    assert!(ids[0] != ids[1] && !ids.contains(&seed), "{ids:?} {seed}");
    assert!(fixture.path(".git/worktrees/tree/runner-id").is_file());
    fixture.run(&["night"]).ends(0);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(
        standings(&fixture),
        pairs(&[("clone", "known"), ("project", "known"), ("tree", "known")])
    );
    // A new clone at the same path continues as the project that was there.
    fs::remove_dir_all(&clone).unwrap();
    fixture.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    at(&fixture, &clone, &["night"])
        .ends(78)
        .expect_text("is not the clone")
        .expect_text("runner init");
    at(&fixture, &clone, &["init"]).ends(0);
    assert_eq!(fs::read_to_string(clone.join(".git/runner-id")).unwrap().trim(), ids[0]);
    at(&fixture, &clone, &["night"]).ends(0);
    assert_eq!(standings(&fixture).len(), 3);
}

#[test]
fn missing_git_folder_is_reported_as_trouble() {
    let fixture = committed();
    fixture.run(&["tick"]).ends(0);
    let (git, aside) = (fixture.path(".git"), fixture.root().join("aside"));
    fs::rename(&git, &aside).unwrap();
    fixture.run(&["tick"]).ends(78).expect_text(".git is missing").expect_text("fix: ");
    fixture.run(&["status"]).ends(0).expect_text("TROUBLE").expect_text(".git is missing");
    fixture.run(&["projects"]).ends(0).expect_text(".git is missing");
    fs::rename(&aside, &git).unwrap();
    fixture.run(&["tick"]).ends(0);
    assert!(!fixture.run(&["status"]).ends(0).out.contains("TROUBLE"));
}
