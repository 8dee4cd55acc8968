//! The night over a corpus, through the program: what it makes of one, what it never touches, and what
//! is left when it dies at any act.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::house::{Dice, House, Said, scaled, tell};

const JOB: &str = "[jobs.overnight]\nkind = \"overnight\"\ntrigger = \"manual\"\nretries = 0\n";
const LATEST: &str = ".agents/overnight/latest";
const SUBPATHS: [&str; 4] = ["learnings", "findings", "patterns", "knowledge"];

/// Files and what they hold.
type Tree = BTreeMap<String, Vec<u8>>;

/// A text of many words that no other number has.
fn words(number: u64) -> String {
    let mut dice = Dice(number);
    let parts = [
        "retry", "worktree", "schema", "release", "cache", "lock", "prompt", "gate", "index",
        "session",
    ];
    (0..40)
        .map(|_| format!("{}{} ", parts[dice.roll(10) as usize], dice.roll(900)))
        .collect()
}

fn learning(tag: &str, maturity: &str, title: &str, body: &str) -> String {
    // What the fixed questions of the bench ask about.
    let about = match tag {
        "ci" => "Tests fail in CI only: the pipeline is flaky.",
        "release" => "Tag the release with its version, and look at the changelog.",
        _ => "A worker keeps to the scope of its task; its boundary is the plan.",
    };
    format!(
        "---\ndate: 2026-10-01\ntags: [{tag}]\nodd-key: [1, 2]\nmaturity: {maturity}\nutility: 0.80\n---\n\n# {title}\n\n{body}\n{about}\nSee src/net.rs.\n"
    )
}

/// Twenty files: what can be promoted, repeated, stale and compiled; and work to do.
fn corpus(house: &House) {
    let put = |path: &str, text: String| house.write(&format!(".agents/{path}"), text);
    for number in 0..9 {
        let tag = ["ci", "release", "agents"][number % 3];
        let text = learning(
            tag,
            "provisional",
            &format!("Lesson {number}"),
            &words(number as u64),
        );
        put(&format!("learnings/2026-10-0{number}-lesson.md"), text);
    }
    let same = learning("ci", "candidate", "The same", &words(100));
    put("learnings/same-one.md", same.clone());
    put("learnings/same-two.md", same.clone());
    put(
        "learnings/same-nearly.md",
        same.replace("# The same", "# Nearly the same"),
    );
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
    put(
        "findings/registry.jsonl",
        "{\"id\":\"f-2026-10-01-001\",\"n\":1.50}\n".to_owned(),
    );
    put(
        "patterns/first.md",
        learning("ci", "established", "First look, then leap", &words(102)),
    );
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
    put("rpi/next-work.jsonl", WORK.to_owned());
    house.write("src/net.rs", "// retry\n");
    house.write("tests/net_test.rs", "// test\n");
    house.git(&["add", "src", "tests"]);
    house.git(&["commit", "--quiet", "-m", "Retry\n\nLearned: a retry without jitter makes all clients come back at the very same moment"]);
}

const WORK: &str = concat!(
    "{\"source_epic\":\"e1\",\"timestamp\":\"2026-10-01T00:00:00Z\",\"items\":[{\"title\":\"Mend the retry\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"review\",\"description\":\"src/net.rs gives up\",\"odd\":0.80,\"id\":\"mine-1\"},{\"title\":\"Taken\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"claim_status\":\"in_progress\",\"claimed_by\":\"me\"}],\"consumed\":false,\"claim_status\":\"available\"}\n",
    "{ this line is broken\n",
    "\n",
    "{\"title\": \"A flat row\", \"type\": \"task\",  \"severity\": \"low\", \"source\": \"old\", \"description\": \"as they were\"}\n",
    "{\"source_epic\":\"e0\",\"items\":[{\"title\":\"Done\",\"type\":\"task\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"consumed_note\":\"it turned out that the cache was keyed by the wrong thing\"}],\"consumed\":true,\"claim_status\":\"consumed\"}\n",
);

fn night() -> House {
    let house = House::with(JOB);
    corpus(&house);
    house.write("../clock", "2026-11-22T02:30:00Z\n");
    house
}

fn said(house: &House, args: &[&str]) -> Said {
    let mut command = house.runner(args);
    command.env("RUNNER_TEST_CLOCK", house.root().join("clock"));
    Said::of(command.output().unwrap())
}

fn start(house: &House, more: &[&str]) -> Said {
    said(house, &[&["overnight", "start"][..], more].concat())
}

fn json(house: &House, path: &str) -> Value {
    serde_json::from_str(&house.read(path)).unwrap()
}

/// The corpus as a reader of files sees it.
fn tree(house: &House) -> Tree {
    let mut all = BTreeMap::new();
    for folder in SUBPATHS {
        if house.path(&format!(".agents/{folder}")).is_dir() {
            all.extend(house.tree(&format!(".agents/{folder}")));
        }
    }
    all
}

/// Everything else: source, settings, git's own; a night must leave it to the byte.
fn surroundings(house: &House) -> Tree {
    let mut all: BTreeMap<_, _> = house.tree("").into_iter().collect();
    all.retain(|path, _| {
        !SUBPATHS
            .iter()
            .any(|it| path.starts_with(&format!(".agents/{it}")))
            && !path.starts_with(".agents/overnight")
            && path != ".agents/rpi/next-work.jsonl"
    });
    let mut folders = vec![house.path(".git")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    all.insert(path.display().to_string(), fs::read(&path).unwrap());
                }
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

#[test]
fn a_night_improves_a_corpus_and_the_second_one_finds_nothing_to_do() {
    let house = night();
    let around = surroundings(&house);
    start(&house, &["--goal", "retries that do not give up"])
        .ends(0)
        .says("two zero deltas");
    assert_eq!(
        surroundings(&house),
        around,
        "nothing else was touched, git neither"
    );
    assert_eq!(links(&house.path(".agents")), 0);
    let summary = json(&house, &format!("{LATEST}/summary.json"));
    assert_eq!(summary["status"], "done");
    assert!(
        summary["fitness_delta"].as_f64().unwrap() > 0.0,
        "{summary}"
    );
    assert_eq!(summary["yield"]["removed"], 1);
    assert_eq!(summary["yield"]["superseded"], 1);
    assert_eq!(summary["yield"]["stale"], 1);
    assert!(summary["yield"]["promoted"].as_u64().unwrap() >= 9);
    assert_eq!(summary["steps"][5]["status"], "skipped");
    // Nothing that was known of a node is gone.
    let promoted = house.read(".agents/learnings/2026-10-00-lesson.md");
    assert!(
        promoted.contains("odd-key: [1, 2]\nmaturity: candidate\nutility: 0.80\n"),
        "{promoted}"
    );
    assert!(promoted.contains("promoted_at: 2026-11-22\n---\n"));
    assert!(
        house
            .read(".agents/learnings/old.md")
            .contains("status: stale")
    );
    let gone = summary["run_id"].as_str().unwrap();
    assert!(
        house
            .path(&format!("{LATEST}/{gone}/removed/learnings/same-two.md"))
            .exists()
    );
    // From the commit and from the work that was closed.
    let harvested: Vec<String> = tree(&house)
        .into_keys()
        .filter(|path| path.contains("2026-11-01-retry"))
        .collect();
    assert_eq!(harvested.len(), 1, "{:?}", tree(&house).keys());
    assert!(house.read(&harvested[0]).contains("source_commit: "));
    // The packets: evidence that is there, no work of others, the first by its severity and the goal.
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(packets[0]["title"], "Mend the retry");
    assert_eq!(
        packets[0]["target_files"],
        serde_json::json!(["src/net.rs"])
    );
    assert_eq!(
        packets[0]["likely_tests"],
        serde_json::json!(["tests/net_test.rs"])
    );
    for packet in packets {
        assert!(packet["title"] != "Taken" && packet["title"] != "Done");
        for line in packet["evidence"].as_array().unwrap() {
            let line = line.as_str().unwrap();
            let path = line.split(':').next().unwrap();
            assert!(
                line.starts_with("commit ") || house.path(path).exists(),
                "{line}"
            );
        }
        assert!(
            house
                .path(packet["artifact_path"].as_str().unwrap())
                .exists()
        );
    }
    // The work file: claims, names, broken lines and flat rows as they were.
    let work = house.read(".agents/rpi/next-work.jsonl");
    let (old, new): (Vec<&str>, Vec<&str>) = (WORK.lines().collect(), work.lines().collect());
    assert!(
        new[0].contains("\"odd\":0.80,\"id\":\"mine-1\",\"why_now\""),
        "{}",
        new[0]
    );
    assert!(new[0].ends_with("{\"title\":\"Taken\",\"type\":\"bug\",\"severity\":\"high\",\"source\":\"x\",\"description\":\"\",\"claim_status\":\"in_progress\",\"claimed_by\":\"me\"}],\"consumed\":false,\"claim_status\":\"available\"}"));
    assert_eq!([new[1], new[2], new[4]], [old[1], old[2], old[4]]);
    assert!(
        new[3].starts_with("{\"title\":\"A flat row\",\"type\":\"task\",\"severity\":\"low\""),
        "{}",
        new[3]
    );
    said(&house, &["overnight", "report", "--validate"])
        .ends(0)
        .says("each as its schema says");
    said(&house, &["overnight", "report"])
        .ends(0)
        .says("Mend the retry");
    said(&house, &["overnight", "report", "--markdown"])
        .ends(0)
        .says("# The night: done");
    // The same corpus twice: the same bytes.
    for step in ["health", "bench"] {
        let ask = || said(&house, &["corpus", step, "--json"]).out;
        let (one, two) = (ask(), ask());
        assert!(one.len() > 200);
        assert_eq!(one, two);
    }
    let before = (tree(&house), house.read(".agents/rpi/next-work.jsonl"));
    start(&house, &["--goal", "retries that do not give up"])
        .ends(0)
        .says("two zero deltas");
    assert_eq!(
        (tree(&house), house.read(".agents/rpi/next-work.jsonl")),
        before
    );
    let second = json(&house, &format!("{LATEST}/summary.json"));
    assert_eq!(second["iterations"].as_array().unwrap().len(), 2);
    assert_eq!(second["fitness_delta"], 0.0);
    assert!(
        second["plateau_reason"]
            .as_str()
            .unwrap()
            .contains("two zero deltas")
    );
    assert!(
        house
            .path(&format!(".agents/overnight/runs/{gone}/summary.json"))
            .exists()
    );
}

#[test]
fn a_dry_run_and_a_look_leave_no_trace() {
    let house = night();
    let before = house.tree("");
    let summary = start(&house, &["--dry-run", "--json", "--goal", "retries"])
        .ends(0)
        .json();
    assert_eq!(summary["status"], "dry-run");
    assert!(!summary["morning_packets"].as_array().unwrap().is_empty());
    for args in [
        &["corpus", "health"][..],
        &["corpus", "bench"],
        &["corpus", "defrag"],
        &["corpus", "harvest", "--dry-run"],
        &["corpus", "close-loop", "--dry-run"],
        &["corpus", "brief", "--goal", "retry"],
    ] {
        assert!(said(&house, args).code <= 1, "{args:?}");
    }
    assert_eq!(house.tree(""), before);
    assert!(said(&house, &["corpus", "brief", "--goal", "quantum bananas"]).code == 65);
}

#[test]
fn each_step_by_hand_is_a_commit_of_its_own_and_none_while_a_night_runs() {
    let house = night();
    said(&house, &["corpus", "defrag", "--dedup", "--apply"])
        .ends(0)
        .says("same-two");
    assert!(!house.path(".agents/learnings/same-two.md").exists());
    said(&house, &["corpus", "close-loop", "--threshold", "0h"])
        .ends(0)
        .says("promoted");
    said(&house, &["corpus", "harvest"])
        .ends(0)
        .says("new from");
    said(&house, &["corpus", "harvest"]).ends(0).says("0 new");
    assert!(!house.path(".agents/overnight/COMMIT-MARKER.0").exists());
    // The kernel's lock decides, and not the file.
    let lock = fs::File::options()
        .read(true)
        .write(true)
        .open(house.path(".agents/overnight/run.lock"))
        .unwrap();
    fs::write(house.path(".agents/overnight/run.lock"), "4242\n").unwrap();
    lock.lock().unwrap();
    for args in [
        &["corpus", "harvest"][..],
        &["corpus", "defrag", "--apply"],
        &["overnight", "start"],
    ] {
        said(&house, args).ends(75).says("locked by PID 4242");
    }
    said(&house, &["corpus", "brief", "--goal", "retry"]).ends(0);
    lock.unlock().unwrap();
    start(&house, &["--max-iterations", "1"]).ends(0);
}

#[test]
fn strict_rules_caps_and_the_pinned_queue_are_kept() {
    let house = night();
    // A checkpoint beyond its cap: nothing is staged, the rest of the night goes on.
    house.write(".agents/knowledge/big.bin", vec![7; 2 * 1024 * 1024]);
    let before = tree(&house);
    start(&house, &["--checkpoint-max-mb", "1"])
        .ends(0)
        .says("checkpoint");
    assert_eq!(tree(&house), before);
    let summary = json(&house, &format!("{LATEST}/summary.json"));
    assert_eq!(summary["iterations"][0]["status"], "failed");
    fs::remove_file(house.path(".agents/knowledge/big.bin")).unwrap();
    house.write("queue.md", "# Tonight\n- Look at the network [file: src/net.rs] [severity: low] [x: y]\n  it is slow\n\n- Second\n");
    start(
        &house,
        &[
            "--queue",
            "queue.md",
            "--warn-only=false",
            "--plateau-epsilon",
            "1",
        ],
    )
    .ends(0);
    let summary = json(&house, &format!("{LATEST}/summary.json"));
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(packets[0]["title"], "Look at the network [x: y]");
    assert_eq!(packets[0]["severity"], "low");
    assert_eq!(packets[1]["title"], "Second");
    assert_eq!(
        packets[0]["target_files"],
        serde_json::json!(["src/net.rs"])
    );
    let last = summary["iterations"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "halted-on-regression-pre-commit");
    assert!(
        summary["plateau_reason"]
            .as_str()
            .unwrap()
            .contains("under 1")
    );
    let work = house.read(".agents/rpi/next-work.jsonl");
    assert!(
        work.contains("\"dedup_key\":\"pinned|second\"")
            && work.contains("\"status\":\"proposed\""),
        "{work}"
    );
    start(&house, &["--queue", "queue.md"]).ends(0);
    assert_eq!(
        house
            .read(".agents/rpi/next-work.jsonl")
            .matches("pinned|second")
            .count(),
        1,
        "nothing is added twice"
    );
    for bad in [
        ["--plateau-window", "1"],
        ["--output-dir", ".agents/learnings/x"],
        ["--output-dir", "../x"],
        ["--plateau-epsilon", "2"],
    ] {
        let said = start(&house, &bad);
        assert!(matches!(said.code, 2 | 78), "{bad:?}: {said:?}");
    }
}

#[test]
fn bad_nodes_are_told_and_left_alone() {
    let house = night();
    house.write(
        ".agents/learnings/noyaml.md",
        "---\n- this is: [no\n: yaml\n\n# Text\n",
    );
    house.write(
        ".agents/learnings/twin.md",
        "---\nid: f-2026-10-01-001\n---\n# Twin\n",
    );
    house.write(".agents/learnings/binary.md", b"\x7fELF\0\0\xff\xfe");
    house.write(".agents/learnings/huge.md", "x");
    let huge = fs::File::options()
        .write(true)
        .open(house.path(".agents/learnings/huge.md"))
        .unwrap();
    huge.set_len(100 * 1024 * 1024).unwrap();
    house.write("../secret.md", "# Secret\n");
    symlink(
        house.root().join("secret.md"),
        house.path(".agents/learnings/link.md"),
    )
    .unwrap();
    symlink("/etc", house.path(".agents/knowledge/etc")).unwrap();
    let odd = ["noyaml.md", "twin.md", "binary.md", "link.md"];
    let before: Vec<_> = odd
        .iter()
        .map(|it| fs::read(house.path(&format!(".agents/learnings/{it}"))))
        .map(Result::unwrap)
        .collect();
    start(&house, &[]).ends(0);
    let health = said(&house, &["corpus", "health", "--json"]).json();
    let troubles = health["troubles"].to_string();
    for (path, what) in [
        ("noyaml.md", "not understood"),
        ("twin.md", "has the id"),
        ("binary.md", "is not text"),
        ("huge.md", "longer than"),
        ("link.md", "symbolic link"),
        ("etc", "symbolic link"),
        ("next-work.jsonl", "line 2 is kept"),
    ] {
        assert!(
            troubles.contains(path) && troubles.contains(what),
            "{path}: {troubles}"
        );
    }
    let after: Vec<_> = odd
        .iter()
        .map(|it| fs::read(house.path(&format!(".agents/learnings/{it}"))))
        .map(Result::unwrap)
        .collect();
    assert_eq!(before, after);
    assert_eq!(
        fs::metadata(house.path(".agents/learnings/huge.md"))
            .unwrap()
            .len(),
        100 * 1024 * 1024
    );
    assert!(
        fs::symlink_metadata(house.path(".agents/learnings/link.md"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn an_output_that_cannot_be_written_and_a_marker_from_elsewhere_are_refused() {
    let house = night();
    house.write(LATEST, "a file where the folder belongs\n");
    let before = tree(&house);
    let said = start(&house, &[]);
    assert!(
        matches!(said.code, 73 | 78) && said.err.contains("latest"),
        "{said:?}"
    );
    assert_eq!(tree(&house), before);
    fs::remove_file(house.path(LATEST)).unwrap();
    symlink(house.root(), house.path(LATEST)).unwrap();
    let said = start(&house, &[]);
    assert!(
        said.code != 0 && said.err.contains("symbolic link"),
        "{said:?}"
    );
    fs::remove_file(house.path(LATEST)).unwrap();
    // A tree from anywhere may carry a marker that names other files.
    house.write(".agents/overnight/prev.7/0", "#!/bin/sh\necho owned\n");
    house.write(
        ".agents/overnight/COMMIT-MARKER.7",
        "{\"state\":\"READY\",\"iteration_id\":\"x\",\"started_at\":\"\",\"staging\":\".agents/overnight/prev.7\",\"manifest\":{\"run\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"fence\":1,\"staging\":\".agents/overnight/prev.7\",\"entries\":[{\"target\":\".git/hooks/pre-commit\",\"staged\":\".agents/overnight/prev.7/0\",\"before\":null,\"after\":\"0000000000000000000000000000000000000000000000000000000000000000\"}],\"outcome\":{\"outcome\":\"succeeded\"}}}",
    );
    start(&house, &["--max-iterations", "1"])
        .ends(0)
        .says("left alone");
    assert!(!house.path(".git/hooks/pre-commit").exists());
}

#[test]
fn a_clock_that_is_set_back_between_iterations_harms_nothing() {
    let house = night();
    let mut at = 0;
    // Killed somewhere after its first iteration was noted.
    loop {
        at += 40;
        assert!(at < 4_000, "no run was killed after its first iteration");
        let mut command = house.runner(&["overnight", "start"]);
        command
            .env("RUNNER_TEST_CLOCK", house.root().join("clock"))
            .env("RUNNER_TEST_KILL", at.to_string());
        command.output().unwrap();
        let noted = house
            .tree(LATEST)
            .into_iter()
            .any(|(path, _)| path.ends_with("iter-1.json"));
        if noted {
            break;
        }
    }
    house.write("../clock", "2026-11-22T01:00:00Z\n");
    start(&house, &[]).ends(0);
    let summary = json(&house, &format!("{LATEST}/summary.json"));
    assert_eq!(summary["status"], "done");
    assert!(
        summary["degraded"].to_string().contains("goes on after"),
        "{summary}"
    );
    let ids: Vec<u64> = summary["iterations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["index"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let run = summary["run_id"].as_str().unwrap();
    let dead = json(&house, &format!("{LATEST}/{run}/interrupted-1.json"));
    assert_eq!(dead["status"], "failed");
    said(&house, &["overnight", "report", "--validate"]).ends(0);
}

#[test]
fn each_packet_becomes_a_bead_once() {
    let house = House::with(&format!("{JOB}sandbox = \"off\"\n"));
    corpus(&house);
    let bin = house.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(house.path(".beads")).unwrap();
    let bd = bin.join("bd");
    fs::write(
        &bd,
        "#!/bin/sh\n[ \"$1\" = create ] || exit 2\nn=$(($(cat .beads/n 2>/dev/null || echo 0) + 1))\necho $n > .beads/n\n[ $n -lt 3 ] || { echo no more >&2; exit 1; }\necho \"{\\\"id\\\":\\\"bd-$n\\\"}\"\n",
    )
    .unwrap();
    fs::set_permissions(&bd, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let night = || {
        let mut command = house.runner(&["overnight", "start"]);
        command
            .env("RUNNER_TEST_CLOCK", house.root().join("clock"))
            .env("PATH", &path);
        Said::of(command.output().unwrap()).ends(0);
        json(&house, &format!("{LATEST}/summary.json"))
    };
    house.write("../clock", "2026-11-22T02:30:00Z\n");
    let summary = night();
    let step = summary["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(step["status"], "soft-fail", "{step}");
    assert!(
        summary["degraded"]
            .to_string()
            .contains("2 beads made, then: bd refused: no more")
    );
    assert_eq!(summary["morning_packets"][0]["bead_id"], "bd-1");
    assert!(
        house
            .read(".agents/rpi/next-work.jsonl")
            .contains("\"bead_id\":\"bd-2\"")
    );
    house.write(".beads/n", "-100");
    let summary = night();
    assert_eq!(
        summary["morning_packets"][0]["bead_id"], "bd-1",
        "not asked for again"
    );
    let made = house.read(".beads/n").trim().parse::<i64>().unwrap() + 100;
    assert_eq!(
        made,
        summary["morning_packets"].as_array().unwrap().len() as i64 - 2
    );
}

/// A corpus, whole: which of the states of an undisturbed night it is in.
fn states(house: &House) -> (BTreeSet<Tree>, BTreeSet<String>, u64) {
    let mut trees = BTreeSet::from([tree(house)]);
    let mut works = BTreeSet::from([house.read(".agents/rpi/next-work.jsonl")]);
    start(house, &[]).ends(0);
    let summary = json(house, &format!("{LATEST}/summary.json"));
    let count = summary["iterations"].as_array().unwrap().len() as u64;
    works.insert(house.read(".agents/rpi/next-work.jsonl"));
    trees.insert(tree(house));
    for most in 1..count {
        reset(house);
        start(house, &["--max-iterations", &most.to_string()]).ends(0);
        trees.insert(tree(house));
        works.insert(house.read(".agents/rpi/next-work.jsonl"));
    }
    reset(house);
    (trees, works, count)
}

/// The corpus as it was before any night.
fn reset(house: &House) {
    fs::remove_dir_all(house.path(".agents")).unwrap();
    copy(&house.root().join("kept"), &house.path(".agents"));
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

fn is_ready(house: &House) -> bool {
    let folder = house.path(".agents/overnight");
    let markers = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut markers = markers.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("COMMIT-MARKER.")
    });
    markers.any(|entry| {
        fs::read_to_string(entry.path())
            .unwrap()
            .contains("\"state\":\"READY\"")
    })
}

#[test]
fn a_night_that_is_killed_at_any_act_leaves_a_whole_corpus_and_a_report() {
    let house = night();
    copy(&house.path(".agents"), &house.root().join("kept"));
    let (trees, works, iterations) = states(&house);
    assert!(trees.len() >= 3, "the night has {} states", trees.len());
    let mut dice = Dice::new("overnight kills");
    let (kills, began) = (scaled(1_000), Instant::now());
    let (mut killed, mut ended, mut ready, mut reports) = (0, 0, 0, 0);
    let mut at: BTreeMap<String, u64> = BTreeMap::new();
    let acts = 30 + 45 * iterations;
    while killed < kills {
        let mut command = house.runner(&["--quiet", "overnight", "start"]);
        command
            .env("RUNNER_TEST_CLOCK", house.root().join("clock"))
            .env("RUNNER_TEST_KILL", dice.roll(acts).to_string());
        let done = Said::of(command.output().unwrap());
        if done.code == 0 {
            ended += 1;
            assert_eq!(
                json(&house, &format!("{LATEST}/summary.json"))["status"],
                "done"
            );
            assert!(trees.contains(&tree(&house)) && !is_ready(&house));
            reset(&house);
            continue;
        }
        killed += 1;
        // A reader that honours the marker sees one of the night's states and nothing between.
        let between = is_ready(&house);
        ready += usize::from(between);
        if between {
            said(&house, &["corpus", "brief", "--goal", "retry"]).ends(0);
            assert!(!is_ready(&house), "whoever comes next finishes it");
        }
        assert!(
            trees.contains(&tree(&house)),
            "half committed after kill {killed} ({done:?})"
        );
        let work = house.read(".agents/rpi/next-work.jsonl");
        assert!(
            works.contains(&work),
            "the work file is torn after kill {killed}:\n{work}"
        );
        if let Ok(entries) = fs::read_dir(house.path(LATEST)) {
            let state = entries
                .flatten()
                .find_map(|entry| fs::read_to_string(entry.path().join("run.json")).ok());
            let state: Option<Value> = state.and_then(|text| serde_json::from_str(&text).ok());
            let step = state.map_or_else(
                || "open".to_owned(),
                |it| it["at_step"].as_str().unwrap_or("open").to_owned(),
            );
            *at.entry(step).or_default() += 1;
        }
        if killed % 25 == 0 || killed == kills {
            // The next start recovers, and what died has its report.
            let said = start(&house, &[]).ends(0);
            let summary = json(&house, &format!("{LATEST}/summary.json"));
            assert_eq!(summary["status"], "done", "{said:?}");
            let told = summary["degraded"].to_string();
            reports += usize::from(told.contains("died at"));
            assert!(
                !told.contains("died at")
                    || house.tree(".agents/overnight").iter().any(|(path, text)| {
                        (path.contains("interrupted-") || path.contains("/runs/"))
                            && String::from_utf8_lossy(text).contains("\"status\": \"failed\"")
                    }),
                "{told}"
            );
            assert!(trees.contains(&tree(&house)) && !is_ready(&house));
            reset(&house);
        }
    }
    let open = "SELECT count(*) FROM runs WHERE state IN ('running', 'requested')";
    assert_eq!(house.count(open), 0);
    tell(&format!(
        "overnight kills: {killed} killed, {ready} in mid-commit, {ended} ended by themselves, {reports} reports of the dead; {at:?}; {:.0} s",
        began.elapsed().as_secs_f64()
    ));
}
