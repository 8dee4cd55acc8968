//! Makes the attempts inside a real child while a person commits, configures, switches branches and
//! edits on the host. Observed from outside, no attempt may have an effect.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::attempts::{Attempt, all, script};
use crate::fixture::{Fixture, is_open, print_line, scaled_from, skip};
use crate::{CommandOutput, Level, levels};

/// The maximum number of attempts that one child makes.
const TOGETHER: usize = 120;
/// The maximum number of children that make one attempt each in the same project.
const CHILDREN: usize = 12;
/// The share of the attempts that an ordinary test run makes.
const ORDINARY: f64 = 0.1;

/// The number of commits that the person has made since the last printed result.
static PERSON: AtomicUsize = AtomicUsize::new(0);

/// Files and folders that nobody may change during a run.
const STATIC: [&str; 12] = [
    "project/.git/hooks",
    "project/.git/info",
    "project/.git/modules/libs/a/b/config",
    "project/.git/modules/libs/a/b/hooks",
    "project/libs/a/b/.git",
    "project/runner.toml",
    "project/.ctxrc",
    "project/.claude",
    "project/dreams",
    "project/rem",
    ".gitconfig",
    "outside",
];

fn build() -> Fixture {
    let fixture = Fixture::at(tempfile::tempdir_in("/var/tmp").unwrap());
    fixture.run(&["init"]).ends(0);
    for (path, text) in [
        ("src/a.txt", "a\n"),
        (".ctxrc", ""),
        (".claude/settings.json", "{}\n"),
        ("dreams/ledger.md", "# Ledger\n"),
        ("rem/2026-01-01-0000.org", "* Journal\n"),
        ("_steps.jsonl", ""),
        (".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n"),
    ] {
        fixture.write(path, text);
    }
    let hook = fixture.path(".git/hooks/pre-commit");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(fixture.root().join("outside")).unwrap();
    fs::write(fixture.root().join("outside/file"), "safe\n").unwrap();
    let other = fixture.root().join("other");
    fs::create_dir(&other).unwrap();
    let git = |folder: &Path, args: &[&str]| {
        let mut command = fixture.command("git", args);
        assert!(command.current_dir(folder).output().unwrap().status.success(), "{args:?}");
    };
    git(&other, &["init", "--quiet"]);
    fs::write(other.join("f"), "f\n").unwrap();
    git(&other, &["add", "f"]);
    git(&other, &["commit", "--quiet", "-m", "Other"]);
    let other = other.display().to_string();
    let allow = "protocol.file.allow=always";
    for path in ["top", "libs/a/b"] {
        git(&fixture.project(), &["-c", allow, "submodule", "--quiet", "add", &other, path]);
    }
    fixture
}

/// Simulates a person who works on the host, and counts the person's commits.
fn person(fixture: &Fixture, stop: &AtomicBool, commits: &AtomicUsize) {
    let git =
        |args: &[&str]| fixture.command("git", args).output().is_ok_and(|it| it.status.success());
    for round in 0.. {
        // Without a sandbox, an attempt may have removed the project.
        let edited = fs::write(fixture.path("README.md"), format!("# edit {round}\n"));
        if edited.is_err() || stop.load(Ordering::SeqCst) {
            return;
        }
        if git(&["commit", "--quiet", "-m", "Person", "README.md"]) {
            commits.fetch_add(1, Ordering::SeqCst);
        }
        git(&["config", "person.round", &round.to_string()]);
        git(&["remote", "add", &format!("r{round}"), "https://example.org/x"]);
        // A child may have changed files in the work tree, which would prevent the switch without
        // `--force`.
        git(&["checkout", "--quiet", "--force", "side"]);
        git(&["status", "--short"]);
        git(&["checkout", "--quiet", "--force", "main"]);
        let _ = fs::write(fixture.path("src/person.txt"), format!("{round}\n"));
    }
}

/// Returns the state of the files and folders in [`STATIC`].
fn picture(fixture: &Fixture) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut left: Vec<_> = STATIC.iter().map(|path| fixture.root().join(path)).collect();
    while let Some(path) = left.pop() {
        let Ok(data) = fs::symlink_metadata(&path) else { continue };
        let name = path.display().to_string();
        if data.is_dir() {
            all.insert(name, format!("{} {:o}", data.ino(), data.mode()));
            left.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
        } else {
            let text = fs::read(&path).unwrap_or_default();
            let facts = (data.ino(), data.mode(), data.nlink(), data.mtime_nsec());
            all.insert(name, format!("{facts:?} {}", String::from_utf8_lossy(&text)));
        }
    }
    all
}

/// Returns the paths outside the child's writable folders that carry the mark of an attempt.
fn marked(fixture: &Fixture) -> Vec<String> {
    let root = fixture.root();
    let excepted = [root.join("project/src"), root.join("state/runner/runs"), root.join("work.sh")];
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if excepted.contains(&path) {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(path.clone());
            }
            let link = fs::read_link(&path).map(|to| to.display().to_string()).unwrap_or_default();
            // Objects are compressed; the references and `git fsck` are checked instead.
            let object = path.components().any(|part| part.as_os_str() == "objects");
            let text = match kind.is_file() && !object {
                true => fs::read(&path).unwrap_or_default(),
                false => Vec::new(),
            };
            let text = String::from_utf8_lossy(&text);
            // References that runner keeps for the person may have any name.
            let kept = ["project/.git/refs/runner", "project/.git/logs/refs/runner"];
            let kept = kept.iter().any(|folder| path.starts_with(root.join(folder)));
            let name = entry.file_name().to_string_lossy().into_owned();
            if !kept
                && (name.to_lowercase().contains("evil")
                    || link.contains("evil")
                    || text.contains("EVIL"))
            {
                found.push(format!("{} -> {link:?}", path.display()));
            }
        }
    }
    found
}

/// Makes the attempts of each group in a separate child, one child after the other, and returns
/// their effects.
fn effects_of(level: Level, network: bool, groups: &[Vec<&Attempt>]) -> Vec<String> {
    let fixture = build();
    crate::set_script(&fixture, "work", "");
    fixture.configure(&format!("network = {network}\n"));
    fixture.git(&["commit", "--quiet", "-am", "Network"]);
    fixture.git(&["branch", "side"]);
    fixture.git(&["tag", "mark"]);
    fixture.git(&["worktree", "add", "--quiet", "../linked", "-b", "linked"]);
    assert!(fixture.command("mkfifo", &["src/up", "src/go"]).status().unwrap().success());
    let before = picture(&fixture);
    let start = fixture.git(&["rev-parse", "main"]);
    let mut effects = Vec::new();
    let mut commits = 0;
    for group in groups {
        let (own, output) = child(&fixture, level, group);
        commits += own;
        let outcome = output.json()["outcome"].as_str().unwrap_or_default().to_owned();
        if !["succeeded", "degraded", "failed"].contains(&outcome.as_str()) || own == 0 {
            effects.push(format!("outcome {outcome}, {own} commits by the person: {output:?}"));
        }
        if outcome == "failed" {
            fixture.run(&["jobs", "reset", "work"]);
        }
    }
    if !fixture.path(".git/HEAD").exists() {
        return vec!["the repository is gone".to_owned()];
    }
    effects.extend(marked(&fixture));
    let after = picture(&fixture);
    for path in before.keys().chain(after.keys()) {
        if before.get(path) != after.get(path) {
            effects.push(format!("{path}: {:?} was {:?}", after.get(path), before.get(path)));
        }
    }
    PERSON.fetch_add(commits, Ordering::SeqCst);
    check_repository(&fixture, &start, commits, &mut effects);
    if fixture.run(&["db", "check"]).code != 0 {
        effects.push("the database is damaged".to_owned());
    }
    effects.dedup();
    effects
}

/// Runs a child that makes the attempts while a person works. Returns the number of the person's
/// commits and the output.
fn child(fixture: &Fixture, level: Level, attempts: &[&Attempt]) -> (usize, CommandOutput) {
    let (project, root) = (fixture.project(), fixture.root().to_owned());
    let text = script(project.to_str().unwrap(), root.to_str().unwrap(), attempts);
    fs::write(root.join("work.sh"), text).unwrap();
    let (stop, commits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| crate::run(fixture, level));
        // Reading the pipe blocks until the child is running.
        fixture.read("src/up");
        let writer = scope.spawn(|| person(fixture, &stop, &commits));
        // The child continues once the person has made a commit.
        while commits.load(Ordering::SeqCst) == 0 && !writer.is_finished() {
            std::thread::yield_now();
        }
        fs::write(fixture.path("src/go"), "go\n").unwrap();
        let output = running.join().unwrap();
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        output
    });
    (commits.into_inner(), output)
}

/// Checks that the repository has exactly the person's commits and settings.
fn check_repository(fixture: &Fixture, start: &str, commits: usize, effects: &mut Vec<String>) {
    let mut check = |holds: bool, what: String| {
        if !holds {
            effects.push(what);
        }
    };
    let git = |args: &[&str]| CommandOutput::of(fixture.command("git", args).output().unwrap());
    let fsck = git(&["fsck", "--no-dangling"]);
    check(fsck.code == 0, format!("git fsck: {fsck:?}"));
    let range = format!("{}..main", start.trim());
    let new = git(&["log", "--format=%s", &range]).out;
    let own = new.lines().filter(|line| *line == "Person").count();
    check(
        own == commits && new.lines().count() == own,
        format!("{commits} commits by the person: {new:?}"),
    );
    for name in ["side", "linked", "mark"] {
        let value = git(&["rev-parse", name]).out;
        check(value == start, format!("{name} is {value}"));
    }
    let names = git(&["for-each-ref", "--format=%(refname)"]).out;
    let strange: Vec<&str> = names
        .lines()
        .filter(|name| !name.starts_with("refs/runner/01"))
        .filter(|name| {
            !["refs/heads/main", "refs/heads/side", "refs/heads/linked", "refs/tags/mark"]
                .contains(name)
        })
        .collect();
    check(strange.is_empty(), format!("references: {strange:?}"));
    let config = git(&["config", "--list"]).out;
    check(
        !config.contains("evil") && config.contains("person.round"),
        format!("settings: {config}"),
    );
    check(!fixture.root().join("ran-EVIL").exists(), "git started an injected program".to_owned());
    check(
        fixture.path(".git/index.lock").symlink_metadata().is_err(),
        "a lock file is left behind".to_owned(),
    );
}

#[test]
fn no_attempt_has_an_effect() {
    let attempts = all();
    assert!(attempts.len() >= 400, "{}", attempts.len());
    // `RUNNER_TEST_ATTEMPT` selects attempts by a part of their name.
    let chosen = std::env::var("RUNNER_TEST_ATTEMPT").unwrap_or_default();
    // An ordinary test run makes only every n-th attempt.
    let wanted = scaled_from(attempts.len(), ORDINARY).min(attempts.len());
    let step = attempts.len().div_ceil(wanted);
    let user = rustix::process::getuid().as_raw();
    let mut through = Vec::new();
    for level in levels() {
        for network in [false, true] {
            let covered = |it: &&Attempt| level == Level::Full || !it.needs_mounts;
            let some = attempts.iter().step_by(step).filter(covered);
            let some: Vec<&Attempt> = some.filter(|it| it.name.contains(&chosen)).collect();
            let mut refused = 0;
            let (alone, together): (Vec<&Attempt>, Vec<&Attempt>) =
                some.iter().partition(|it| it.alone);
            let alone = alone.chunks(CHILDREN);
            let batches = together
                .chunks(TOGETHER)
                .map(|chunk| vec![chunk.to_vec()])
                .chain(alone.map(|chunk| chunk.iter().map(|one| vec![*one]).collect()));
            for groups in batches {
                let effects = effects_of(level, network, &groups);
                let all = groups.iter().flatten();
                if effects.is_empty() {
                    refused += all.count();
                    continue;
                }
                print_line(&format!("{level:?}: {effects:#?}"));
                // Each attempt is repeated alone to find out which one had an effect.
                for one in all {
                    match effects_of(level, network, &[vec![one]]) {
                        alone if alone.is_empty() => refused += 1,
                        alone => through.push(format!("{level:?} {}: {alone:#?}", one.name)),
                    }
                }
                through.push(format!("{level:?}: {effects:#?}"));
            }
            print_line(&format!(
                "attempts on the repository as user {user}, {level:?}, network {network}: {refused} of {} attempts without effect, {} commits by the person",
                some.len(),
                PERSON.swap(0, Ordering::SeqCst)
            ));
        }
    }
    assert!(through.is_empty(), "{through:#?}");
}

/// Makes the same attempts as an unprivileged user, if the test can switch to one.
#[test]
fn no_attempt_has_an_effect_as_nobody() {
    if !rustix::process::getuid().is_root() {
        print_line("skipped 1: only root can switch to the user nobody");
        return;
    }
    if !is_open(Path::new(env!("CARGO_BIN_EXE_runner"))) {
        print_line("skipped 1: the user nobody cannot execute the program");
        return;
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "attacks::no_attempt_has_an_effect", "--nocapture"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/");
    if let Some(scale) = std::env::var_os("RUNNER_TEST_SCALE") {
        command.env("RUNNER_TEST_SCALE", scale);
    }
    let Ok(output) = command.output() else {
        skip("setpriv", "setpriv is not installed");
        return;
    };
    let output = CommandOutput::of(output);
    print_line(&output.err);
    assert!(output.code == 0 && output.err.contains("as user 65534"), "{output:?}");
}

/// Checks that the attempts are realistic: without a sandbox, more than half have an effect.
#[test]
fn attempts_have_effects_without_a_sandbox() {
    let mut attempts = all();
    // Without a sandbox, a FIFO in the repository would make the person's git wait forever.
    attempts.retain(|it| !it.script.contains("mkfifo"));
    let wanted = scaled_from(attempts.len() / 8, ORDINARY);
    let step = (attempts.len() / wanted).max(1);
    let some: Vec<&Attempt> = attempts.iter().step_by(step).collect();
    let effective =
        some.iter().filter(|it| !effects_of(Level::Off, true, &[vec![it]]).is_empty()).count();
    print_line(&format!(
        "without a sandbox, {effective} of {} attempts have an effect",
        some.len()
    ));
    assert!(effective * 2 > some.len(), "{effective} of {}", some.len());
}

#[test]
fn marks_are_found_in_every_folder() {
    let fixture = build();
    assert_eq!(marked(&fixture), [""; 0]);
    for path in ["config/runner/config.toml", "state/runner/evil", "project/.git/config"] {
        let path = fixture.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let before = fs::read(&path).unwrap_or_default();
        fs::write(&path, "# EVIL\n").unwrap();
        let found = marked(&fixture);
        assert!(found.iter().any(|it| it.contains(path.to_str().unwrap())), "{found:?}");
        fs::write(&path, before).unwrap();
        if path.ends_with("evil") {
            fs::remove_file(&path).unwrap();
        }
    }
}
