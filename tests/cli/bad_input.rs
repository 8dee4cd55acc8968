//! Tests that invalid input and broken environments cause a clear error or a recorded skip.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{CommandOutput, Fixture, print_line};

const GOOD: &str = "# Faster start\n\nThe start takes two seconds, mostly spent on reading the whole table.\n\n\
## Proposal\n\n1. Read the table lazily.\n2. Measure the start in a test.\n\n## Acceptance\n\n- The start takes less than 200 ms.\n";

fn dreaming() -> Fixture {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.write("ideas/good.md", GOOD);
    fixture
}

/// Returns the first target of each of the newest pass's proposals.
fn proposed(fixture: &Fixture) -> Vec<String> {
    let mut passes: Vec<_> = fs::read_dir(fixture.path("dreams"))
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("proposals.json"))
        .filter(|path| path.is_file())
        .collect();
    passes.sort();
    let text = fs::read_to_string(passes.last().expect("no pass published proposals")).unwrap();
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

/// If the test runs as root, gives the fixture to another user, so that file permissions apply.
pub fn as_nobody(fixture: &mut Fixture) {
    if !is_root() {
        return;
    }
    let mut folders = vec![fixture.root().to_owned()];
    while let Some(path) = folders.pop() {
        // For a link, this call changes the owner of the link, not of its target.
        lchown(&path, Some(65_534), Some(65_534)).unwrap();
        if path.symlink_metadata().unwrap().is_dir() {
            folders.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    fixture.uid = Some(65_534);
}

#[test]
fn commands_outside_a_project_suggest_fixes() {
    let fixture = Fixture::new();
    let bare = fixture.root().join("bare");
    fs::create_dir(&bare).unwrap();
    let bare = bare.to_str().unwrap();
    fixture
        .run(&["init", bare])
        .ends(65)
        .expect_text("not in a git repository")
        .expect_text("git init");
    fixture.run(&["night"]).ends(78).expect_text("is not in a project").expect_text("runner init");
    fixture.run(&["run", "dream"]).ends(78).expect_text("fix: runner init\n");
    let fix = format!("fix: git init {bare} && runner -C {bare} init\n");
    fixture.run(&["-C", bare, "night"]).ends(78).expect_text(&fix);
    fixture.run(&["-C", bare, "status"]).ends(78).expect_text(&fix);
    fixture.run(&["-C", "/no/such/folder", "night"]).ends(65).expect_text("/no/such/folder");
}

#[test]
fn missing_ideas_folder_skips_the_pass() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fs::remove_dir(fixture.path("ideas")).unwrap();
    fixture.run(&["dream", "run"]).ends(0).expect_text("skipped").expect_text("ideas");
}

#[test]
fn unreadable_ideas_do_not_block_others() {
    let mut fixture = dreaming();
    fixture.write("ideas/bytes.md", b"# caf\xe9\n\xff\xfe\n");
    let huge = fs::File::create(fixture.path("ideas/huge.md")).unwrap();
    huge.set_len(500 * 1024 * 1024).unwrap();
    symlink("/etc/passwd", fixture.path("ideas/link.md")).unwrap();
    symlink(".", fixture.path("ideas/loop")).unwrap();
    fixture.command("mkfifo", &["ideas/pipe.md"]).status().unwrap();
    fixture.write("ideas/secret.md", "# closed\n");
    fs::create_dir(fixture.path("ideas/deep")).unwrap();
    fixture.write("ideas/deep/also.md", GOOD.replace("start", "shutdown"));
    as_nobody(&mut fixture);
    fs::set_permissions(fixture.path("ideas/secret.md"), fs::Permissions::from_mode(0o000))
        .unwrap();
    let output = fixture.run(&["dream", "run"]).ends(0).expect_text("degraded");
    for name in ["bytes.md", "huge.md", "link.md", "pipe.md", "secret.md"] {
        assert!(output.out.contains(name), "{name} is not reported: {}", output.out);
    }
    let mut targets = proposed(&fixture);
    targets.sort();
    assert_eq!(targets, ["ideas/deep/also.md", "ideas/good.md"]);
    // The next pass finds no changed idea.
    fixture.run(&["dream", "run"]).ends(0).expect_text("no delta");
}

#[test]
fn invalid_state_file_is_reported_and_kept() {
    for (content, text) in [("{\"version\": 3}", "state.json"), ("[{\"path\":", "state.json")] {
        let fixture = dreaming();
        fixture.write("dreams/state.json", content);
        fixture.run(&["dream", "run"]).ends(78).expect_text("environment").expect_text(text);
        assert_eq!(fixture.read("dreams/state.json"), content);
        assert!(fixture.path("dreams/.failed").exists());
    }
}

#[test]
fn unwritable_folder_is_an_environment_failure() {
    let mut fixture = dreaming();
    as_nobody(&mut fixture);
    let before = fixture.tree("ideas");
    fs::set_permissions(fixture.path("dreams"), fs::Permissions::from_mode(0o555)).unwrap();
    fixture.run(&["dream", "run"]).ends(78).expect_text("environment").expect_text("dreams");
    assert_eq!(fixture.tree("ideas"), before);
    fs::set_permissions(fixture.path("dreams"), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.run(&["dream", "run"]).ends(0).expect_text("succeeded");
}

/// A small file system that is unmounted when dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system of this size. Returns `None` if mounting is not permitted.
    pub fn at(path: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(path);
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
fn jobs_recover_after_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Mounted::at(&folder.path().join("project"), "24m") else {
        print_line("skipped 1: no small file system can be mounted here");
        return;
    };
    let fixture = Fixture::at(folder);
    fixture.run(&["init"]).ends(0);
    fixture.configure(
        "[jobs.fill]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"seq 100000 > $RUNNER_OUT/a.txt; cat /dev/zero > fill 2>/dev/null; true\"]\n\
         artifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n\
         [jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"echo new > $RUNNER_OUT/a.txt\"]\nartifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n",
    );
    fixture.write("ideas/good.md", GOOD);
    fixture.write("out/a.txt", "old\n");
    fixture.write("fill", "");
    // The disk fills up while the run is working.
    fixture.run(&["run", "fill"]).ends(78).expect_text("environment").expect_text("space");
    assert_eq!(fixture.read("out/a.txt"), "old\n");
    // The disk is full before the run begins.
    fixture.run(&["dream", "run"]).ends(78).expect_text("environment").expect_text("No space left");
    assert_eq!(fixture.read("ideas/good.md"), GOOD);
    fs::remove_file(fixture.path("fill")).unwrap();
    fixture.run(&["tick"]).ends(0);
    fixture.run(&["run", "tidy"]).ends(0);
    assert_eq!(fixture.read("out/a.txt"), "new\n");
    fixture.run(&["dream", "run"]).ends(0).expect_text("succeeded");
    assert_eq!(
        fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled' OR staging IS NOT NULL"),
        0
    );
}

#[test]
fn damaged_database_stops_commands() {
    let fixture = dreaming();
    fixture.run(&["dream", "run"]).ends(0);
    let path = fixture.state().join("database.sqlite");
    // Overwrite all pages except the first.
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(size).unwrap() - 4096]).unwrap();
    drop(file);
    let damaged = fs::read(&path).unwrap();
    for command in [&["tick"][..], &["status"], &["night"], &["run", "dream"]] {
        let output: CommandOutput = fixture.run(command).ends(70);
        assert!(
            output.err.contains("damaged") && output.err.contains("fix: runner db restore"),
            "{output:?}"
        );
    }
    assert_eq!(fs::read(&path).unwrap(), damaged, "the damaged database was replaced");
    assert!(fixture.state().join("damaged.json").is_file(), "the damage was not recorded");
    // There is no backup, so the hint suggests another command. Run it verbatim.
    let output = fixture.run(&["db", "restore"]).ends(65);
    let hint = output.err.split("fix: ").nth(1).unwrap().split("   (").next().unwrap();
    assert!(fixture.command("sh", &["-c", hint]).status().unwrap().success(), "{hint}");
    fixture.run(&["night"]).ends(0);
    assert!(!fixture.state().join("damaged.json").exists());
    fs::write(&path, "").unwrap();
    fixture.run(&["tick"]).ends(70).expect_text("it is empty");
}

#[test]
fn stale_wal_is_not_replayed() {
    let fixture = dreaming();
    fixture.run(&["dream", "run"]).ends(0);
    let path = fixture.state().join("database.sqlite");
    // Keep a write-ahead log with content, as a killed writer leaves it.
    let held = fixture.store();
    held.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE projects SET created = created + 1")
        .unwrap();
    fs::copy(fixture.state().join("database.sqlite-wal"), fixture.root().join("wal")).unwrap();
    drop(held);
    fs::remove_file(&path).unwrap();
    fs::copy(fixture.root().join("wal"), fixture.state().join("database.sqlite-wal")).unwrap();
    // Runner must not replace a lost database silently. The user decides whether to start with an
    // empty one.
    let output = fixture.run(&["night"]).ends(70);
    let anew = output.err.split("to start with an empty database: ").nth(1).unwrap();
    let anew = anew.split(")\n").next().unwrap();
    let moved = fixture.command("sh", &["-c", anew]).status().unwrap();
    assert!(moved.success(), "{anew}");
    fixture.run(&["night"]).ends(0);
    let check: String =
        fixture.store().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert_eq!(fixture.count("SELECT count(*) FROM nights"), 1);
}

#[test]
fn project_can_be_recreated_in_place() {
    let fixture = dreaming();
    fixture.run(&["night"]).ends(0);
    fs::remove_file(fixture.path("runner.toml")).unwrap();
    fixture.run(&["tick"]).ends(78).expect_text("the project is gone");
    fixture.run(&["tick"]).ends(0);
    fixture.run(&["init"]).ends(0);
    fixture.run(&["night"]).ends(0);
    fixture.run(&["tick"]).ends(0);
    assert_eq!(fixture.run(&["status", "--json"]).json()["projects"].as_array().unwrap().len(), 1);
    // `init` adds an id to a project table without one.
    fixture.write("runner.toml", "[project]\n\n[night]\nat = \"03:00\"\n");
    fs::set_permissions(fixture.path("runner.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.run(&["init"]).ends(0).expect_text("added");
    let mode = fs::metadata(fixture.path("runner.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the mode of a private file was changed");
    assert!(fixture.read("runner.toml").starts_with("[project]\nid = \""));
}

#[test]
fn init_preserves_existing_exclude_bytes() {
    let fixture = Fixture::new();
    fs::write(fixture.path(".git/info/exclude"), b"caf\xe9/\n*.bak").unwrap();
    fs::create_dir_all(fixture.path("a/b")).unwrap();
    fixture.run(&["-C", "a/b", "init"]).ends(0);
    let text = fs::read(fixture.path(".git/info/exclude")).unwrap();
    let own = "/dreams/\n/.runner/\n/.warden/\n/_steps.jsonl\n/daydreams.json\n";
    assert_eq!(text, [b"caf\xe9/\n*.bak\n", own.as_bytes()].concat());
}

#[test]
fn state_folder_is_private() {
    let fixture = dreaming();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&fixture.state()), 0o700);
    fs::set_permissions(fixture.state(), fs::Permissions::from_mode(0o755)).unwrap();
    fixture.run(&["tick"]).ends(0);
    assert_eq!(mode(&fixture.state()), 0o700);
}

#[test]
fn dream_pass_refuses_a_symlinked_folder() {
    let fixture = dreaming();
    let outside = fixture.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir(fixture.path("dreams")).unwrap();
    symlink(&outside, fixture.path("dreams")).unwrap();
    fixture.run(&["dream", "run"]).ends(78).expect_text("symbolic link");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn copied_project_is_refused() {
    let fixture = dreaming();
    let copy = fixture.root().join("copy");
    let done = Command::new("cp").arg("-r").arg(fixture.project()).arg(&copy).status().unwrap();
    assert!(done.success());
    fixture
        .run(&["-C", copy.to_str().unwrap(), "night"])
        .ends(78)
        .expect_text("one of them is a copy")
        .expect_text("runner init");
}

#[test]
fn configuration_mistakes_name_file_and_key() {
    let fixture = dreaming();
    fixture.configure("[jobs.dream]\nmax_idea = 3\n");
    fixture.run(&["night"]).ends(78).expect_text("runner.toml:").expect_text("max_idea");
    fixture.run(&["run", "dreem"]).ends(78);
}

#[test]
fn trigger_and_policy_mistakes_name_the_file() {
    for (toml, text) in [
        (
            "trigger = \"after draem\"",
            "jobs.tidy.trigger: there is no job \"draem\"; did you mean \"dream\"?",
        ),
        ("trigger = \"after tidy\"", "a job cannot follow itself"),
        ("trigger = \"cron every day\"", "is not a cron expression"),
        ("group = \"defualt\"", "did you mean \"default\"?"),
        ("quite = \"09:00-17:00\"", "did you mean \"quiet\"?"),
        ("zone = \"Asia/Tokyo\"", "the zone of the night"),
    ] {
        let fixture = Fixture::with(&format!(
            "[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n{toml}\n"
        ));
        fixture.run(&["night"]).ends(78).expect_text("runner.toml:").expect_text(text);
        assert!(!fixture.path(".runner/reports").exists());
    }
}

#[test]
fn mistyped_commands_and_ids_are_refused() {
    let fixture = Fixture::new();
    fixture.run(&["nigth"]).ends(2).expect_text("night");
    fixture.run(&["execute", "not-an-id"]).ends(2).expect_text("is not an id");
    fixture.run(&["runs", "show", "01ZZZZZZZZ"]).ends(65).expect_text("no run");
}

#[test]
fn unknown_job_lists_known_jobs() {
    let fixture = Fixture::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n");
    for command in [&["run"][..], &["enqueue"], &["pause"], &["jobs", "reset"]] {
        fixture
            .run(&[command, &["nobody"]].concat())
            .ends(78)
            .expect_text("tidy")
            .expect_text("dream");
    }
    fixture.run(&["run", "tidy"]).ends(0);
    fixture.run(&["run", "tidy"]).ends(0);
    let output = fixture.run(&["runs", "show", "0"]).ends(65);
    assert!(output.err.matches("(tidy)").count() == 2, "{output:?}");
    let next = fixture.run(&["schedule", "next", "--every", "15m", "--json"]).ends(0).json();
    let at = next["next"][0]["at"].as_str().unwrap();
    assert!(!at.contains('.'), "{at}");
    // The message for the first mistake states that there are more.
    fixture
        .configure("[nigth]\nat = \"01:00\"\n[jobs.two]\nkind = \"command\"\nprogam = \"true\"\n");
    for command in ["night", "init", "status"] {
        let output = fixture.run(&[command]);
        let output = format!("{}{}", output.out, output.err);
        assert!(output.contains("it shows this mistake and "), "{command}: {output}");
    }
}

#[test]
fn empty_ids_and_long_input_are_refused() {
    let fixture = dreaming();
    for args in [
        &["alerts", "ack", ""][..],
        &["alerts", "show", ""],
        &["sessions", "show", ""],
        &["sessions", "artifacts", "pin", ""],
        &["curator", "events", "ack", ""],
    ] {
        fixture.run(args).ends(2).expect_text("a value is required");
    }
    // `dream submit` reads its input only if a request is open.
    fixture.run(&["dream", "delta", "--json"]).ends(0);
    // Reading one byte more than the limit of 16 MiB splits a character.
    let long = fixture.root().join("long");
    fs::write(&long, "é".repeat((8 << 20) + 1)).unwrap();
    let cases = [
        (&["memory", "add", "--type", "fact", "-"][..], 65, "more than"),
        (&["dream", "submit", "-"], 1, "the limit is 4194304"),
    ];
    for (args, code, text) in cases {
        let mut command = fixture.runner(args);
        let output = command.stdin(fs::File::open(&long).unwrap()).output().unwrap();
        CommandOutput::of(output).ends(code).expect_text(text);
    }
}
