//! Which folder is which project: known, moved, copied, cloned, replaced, gone, forgotten.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::house::{House, Said, tell};

const SMALL: &str = "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 15m\"\n";

/// A house whose project is committed, so that it can be cloned.
fn committed() -> House {
    let house = House::with(SMALL);
    house.git(&["add", "runner.toml"]);
    house.git(&["commit", "--quiet", "-m", "Look after it"]);
    house
}

fn at(house: &House, folder: &Path, args: &[&str]) -> Said {
    let mut all = vec!["-C", folder.to_str().unwrap()];
    all.extend(args);
    house.run(&all)
}

fn copy(house: &House, to: &str) -> PathBuf {
    let to = house.root().join(to);
    let done = house
        .command("cp", &["-a"])
        .arg(house.project())
        .arg(&to)
        .status()
        .unwrap();
    assert!(done.success());
    to
}

fn standings(house: &House) -> Vec<(String, String)> {
    let list = house.run(&["projects", "--json"]).ends(0).json();
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

/// One tick at this moment.
fn tick(house: &House, now: &str) -> Said {
    let clock = house.root().join("clock");
    fs::write(&clock, now).unwrap();
    let mut command = house.runner(&["tick"]);
    Said::of(command.env("RUNNER_TEST_CLOCK", &clock).output().unwrap())
}

/// A command at the moment of the last tick.
fn then(house: &House, args: &[&str]) -> Said {
    let mut command = house.runner(args);
    command.env("RUNNER_TEST_CLOCK", house.root().join("clock"));
    Said::of(command.output().unwrap())
}

#[test]
fn init_tells_what_it_writes_and_writes_it_once() {
    let house = House::new();
    house
        .run(&["init"])
        .ends(0)
        .says("wrote   runner.toml")
        .says("git folder (runner-id)")
        .says("made    ideas/")
        .says("ignored /dreams/ and /.runner/ and /_steps.jsonl and /daydreams.json in .git/info/exclude");
    let before = house.tree(".");
    let id = house.read(".git/runner-id");
    house.run(&["init"]).ends(0).says("nothing was written");
    assert_eq!(house.tree("."), before);
    assert_eq!(house.read(".git/runner-id"), id);
    // What was a project before clones had ids of their own still is, and gets its own.
    fs::remove_file(house.path(".git/runner-id")).unwrap();
    house.run(&["tick"]).ends(0);
    house.run(&["init"]).ends(0).says("runner-id");
    assert_eq!(house.read(".git/runner-id"), id);
    assert_eq!(standings(&house), pairs(&[("project", "known")]));
}

#[test]
fn init_writes_nothing_before_all_is_checked() {
    let house = House::new();
    let untouched = |house: &House, code: i32, words: &str| {
        let before = house.tree(".");
        let exclude = house.read(".git/info/exclude");
        house.run(&["init"]).ends(code).says(words);
        assert_eq!(house.tree("."), before, "{words}");
        assert_eq!(house.read(".git/info/exclude"), exclude, "{words}");
        assert!(!house.path(".git/runner-id").exists(), "{words}");
    };
    house.write("dreams", "a file\n");
    untouched(&house, 65, "is no folder");
    fs::remove_file(house.path("dreams")).unwrap();
    house.write("runner.toml", "[nigth]\nat = \"01:00\"\n");
    untouched(&house, 78, "nigth");
    fs::remove_file(house.path("runner.toml")).unwrap();
    let user = house.root().join("config/runner/config.toml");
    let good = fs::read(&user).unwrap();
    fs::write(&user, "[defaults]\nretires = 1\n").unwrap();
    untouched(&house, 78, "retires");
    fs::write(&user, good).unwrap();
    // The ledger that it would be written to cannot be.
    fs::write(house.root().join("state"), "").unwrap();
    untouched(&house, 73, "state");
    fs::remove_file(house.root().join("state")).unwrap();
    house.run(&["init"]).ends(0);
}

#[test]
fn a_file_of_init_can_be_changed_by_hand_and_by_command() {
    let house = House::new();
    house.run(&["init"]).ends(0);
    house
        .run(&["config", "set", "jobs.dream.max_ideas", "7"])
        .ends(0);
    // Whatever stands there in comments may be made to count.
    let text = house.read("runner.toml");
    let tables = text.lines().filter(|line| line.contains("[jobs.dream]"));
    assert_eq!(tables.count(), 1, "{text}");
}

#[test]
fn a_copy_is_asked_about_and_becomes_a_project_of_its_own() {
    let house = committed();
    let copy = copy(&house, "copy");
    at(&house, &copy, &["night"])
        .ends(78)
        .says("one of them is a copy")
        .says("runner init --new-id");
    // Plain init does not guess which of the two is the copy.
    at(&house, &copy, &["init"]).ends(78).says("--new-id");
    let committed = fs::read(copy.join("runner.toml")).unwrap();
    at(&house, &copy, &["init", "--new-id"]).ends(0);
    assert_eq!(fs::read(copy.join("runner.toml")).unwrap(), committed);
    at(&house, &copy, &["night"]).ends(0);
    house.run(&["night"]).ends(0);
    assert_eq!(
        standings(&house),
        pairs(&[("copy", "known"), ("project", "known")])
    );
    assert_eq!(house.count("SELECT count(DISTINCT project) FROM nights"), 2);
}

#[test]
fn a_clone_and_a_worktree_work_after_a_plain_init() {
    let house = committed();
    let clone = house.root().join("clone");
    house.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    let tree = house.root().join("tree");
    house.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    let ids: Vec<String> = [&clone, &tree]
        .into_iter()
        .map(|folder| {
            at(&house, folder, &["night"])
                .ends(78)
                .says("another clone or worktree")
                .says(&format!("runner init {}", folder.display()));
            at(&house, folder, &["init"]).ends(0);
            at(&house, folder, &["init"])
                .ends(0)
                .says("nothing was written");
            at(&house, folder, &["night"]).ends(0);
            let changed = house.git(&["-C", folder.to_str().unwrap(), "status", "--porcelain"]);
            assert!(!changed.contains("runner.toml"), "{changed}");
            let status = at(&house, folder, &["status", "--json"]).ends(0).json();
            assert_eq!(status["projects"].as_array().unwrap().len(), 1);
            status["projects"][0]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let seed = house.read(".git/runner-id").trim().to_owned();
    assert!(ids[0] != ids[1] && !ids.contains(&seed), "{ids:?} {seed}");
    assert!(house.path(".git/worktrees/tree/runner-id").is_file());
    house.run(&["night"]).ends(0);
    house.run(&["tick"]).ends(0);
    assert_eq!(
        standings(&house),
        pairs(&[("clone", "known"), ("project", "known"), ("tree", "known")])
    );
    // Cloned again in the same place: it goes on as the project that was there.
    fs::remove_dir_all(&clone).unwrap();
    house.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    at(&house, &clone, &["night"])
        .ends(78)
        .says("another clone than the one")
        .says("runner init");
    at(&house, &clone, &["init"]).ends(0);
    assert_eq!(
        fs::read_to_string(clone.join(".git/runner-id"))
            .unwrap()
            .trim(),
        ids[0]
    );
    at(&house, &clone, &["night"]).ends(0);
    assert_eq!(standings(&house).len(), 3);
}

#[test]
fn a_moved_project_keeps_its_history() {
    let house = committed();
    house.run(&["night"]).ends(0);
    let new = house.root().join("elsewhere");
    fs::rename(house.project(), &new).unwrap();
    let (old, to) = (house.project(), new.display().to_string());
    fs::create_dir(house.project()).unwrap();
    at(&house, &new, &["night"])
        .ends(78)
        .says(&format!("runner projects move {} {to}", old.display()));
    at(&house, &new, &["init"]).ends(78).says("projects move");
    let nowhere = house.root().display().to_string();
    let old = old.display().to_string();
    house
        .run(&["projects", "move", &old, &nowhere])
        .ends(65)
        .says("is no project");
    house.run(&["projects", "move", &old, &to]).ends(0);
    house
        .run(&["projects", "move", &to, &to])
        .ends(0)
        .says("there already");
    at(&house, &new, &["night"]).ends(0);
    assert_eq!(standings(&house), pairs(&[("elsewhere", "known")]));
    assert_eq!(house.count("SELECT count(*) FROM nights"), 2);
}

#[test]
fn a_move_that_is_none_is_refused() {
    let house = committed();
    let copy = copy(&house, "copy");
    let (old, to) = (house.project(), copy.display().to_string());
    let old = old.to_str().unwrap();
    house
        .run(&["projects", "move", old, &to])
        .ends(65)
        .says("is still there")
        .says("--new-id");
    at(&house, &copy, &["init", "--new-id"]).ends(0);
    house
        .run(&["projects", "move", old, &to])
        .ends(65)
        .says("a project of its own already");
    house
        .run(&["projects", "move", "/nowhere", &to])
        .ends(65)
        .says("runner projects");
    assert_eq!(
        standings(&house),
        pairs(&[("copy", "known"), ("project", "known")])
    );
}

#[test]
fn a_folder_that_was_replaced_goes_on_as_the_same_project() {
    let house = committed();
    house.run(&["tick"]).ends(0);
    let copy = copy(&house, "restored");
    fs::remove_dir_all(house.project()).unwrap();
    // Something takes the inode, so that it cannot come back by chance.
    fs::create_dir(house.root().join("taken")).unwrap();
    fs::rename(&copy, house.project()).unwrap();
    assert_eq!(standings(&house), pairs(&[("project", "replaced")]));
    house.run(&["status"]).ends(0);
    house.run(&["tick"]).ends(0);
    assert_eq!(standings(&house), pairs(&[("project", "known")]));
}

#[test]
fn a_clone_at_the_place_of_a_project_that_moved_is_not_taken_for_it() {
    let house = committed();
    house.run(&["tick"]).ends(0);
    let (project, moved) = (house.project(), house.root().join("moved"));
    fs::rename(&project, &moved).unwrap();
    fs::create_dir_all(&project).unwrap();
    house.git(&["clone", "--quiet", moved.to_str().unwrap(), "."]);
    at(&house, &moved, &["tick"])
        .ends(78)
        .says("another clone than the one")
        .says("runner projects move");
    assert_eq!(standings(&house), pairs(&[("project", "recloned")]));
    at(&house, &moved, &["night"])
        .ends(78)
        .says("runner projects move");
    let (from, to) = (project.to_str().unwrap(), moved.to_str().unwrap());
    at(&house, &moved, &["projects", "move", from, to]).ends(0);
    assert_eq!(standings(&house), pairs(&[("moved", "known")]));
    at(&house, &moved, &["tick"]).ends(0);
    house.run(&["init"]).ends(0);
    assert_eq!(
        standings(&house),
        pairs(&[("moved", "known"), ("project", "known")])
    );
    // What is a project of its own is no place to move to.
    house
        .run(&["projects", "move", to, from])
        .ends(65)
        .says("a project of its own already");
}

#[test]
fn a_worktree_whose_repository_moved_is_told_to_be_repaired() {
    let house = committed();
    let tree = house.root().join("tree");
    house.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    house.run(&["tick"]).ends(0);
    at(&house, &tree, &["init"]).ends(0);
    at(&house, &tree, &["tick"]).ends(0);
    let moved = house.root().join("moved");
    fs::rename(house.project(), &moved).unwrap();
    let repair = format!("worktree repair {}", tree.display());
    let outside = |args: &[&str]| {
        let mut command = house.runner(&["-C", tree.to_str().unwrap()]);
        Said::of(
            command
                .args(args)
                .current_dir(house.root())
                .output()
                .unwrap(),
        )
    };
    let said = outside(&["tick"]).ends(78).says(&repair);
    let forgets = said.err.matches("projects forget").count();
    assert_eq!(forgets, 1, "only what is gone itself: {said:?}");
    for looking in ["status", "projects", "doctor"] {
        let said = outside(&[looking]);
        assert!(
            format!("{}{}", said.out, said.err).contains(&repair),
            "{looking}: {said:?}"
        );
    }
    outside(&["night"]).ends(78).says(&repair);
    fs::create_dir(house.project()).unwrap();
    house.git(&[
        "-C",
        moved.to_str().unwrap(),
        "worktree",
        "repair",
        tree.to_str().unwrap(),
    ]);
    outside(&["night"]).ends(0);
}

#[test]
fn a_project_without_its_git_folder_is_in_trouble() {
    let house = committed();
    house.run(&["tick"]).ends(0);
    let (git, aside) = (house.path(".git"), house.root().join("aside"));
    fs::rename(&git, &aside).unwrap();
    house
        .run(&["tick"])
        .ends(78)
        .says("there is no .git")
        .says("to mend it");
    house
        .run(&["status"])
        .ends(0)
        .says("TROUBLE")
        .says("there is no .git");
    house.run(&["projects"]).ends(0).says("there is no .git");
    fs::rename(&aside, &git).unwrap();
    house.run(&["tick"]).ends(0);
    assert!(!house.run(&["status"]).ends(0).out.contains("TROUBLE"));
}

/// A job that runs this in the project, without walls, and one that is held back.
fn with_job(script: &str) -> House {
    let house = House::with(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n\
         [jobs.broken]\nkind = \"command\"\nprogram = \"false\"\nretries = 0\n\
         [jobs.evil]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\nsandbox = \"off\"\n\
         [jobs.evil.day_budget]\ntime = \"10h\"\n"
    ));
    house.git(&["add", "runner.toml"]);
    house.git(&["commit", "--quiet", "-m", "Look after it"]);
    house
}

/// What the project's status says of its id, its budgets and what is held back.
fn kept_back(house: &House) -> (String, Vec<serde_json::Value>) {
    let status = house.run(&["status", "--json"]).ends(0).json();
    let project = &status["projects"][0];
    let rows = ["paused", "stopped"].map(|key| project[key].clone());
    let id = project["id"].as_str().unwrap().to_owned();
    (id, rows.into())
}

const OTHER: &str = "01KA5V7Q4B0000000000000000";

#[test]
fn no_child_makes_a_project_another_one() {
    let swap = "git clone --quiet . .swap && rm -rf .git && mv .swap/.git .git && rm -rf .swap";
    let toml = format!("sed -i 's/^id = .*/id = \\\"{OTHER}\\\"/' runner.toml");
    for (name, script, said) in [
        ("rewritten", format!("echo {OTHER} > .git/runner-id"), OTHER),
        ("removed", "rm .git/runner-id".to_owned(), "is missing"),
        (
            "broken",
            "echo x > .git/runner-id".to_owned(),
            "cannot be used",
        ),
        (
            "a folder",
            "rm .git/runner-id; mkdir .git/runner-id; touch .git/runner-id/x".to_owned(),
            "cannot be used",
        ),
        ("another git folder", swap.to_owned(), "is missing"),
        (
            "the seed too",
            format!("{toml}; echo {OTHER} > .git/runner-id"),
            OTHER,
        ),
    ] {
        let house = with_job(&script);
        house.run(&["pause", "tidy"]).ends(0);
        for _ in 0..3 {
            house.run(&["run", "broken"]).ends(1);
        }
        let before = kept_back(&house);
        assert!(before.1.iter().all(|it| it.as_array().unwrap().len() == 1));
        // A project's day has accounts of its own: another project would bring new ones.
        let accounts = "SELECT count(*) FROM accounts";
        house.run(&["run", "evil"]).ends(0);
        let used = house.count(accounts);
        assert!(used > 0);
        house.run(&["run", "evil"]);
        assert_eq!(kept_back(&house), before, "{name}");
        assert_eq!(house.count(accounts), used, "{name}");
        assert_eq!(house.count("SELECT count(*) FROM projects"), 1, "{name}");
        assert_eq!(house.count("SELECT count(DISTINCT project) FROM jobs"), 1);
        house.run(&["tick"]).ends(0);
        for looking in ["projects", "status", "doctor"] {
            let said_of = house.run(&[looking]);
            let all = format!("{}{}", said_of.out, said_of.err);
            assert!(all.contains(said), "{name}, {looking}: {all}");
            assert!(all.contains("goes on as"), "{name}, {looking}: {all}");
        }
        assert_eq!(standings(&house), pairs(&[("project", "known")]), "{name}");
        if name == "a folder" {
            fs::remove_dir_all(house.path(".git/runner-id")).unwrap();
        }
        house.run(&["init"]).ends(0).says("runner-id");
        assert_eq!(house.read(".git/runner-id").trim(), before.0, "{name}");
        let listed = house.run(&["projects", "--json"]).ends(0).json();
        assert!(listed[0]["trouble"].is_null(), "{name}: {listed}");
        assert_eq!(kept_back(&house), before, "{name}");
    }
}

#[test]
fn another_mount_of_a_project_is_the_same_project() {
    let house = committed();
    house.run(&["night"]).ends(0);
    house.write(".git/runner-id", format!("{OTHER}\n"));
    let mount = house.root().join("mount");
    fs::create_dir(&mount).unwrap();
    let script = "mount --bind \"$1\" \"$2\" || exit 99; cd \"$2\" && exec \"$3\" night";
    let apart = ["-m", "sh", "-c", script, "sh"];
    let (from, to) = (house.project(), mount.to_str().unwrap().to_owned());
    let paths = [from.to_str().unwrap(), &to, env!("CARGO_BIN_EXE_runner")];
    let mut apart = house.command("unshare", &[&apart[..], &paths].concat());
    match apart.output().map(Said::of) {
        Ok(said) if said.code != 99 && !said.err.contains("unshare:") => said.ends(0),
        _ => return tell("skipped 1: nothing can be mounted here"),
    };
    assert_eq!(house.count("SELECT count(*) FROM projects"), 1);
    assert_eq!(house.count("SELECT count(DISTINCT project) FROM nights"), 1);
}

#[test]
fn a_new_id_counts_although_the_database_knew_the_folder() {
    let house = committed();
    house.run(&["night"]).ends(0);
    let old = house.read(".git/runner-id");
    house.run(&["init", "--new-id"]).ends(0);
    let new = house.read(".git/runner-id");
    assert_ne!(old, new);
    house.run(&["night"]).ends(0);
    let (id, _) = kept_back(&house);
    assert_eq!(id, new.trim());
    assert_eq!(house.count("SELECT count(DISTINCT project) FROM nights"), 2);
    let listed = house.run(&["projects", "--json"]).ends(0).json();
    let mut found: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["standing"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["known", "overtaken"]);
}

#[test]
fn two_databases_keep_their_own_ids_of_a_folder() {
    let house = committed();
    house.run(&["tick"]).ends(0);
    let (first, _) = kept_back(&house);
    let other = |args: &[&str]| {
        let mut command = house.runner(args);
        command.env("XDG_STATE_HOME", house.root().join("state-2"));
        Said::of(command.output().unwrap())
    };
    // It takes over what the folder carries, as after a loss.
    other(&["night"]).ends(0);
    let id = |said: Said| said.json()["projects"][0]["id"].clone();
    assert_eq!(id(other(&["status", "--json"]).ends(0)), first.as_str());
    other(&["init", "--new-id"]).ends(0);
    assert_ne!(id(other(&["status", "--json"]).ends(0)), first.as_str());
    // The first one is told, and goes on.
    assert_eq!(kept_back(&house).0, first);
    house
        .run(&["projects"])
        .ends(0)
        .says("names another project")
        .says("runner init");
    house.run(&["night"]).ends(0);
    assert_eq!(house.count("SELECT count(*) FROM projects"), 1);
}

#[test]
fn the_inode_of_a_removed_project_is_not_that_project() {
    let house = committed();
    house.run(&["night"]).ends(0);
    let bare = house.root().join("bare");
    let (from, to) = (house.project(), bare.to_str().unwrap().to_owned());
    house.git(&["clone", "--quiet", "--bare", ".", &to]);
    fs::remove_dir_all(&from).unwrap();
    // The file system may give it the same inode again.
    let outside = house
        .command("git", &["clone", "--quiet", &to, from.to_str().unwrap()])
        .current_dir(house.root())
        .status()
        .unwrap();
    assert!(outside.success());
    house
        .run(&["night"])
        .ends(78)
        .says("another clone than the one");
    house.run(&["init"]).ends(0);
    house.run(&["night"]).ends(0);
    assert_eq!(standings(&house), pairs(&[("project", "known")]));
}

#[test]
fn a_vanished_project_is_said_once_and_what_it_missed_is_kept() {
    let house = House::new();
    tick(&house, "2026-11-21T20:00:00Z");
    then(&house, &["init"]).ends(0);
    house.configure(SMALL);
    tick(&house, "2026-11-21T20:01:00Z").ends(0);
    let away = house.root().join("away");
    fs::rename(house.project(), &away).unwrap();
    let project = house.project();
    fs::create_dir(house.root().join("here")).unwrap();
    let inside = |args: &[&str]| {
        let mut command = house.runner(args);
        command
            .current_dir(house.root().join("here"))
            .env("RUNNER_TEST_CLOCK", house.root().join("clock"));
        Said::of(command.output().unwrap())
    };
    let tick_away = |now: &str| {
        fs::write(house.root().join("clock"), now).unwrap();
        inside(&["tick"])
    };
    tick_away("2026-11-21T20:02:00Z")
        .ends(78)
        .says("the project is gone")
        .says("projects move")
        .says("projects forget");
    // Due three times, in as many ticks: nothing is said again, and one row tells of all.
    for now in ["20:16", "20:31", "20:50"] {
        let said = tick_away(&format!("2026-11-21T{now}:00Z")).ends(0);
        assert_eq!(said.err, "", "{now}");
    }
    let missed = "SELECT count(*) FROM occurrences WHERE missed";
    assert_eq!(house.count(missed), 1);
    assert_eq!(house.count("SELECT count(*) FROM runs"), 0);
    let status = inside(&["status", "--json"]).ends(0).json();
    let told = &status["projects"][0];
    assert_eq!(told["standing"], "vanished");
    assert_eq!(told["missed_this_week"][0]["count"], 3, "{told}");
    assert_eq!(
        told["missed_this_week"][0]["why"],
        "the project is gone: its folder is not there"
    );
    inside(&["status"])
        .ends(0)
        .says("TROUBLE")
        .says("projects forget");
    inside(&["projects"]).ends(0).says("vanished");
    // It comes back and goes on; what was missed stays missed.
    fs::rename(&away, &project).unwrap();
    tick(&house, "2026-11-21T21:01:00Z").ends(0);
    assert_eq!(house.count(missed), 1);
    assert_eq!(house.count("SELECT count(*) FROM runs"), 1);
    assert_eq!(standings(&house), pairs(&[("project", "known")]));
}

#[test]
fn a_folder_that_cannot_be_looked_at_is_told_from_one_that_is_gone() {
    if !rustix::process::geteuid().is_root() {
        crate::house::tell("skipped 1: only root can become somebody else");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut house = House::at(folder);
    let own = house.command("chown", &["-R", "65534:65534"]);
    let mut own = own;
    assert!(own.arg(house.root()).status().unwrap().success());
    house.uid = Some(65534);
    house.run(&["init"]).ends(0);
    house.configure(SMALL);
    house.run(&["tick"]).ends(0);
    fs::set_permissions(house.project(), fs::Permissions::from_mode(0o000)).unwrap();
    let outside = |args: &[&str]| {
        let mut command = house.runner(args);
        command.current_dir(house.root());
        Said::of(command.output().unwrap())
    };
    outside(&["tick"]).ends(78).says("cannot be looked at");
    outside(&["tick"]).ends(0);
    outside(&["projects"])
        .ends(0)
        .says("unreadable")
        .says("ls -ld");
    fs::set_permissions(house.project(), fs::Permissions::from_mode(0o755)).unwrap();
    outside(&["tick"]).ends(0);
    outside(&["projects"]).ends(0).says("known");
    // The same file, which nobody may read any more.
    let file = house.path("runner.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    outside(&["tick"]).ends(78).says("runner.toml");
    outside(&["status"]).ends(0).says("TROUBLE").says("ls -l");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    outside(&["tick"]).ends(0);
}

#[test]
fn another_name_of_the_same_folder_is_the_same_project() {
    let house = committed();
    let link = house.root().join("link");
    symlink(house.project(), &link).unwrap();
    at(&house, &link, &["night"]).ends(0);
    assert_eq!(standings(&house), pairs(&[("project", "known")]));
    at(&house, &link, &["runs"]).ends(0).says("tidy");
}

#[test]
fn forgetting_shows_a_plan_and_does_just_that() {
    let house = committed();
    house.run(&["night"]).ends(0);
    let other = copy(&house, "other");
    at(&house, &other, &["init", "--new-id"]).ends(0);
    at(&house, &other, &["night"]).ends(0);
    let kept: Vec<i64> = counts(&house, "AND 1");
    let plan = house.run(&["projects", "forget", "."]).ends(0);
    assert!(
        plan.out.contains("would forget") && plan.out.contains("1 night"),
        "{plan:?}"
    );
    assert!(plan.out.contains("nothing was done"), "{plan:?}");
    assert_eq!(counts(&house, "AND 1"), kept, "a plan changes nothing");
    let files = house.tree(".");
    house
        .run(&["projects", "forget", ".", "--yes"])
        .ends(0)
        .says("forgotten");
    assert_eq!(house.tree("."), files, "the project's own files stay");
    let other_path = other.display().to_string();
    assert_eq!(standings(&house), pairs(&[("other", "known")]));
    for (left, all) in counts(&house, "AND 1").into_iter().zip(kept) {
        assert!(
            left > 0 && left * 2 == all,
            "half of all was the other's: {left} of {all}"
        );
    }
    let runs = fs::read_dir(house.state().join("runs")).unwrap().count() as i64;
    assert_eq!(runs, house.count("SELECT count(*) FROM runs"));
    house
        .run(&["projects", "forget", &other_path, "--yes"])
        .ends(0);
    assert_eq!(counts(&house, "AND 1"), vec![0; 4]);
    house
        .run(&["projects", "forget", ".", "--yes"])
        .ends(65)
        .says("no project");
    // It begins anew where it was.
    house.run(&["night"]).ends(0);
}

fn counts(house: &House, also: &str) -> Vec<i64> {
    ["runs", "occurrences", "nights", "jobs"]
        .map(|table| house.count(&format!("SELECT count(*) FROM {table} WHERE 1 {also}")))
        .to_vec()
}

#[test]
fn a_project_whose_run_lives_is_not_forgotten() {
    let house = House::with(
        "[jobs.dream]\nenabled = false\n[jobs.wait]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo > began; cat fifo\"]\n",
    );
    assert!(
        house
            .command("mkfifo", &["fifo"])
            .status()
            .unwrap()
            .success()
    );
    let mut child = house
        .runner(&["--quiet", "run", "wait"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Opening the other end waits until the program reads.
    let end = fs::File::options()
        .write(true)
        .open(house.path("fifo"))
        .unwrap();
    house
        .run(&["projects", "forget", ".", "--yes"])
        .ends(75)
        .says("runs that are not over")
        .says("runner cancel");
    let status = house.run(&["status", "--json"]).ends(0).json();
    let lock = &status["projects"][0]["locks"][0];
    assert_eq!(lock["job"], "wait", "{status}");
    assert_eq!(lock["run"], status["projects"][0]["live"][0]["run"]);
    assert_eq!(status["live_runs"], 1);
    house
        .run(&["status"])
        .ends(0)
        .says("locked")
        .says("wait by PID");
    drop(end);
    child.wait().unwrap();
    house.run(&["projects", "forget", ".", "--yes"]).ends(0);
}
