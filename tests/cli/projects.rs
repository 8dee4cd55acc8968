//! Tests how folders are matched to projects: known, moved, copied, cloned, replaced, gone,
//! forgotten.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::fixture::{CommandOutput, Fixture, print_line};

const SMALL: &str = "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 15m\"\n";

/// Creates a fixture whose project is committed, so that it can be cloned.
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
    let clock = fixture.root().join("clock");
    fs::write(&clock, now).unwrap();
    let mut command = fixture.runner(&["tick"]);
    CommandOutput::of(command.env("RUNNER_TEST_CLOCK", &clock).output().unwrap())
}

/// Runs a command at the time of the last tick.
fn then(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    let mut command = fixture.runner(args);
    command.env("RUNNER_TEST_CLOCK", fixture.root().join("clock"));
    CommandOutput::of(command.output().unwrap())
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
        .expect_text("ignored /dreams/ and /.runner/ and /_steps.jsonl and /daydreams.json in .git/info/exclude");
    let before = fixture.tree(".");
    let id = fixture.read(".git/runner-id");
    fixture.run(&["init"]).ends(0).expect_text("nothing was written");
    assert_eq!(fixture.tree("."), before);
    assert_eq!(fixture.read(".git/runner-id"), id);
    // A project that was registered before clones had separate ids is still known, and gets its id
    // file.
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
    // The database cannot be created, because a file is in its place.
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
    // A person may uncomment any line of the file, so the table must occur once, comments included.
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
    // A new clone in the same place continues as the project that was there.
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
    // A new folder takes the inode, so that it cannot be reused by chance.
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
    assert_eq!(forgets, 1, "`forget` is not suggested exactly once: {said:?}");
    for looking in ["status", "projects", "doctor"] {
        let said = outside(&[looking]);
        assert!(format!("{}{}", said.out, said.err).contains(&repair), "{looking}: {said:?}");
    }
    outside(&["night"]).ends(78).expect_text(&repair);
    fs::create_dir(fixture.project()).unwrap();
    fixture.git(&["-C", moved.to_str().unwrap(), "worktree", "repair", tree.to_str().unwrap()]);
    outside(&["night"]).ends(0);
}

#[test]
fn missing_git_folder_is_reported_as_trouble() {
    let fixture = committed();
    fixture.run(&["tick"]).ends(0);
    let (git, aside) = (fixture.path(".git"), fixture.root().join("aside"));
    fs::rename(&git, &aside).unwrap();
    fixture.run(&["tick"]).ends(78).expect_text("there is no .git").expect_text("fix: ");
    fixture.run(&["status"]).ends(0).expect_text("TROUBLE").expect_text("there is no .git");
    fixture.run(&["projects"]).ends(0).expect_text("there is no .git");
    fs::rename(&aside, &git).unwrap();
    fixture.run(&["tick"]).ends(0);
    assert!(!fixture.run(&["status"]).ends(0).out.contains("TROUBLE"));
}

/// Creates a fixture with a job that runs this script in the project without a sandbox, and a job
/// that is stopped after failures.
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
    // The second database adopts the id that the folder carries, as after a loss.
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
        .expect_text("names another project")
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
fn vanished_project_is_reported_once() {
    let fixture = Fixture::new();
    tick(&fixture, "2026-11-21T20:00:00Z");
    then(&fixture, &["init"]).ends(0);
    fixture.configure(SMALL);
    tick(&fixture, "2026-11-21T20:01:00Z").ends(0);
    let away = fixture.root().join("away");
    fs::rename(fixture.project(), &away).unwrap();
    let project = fixture.project();
    fs::create_dir(fixture.root().join("here")).unwrap();
    let inside = |args: &[&str]| {
        let mut command = fixture.runner(args);
        command
            .current_dir(fixture.root().join("here"))
            .env("RUNNER_TEST_CLOCK", fixture.root().join("clock"));
        CommandOutput::of(command.output().unwrap())
    };
    let tick_away = |now: &str| {
        fs::write(fixture.root().join("clock"), now).unwrap();
        inside(&["tick"])
    };
    tick_away("2026-11-21T20:02:00Z")
        .ends(78)
        .expect_text("the project is gone")
        .expect_text("projects move")
        .expect_text("projects forget");
    // The job is due three times, in three ticks: nothing is reported again, and a single row
    // covers all three times.
    for now in ["20:16", "20:31", "20:50"] {
        let said = tick_away(&format!("2026-11-21T{now}:00Z")).ends(0);
        assert_eq!(said.err, "", "{now}");
    }
    let missed = "SELECT count(*) FROM occurrences WHERE missed";
    assert_eq!(fixture.count(missed), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 0);
    let status = inside(&["status", "--json"]).ends(0).json();
    let reported = &status["projects"][0];
    assert_eq!(reported["standing"], "vanished");
    assert_eq!(reported["missed_this_week"][0]["count"], 3, "{reported}");
    assert_eq!(
        reported["missed_this_week"][0]["why"],
        "the project is gone: its folder is not there"
    );
    inside(&["status"]).ends(0).expect_text("TROUBLE").expect_text("projects forget");
    inside(&["projects"]).ends(0).expect_text("vanished");
    // The folder returns and the project continues; missed times stay missed.
    fs::rename(&away, &project).unwrap();
    tick(&fixture, "2026-11-21T21:01:00Z").ends(0);
    assert_eq!(fixture.count(missed), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 1);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
}

#[test]
fn unreadable_project_is_not_reported_as_vanished() {
    if !rustix::process::geteuid().is_root() {
        crate::fixture::print_line("skipped 1: only root can become somebody else");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut fixture = Fixture::at(folder);
    let own = fixture.command("chown", &["-R", "65534:65534"]);
    let mut own = own;
    assert!(own.arg(fixture.root()).status().unwrap().success());
    fixture.uid = Some(65534);
    fixture.run(&["init"]).ends(0);
    fixture.configure(SMALL);
    fixture.run(&["tick"]).ends(0);
    fs::set_permissions(fixture.project(), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = |args: &[&str]| {
        let mut command = fixture.runner(args);
        command.current_dir(fixture.root());
        CommandOutput::of(command.output().unwrap())
    };
    outside(&["tick"]).ends(78).expect_text("cannot be read");
    outside(&["tick"]).ends(0);
    outside(&["projects"]).ends(0).expect_text("unreadable").expect_text("ls -ld");
    fs::set_permissions(fixture.project(), fs::Permissions::from_mode(0o755)).unwrap();
    outside(&["tick"]).ends(0);
    outside(&["projects"]).ends(0).expect_text("known");
    // The file is unchanged but no longer readable.
    let file = fixture.path("runner.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    outside(&["tick"]).ends(78).expect_text("runner.toml");
    outside(&["status"]).ends(0).expect_text("TROUBLE").expect_text("ls -l");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    outside(&["tick"]).ends(0);
}

#[test]
fn symlink_leads_to_the_same_project() {
    let fixture = committed();
    let link = fixture.root().join("link");
    symlink(fixture.project(), &link).unwrap();
    at(&fixture, &link, &["night"]).ends(0);
    assert_eq!(standings(&fixture), pairs(&[("project", "known")]));
    at(&fixture, &link, &["runs"]).ends(0).expect_text("tidy");
}

#[test]
fn forget_removes_only_the_named_project() {
    let fixture = committed();
    fixture.run(&["night"]).ends(0);
    let other = copy(&fixture, "other");
    at(&fixture, &other, &["init", "--new-id"]).ends(0);
    at(&fixture, &other, &["night"]).ends(0);
    let kept: Vec<i64> = counts(&fixture, "AND 1");
    let plan = fixture.run(&["projects", "forget", "."]).ends(0);
    assert!(plan.out.contains("would forget") && plan.out.contains("1 night"), "{plan:?}");
    assert!(plan.out.contains("nothing was changed"), "{plan:?}");
    assert_eq!(counts(&fixture, "AND 1"), kept, "the plan changed something");
    let files = fixture.tree(".");
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(0).expect_text("forgotten");
    assert_eq!(fixture.tree("."), files, "the project's own files were changed");
    let other_path = other.display().to_string();
    assert_eq!(standings(&fixture), pairs(&[("other", "known")]));
    for (left, all) in counts(&fixture, "AND 1").into_iter().zip(kept) {
        assert!(left > 0 && left * 2 == all, "half of the rows should be left: {left} of {all}");
    }
    let runs = fs::read_dir(fixture.state().join("runs")).unwrap().count() as i64;
    assert_eq!(runs, fixture.count("SELECT count(*) FROM runs"));
    fixture.run(&["projects", "forget", &other_path, "--yes"]).ends(0);
    assert_eq!(counts(&fixture, "AND 1"), vec![0; 4]);
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(65).expect_text("no project");
    // The project starts again as a new one in the same folder.
    fixture.run(&["night"]).ends(0);
}

fn counts(fixture: &Fixture, also: &str) -> Vec<i64> {
    ["runs", "occurrences", "nights", "jobs"]
        .map(|table| fixture.count(&format!("SELECT count(*) FROM {table} WHERE 1 {also}")))
        .to_vec()
}

#[test]
fn project_with_live_run_is_not_forgotten() {
    let fixture = Fixture::with(
        "[jobs.dream]\nenabled = false\n[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo > began; cat fifo\"]\n",
    );
    assert!(fixture.command("mkfifo", &["fifo"]).status().unwrap().success());
    let mut child =
        fixture.runner(&["--quiet", "run", "wait"]).stderr(Stdio::null()).spawn().unwrap();
    // Opening the other end waits until the program reads.
    let end = fs::File::options().write(true).open(fixture.path("fifo")).unwrap();
    fixture
        .run(&["projects", "forget", ".", "--yes"])
        .ends(75)
        .expect_text("runs that are not over")
        .expect_text("runner cancel");
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    let lock = &status["projects"][0]["locks"][0];
    assert_eq!(lock["job"], "wait", "{status}");
    assert_eq!(lock["run"], status["projects"][0]["live"][0]["run"]);
    assert_eq!(status["live_runs"], 1);
    fixture.run(&["status"]).ends(0).expect_text("locked").expect_text("wait by PID");
    drop(end);
    child.wait().unwrap();
    fixture.run(&["projects", "forget", ".", "--yes"]).ends(0);
}
