//! Settings that name a folder or file: what runner did not make stays as it is, in every layer that a
//! setting can be given in.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{JOB, LATEST, command, corpus};
use crate::house::{House, Said};

/// A house with whatever a path can lead to.
fn house(jobs: &str) -> House {
    let house = House::with(jobs);
    corpus(&house);
    house.write("../clock", "2026-11-22T02:30:00Z\n");
    house.write("../outside/kept.txt", "kept\n");
    house.write("file", "a file\n");
    house.write("src/deep/own.rs", "// own\n");
    house.write("vendor/lib/.git/config", "[core]\n");
    house.write(".agents/overnight/notes/mine.md", "mine\n");
    symlink("src", house.path("link")).unwrap();
    symlink("../outside", house.path("away")).unwrap();
    symlink("nowhere", house.path("broken")).unwrap();
    fs::create_dir_all(house.path("empty")).unwrap();
    house
}

/// Everything in and beside the project, with links, but not runner's own state.
fn whole(house: &House) -> BTreeMap<String, String> {
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
        walk(&house.root().join(folder), &mut all);
    }
    all
}

/// The command is refused with exit code 78 and nothing changes.
#[track_caller]
fn refused(house: &House, by: &str, run: impl FnOnce() -> Said) -> Said {
    let before = whole(house);
    let said = run();
    assert!(before == whole(house), "{by} changed something: {said:?}");
    assert_eq!(said.code, 78, "{by}: {said:?}");
    said
}

/// Values that no output folder may have.
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
fn only_a_night_s_folder_is_moved() {
    let house = house(JOB);
    let mut values = bad();
    values.push(house.path("src").display().to_string());
    values.push(house.root().join("outside").display().to_string());
    for value in &values {
        let shown: String = value.chars().take(40).collect();
        for more in [&[][..], &["--dry-run"]] {
            let args = [&["overnight", "start", "--output-dir", value][..], more].concat();
            let said = refused(&house, &format!("--output-dir {shown} {more:?}"), || {
                Said::of(command(&house, &args).output().unwrap())
            });
            assert!(said.err.contains("to mend it: "), "{said:?}");
        }
    }
    // One of each sort through the other ways in.
    for value in [
        "..",
        "src",
        "link",
        "file",
        "vendor/lib/.git/x",
        "/",
        "ideas",
    ] {
        let set = format!("output_dir={value:?}");
        let config = format!("jobs.overnight.output_dir={value:?}");
        let toml = house.read("runner.toml");
        for (args, variable, line) in [
            (
                vec!["enqueue", "overnight", "--set", set.as_str()],
                false,
                false,
            ),
            (
                vec!["--config", config.as_str(), "run", "overnight"],
                false,
                false,
            ),
            (
                vec!["--config", config.as_str(), "overnight", "start"],
                false,
                false,
            ),
            (vec!["run", "overnight"], true, false),
            (vec!["overnight", "start"], true, false),
            (vec!["run", "overnight"], false, true),
            (vec!["overnight", "start"], false, true),
        ] {
            if line {
                house.configure(&format!("output_dir = {value:?}\n"));
            }
            refused(
                &house,
                &format!("{args:?} {value} {variable} {line}"),
                || {
                    let mut command = command(&house, &args);
                    if variable {
                        command.env("RUNNER_CONFIG__JOBS__OVERNIGHT__OUTPUT_DIR", value);
                    }
                    Said::of(command.output().unwrap())
                },
            );
            house.write("runner.toml", &toml);
        }
    }
}

#[test]
fn a_due_night_is_refused_too() {
    let house = house(&format!("{JOB}output_dir = \"src\"\n"));
    let before = whole(&house);
    let dry = house.run(&["run", "overnight", "--dry-run"]);
    assert!(before == whole(&house), "{dry:?}");
    assert!((dry.out + &dry.err).contains("runner did not make this folder"));
    // It waited in the queue while the folder became somebody's.
    let toml = house.read("runner.toml");
    house.write("runner.toml", toml.replace("\"src\"", "\"fresh\""));
    house.run(&["enqueue", "overnight"]).ends(0);
    house.write("fresh/own.rs", "// own\n");
    let before = whole(&house);
    house.run(&["tick"]);
    house
        .run(&["runs", "--json"])
        .says("runner did not make this folder");
    let mut after = whole(&house);
    // The failure marker is runner's own.
    after.retain(|path, _| !path.contains("/.runner/failed"));
    assert_eq!(before, after);
}

#[test]
fn folders_of_nights_are_taken_again() {
    let house = house(JOB);
    house.write("empty/../fresh-parent/kept.txt", "kept\n");
    for folder in [LATEST, "nächte/夜", "empty", "fresh-parent/new/", "src/out"] {
        let args = [
            "overnight",
            "start",
            "--max-iterations",
            "1",
            "--output-dir",
            folder,
        ];
        for _ in 0..2 {
            Said::of(command(&house, &args).output().unwrap()).ends(0);
            assert!(
                house.path(folder).join("summary.json").is_file(),
                "{folder}"
            );
        }
        let runs = house.path(folder).parent().unwrap().join("runs");
        let kept: Vec<_> = fs::read_dir(&runs).unwrap().flatten().collect();
        let kept = kept
            .iter()
            .filter(|it| it.path().join("summary.json").is_file());
        assert!(kept.count() >= 1, "{folder}");
    }
    assert_eq!(house.read("fresh-parent/kept.txt"), "kept\n");
    assert_eq!(house.read("src/deep/own.rs"), "// own\n");
    // Once somebody's file is in it, it is theirs; below .agents/overnight it still is a night's.
    house.write("nächte/夜/mine.txt", "mine\n");
    let args = ["overnight", "start", "--output-dir", "nächte/夜"];
    refused(&house, "a folder with somebody's file", || {
        Said::of(command(&house, &args).output().unwrap())
    })
    .says("mine.txt");
    house.write(&format!("{LATEST}/mine.txt"), "mine\n");
    Said::of(command(&house, &["overnight", "start"]).output().unwrap()).ends(0);
    assert!(!house.path(LATEST).join("mine.txt").exists());
    // What another program left is a night's as well.
    fs::remove_dir_all(house.path(LATEST)).unwrap();
    house.write(
        &format!("{LATEST}/summary.json"),
        "{\"schema_version\":2,\"mode\":\"dream.local-bedtime\",\"run_id\":\"20260409T220000Z\",\"started_at\":\"2026-04-09T22:00:00Z\",\"status\":\"done\"}",
    );
    house.write(&format!("{LATEST}/terrain.json"), "{}");
    Said::of(command(&house, &["overnight", "start"]).output().unwrap()).ends(0);
    assert!(
        house
            .path(".agents/overnight/runs/before/terrain.json")
            .is_file()
    );
}

#[test]
fn two_settings_do_not_share_a_folder() {
    for (setting, jobs) in [
        (
            "jobs.dream.ideas",
            "[jobs.dream]\nkind = \"dream\"\nideas = \"out/ideas\"\n",
        ),
        (
            "jobs.dream.specs",
            "[jobs.dream]\nkind = \"dream\"\nspecs = \"out\"\n",
        ),
        (
            "jobs.p.to",
            "[jobs.p]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"out/{date}.md\"\n",
        ),
        (
            "jobs.c.artifacts",
            "[jobs.c]\nkind = \"command\"\nprogram = \"true\"\nartifacts = [{ from = \"a\", to = \"out/a\" }]\n",
        ),
        (
            "jobs.other.output_dir",
            "[jobs.other]\nkind = \"overnight\"\noutput_dir = \"out/x\"\n",
        ),
        (
            "curator.learnings",
            "[curator]\nlearnings = \"out/learnings\"\n",
        ),
        (
            "lifecycle.daydreams",
            "[lifecycle]\ndaydreams = \"out/d.json\"\n",
        ),
        (
            "jobs.overnight.queue",
            "[jobs.overnight]\nqueue = \"out/queue.md\"\n",
        ),
    ] {
        let house = match setting {
            "jobs.overnight.queue" => House::with(&format!(
                "{JOB}output_dir = \"out\"\nqueue = \"out/queue.md\"\n"
            )),
            _ => House::with(&format!("{JOB}output_dir = \"out\"\n{jobs}")),
        };
        house
            .run(&["config", "check"])
            .ends(78)
            .says(setting)
            .says("output_dir");
    }
}

/// Settings of single files and of folders that only get files, each with the values that it must
/// refuse besides the common ones.
#[test]
fn no_path_setting_leads_out_or_into_git() {
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
        (
            "[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n",
            "ideas = V",
        ),
        (
            "[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n",
            "dreams = V",
        ),
        (
            "[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n",
            "done = V",
        ),
        (
            "[jobs.j]\nkind = \"dream\"\ntrigger = \"manual\"\n",
            "specs = V",
        ),
        (
            "[jobs.j]\nkind = \"prompt\"\nprompt = \"x\"\ntrigger = \"manual\"\n",
            "to = V",
        ),
        (COMMAND, "artifacts = [{ from = \"a\", to = V }]"),
        (COMMAND, "writes = [V]"),
        (
            "[jobs.j]\nkind = \"rem\"\ntrigger = \"manual\"\n",
            "board = V",
        ),
        (
            "[jobs.j]\nkind = \"wake\"\ntrigger = \"manual\"\n",
            "board = V",
        ),
        (
            "[jobs.j]\nkind = \"wake\"\ntrigger = \"manual\"\n",
            "writes = [V]",
        ),
        (
            "[jobs.j]\nkind = \"overnight\"\ntrigger = \"manual\"\n",
            "queue = V",
        ),
        (
            "[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n",
            "ideas = V",
        ),
        (
            "[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n",
            "learnings = V",
        ),
        (
            "[jobs.j]\nkind = \"curator\"\ntrigger = \"manual\"\n[curator]\n",
            "worker_dir = V",
        ),
        (
            "[jobs.j]\nkind = \"daydream\"\ntrigger = \"manual\"\n[lifecycle]\n",
            "steps = V",
        ),
        (
            "[jobs.j]\nkind = \"daydream\"\ntrigger = \"manual\"\n[lifecycle]\n",
            "daydreams = V",
        ),
    ];
    let house = house("");
    let toml = house.read("runner.toml");
    for (job, line) in settings {
        let mut values = common.to_vec();
        // Everything, and nothing, are good values of some.
        if !line.starts_with("writes") {
            values.push(".");
        }
        if !line.starts_with("queue") {
            values.push("");
        }
        if line.starts_with("worker_dir") {
            values.extend([
                "src",
                "file",
                "link",
                "away",
                "dreams",
                ".runner",
                ".runner/staging",
            ]);
        }
        for value in values {
            let line = line.replace('V', &format!("{value:?}"));
            house.write("runner.toml", format!("{toml}\n{job}{line}\n"));
            let mut said = refused(&house, &line, || match line.starts_with("worker_dir") {
                true => house.run(&["curator", "work"]),
                false => house.run(&["run", "j"]),
            });
            said.err.truncate(400);
            assert!(!said.err.is_empty(), "{line}");
        }
    }
}
