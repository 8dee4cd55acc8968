//! Tests that replays are byte-identical to the recorded runs, even without the project.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::{Fixture, print_line, scaled};

const KEY: &str = "canary-of-a-variable-4711";

/// Returns the ids of all runs, oldest first, with their kinds.
fn runs(fixture: &Fixture) -> Vec<(String, String)> {
    let listed = fixture.run(&["runs", "--all", "--json"]).ends(0).json();
    let text = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    let runs = listed.as_array().unwrap().iter();
    let mut runs: Vec<_> = runs.map(|run| (text(run, "id"), text(run, "kind"))).collect();
    runs.sort();
    runs
}

/// Returns the id of the newest run of this kind.
fn newest(fixture: &Fixture, kind: &str) -> String {
    let runs = runs(fixture);
    runs.into_iter().rfind(|(_, it)| it == kind).unwrap().0
}

fn recording(fixture: &Fixture, run: &str) -> PathBuf {
    fixture.state().join(format!("recordings/{run}.jsonl"))
}

/// Runs the demo, and lets later commands use its state.
fn demo(fixture: &mut Fixture, folder: &str) {
    fixture.state_home = "state".into();
    fixture.run(&["demo", &format!("../{folder}")]).ends(0);
    let demos = fs::read_dir(fixture.root().join("state/runner-demo")).unwrap();
    let marked = demos.map(|demo| demo.unwrap().path()).find(|demo| {
        let files = fs::read_dir(demo).unwrap().map(|file| file.unwrap().path());
        let root = fixture.root().join(folder);
        files.filter(|file| file.is_file()).any(|file| {
            fs::read_to_string(file)
                .is_ok_and(|text| fs::canonicalize(&root).unwrap() == Path::new(&text))
        })
    });
    fixture.state_home = marked.unwrap();
}

/// Returns a recording's lines, each changed by `change`.
fn changed(text: &str, change: impl Fn(&mut Value)) -> String {
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        change(&mut line);
        format!("{line}\n")
    });
    lines.collect()
}

/// Exports a run's recording with changes, and returns its path.
fn edited(fixture: &Fixture, run: &str, change: impl Fn(&mut Value)) -> String {
    let file = fixture.root().join(format!("{run}-edited.jsonl"));
    let text = fs::read_to_string(recording(fixture, run)).unwrap();
    let new = changed(&text, change);
    assert_ne!(new, changed(&text, |_| {}), "nothing was edited");
    fs::write(&file, new).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn demo_replay_is_identical_and_detects_drift() {
    let mut fixture = Fixture::new();
    demo(&mut fixture, "demo");
    let demo = fixture.root().join("demo");
    let runs = runs(&fixture);
    let of = |kind: &str| runs.iter().filter(|(_, it)| it == kind).count();
    // The runs are the dream, three wakes, an audit, a rem, a plan and the report.
    assert_eq!((of("dream"), of("lifecycle"), of("report"), runs.len()), (1, 6, 1, 8));
    let replayed = |into: &str, untouched: bool| {
        let mut last = std::collections::BTreeMap::new();
        for (run, kind) in &runs {
            let into = format!("../{into}-{run}");
            let args = ["replay", run, "--into", &into, "--json"];
            let said = fixture.run(&args).ends(0).json();
            assert_eq!(said["equal"], true, "{said:#}");
            assert_eq!(said["drift"], serde_json::json!([]));
            assert_eq!(said["requests"], u64::from(kind != "report"), "{said:#}");
            let made = said["artifacts"].as_array().unwrap();
            assert!(made.len() >= 2, "{said:#}");
            for one in made {
                let target = one["target"].as_str().unwrap();
                let again = fs::read(fixture.path(&into).join(target)).unwrap();
                last.insert(target.to_owned(), again);
            }
        }
        assert!(last.keys().any(|target| target.starts_with("rem/2")));
        // At the end of the night, each file has the content that the last run wrote to it.
        for (target, again) in last.iter().filter(|_| untouched) {
            assert_eq!(again, &fs::read(demo.join(target)).unwrap(), "{target}");
        }
    };
    // A replay leaves no trace except for the requested output.
    let before = fixture.tree("../state");
    replayed("first", true);
    let names = |tree: &[(String, Vec<u8>)]| -> Vec<String> {
        let ours = tree.iter().filter(|(name, _)| !name.contains("database."));
        ours.map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&fixture.tree("../state")), names(&before));

    // Change the project, and then remove it.
    let dream = newest(&fixture, "dream");
    fs::write(demo.join("ideas/csv-export.md"), "something else\n").unwrap();
    fs::write(demo.join("ideas/new.md"), "one more\n").unwrap();
    fs::write(demo.join("plan.org"), "* TODO nothing\n").unwrap();
    fs::write(demo.join(".runner/lifecycle-pos"), "rem 0\n").unwrap();
    fs::write(demo.join("_steps.jsonl"), "").unwrap();
    fs::remove_dir_all(demo.join(".git")).unwrap();
    replayed("second", false);
    fs::remove_dir_all(&demo).unwrap();
    replayed("third", false);
    fixture
        .run(&["replay", &dream])
        .ends(0)
        .expect_text("all 2 artifacts are byte for byte the same");

    // Edit one reply: first the dream's, then the rem's.
    let file = edited(&fixture, &dream, |line| {
        if let Some(reply) = line.pointer_mut("/asked/reply/text") {
            let text = reply.as_str().unwrap().replace("sidenote", "blog-candidate");
            *reply = text.replace("\"keep\"", "\"mark-blog\"").into();
        }
    });
    let said = fixture.run(&["replay", &file, "--json"]).ends(1).json();
    drifts_at(&said, "proposals.json");
    let rem = runs.iter().find(|(run, _)| {
        let text = fs::read_to_string(recording(&fixture, run)).unwrap();
        text.contains("\"purpose\":\"rem\"")
    });
    let rem = &rem.unwrap().0;
    let file = edited(&fixture, rem, |line| {
        if let Some(reply) = line.pointer_mut("/asked/reply/text") {
            let mut text: Value = serde_json::from_str(reply.as_str().unwrap()).unwrap();
            text["fears"][0] = "that somebody edits what was said".into();
            *reply = text.to_string().into();
        }
    });
    let said = fixture.run(&["replay", &file, "--json"]).ends(1).json();
    drifts_at(&said, ".org");

    // Edit a source, which changes the request.
    let file = edited(&fixture, &dream, |line| {
        if let Some(idea) = line.pointer_mut("/content/text")
            && idea.as_str().unwrap().contains("moon")
        {
            *idea = format!("{} And the tides of Mars.\n", idea.as_str().unwrap().trim()).into();
        }
    });
    fixture
        .run(&["replay", &file])
        .ends(1)
        .expect_text("drift    request 1 differs at source")
        .expect_text("moon-phase.md");
    let file = edited(&fixture, rem, |line| {
        if line.pointer("/read/input") == Some(&"steps".into())
            && let Some(tool) = line.pointer_mut("/read/facts/Ok/0/tool")
        {
            *tool = "Knit".into();
        }
    });
    fixture
        .run(&["replay", &file])
        .ends(1)
        .expect_text("drift    request 1 differs at source 4 (the last 25 tools)");

    // Edit the position in the cycle, which gates the run.
    let file = edited(&fixture, rem, |line| {
        if line.pointer("/read/question") == Some(&".runner/lifecycle-pos".into()) {
            line["read"]["content"] = Value::Null;
            line["read"]["facts"] = Value::Null;
        }
    });
    fixture
        .run(&["replay", &file])
        .ends(1)
        .expect_text("the replay's outcome is skipped")
        .expect_text("the replay did not write it");
}

/// Checks that a replay reports the edited reply and the line at which `artifact` differs.
fn drifts_at(said: &Value, artifact: &str) {
    let drift = said["drift"].to_string();
    assert!(drift.contains("the reply to request 1 is not the recorded one"), "{drift}");
    let all = said["artifacts"].as_array().unwrap().iter();
    let differs: Vec<&Value> = all.filter(|one| one["equal"] == false).collect();
    let first = differs[0];
    let target = first["target"].as_str().unwrap();
    assert!(target.ends_with(artifact), "{said:#}");
    let how = first["differs"].as_str().unwrap();
    assert!(how.starts_with("line "), "{said:#}");
}

#[test]
fn export_is_private_and_not_overwritten() {
    let mut fixture = Fixture::new();
    demo(&mut fixture, "demo");
    let dream = newest(&fixture, "dream");
    let file = fixture.root().join("exported.jsonl");
    let exported = file.to_str().unwrap();
    let args = ["replay", &dream, "--export", exported];
    fixture.run(&args).ends(0).expect_text("wrote");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fixture.run(&["replay", exported]).ends(0);
    fixture.run(&args).ends(65).expect_text("already exists");
}

#[test]
fn rem_and_daydream_replays_commit_nothing() {
    let musing = "the harbour is quiet and the pages dry";
    let fixture = Fixture::with(&format!(
        "[lifecycle]\ncommit = true\n[backends.muse]\ntype = \"command\"\nprogram = \"/bin/sh\"\n\
         args = [\"-c\", \"cat > /dev/null; echo {musing}\"]\n\
         [jobs.rem]\nkind = \"rem\"\ntrigger = \"manual\"\n\
         [jobs.muse]\nkind = \"daydream\"\nbackend = \"muse\"\ntrigger = \"manual\"\n\
         [jobs.tidy]\nkind = \"curator\"\ntrigger = \"manual\"\n",
    ));
    fixture.write("plan.org", "* Tasks\n** DOING a table\n** TODO a post\n");
    fixture.write(
        "_steps.jsonl",
        "{\"tool\":\"Bash\",\"args\":{\"cmd\":\"make test\"},\"exit_code\":2}\n",
    );
    for _ in 0..2 {
        fixture.run(&["run", "rem"]).ends(0);
        fixture.run(&["run", "muse"]).ends(0);
    }
    assert!(fixture.git(&["log", "--format=%s"]).contains("rem: "));
    fixture.run(&["run", "tidy"]);
    fixture
        .run(&["replay", &newest(&fixture, "curator")])
        .ends(65)
        .expect_text("is of kind curator, which cannot be replayed: each file of its queue");
    let all = runs(&fixture);
    let (commits, left) = (fixture.git(&["log"]), fixture.tree("."));
    for (kind, made) in [("rem", 2), ("daydream", 1)] {
        for (run, _) in all.iter().filter(|(_, it)| it == kind) {
            let said = fixture.run(&["replay", run, "--json"]).ends(0).json();
            assert_eq!(
                (&said["equal"], said["artifacts"].as_array().unwrap().len()),
                (&Value::Bool(true), made),
                "{said:#}"
            );
        }
    }
    assert_eq!((fixture.git(&["log"]), fixture.tree(".")), (commits, left));
}

#[test]
fn replayed_pass_compares_the_recorded_notes() {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    for (path, subject) in [
        ("src/term.rs", "feat: colour the output"),
        ("src/parse.rs", "fix: off by one in the parser"),
        ("src/main.rs", "refactor: split the main module"),
        ("src/state.rs", "feat: show the state of a project"),
        ("src/hook.rs", "fix: keep resource hook silent until the project is initialised"),
    ] {
        fixture.write(path, subject);
        fixture.git(&["add", path]);
        fixture.git(&["commit", "--quiet", "-m", subject]);
    }
    for at in 0..30 {
        fixture
            .write(&format!("ideas/zebra-{at}.md"), format!("# Zebra\n\nPaint it {at} times.\n"));
    }
    let silent = "# Silent hooks in projects without set-up\n\nThe resource hook creates folders in a \
                  project that nobody has set up. Each hook should stay silent until the project is \
                  initialised, and say so once when asked for its state.\n";
    fixture.write("ideas/silent-hooks.md", silent);
    let sibling =
        "# Resource hook until the project is initialised\n\nKeep the resource hook silent.\n";
    let archives = || {
        fixture.run(&["dream", "run", "--all"]).ends(0);
        let all = fixture.run(&["dream", "list", "--action", "archive", "--json"]).ends(0).json();
        all.as_array().unwrap().iter().filter(|one| one["superseded"] == false).count()
    };
    assert_eq!(archives(), 1);
    let alone = newest(&fixture, "dream");
    fixture.write("ideas/done/resource-hook.md", sibling);
    assert_eq!(archives(), 0, "an idea is archived although the commit fits another note better");
    let compared = newest(&fixture, "dream");
    let replay = |run: &str| fixture.run(&["replay", run]).ends(0).expect_text("byte for byte");
    replay(&alone);
    fs::remove_file(fixture.path("ideas/done/resource-hook.md")).unwrap();
    replay(&compared);
    // The recording of an earlier version contains no notes.
    let older = edited(&fixture, &compared, |line| {
        if line.pointer("/read/input") == Some(&"settled notes".into()) {
            line["read"]["input"] = "unknown".into();
        }
    });
    replay(&older);
}

#[test]
fn incomplete_recording_is_reported() {
    let mut fixture = Fixture::new();
    demo(&mut fixture, "demo");
    let dream = newest(&fixture, "dream");
    let path = recording(&fixture, &dream);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    fixture.run(&["replay", &dream]).ends(65).expect_text("not a complete recording");
    fs::write(&path, b"\0\x01garbage\n").unwrap();
    fixture.run(&["replay", &dream]).ends(65).expect_text("is not a recording: line 1");
    let text = String::from_utf8(whole.clone()).unwrap();
    for (from, to, message) in [
        ("\"kind\":\"dream\"", "\"kind\":\"drea\"", "there is no kind \"drea\""),
        ("\"project\":\"01", "\"project\":\"0", "is not an id"),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        fixture.run(&["replay", &dream]).ends(65).expect_text(message);
    }
    fs::remove_file(&path).unwrap();
    fixture.run(&["replay", &dream]).ends(65).expect_text("has no recording");
    fixture.run(&["replay", "NOSUCHRUN"]).ends(65).expect_text("no run NOSUCHRUN");
    fixture.run(&["replay", ""]).ends(2);
    fixture.run(&["replay", "./absent.jsonl"]).ends(65).expect_text("cannot read");
    fs::write(&path, &whole).unwrap();
    fixture.run(&["replay", &dream, "--into", "."]).ends(65).expect_text("already exists");

    // A randomly damaged file never causes a panic.
    let seed: u64 = std::env::var("RUNNER_TEST_SEED").map_or(7, |text| text.parse().unwrap());
    let (mut dice, cases) = (seed, scaled(25));
    let begun = std::time::Instant::now();
    let mut roll = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).unwrap() % below
    };
    let file = fixture.root().join("chance.jsonl");
    for case in 0..cases {
        let mut bytes = whole.clone();
        for _ in 0..=roll(3) {
            let at = roll(bytes.len());
            match roll(3) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] ^= 1 << roll(8),
                _ => drop(bytes.remove(at)),
            }
        }
        fs::write(&file, &bytes).unwrap();
        let said = fixture.run(&["replay", file.to_str().unwrap()]);
        let known = matches!(said.code, 0 | 1 | 65);
        assert!(known && !said.err.contains("panicked"), "seed {seed}, case {case}: {said:?}");
    }
    print_line(&format!(
        "replay: {cases} damaged recordings, seed {seed}, {:.1?}",
        begun.elapsed()
    ));
}

#[test]
fn command_replay_needs_no_programs_or_secrets() {
    let fixture = Fixture::with(
        "[backends.model]\ntype = \"command\"\nprogram = \"/bin/sh\"\n\
         args = [\"-c\", \"cat > /dev/null; echo An answer.\"]\n\
         [jobs.make]\nkind = \"command\"\nprogram = \"/bin/sh\"\nenv = [\"MY_KEY\"]\ntrigger = \"manual\"\n\
         args = [\"-c\", \"echo made with $MY_KEY > $RUNNER_OUT/a.txt\"]\n\
         artifacts = [{ from = \"a.txt\", to = \"made/a.txt\" }]\n\
         [jobs.ask]\nkind = \"prompt\"\nbackend = \"model\"\nprompt = \"What is new?\"\n\
         sources = [\"notes.md\", \"absent.md\"]\nto = \"answers/a.md\"\ntrigger = \"manual\"\n\
         [jobs.fails]\nkind = \"command\"\nprogram = \"/bin/sh\"\nargs = [\"-c\", \"exit 3\"]\nretries = 0\n\
         trigger = \"manual\"\n\
         [jobs.empty]\nkind = \"command\"\nprogram = \"true\"\nretries = 0\ntrigger = \"manual\"\n\
         artifacts = [{ from = \"a\", to = \"empty/a\" }]\n\
         [jobs.long]\nkind = \"command\"\nprogram = \"/bin/sh\"\ntrigger = \"manual\"\n\
         args = [\"-c\", \"head -c 34000000 /dev/zero > $RUNNER_OUT/a\"]\n\
         artifacts = [{ from = \"a\", to = \"long/a\" }]\n",
    );
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    fixture.write("notes.md", format!("# News\n\nThe token is {token}.\n"));
    let keyed = |job: &str| {
        let mut command = fixture.runner(&["run", job]);
        crate::fixture::CommandOutput::of(command.env("MY_KEY", KEY).output().unwrap())
    };
    keyed("make").ends(0);
    keyed("ask").ends(0);
    keyed("fails").ends(1);
    keyed("empty").ends(1);
    keyed("long").ends(0);
    let long = newest(&fixture, "command");
    fixture
        .run(&["replay", &long])
        .ends(65)
        .expect_text("a recording keeps at most 33554432, so the run cannot be replayed");
    let size = fs::metadata(recording(&fixture, &long)).unwrap().len();
    assert!(size < 10_000, "{size}");
    fs::remove_file(recording(&fixture, &long)).unwrap();
    let runs: Vec<_> = runs(&fixture).into_iter().filter(|(run, _)| *run != long).collect();
    assert_eq!(runs.len(), 4);
    for (name, bytes) in fixture.tree("../state/runner/recordings") {
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(KEY) && !text.contains(&token), "{name}");
    }
    fs::remove_dir_all(fixture.project().join(".git")).unwrap();
    fixture.write("notes.md", "other\n");
    for (run, kind) in &runs {
        let said = fixture.run(&["replay", run, "--json"]).json();
        // The command job's program wrote its secret into its artifact, so the recorded artifact is
        // redacted.
        let kept = kind == "command" && said["redacted"] != 0;
        assert_eq!(said["equal"], !kept, "{said:#}");
        assert_eq!(said["recorded"], said["outcome"], "{said:#}");
    }
}

#[test]
fn recording_serves_as_a_backend() {
    let toml = |kind: &str| {
        format!(
            "[backends.model]\n{kind}\n[jobs.ask]\nkind = \"prompt\"\nbackend = \"model\"\nretries = 0\n\
             prompt = \"What is new?\"\nsources = [\"notes.md\"]\nto = \"answers/a.md\"\ntrigger = \"manual\"\n"
        )
    };
    let fixture = Fixture::with(&toml(
        "type = \"command\"\nprogram = \"/bin/sh\"\nargs = [\"-c\", \"cat > /dev/null; echo An answer.\"]",
    ));
    fixture.write("notes.md", "# News\n\nSome.\n");
    fixture.run(&["run", "ask"]).ends(0);
    let run = newest(&fixture, "prompt");
    let answer = fixture.read("answers/a.md");
    let file = fixture.root().join("tests.jsonl");
    fixture.run(&["replay", &run, "--export", file.to_str().unwrap()]).ends(0);

    let tests = Fixture::with(&toml("type = \"replay\"\nrecording = \"tests/night.jsonl\""));
    tests.write("notes.md", "# News\n\nSome.\n");
    tests.run(&["run", "ask"]).ends(78).expect_text("cannot read");
    tests.write("tests/night.jsonl", fs::read(&file).unwrap());
    tests.run(&["run", "ask"]).ends(0);
    assert_eq!(tests.read("answers/a.md"), answer);
    tests.run(&["backends", "check", "model"]).ends(0);
    tests.write("notes.md", "# News\n\nOther.\n");
    tests
        .run(&["run", "ask"])
        .ends(78)
        .expect_text("no reply to this request")
        .expect_text("source 1 (notes.md)");
}

#[test]
fn retention_setting_limits_recordings() {
    let mut fixture = Fixture::new();
    demo(&mut fixture, "demo");
    let dream = newest(&fixture, "dream");
    let old = recording(&fixture, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    fs::write(&old, "of 2016").unwrap();
    fs::write(recording(&fixture, "somebody's"), "stays").unwrap();
    let dry = fixture.run(&["db", "prune", "--dry-run"]).ends(0);
    assert!(dry.out.contains("1 item of kind recording"), "{dry:?}");
    assert!(old.exists());
    fixture.run(&["db", "prune"]).ends(0);
    assert!(!old.exists() && recording(&fixture, &dream).exists());
    assert!(recording(&fixture, "somebody's").exists());

    let config = fixture.root().join("config/runner/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}[retention]\nrecordings = \"none\"\n")).unwrap();
    let first = fixture.state_home.clone();
    demo(&mut fixture, "silent");
    let recordings = fs::read_dir(fixture.state().join("recordings"));
    assert_eq!(recordings.map_or(0, Iterator::count), 0, "the second night was recorded");
    fixture.state_home = first;
    fixture.run(&["db", "prune"]).ends(0);
    assert!(!recording(&fixture, &dream).exists());
}
