//! Tests overnight runs. [`run_ok`] runs a command and checks that it makes no forbidden change.

mod bad_input;
mod halts;
mod kills;
mod nights;
mod paths;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, Random};

const JOB: &str = "[jobs.overnight]\nkind = \"overnight\"\ntrigger = \"manual\"\nretries = 0\n";
const LATEST: &str = ".agents/overnight/latest";
const WORK_FILE: &str = ".agents/rpi/next-work.jsonl";
const SUBPATHS: [&str; 4] = ["learnings", "findings", "patterns", "knowledge"];

/// Files and their content.
type Tree = BTreeMap<String, Vec<u8>>;

/// Returns a text of 40 words that differs for each number.
fn words(number: u64) -> String {
    let mut dice = Random(number);
    let parts = [
        "retry", "worktree", "schema", "release", "cache", "lock", "prompt", "gate", "index",
        "session",
    ];
    (0..40).map(|_| format!("{}{} ", parts[dice.roll(10) as usize], dice.roll(900))).collect()
}

fn learning(tag: &str, maturity: &str, title: &str, body: &str) -> String {
    // These texts match the fixed questions of the benchmark.
    let about = match tag {
        "ci" => "Tests fail in CI only: the pipeline is flaky.",
        "release" => "Tag the release with its version, and look at the changelog.",
        _ => "A worker keeps to the scope of its task; its boundary is the plan.",
    };
    format!(
        "---\ndate: 2026-10-01\ntags: [{tag}]\nodd-key: [1, 2]\nmaturity: {maturity}\nutility: 0.80\n---\n\n# {title}\n\n{body}\n{about}\nPin the tool, because a floating version breaks it. See src/net.rs.\n"
    )
}

/// Returns a row of the citations file, which records that a session applied a learning.
fn citation(name: &str) -> String {
    format!(
        "{{\"artifact_path\":\".agents/learnings/{name}.md\",\"session_id\":\"of {name}\",\"cited_at\":\"2026-10-20T08:00:00Z\",\"citation_type\":\"applied\",\"query\":\"a floating version breaks the flaky pipeline\"}}\n"
    )
}

/// Writes a corpus with learnings to promote, duplicates, a stale learning and open work, and
/// commits a change whose message contains a learning.
fn corpus(fixture: &Fixture) {
    let put = |path: &str, text: String| fixture.write(&format!(".agents/{path}"), text);
    for number in 0..9 {
        let tag = ["ci", "release", "agents"][number % 3];
        let text = learning(tag, "provisional", &format!("Lesson {number}"), &words(number as u64));
        put(&format!("learnings/2026-10-0{number}-lesson.md"), text);
    }
    let same = learning("ci", "candidate", "The same", &words(100));
    put("learnings/same-one.md", same.clone());
    put("learnings/same-two.md", same.clone());
    put("learnings/same-nearly.md", same.replace("# The same", "# Nearly the same"));
    put(
        "learnings/old.md",
        learning("old", "established", "Old", &words(101))
            .replace("utility", "ttl_days: 2\nutility"),
    );
    put(
        "learnings/short.md",
        "---\ndate: 2026-10-01\nmaturity: provisional\n---\nToo short.\n".to_owned(),
    );
    put("findings/f-2026-10-01-001.md", "---\nid: f-2026-10-01-001\nseverity: high\ndate: 2026-10-01\nstatus: active\n---\n# Retries give up in src/net.rs\n\nThey do.\n".to_owned());
    put("findings/registry.jsonl", "{\"id\":\"f-2026-10-01-001\",\"n\":1.50}\n".to_owned());
    put("patterns/first.md", learning("ci", "established", "First look, then leap", &words(102)));
    put(
        "knowledge/map.md",
        learning(
            "agents",
            "established",
            "The map",
            "See [[2026-10-00-lesson]] and learnings/2026-10-01-lesson.md.",
        ),
    );
    put("knowledge/notes.txt", "no node\n".to_owned());
    put(
        "ao/citations.jsonl",
        (0..9).map(|number| citation(&format!("2026-10-0{number}-lesson"))).collect(),
    );
    put("rpi/next-work.jsonl", WORK.to_owned());
    fixture.write("src/net.rs", "// retry\n");
    fixture.write("tests/net_test.rs", "// test\n");
    fixture.git(&["add", "src", "tests"]);
    fixture.git(&["commit", "--quiet", "-m", "Retry\n\nLearned: a retry without jitter makes all clients come back at the very same moment, so add jitter"]);
}

const WORK: &str = concat!(
    "{\"source_epic\":\"e1\",\"timestamp\":\"2026-10-01T00:00:00Z\",\"items\":[{\"title\":\"Mend the retry\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"review\",\"description\":\"src/net.rs gives up\",\"odd\":0.80,\"id\":\"mine-1\"},{\"title\":\"Taken\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"claim_status\":\"in_progress\",\"claimed_by\":\"me\"}],\"consumed\":false,\"claim_status\":\"available\"}\n",
    "{ this line is broken\n",
    "\n",
    "{\"title\": \"A flat row\", \"type\": \"task\",  \"severity\": \"low\", \"source\": \"old\", \"description\": \"as they were\"}\n",
    "{\"source_epic\":\"e0\",\"items\":[{\"title\":\"Done\",\"type\":\"task\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"consumed_note\":\"the cache must be keyed by the digest, because names are used twice\"}],\"consumed\":true,\"claim_status\":\"consumed\"}\n",
);

fn night() -> Fixture {
    let fixture = Fixture::with(JOB);
    corpus(&fixture);
    fixture.set_clock("2026-11-22T02:30:00Z");
    fixture
}

/// Runs a command, and checks that it creates no link and does not change the [`surroundings`].
#[track_caller]
fn watched(fixture: &Fixture, command: &mut Command) -> CommandOutput {
    let before = (surroundings(fixture), links(&fixture.path(".agents")));
    let said = CommandOutput::of(command.output().unwrap());
    let after = links(&fixture.path(".agents"));
    untouched(fixture, &before.0, &format!("{command:?}"));
    assert_eq!(before.1, after, "a link was created");
    said
}

/// Checks that the [`surroundings`] are unchanged.
#[track_caller]
fn untouched(fixture: &Fixture, before: &Tree, by: &str) {
    let after = surroundings(fixture);
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for path in paths {
        let (was, is) = (before.get(path), after.get(path));
        assert!(
            was == is,
            "{path} was changed by {by}: {:?} -> {:?}",
            was.map(|it| String::from_utf8_lossy(it)),
            is.map(|it| String::from_utf8_lossy(it))
        );
    }
}

#[track_caller]
fn run_ok(fixture: &Fixture, args: &[&str]) -> CommandOutput {
    watched(fixture, &mut fixture.runner_with_clock(args))
}

#[track_caller]
fn start(fixture: &Fixture, more: &[&str]) -> CommandOutput {
    run_ok(fixture, &[&["overnight", "start"][..], more].concat())
}

fn summary_of(fixture: &Fixture) -> Value {
    json(fixture, &format!("{LATEST}/summary.json"))
}

fn json(fixture: &Fixture, path: &str) -> Value {
    serde_json::from_str(&fixture.read(path)).unwrap()
}

/// Returns the files of the corpus.
fn tree(fixture: &Fixture) -> Tree {
    let mut all = BTreeMap::new();
    for folder in SUBPATHS {
        if fixture.path(&format!(".agents/{folder}")).is_dir() {
            all.extend(fixture.tree(&format!(".agents/{folder}")));
        }
    }
    all
}

/// Returns the files that a night must not change: sources, settings and git's files.
fn surroundings(fixture: &Fixture) -> Tree {
    let mut all = Tree::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(fixture.path("").join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let below = folder.join(entry.file_name());
            let name = below.display().to_string();
            let night = ["overnight", "rpi/next-work.jsonl"].into_iter().chain(SUBPATHS);
            // Another program writes beads. The failure marker and the report are runner's own.
            if [".beads", ".runner/failed", ".runner/reports"].contains(&name.as_str())
                || night.into_iter().any(|it| name == format!(".agents/{it}"))
            {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(below),
                false => drop(all.insert(name, fs::read(entry.path()).unwrap_or_default())),
            }
        }
    }
    all
}

fn links(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        count += usize::from(kind.is_symlink());
        if kind.is_dir() {
            count += links(&entry.path());
        }
    }
    count
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Starts nights until one is killed after it has recorded its first iteration.
fn killed_after_one_iteration(fixture: &Fixture, more: &[&str]) {
    for at in (40..4_000).step_by(20) {
        let mut command = fixture.runner_with_clock(&[&["overnight", "start"][..], more].concat());
        command.env("RUNNER_TEST_KILL", at.to_string());
        let ended = watched(fixture, &mut command).code == 0;
        let noted = fixture.tree(LATEST).into_iter();
        let noted = noted.filter(|(path, _)| path.ends_with("iter-1.json")).count();
        assert!(!ended, "the night ended before it could be killed");
        if noted > 0 {
            return;
        }
    }
    panic!("no run was killed after its first iteration");
}
