//! Tests projects that moved, were replaced, or have another name, mount or id.

use std::fs;
use std::os::unix::fs::symlink;

use super::{at, committed, copy, pairs, standings};
use crate::fixture::{CommandOutput, Fixture, print_line};

#[test]
fn moved_project_keeps_its_history() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    let new = fixture.root().join("elsewhere");
    fs::rename(fixture.project(), &new).unwrap();
    let (old, to) = (fixture.project(), new.display().to_string());
    fs::create_dir(fixture.project()).unwrap();
    at(&fixture, &new, &["night"])
        .ends(78)
        .expect_text(&format!("runner projects move {} {to}", old.display()));
    at(&fixture, &new, &["init"]).ends(78).expect_text("projects move");
    let nowhere = fixture.root().display().to_string();
    let old = old.display().to_string();
    fixture.run(&["projects", "move", &old, &nowhere]).ends(65).expect_text("is not a project");
    fixture.run(&["projects", "move", &old, &to]).ends(0);
    fixture.run(&["projects", "move", &to, &to]).ends(0).expect_text("already the project's path");
    at(&fixture, &new, &["night"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("elsewhere", "known")]));
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 2);
}

#[test]
fn invalid_project_move_is_refused() {
    let fixture = committed();
    let copy = copy(&fixture, "copy");
    let (old, to) = (fixture.project(), copy.display().to_string());
    let old = old.to_str().unwrap();
    fixture
        .run(&["projects", "move", old, &to])
        .ends(65)
        .expect_text("still exists")
        .expect_text("--new-id");
    at(&fixture, &copy, &["init", "--new-id"]).ends(0);
    fixture.run(&["projects", "move", old, &to]).ends(65).expect_text("already a separate project");
    fixture.run(&["projects", "move", "/nowhere", &to]).ends(65).expect_text("runner projects");
    assert_eq!(standings(&fixture), pairs(&[("copy", "known"), ("project", "known")]));
}

#[test]
fn replaced_folder_remains_the_same_project() {
    let fixture = committed();
    fixture.run(&["tick"]).ends(0);
    let copy = copy(&fixture, "restored");
    fs::remove_dir_all(fixture.project()).unwrap();
    // A new folder occupies the freed inode, so that nothing else can reuse it.
    fs::create_dir(fixture.root().join("taken")).unwrap();
    fs::rename(&copy, fixture.project()).unwrap();
    assert_eq!(standings(&fixture), pairs(&[("project", "replaced")]));
    fixture.run(&["status"]).ends(0);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
}

#[test]
fn clone_at_old_path_is_separate() {
    let fixture = committed();
    fixture.run(&["tick"]).ends(0);
    let (project, moved) = (fixture.project(), fixture.root().join("moved"));
    fs::rename(&project, &moved).unwrap();
    fs::create_dir_all(&project).unwrap();
    fixture.git(&["clone", "--quiet", moved.to_str().unwrap(), "."]);
    at(&fixture, &moved, &["tick"])
        .ends(78)
        .expect_text("is not the clone")
        .expect_text("runner projects move");
    assert_eq!(standings(&fixture), pairs(&[("project", "recloned")]));
    at(&fixture, &moved, &["night"]).ends(78).expect_text("runner projects move");
    let (from, to) = (project.to_str().unwrap(), moved.to_str().unwrap());
    at(&fixture, &moved, &["projects", "move", from, to]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("moved", "known")]));
    at(&fixture, &moved, &["tick"]).ends(0);
    fixture.run(&["init"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("moved", "known"), ("project", "known")]));
    // A folder that is a separate project cannot be the target of a move.
    fixture.run(&["projects", "move", to, from]).ends(65).expect_text("already a separate project");
}

#[test]
fn worktree_of_moved_repository_needs_repair() {
    let fixture = committed();
    let tree = fixture.root().join("tree");
    fixture.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    fixture.run(&["tick"]).ends(0);
    at(&fixture, &tree, &["init"]).ends(0);
    at(&fixture, &tree, &["tick"]).ends(0);
    let moved = fixture.root().join("moved");
    fs::rename(fixture.project(), &moved).unwrap();
    let repair = format!("worktree repair {}", tree.display());
    let outside = |args: &[&str]| {
        let mut command = fixture.runner(&["-C", tree.to_str().unwrap()]);
        CommandOutput::of(command.args(args).current_dir(fixture.root()).output().unwrap())
    };
    let said = outside(&["tick"]).ends(78).expect_text(&repair);
    let forgets = said.err.matches("projects forget").count();
    assert_eq!(forgets, 1, "`forget` must be suggested exactly once: {said:?}");
    for looking in ["status", "projects", "doctor"] {
        let said = outside(&[looking]);
        assert!(format!("{}{}", said.out, said.err).contains(&repair), "{looking}: {said:?}");
    }
    outside(&["night"]).ends(78).expect_text(&repair);
    fs::create_dir(fixture.project()).unwrap();
    fixture.git(&["-C", moved.to_str().unwrap(), "worktree", "repair", tree.to_str().unwrap()]);
    outside(&["night"]).ends(0);
}

/// Creates a fixture with a job that runs this script in the project without a sandbox, and a job
/// that always fails.
fn with_job(script: &str) -> Fixture {
    let fixture = Fixture::with(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n\
         [jobs.broken]\nkind = \"command\"\nprogram = \"false\"\nretries = 0\n\
         [jobs.evil]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\nsandbox = \"off\"\n\
         [jobs.evil.day_budget]\ntime = \"10h\"\n"
    ));
    fixture.git(&["add", "runner.toml"]);
    fixture.git(&["commit", "--quiet", "-m", "Look after it"]);
    fixture
}

/// Returns the project's id, and the jobs that its status lists as paused or stopped.
fn kept_back(fixture: &Fixture) -> (String, Vec<serde_json::Value>) {
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let project = &status["projects"][0];
    let rows = ["paused", "stopped"].map(|key| project[key].clone());
    let id = project["id"].as_str().unwrap().to_owned();
    (id, rows.into())
}

const OTHER: &str = "01KA5V7Q4B0000000000000000";

#[test]
fn jobs_cannot_change_the_project_id() {
    let swap = "git clone --quiet . .swap && rm -rf .git && mv .swap/.git .git && rm -rf .swap";
    let toml = format!("sed -i 's/^id = .*/id = \\\"{OTHER}\\\"/' runner.toml");
    for (name, script, said) in [
        ("rewritten", format!("echo {OTHER} > .git/runner-id"), OTHER),
        ("removed", "rm .git/runner-id".to_owned(), "is missing"),
        ("broken", "echo x > .git/runner-id".to_owned(), "cannot be used"),
        (
            "a folder",
            "rm .git/runner-id; mkdir .git/runner-id; touch .git/runner-id/x".to_owned(),
            "cannot be used",
        ),
        ("another git folder", swap.to_owned(), "is missing"),
        ("the seed too", format!("{toml}; echo {OTHER} > .git/runner-id"), OTHER),
    ] {
        let fixture = with_job(&script);
        fixture.run(&["pause", "tidy"]).ends(0);
        for _ in 0..3 {
            fixture.run(&["run", "broken"]).ends(1);
        }
        let before = kept_back(&fixture);
        assert!(before.1.iter().all(|it| it.as_array().unwrap().len() == 1));
        // Budget usage is recorded per project and day, so another project would add rows.
        let accounts = "SELECT count(*) FROM budget_usage";
        fixture.run(&["run", "evil"]).ends(0);
        let used = fixture.count(accounts);
        assert!(used > 0);
        fixture.run(&["run", "evil"]);
        assert_eq!(kept_back(&fixture), before, "{name}");
        assert_eq!(fixture.count(accounts), used, "{name}");
        assert_eq!(fixture.count("SELECT count(*) FROM projects"), 1, "{name}");
        assert_eq!(fixture.count("SELECT count(DISTINCT project) FROM jobs"), 1);
        fixture.run(&["tick"]).ends(0);
        for looking in ["projects", "status", "doctor"] {
            let said_of = fixture.run(&[looking]);
            let all = format!("{}{}", said_of.out, said_of.err);
            assert!(all.contains(said), "{name}, {looking}: {all}");
            assert!(all.contains("continues as"), "{name}, {looking}: {all}");
        }
        assert_eq!(standings(&fixture), pairs(&[("project", "known")]), "{name}");
        if name == "a folder" {
            fs::remove_dir_all(fixture.path(".git/runner-id")).unwrap();
        }
        fixture.run(&["init"]).ends(0).expect_text("runner-id");
        assert_eq!(fixture.read(".git/runner-id").trim(), before.0, "{name}");
        let listed = fixture.run(&["projects", "--json"]).ends(0).json();
        assert!(listed[0]["trouble"].is_null(), "{name}: {listed}");
        assert_eq!(kept_back(&fixture), before, "{name}");
    }
}

#[test]
fn bind_mount_is_the_same_project() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    fixture.write(".git/runner-id", format!("{OTHER}\n"));
    let mount = fixture.root().join("mount");
    fs::create_dir(&mount).unwrap();
    let script = "mount --bind \"$1\" \"$2\" || exit 99; cd \"$2\" && exec \"$3\" night";
    let apart = ["-m", "sh", "-c", script, "sh"];
    let (from, to) = (fixture.project(), mount.to_str().unwrap().to_owned());
    let paths = [from.to_str().unwrap(), &to, env!("CARGO_BIN_EXE_runner")];
    let mut apart = fixture.command("unshare", &[&apart[..], &paths].concat());
    match apart.output().map(CommandOutput::of) {
        Ok(said) if said.code != 99 && !said.err.contains("unshare:") => said.ends(0),
        _ => return print_line("skipped 1: nothing can be mounted here"),
    };
    assert_eq!(fixture.count("SELECT count(*) FROM projects"), 1);
    assert_eq!(fixture.count("SELECT count(DISTINCT project) FROM nights"), 1);
}

#[test]
fn new_id_creates_a_separate_project() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    let old = fixture.read(".git/runner-id");
    fixture.run(&["init", "--new-id"]).ends(0);
    let new = fixture.read(".git/runner-id");
    assert_ne!(old, new);
    fixture.run(&["night"]).ends(0);
    let (id, _) = kept_back(&fixture);
    assert_eq!(id, new.trim());
    assert_eq!(fixture.count("SELECT count(DISTINCT project) FROM nights"), 2);
    let listed = fixture.run(&["projects", "--json"]).ends(0).json();
    let mut found: Vec<_> =
        listed.as_array().unwrap().iter().map(|it| it["standing"].as_str().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, ["known", "overtaken"]);
}

#[test]
fn databases_keep_separate_project_ids() {
    let fixture = committed();
    fixture.run(&["tick"]).ends(0);
    let (first, _) = kept_back(&fixture);
    let other = |args: &[&str]| {
        let mut command = fixture.runner(args);
        command.env("XDG_STATE_HOME", fixture.root().join("state-2"));
        CommandOutput::of(command.output().unwrap())
    };
    // The second database adopts the folder's id.
    other(&["night"]).ends(0);
    let id = |said: CommandOutput| said.json()["projects"][0]["id"].clone();
    assert_eq!(id(other(&["status", "--json"]).ends(0)), first.as_str());
    other(&["init", "--new-id"]).ends(0);
    assert_ne!(id(other(&["status", "--json"]).ends(0)), first.as_str());
    // The first database reports the other id and continues with its own id.
    assert_eq!(kept_back(&fixture).0, first);
    fixture
        .run(&["projects"])
        .ends(0)
        .expect_text("contains the id of another project")
        .expect_text("runner init");
    fixture.run(&["night"]).ends(0);
    assert_eq!(fixture.count("SELECT count(*) FROM projects"), 1);
}

#[test]
fn reused_inode_is_not_the_old_project() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    let bare = fixture.root().join("bare");
    let (from, to) = (fixture.project(), bare.to_str().unwrap().to_owned());
    fixture.git(&["clone", "--quiet", "--bare", ".", &to]);
    fs::remove_dir_all(&from).unwrap();
    // The file system may reuse the inode.
    let outside = fixture
        .command("git", &["clone", "--quiet", &to, from.to_str().unwrap()])
        .current_dir(fixture.root())
        .status()
        .unwrap();
    assert!(outside.success());
    fixture.run(&["night"]).ends(78).expect_text("is not the clone");
    fixture.run(&["init"]).ends(0);
    fixture.run(&["night"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
}

#[test]
fn symlink_is_the_same_project() {
    let fixture = committed();
    let link = fixture.root().join("link");
    symlink(fixture.project(), &link).unwrap();
    at(&fixture, &link, &["night"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
    at(&fixture, &link, &["runs"]).ends(0).expect_text("tidy");
}
