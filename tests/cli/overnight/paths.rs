//! Tests settings that name a folder or file. Runner must not change files that it did not create.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{JOB, LATEST, corpus};
use crate::fixture::{CommandOutput, Fixture};

/// Creates a fixture with files, folders and links that a setting may name.
fn fixture(jobs: &str) -> Fixture {
    let fixture = Fixture::with(jobs);
    corpus(&fixture);
    fixture.set_clock("2026-11-22T02:30:00Z");
    fixture.write("../outside/kept.txt", "kept\n");
    fixture.write("file", "a file\n");
    fixture.write("src/deep/own.rs", "// own\n");
    fixture.write("vendor/lib/.git/config", "[core]\n");
    fixture.write(".agents/overnight/notes/mine.md", "mine\n");
    symlink("src", fixture.path("link")).unwrap();
    symlink("../outside", fixture.path("away")).unwrap();
    symlink("nowhere", fixture.path("broken")).unwrap();
    fs::create_dir_all(fixture.path("empty")).unwrap();
    fixture
}

/// Returns the content of the folders `project` and `outside`, including links.
fn whole(fixture: &Fixture) -> BTreeMap<String, String> {
    fn walk(folder: &Path, into: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let what = match () {
                () if kind.is_symlink() => format!("-> {:?}", fs::read_link(&path).unwrap()),
                () if kind.is_dir() => "folder".to_owned(),
                () => format!("{:?}", fs::read(&path).unwrap()),
            };
            into.insert(path.display().to_string(), what);
            if kind.is_dir() {
                walk(&path, into);
            }
        }
    }
    let mut all = BTreeMap::new();
    for folder in ["project", "outside"] {
        walk(&fixture.root().join(folder), &mut all);
    }
    all
}

/// Checks that the command is refused with exit code 78 and changes nothing.
#[track_caller]
fn refused(fixture: &Fixture, by: &str, run: impl FnOnce() -> CommandOutput) -> CommandOutput {
    let before = whole(fixture);
    let said = run();
    assert!(before == whole(fixture), "{by} changed something: {said:?}");
    assert_eq!(said.code, 78, "{by}: {said:?}");
    said
}

/// Returns values that are invalid for an output folder.
fn bad() -> Vec<String> {
    let mut all: Vec<String> = [
        "",
        ".",
        "..",
        "/",
        "./",
        "a/../..",
        "../outside",
        "a//b",
        "src",
        "src/",
        "src/deep",
        "link",
        "link/",
        "link/deep",
        "link/new",
        "away",
        "away/new",
        "broken",
        "file",
        "file/x",
        ".git",
        ".git/",
        ".git/x",
        ".GIT/x",
        "vendor/lib/.git",
        "vendor/lib/.git/x",
        ".agents",
        ".agents/overnight",
        ".agents/overnight/staging",
        ".agents/overnight/notes",
        ".agents/overnight/runs",
        ".agents/learnings",
        ".agents/learnings/x",
        ".runner",
        "dreams",
        "dreams/x",
        "runs",
        "runner.toml",
        "ideas",
        "ideas/x",
        "tests",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push("x".repeat(300));
    all.push("x/".repeat(3_000));
    all
}

#[test]
fn invalid_output_folder_is_refused() {
    let fixture = fixture(JOB);
    let mut values = bad();
    values.push(fixture.path("src").display().to_string());
    values.push(fixture.root().join("outside").display().to_string());
    for value in &values {
        let shown: String = value.chars().take(40).collect();
        for more in [&[][..], &["--dry-run"]] {
            let args = [&["overnight", "start", "--output-dir", value][..], more].concat();
            let said = refused(&fixture, &format!("--output-dir {shown} {more:?}"), || {
                fixture.run_with_clock(&args)
            });
            assert!(said.err.contains("fix: "), "{said:?}");
        }
    }
    // Try one value of each kind in the other configuration layers.
    for value in ["..", "src", "link", "file", "vendor/lib/.git/x", "/", "ideas"] {
        let set = format!("output_dir={value:?}");
        let config = format!("jobs.overnight.output_dir={value:?}");
        let toml = fixture.read("runner.toml");
        for (args, variable, line) in [
            (vec!["enqueue", "overnight", "--set", set.as_str()], false, false),
            (vec!["--config", config.as_str(), "run", "overnight"], false, false),
            (vec!["--config", config.as_str(), "overnight", "start"], false, false),
            (vec!["run", "overnight"], true, false),
            (vec!["overnight", "start"], true, false),
            (vec!["run", "overnight"], false, true),
            (vec!["overnight", "start"], false, true),
        ] {
            if line {
                fixture.configure(&format!("output_dir = {value:?}\n"));
            }
            refused(&fixture, &format!("{args:?} {value} {variable} {line}"), || {
                let mut command = fixture.runner_with_clock(&args);
                if variable {
                    command.env("RUNNER_CONFIG__JOBS__OVERNIGHT__OUTPUT_DIR", value);
                }
                CommandOutput::of(command.output().unwrap())
            });
            fixture.write("runner.toml", &toml);
        }
    }
}

#[test]
fn queued_night_refuses_foreign_output_folder() {
    let fixture = fixture(&format!("{JOB}output_dir = \"src\"\n"));
    let before = whole(&fixture);
    let dry = fixture.run(&["run", "overnight", "--dry-run"]);
    assert!(before == whole(&fixture), "{dry:?}");
    assert!((dry.out + &dry.err).contains("runner did not make this folder"));
    // The folder receives a foreign file while the run waits in the queue.
    let toml = fixture.read("runner.toml");
    fixture.write("runner.toml", toml.replace("\"src\"", "\"fresh\""));
    fixture.run(&["enqueue", "overnight"]).ends(0);
    fixture.write("fresh/own.rs", "// own\n");
    let before = whole(&fixture);
    fixture.run(&["tick"]);
    fixture.run(&["runs", "--json"]).expect_text("runner did not make this folder");
    let mut after = whole(&fixture);
    // The failure marker is runner's own.
    after.retain(|path, _| !path.contains("/.runner/failed"));
    assert_eq!(before, after);
}

#[test]
fn previous_output_folders_are_reused() {
    let fixture = fixture(JOB);
    fixture.write("empty/../fresh-parent/kept.txt", "kept\n");
    for folder in [LATEST, "nächte/夜", "empty", "fresh-parent/new/", "src/out"] {
        let args = ["overnight", "start", "--max-iterations", "1", "--output-dir", folder];
        for _ in 0..2 {
            fixture.run_with_clock(&args).ends(0);
            assert!(fixture.path(folder).join("summary.json").is_file(), "{folder}");
        }
        let runs = fixture.path(folder).parent().unwrap().join("runs");
        let kept: Vec<_> = fs::read_dir(&runs).unwrap().flatten().collect();
        let kept = kept.iter().filter(|it| it.path().join("summary.json").is_file());
        assert!(kept.count() >= 1, "{folder}");
    }
    assert_eq!(fixture.read("fresh-parent/kept.txt"), "kept\n");
    assert_eq!(fixture.read("src/deep/own.rs"), "// own\n");
    // Runner refuses an output folder that contains a foreign file, but replaces the default folder
    // even then.
    fixture.write("nächte/夜/mine.txt", "mine\n");
    let args = ["overnight", "start", "--output-dir", "nächte/夜"];
    refused(&fixture, "a folder with a foreign file", || fixture.run_with_clock(&args))
        .expect_text("mine.txt");
    fixture.write(&format!("{LATEST}/mine.txt"), "mine\n");
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    assert!(!fixture.path(LATEST).join("mine.txt").exists());
    // Another program's night is kept like one of runner's nights.
    fs::remove_dir_all(fixture.path(LATEST)).unwrap();
    fixture.write(
        &format!("{LATEST}/summary.json"),
        "{\"schema_version\":2,\"mode\":\"dream.local-bedtime\",\"run_id\":\"20260409T220000Z\",\"started_at\":\"2026-04-09T22:00:00Z\",\"status\":\"done\"}",
    );
    fixture.write(&format!("{LATEST}/terrain.json"), "{}");
    fixture.run_with_clock(&["overnight", "start"]).ends(0);
    assert!(fixture.path(".agents/overnight/runs/before/terrain.json").is_file());
}

#[test]
fn overlapping_output_paths_are_refused() {
    for (setting, jobs) in [
        ("jobs.dream.ideas", "[jobs.dream]\nkind = \"dream\"\nideas = \"out/ideas\"\n"),
        ("jobs.dream.specs", "[jobs.dream]\nkind = \"dream\"\nspecs = \"out\"\n"),
        ("jobs.p.to", "[jobs.p]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"out/{date}.md\"\n"),
        (
            "jobs.c.artifacts",
            "[jobs.c]\nkind = \"command\"\nprogram = \"true\"\nartifacts = [{ from = \"a\", to = \"out/a\" }]\n",
        ),
        ("jobs.other.output_dir", "[jobs.other]\nkind = \"overnight\"\noutput_dir = \"out/x\"\n"),
        ("curator.learnings", "[curator]\nlearnings = \"out/learnings\"\n"),
        ("lifecycle.daydreams", "[lifecycle]\ndaydreams = \"out/d.json\"\n"),
        ("jobs.overnight.queue", "[jobs.overnight]\nqueue = \"out/queue.md\"\n"),
    ] {
        let fixture = match setting {
            "jobs.overnight.queue" => {
                Fixture::with(&format!("{JOB}output_dir = \"out\"\nqueue = \"out/queue.md\"\n"))
            }
            _ => Fixture::with(&format!("{JOB}output_dir = \"out\"\n{jobs}")),
        };
        fixture.run(&["config", "check"]).ends(78).expect_text(setting).expect_text("output_dir");
    }
}

/// Checks that each path setting rejects the values that are invalid for all path settings, and
/// the values that are invalid only for that setting.
#[test]
fn path_settings_reject_outside_and_git_paths() {
    const COMMAND: &str =
        "[jobs.j]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"manual\"\n";
    let long = "x".repeat(300);
    let common = [
        "..",
        ".git",
        ".git/x",
        "vendor/lib/.git/x",
        "/tmp/abs",
        "a/../..",
        "a/./b",
        "a//b",
        &long,
    ];
    let settings = [
        ("[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n", "ideas = V"),
        ("[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n", "dreams = V"),
        ("[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n", "done = V"),
        ("[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n", "specs = V"),
        ("[jobs.j]\nkind = \"prompt\"\nprompt = \"x\"\ntrigger = \"manual\"\n", "to = V"),
        (COMMAND, "artifacts = [{ from = \"a\", to = V }]"),
        (COMMAND, "writes = [V]"),
        ("[jobs.j]\nkind = \"rem\"\ntrigger = \"manual\"\n", "board = V"),
        ("[jobs.j]\nkind = \"wake\"\ntrigger = \"manual\"\n", "board = V"),
        ("[jobs.j]\nkind = \"wake\"\ntrigger = \"manual\"\n", "writes = [V]"),
        ("[jobs.j]\nkind = \"overnight\"\ntrigger = \"manual\"\n", "queue = V"),
        ("[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n", "ideas = V"),
        ("[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n", "learnings = V"),
        ("[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n", "worker_dir = V"),
        ("[jobs.j]\nkind = \"daydream\"\ntrigger = \"manual\"\n[lifecycle]\n", "steps = V"),
        ("[jobs.j]\nkind = \"daydream\"\ntrigger = \"manual\"\n[lifecycle]\n", "daydreams = V"),
    ];
    let fixture = fixture("");
    let toml = fixture.read("runner.toml");
    for (job, line) in settings {
        let mut values = common.to_vec();
        // The complete tree is a valid value for `writes`, and the empty value is valid for
        // `queue`.
        if !line.starts_with("writes") {
            values.push(".");
        }
        if !line.starts_with("queue") {
            values.push("");
        }
        if line.starts_with("worker_dir") {
            values.extend(["src", "file", "link", "away", "dreams", ".runner", ".runner/staging"]);
        }
        for value in values {
            let line = line.replace('V', &format!("{value:?}"));
            fixture.write("runner.toml", format!("{toml}\n{job}{line}\n"));
            let mut said = refused(&fixture, &line, || match line.starts_with("worker_dir") {
                true => fixture.run(&["curator", "work"]),
                false => fixture.run(&["run", "j"]),
            });
            said.err.truncate(400);
            assert!(!said.err.is_empty(), "{line}");
        }
    }
}
