//! Bad surroundings and bad input: a clear error or a recorded skip, nothing lost, the rest done.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::house::{House, Said, tell};

const GOOD: &str = "# Faster start\n\nThe start takes two seconds, mostly spent on reading the whole table.\n\n\
## Proposal\n\n1. Read the table lazily.\n2. Measure the start in a test.\n\n## Acceptance\n\n- The start takes less than 200 ms.\n";

fn dreaming() -> House {
    let house = House::new();
    house.run(&["init"]).ends(0);
    house.write("ideas/good.md", GOOD);
    house
}

/// The targets of the newest pass.
fn proposed(house: &House) -> Vec<String> {
    let mut passes: Vec<_> = fs::read_dir(house.path("dreams"))
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("proposals.json"))
        .filter(|path| path.is_file())
        .collect();
    passes.sort();
    let text = fs::read_to_string(passes.last().expect("a pass left proposals")).unwrap();
    let proposals: serde_json::Value = serde_json::from_str(&text).unwrap();
    proposals
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["targets"][0].as_str().unwrap().to_owned())
        .collect()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Hands the house to a user who is not root, for whom permissions mean something.
pub fn as_nobody(house: &mut House) {
    if !is_root() {
        return;
    }
    let mut folders = vec![house.root().to_owned()];
    while let Some(path) = folders.pop() {
        // Links themselves, never what they point at.
        lchown(&path, Some(65_534), Some(65_534)).unwrap();
        if path.symlink_metadata().unwrap().is_dir() {
            folders.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    house.uid = Some(65_534);
}

#[test]
fn outside_of_git_and_outside_of_a_project() {
    let house = House::new();
    let bare = house.root().join("bare");
    fs::create_dir(&bare).unwrap();
    let bare = bare.to_str().unwrap();
    house
        .run(&["init", bare])
        .ends(65)
        .says("not in a git repository")
        .says("git init");
    house
        .run(&["night"])
        .ends(78)
        .says("no runner.toml")
        .says("runner init");
    house.run(&["run", "dream"]).ends(78).says("runner init");
    house
        .run(&["-C", "/no/such/folder", "night"])
        .ends(65)
        .says("/no/such/folder");
}

#[test]
fn no_ideas_folder_is_a_skip_with_its_reason() {
    let house = House::new();
    house.run(&["init"]).ends(0);
    fs::remove_dir(house.path("ideas")).unwrap();
    house
        .run(&["dream", "run"])
        .ends(0)
        .says("skipped")
        .says("ideas");
}

#[test]
fn one_bad_idea_never_costs_the_others() {
    let mut house = dreaming();
    house.write("ideas/bytes.md", b"# caf\xe9\n\xff\xfe\n");
    let huge = fs::File::create(house.path("ideas/huge.md")).unwrap();
    huge.set_len(500 * 1024 * 1024).unwrap();
    symlink("/etc/passwd", house.path("ideas/link.md")).unwrap();
    symlink(".", house.path("ideas/loop")).unwrap();
    house
        .command("mkfifo", &["ideas/pipe.md"])
        .status()
        .unwrap();
    house.write("ideas/secret.md", "# closed\n");
    fs::create_dir(house.path("ideas/deep")).unwrap();
    house.write("ideas/deep/also.md", GOOD.replace("start", "shutdown"));
    as_nobody(&mut house);
    fs::set_permissions(
        house.path("ideas/secret.md"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    let said = house.run(&["dream", "run"]).ends(0).says("degraded");
    for name in ["bytes.md", "huge.md", "link.md", "pipe.md", "secret.md"] {
        assert!(said.out.contains(name), "{name} is not named: {}", said.out);
    }
    let mut targets = proposed(&house);
    targets.sort();
    assert_eq!(targets, ["ideas/deep/also.md", "ideas/good.md"]);
    // A pass that finds the same troubles and nothing new says both.
    house.run(&["dream", "run"]).ends(0).says("no delta");
}

#[test]
fn a_foreign_state_file_is_named_and_left_alone() {
    for (content, word) in [
        ("{\"version\": 3}", "state.json"),
        ("[{\"path\":", "state.json"),
    ] {
        let house = dreaming();
        house.write("dreams/state.json", content);
        house
            .run(&["dream", "run"])
            .ends(1)
            .says("malformed")
            .says(word);
        assert_eq!(house.read("dreams/state.json"), content);
        assert!(house.path("dreams/.failed").exists());
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_environment_failure() {
    let mut house = dreaming();
    as_nobody(&mut house);
    let before = house.tree("ideas");
    fs::set_permissions(house.path("dreams"), fs::Permissions::from_mode(0o555)).unwrap();
    house
        .run(&["dream", "run"])
        .ends(78)
        .says("environment")
        .says("dreams");
    assert_eq!(house.tree("ideas"), before);
    fs::set_permissions(house.path("dreams"), fs::Permissions::from_mode(0o755)).unwrap();
    house.run(&["dream", "run"]).ends(0).says("succeeded");
}

/// A small file system, gone when dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn at(path: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path);
        let mounted = is_root() && command.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _shown = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Mounted::at(&folder.path().join("project"), "24m") else {
        tell("skipped 1: no small file system can be mounted here");
        return;
    };
    let house = House::at(folder);
    house.run(&["init"]).ends(0);
    house.configure(
        "[jobs.fill]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"seq 100000 > $RUNNER_OUT/a.txt; cat /dev/zero > fill 2>/dev/null; true\"]\n\
         artifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n\
         [jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo new > $RUNNER_OUT/a.txt\"]\nartifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n",
    );
    house.write("ideas/good.md", GOOD);
    house.write("out/a.txt", "old\n");
    // The disk fills while the run works.
    house
        .run(&["run", "fill"])
        .ends(78)
        .says("environment")
        .says("space");
    assert_eq!(house.read("out/a.txt"), "old\n");
    // It is full before anything begins.
    house
        .run(&["dream", "run"])
        .ends(78)
        .says("environment")
        .says("No space left");
    assert_eq!(house.read("ideas/good.md"), GOOD);
    fs::remove_file(house.path("fill")).unwrap();
    house.run(&["tick"]).ends(0);
    house.run(&["run", "tidy"]).ends(0);
    assert_eq!(house.read("out/a.txt"), "new\n");
    house.run(&["dream", "run"]).ends(0).says("succeeded");
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL"),
        0
    );
}

#[test]
fn a_damaged_ledger_stops_everything_with_the_command_that_mends_it() {
    let house = dreaming();
    house.run(&["dream", "run"]).ends(0);
    let path = house.state().join("ledger.sqlite");
    // All pages but the first into noise.
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(size).unwrap() - 4096])
        .unwrap();
    drop(file);
    let damaged = fs::read(&path).unwrap();
    for command in [&["tick"][..], &["status"], &["night"], &["run", "dream"]] {
        let said: Said = house.run(command).ends(70);
        assert!(
            said.err.contains("damaged") && said.err.contains("to mend it: runner ledger restore"),
            "{said:?}"
        );
    }
    assert_eq!(fs::read(&path).unwrap(), damaged, "nothing was made anew");
    assert!(
        house.state().join("damaged.json").is_file(),
        "a failmark says so"
    );
    // The command that it names, word for word; there is no backup, so it names another.
    let said = house.run(&["ledger", "restore"]).ends(65);
    let mend = said
        .err
        .split("to mend it: ")
        .nth(1)
        .unwrap()
        .split("   (")
        .next()
        .unwrap();
    assert!(
        house
            .command("sh", &["-c", mend])
            .status()
            .unwrap()
            .success(),
        "{mend}"
    );
    house.run(&["night"]).ends(0);
    assert!(!house.state().join("damaged.json").exists());
    fs::write(&path, "").unwrap();
    house.run(&["tick"]).ends(70).says("it is empty");
}

#[test]
fn a_log_of_a_moved_ledger_is_not_replayed_onto_a_new_one() {
    let house = dreaming();
    house.run(&["dream", "run"]).ends(0);
    let path = house.state().join("ledger.sqlite");
    // A log with content, as a killed writer leaves it.
    let held = house.ledger();
    held.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE projects SET created = created + 1")
        .unwrap();
    fs::copy(
        house.state().join("ledger.sqlite-wal"),
        house.root().join("wal"),
    )
    .unwrap();
    drop(held);
    fs::remove_file(&path).unwrap();
    fs::copy(
        house.root().join("wal"),
        house.state().join("ledger.sqlite-wal"),
    )
    .unwrap();
    // The rest of a lost ledger is no reason to begin a new one in silence: a person says so.
    let said = house.run(&["night"]).ends(70);
    let anew = said.err.split("to begin anew: ").nth(1).unwrap();
    let anew = anew.split(")\n").next().unwrap();
    let moved = house.command("sh", &["-c", anew]).status().unwrap();
    assert!(moved.success(), "{anew}");
    house.run(&["night"]).ends(0);
    let check: String = house
        .ledger()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    assert_eq!(house.count("SELECT count(*) FROM nights"), 1);
}

#[test]
fn a_project_made_again_in_the_same_place_is_a_new_one() {
    let house = dreaming();
    house.run(&["night"]).ends(0);
    fs::remove_file(house.path("runner.toml")).unwrap();
    house.run(&["tick"]).ends(78).says("the project is gone");
    house.run(&["tick"]).ends(0);
    house.run(&["init"]).ends(0);
    house.run(&["night"]).ends(0);
    house.run(&["tick"]).ends(0);
    assert_eq!(
        house.run(&["status", "--json"]).json()["projects"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // A project table without an id gets one.
    house.write("runner.toml", "[project]\n\n[night]\nat = \"03:00\"\n");
    house.run(&["init"]).ends(0).says("added");
    assert!(house.read("runner.toml").starts_with("[project]\nid = \""));
}

#[test]
fn init_keeps_every_byte_of_the_exclude_file() {
    let house = House::new();
    fs::write(house.path(".git/info/exclude"), b"caf\xe9/\n*.bak").unwrap();
    fs::create_dir_all(house.path("a/b")).unwrap();
    house.run(&["-C", "a/b", "init"]).ends(0);
    let text = fs::read(house.path(".git/info/exclude")).unwrap();
    let own = "/dreams/\n/.runner/\n/_steps.jsonl\n/daydreams.json\n";
    assert_eq!(text, [b"caf\xe9/\n*.bak\n", own.as_bytes()].concat());
}

#[test]
fn the_state_folder_is_private() {
    let house = dreaming();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&house.state()), 0o700);
    fs::set_permissions(house.state(), fs::Permissions::from_mode(0o755)).unwrap();
    house.run(&["tick"]).ends(0);
    assert_eq!(mode(&house.state()), 0o700);
}

#[test]
fn a_lock_or_failmark_is_never_written_through_a_link() {
    let house = dreaming();
    let outside = house.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(house.path("dreams")).unwrap();
    symlink(&outside, house.path("dreams")).unwrap();
    house.run(&["dream", "run"]).ends(78).says("symbolic link");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_copied_project_is_told_apart() {
    let house = dreaming();
    let copy = house.root().join("copy");
    let done = Command::new("cp")
        .arg("-r")
        .arg(house.project())
        .arg(&copy)
        .status()
        .unwrap();
    assert!(done.success());
    house
        .run(&["-C", copy.to_str().unwrap(), "night"])
        .ends(78)
        .says("one of them is a copy")
        .says("runner init");
}

#[test]
fn mistakes_in_the_configuration_are_named_with_their_place() {
    let house = dreaming();
    house.configure("[jobs.dream]\nmax_idea = 3\n");
    house
        .run(&["night"])
        .ends(78)
        .says("runner.toml:")
        .says("max_idea");
    house.run(&["run", "dreem"]).ends(78);
}

#[test]
fn mistakes_in_triggers_and_policies_are_named_with_their_place() {
    for (toml, words) in [
        (
            "trigger = \"after draem\"",
            "jobs.tidy.trigger: there is no job \"draem\"; did you mean \"dream\"?",
        ),
        ("trigger = \"after tidy\"", "a job cannot follow itself"),
        ("trigger = \"cron every day\"", "is no cron expression"),
        ("group = \"defualt\"", "did you mean \"default\"?"),
        ("quite = \"09:00-17:00\"", "did you mean \"quiet\"?"),
        ("zone = \"Asia/Tokyo\"", "the zone of the night"),
    ] {
        let house = House::with(&format!(
            "[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n{toml}\n"
        ));
        house
            .run(&["night"])
            .ends(78)
            .says("runner.toml:")
            .says(words);
        assert!(!house.path(".runner/reports").exists());
    }
}

#[test]
fn wrong_usage_is_2() {
    let house = House::new();
    house.run(&["nigth"]).ends(2).says("night");
    house
        .run(&["perform", "not-an-id"])
        .ends(2)
        .says("is not an id");
    house
        .run(&["runs", "show", "01ZZZZZZZZ"])
        .ends(65)
        .says("no run");
}

#[test]
fn what_is_named_wrong_is_answered_with_what_there_is() {
    let house = House::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n");
    for command in ["run", "enqueue", "pause", "ack"] {
        house
            .run(&[command, "nobody"])
            .ends(78)
            .says("tidy")
            .says("dream");
    }
    house.run(&["run", "tidy"]).ends(0);
    house.run(&["run", "tidy"]).ends(0);
    let said = house.run(&["runs", "show", "0"]).ends(65);
    assert!(said.err.matches("(tidy)").count() == 2, "{said:?}");
    let next = house
        .run(&["schedule", "next", "--every", "15m", "--json"])
        .ends(0)
        .json();
    let at = next["next"][0]["at"].as_str().unwrap();
    assert!(!at.contains('.'), "{at}");
    // One of several mistakes says that it is not the only one.
    house.configure("[nigth]\nat = \"01:00\"\n[jobs.two]\nkind = \"command\"\nprogam = \"true\"\n");
    for command in ["night", "init", "status"] {
        let said = house.run(&[command]);
        let said = format!("{}{}", said.out, said.err);
        assert!(
            said.contains("it shows this mistake and "),
            "{command}: {said}"
        );
    }
}
