//! Tests imports that are killed at each step, and protected files that a person changes during a
//! run.

use std::fs;

use crate::fixture::{Fixture, print_line};
use crate::{CommandOutput, Level, levels, project, run};

#[test]
fn import_survives_a_kill_at_each_step() {
    for level in levels() {
        let (mut kills, mut arrived) = (0, 0);
        for step in 0.. {
            let fixture = project(
                "echo agent >> src/a.txt; git commit -q -am Agent; git checkout -q -b other
                 git commit -q --allow-empty -m Other; git checkout -q main",
            );
            let mut command = fixture.runner(&["run", "work", "--json"]);
            if level == Level::FilesOnly {
                command.env("RUNNER_TEST_SANDBOX", "landlock");
            }
            let output = CommandOutput::of(
                command.env("RUNNER_TEST_KILL", step.to_string()).output().unwrap(),
            );
            fixture.run(&["tick"]);
            let worked = fixture.read("src/a.txt") == "a\nagent\n";
            let newest = fixture.git(&["log", "-1", "--format=%s"]);
            let about = format!("{level:?}, step {step}: {output:?}");
            assert_eq!(newest.trim() == "Agent", worked, "{about}");
            let kept = fixture.git(&["for-each-ref", "--format=%(subject)", "refs/runner"]);
            assert_eq!(kept == "Other\n", worked, "{about}");
            assert_eq!(fixture.git(&["status", "--porcelain"]), "", "{about}");
            let left: Vec<_> = fs::read_dir(fixture.path(".git"))
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name().into_string().unwrap())
                .filter(|name| name.starts_with("runner-0") || name.ends_with(".lock"))
                .collect();
            assert!(left.is_empty(), "{left:?} {about}");
            fixture.git(&["fsck", "--strict"]);
            arrived += usize::from(worked);
            if output.code == 0 {
                break;
            }
            kills += 1;
        }
        print_line(&format!("{level:?}: {kills} kills, {arrived} after the child had committed"));
        assert!(kills > 5 && arrived > 5, "{kills} {arrived}");
    }
}

/// Starts the job, lets `person` act while its child waits, and returns the result.
fn meanwhile(fixture: &Fixture, level: Level, person: impl FnOnce()) -> CommandOutput {
    for name in ["src/up", "src/go"] {
        assert!(fixture.command("mkfifo", &[name]).status().unwrap().success());
    }
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(fixture, level));
        assert_eq!(fixture.read("src/up"), "up\n");
        person();
        fs::write(fixture.path("src/go"), "go\n").unwrap();
        running.join().unwrap()
    })
}

const REPLACED: &str =
    "echo agent >> src/a.txt; git commit -q -am Agent; echo up > src/up; cat src/go
     (echo '# evil' >> runner.toml) 2>/dev/null || true";

#[test]
fn replaced_settings_fail_the_run() {
    for level in levels() {
        let fixture = project(REPLACED);
        let before = fixture.read("runner.toml");
        let output = meanwhile(&fixture, level, || {
            // This command replaces the file by renaming, which removes its mount.
            fixture.run(&["config", "set", "defaults.retries", "1"]).ends(0);
        });
        let said = output.json();
        assert_eq!(said["class"], "guard", "{level:?} {output:?}");
        let why = said["why"].as_str().unwrap();
        assert!(why.contains("runner.toml was changed during the run"), "{why}");
        let copy = why.split("its earlier content is in ").nth(1).unwrap();
        let copy = copy.split([';', ' ']).next().unwrap();
        assert_eq!(fs::read_to_string(copy).unwrap(), before, "the earlier version was not kept");
        let after = fixture.read("runner.toml");
        assert!(after.contains("retries = 1"), "the new version was not kept: {after}");
        // The commits are kept, but not on the branch.
        assert_eq!(fixture.git(&["log", "-1", "--format=%s"]), "Configure\n");
        let kept = fixture.git(&["for-each-ref", "--format=%(subject)", "refs/runner"]);
        assert_eq!(kept, "Agent\n");
    }
}

#[test]
fn only_git_settings_of_the_person_change() {
    for level in levels() {
        let fixture = project(
            "echo agent >> src/a.txt; git commit -q -am Agent; echo up > src/up; cat src/go
             git config core.fsmonitor evil || true; echo evil >> .git/config || true",
        );
        meanwhile(&fixture, level, || {
            fixture.git(&["config", "person.name", "me"]);
            fixture.git(&["remote", "add", "mine", "https://example.org/x"]);
        })
        .ends(0);
        let config = fixture.read(".git/config");
        assert!(config.contains("mine") && !config.contains("evil"), "{level:?} {config}");
        assert_eq!(fixture.git(&["log", "-1", "--format=%s"]), "Agent\n");
    }
}
