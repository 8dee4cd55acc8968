//! Tests nights with an invalid corpus, unusable folders, or a full disk.

use std::fs;
use std::os::unix::fs::symlink;

use std::os::unix::fs::PermissionsExt as _;

use super::kills::{States, is_ready, keep, reset};
use super::{
    JOB, LATEST, WORK, WORK_FILE, corpus, json, killed_after_one_iteration, night, run_ok, start,
    summary_of, surroundings, tree, untouched, watched,
};
use crate::bad_input::{Mounted, as_nobody};
use crate::fixture::{Fixture, print_line};

#[test]
fn invalid_nodes_are_reported_and_unchanged() {
    let fixture = night();
    fixture.write(".agents/learnings/noyaml.md", "---\n- this is: [no\n: yaml\n\n# Text\n");
    fixture.write(".agents/learnings/twin.md", "---\nid: f-2026-10-01-001\n---\n# Twin\n");
    fixture.write(".agents/learnings/binary.md", b"\x7fELF\0\0\xff\xfe");
    fixture.write(".agents/learnings/huge.md", "x");
    let huge =
        fs::File::options().write(true).open(fixture.path(".agents/learnings/huge.md")).unwrap();
    huge.set_len(100 * 1024 * 1024).unwrap();
    fixture.write("../secret.md", "# Secret\n");
    symlink(fixture.root().join("secret.md"), fixture.path(".agents/learnings/link.md")).unwrap();
    symlink("/etc", fixture.path(".agents/knowledge/etc")).unwrap();
    let odd = ["noyaml.md", "twin.md", "binary.md", "link.md"];
    let before: Vec<_> = odd
        .iter()
        .map(|it| fs::read(fixture.path(&format!(".agents/learnings/{it}"))))
        .map(Result::unwrap)
        .collect();
    start(&fixture, &[]).ends(0);
    let health = run_ok(&fixture, &["corpus", "health", "--json"]).json();
    let troubles = health["troubles"].as_array().unwrap();
    for (path, what) in [
        ("learnings/noyaml.md", "cannot be parsed"),
        ("learnings/twin.md", "has the same id f-2026-10-01-001 as findings/f-2026-10-01-001.md"),
        ("learnings/binary.md", "is not text"),
        ("learnings/huge.md", "104857600 bytes, longer than"),
        ("learnings/link.md", "symbolic link"),
        ("knowledge/etc", "symbolic link"),
        ("rpi/next-work.jsonl", "line 2 is left as it is"),
    ] {
        let of = |it: &&serde_json::Value| {
            it["path"] == path && it["what"].as_str().unwrap().contains(what)
        };
        assert_eq!(troubles.iter().filter(of).count(), 1, "{path}: {troubles:?}");
    }
    for (path, bytes) in fixture.tree(".agents/overnight") {
        let secret = bytes.windows(8).any(|it| it == b"# Secret");
        assert!(!secret, "{path} contains the content of a link's target");
    }
    let after: Vec<_> = odd
        .iter()
        .map(|it| fs::read(fixture.path(&format!(".agents/learnings/{it}"))))
        .map(Result::unwrap)
        .collect();
    assert_eq!(before, after);
    assert_eq!(
        fs::metadata(fixture.path(".agents/learnings/huge.md")).unwrap().len(),
        100 * 1024 * 1024
    );
    assert!(fs::symlink_metadata(fixture.path(".agents/learnings/link.md")).unwrap().is_symlink());
}

#[test]
fn unusable_output_and_foreign_marker_are_refused() {
    let fixture = night();
    fixture.write(LATEST, "a file where the folder belongs\n");
    let before = tree(&fixture);
    let said = start(&fixture, &[]);
    assert!(matches!(said.code, 73 | 78) && said.err.contains("latest"), "{said:?}");
    assert_eq!(tree(&fixture), before);
    fs::remove_file(fixture.path(LATEST)).unwrap();
    symlink(fixture.root(), fixture.path(LATEST)).unwrap();
    let said = start(&fixture, &[]);
    assert!(said.code != 0 && said.err.contains("symbolic link"), "{said:?}");
    fs::remove_file(fixture.path(LATEST)).unwrap();
    // A project from an unknown source may contain a marker that names files outside the corpus.
    fixture.write(".agents/overnight/prev.7/0", "#!/bin/sh\necho owned\n");
    fixture.write(
        ".agents/overnight/COMMIT-MARKER.7",
        "{\"state\":\"READY\",\"iteration_id\":\"x\",\"started_at\":\"\",\"staging\":\".agents/overnight/prev.7\",\"manifest\":{\"run\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"fence\":1,\"staging\":\".agents/overnight/prev.7\",\"entries\":[{\"target\":\".git/hooks/pre-commit\",\"staged\":\".agents/overnight/prev.7/0\",\"before\":null,\"after\":\"0000000000000000000000000000000000000000000000000000000000000000\"}],\"outcome\":{\"outcome\":\"succeeded\"}}}",
    );
    start(&fixture, &["--max-iterations", "1"]).ends(0).expect_text("left alone");
    assert!(!fixture.path(".git/hooks/pre-commit").exists());
}

#[test]
fn resume_survives_a_clock_set_back() {
    let fixture = night();
    killed_after_one_iteration(&fixture, &[]);
    fixture.set_clock("2026-11-22T01:00:00Z");
    start(&fixture, &[]).ends(0);
    let summary = summary_of(&fixture);
    assert_eq!(summary["status"], "done");
    assert!(summary["degraded"].to_string().contains("continues after"), "{summary}");
    let ids: Vec<u64> = summary["iterations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["index"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    // The dead process promoted these nodes.
    assert!(summary["yield"]["promoted"].as_u64().unwrap() >= 9, "{summary}");
    let run = summary["run_id"].as_str().unwrap();
    let dead = json(&fixture, &format!("{LATEST}/{run}/interrupted-1.json"));
    assert_eq!(dead["status"], "failed");
    run_ok(&fixture, &["overnight", "report", "--validate"]).ends(0);
}

#[test]
fn conflict_in_recovery_still_reports_the_killed_run() {
    let fixture = night();
    keep(&fixture);
    for act in (60..4_000).step_by(6) {
        reset(&fixture);
        let mut command = fixture.runner_with_clock(&["overnight", "start"]);
        command.env("RUNNER_TEST_KILL", act.to_string());
        assert_ne!(watched(&fixture, &mut command).code, 0, "no commit was interrupted");
        if is_ready(&fixture) {
            break;
        }
    }
    // At least one of these files is a target of the interrupted commit.
    for path in [".agents/learnings/2026-10-00-lesson.md", WORK_FILE] {
        let text = fixture.read(path);
        fixture.write(path, text + "mine\n");
    }
    start(&fixture, &[]).ends(78).expect_text("neither the old nor the new");
    let summary = summary_of(&fixture);
    assert_eq!(summary["status"], "failed");
    assert!(summary["failure_reason"].as_str().unwrap().contains("died at"), "{summary}");
    assert!(fixture.path(&format!("{LATEST}/summary.md")).exists());
}

#[test]
fn read_only_folders_cause_no_damage() {
    let mut fixture = night();
    start(&fixture, &["--max-iterations", "1"]).ends(0);
    // Add another copy of a learning for the next run to remove.
    let same = fixture.read(".agents/learnings/same-one.md");
    fixture.write(".agents/learnings/same-three.md", same);
    as_nobody(&mut fixture);
    let before = (tree(&fixture), fixture.read(WORK_FILE));
    let latest = fixture.tree(LATEST);
    for folder in [LATEST, ".agents/overnight", ".agents/learnings"] {
        fs::set_permissions(fixture.path(folder), fs::Permissions::from_mode(0o555)).unwrap();
        let said = start(&fixture, &[]);
        match folder {
            // The marker records the commit, so readers can detect that it is incomplete.
            ".agents/learnings" => {
                said.ends(78)
                    .expect_text("the commit is recorded but could not be finished yet")
                    .expect_text("denied");
                assert!(is_ready(&fixture));
                assert_eq!(summary_of(&fixture)["status"], "failed");
            }
            _ => {
                said.ends(78)
                    .expect_text("environment")
                    .expect_text("denied")
                    .expect_text(".agents/overnight");
                assert_eq!(fixture.tree(LATEST), latest);
                assert_eq!((tree(&fixture), fixture.read(WORK_FILE)), before, "{folder}");
            }
        }
        fs::set_permissions(fixture.path(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }
    start(&fixture, &[]).ends(0).expect_text("recovered: the commit of");
    assert_eq!(summary_of(&fixture)["status"], "done");
    assert!(!is_ready(&fixture));
    let around = tree(&fixture);
    start(&fixture, &[]).ends(0);
    assert_eq!(tree(&fixture), around);
}

#[test]
fn failed_night_names_its_output_folder() {
    let mut fixture = night();
    as_nobody(&mut fixture);
    let learnings = fixture.path(".agents/learnings");
    fs::set_permissions(&learnings, fs::Permissions::from_mode(0o555)).unwrap();
    let args = ["overnight", "start", "--output-dir", ".agents/other"];
    let said = fixture.run_with_clock(&args);
    said.ends(78).expect_text("denied");
    fs::set_permissions(&learnings, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(json(&fixture, ".agents/other/summary.json")["status"], "failed");
    // The report finds a failed run's summary by these facts.
    let named = "SELECT count(*) FROM runs WHERE summary ->> '$.facts.output_dir' = '.agents/other'
                 AND summary ->> '$.facts.run_id' = id";
    assert_eq!(fixture.count(named), 1);
}

#[test]
fn full_disk_leaves_the_corpus_intact() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = Mounted::at(&folder.path().join("project"), "64m,nr_inodes=700") else {
        print_line("skipped 1: no small file system can be mounted here");
        return;
    };
    let fixture = Fixture::at(folder);
    fixture.run(&["init"]).ends(0);
    fixture.configure(JOB);
    corpus(&fixture);
    fixture.set_clock("2026-11-22T02:30:00Z");
    keep(&fixture);
    let states = States::of(&fixture, false);
    let around = surroundings(&fixture);
    let (mut in_commit, mut failed, mut free) = (0, 0, 0_u64);
    loop {
        assert!(free < 1_000, "no night had enough space");
        // A night checks the free space before it begins, but not the free inodes. Using up the
        // inodes simulates a disk that fills up later.
        let fill = fixture.path("fill");
        fs::create_dir_all(&fill).unwrap();
        let mut made = 0_u64;
        while fs::File::create(fill.join(made.to_string())).is_ok() {
            made += 1;
        }
        for number in made.saturating_sub(free)..made {
            fs::remove_file(fill.join(number.to_string())).unwrap();
        }
        let tight = start(&fixture, &["--quiet"]);
        let place = format!("with {free} free inodes: {tight:?}");
        assert!(matches!(tight.code, 0 | 73 | 78), "{place}");
        failed += u64::from(tight.code != 0);
        let noted = rolled_back(&fixture);
        in_commit += u64::from(noted > 0);
        if !is_ready(&fixture) {
            states.hold_tree(&fixture, &place);
            whole_work(&fixture, &place);
        }
        let reported = fs::read(fixture.path(&format!("{LATEST}/summary.json")));
        let reported =
            reported.ok().and_then(|it| serde_json::from_slice::<serde_json::Value>(&it).ok());
        let degraded = reported.map(|it| it["degraded"].as_array().map_or(0, Vec::len));
        fs::remove_dir_all(&fill).unwrap();
        start(&fixture, &[]).ends(0);
        assert_eq!(summary_of(&fixture)["status"], "done", "{place}");
        assert!(!is_ready(&fixture), "{place}");
        states.hold_tree(&fixture, &place);
        whole_work(&fixture, &place);
        untouched(&fixture, &around, &place);
        reset(&fixture);
        if tight.code == 0 && noted == 0 && degraded == Some(0) {
            break;
        }
        free += 2;
    }
    print_line(&format!(
        "overnight on a full disk: up to {free} free inodes, {failed} nights failed, {in_commit} rolled back a commit"
    ));
    assert!(in_commit >= 2 && failed >= 2);
}

/// Counts the iterations that were rolled back for lack of space.
fn rolled_back(fixture: &Fixture) -> usize {
    if !fixture.path(".agents/overnight").is_dir() {
        return 0;
    }
    let files = fixture.tree(".agents/overnight").into_iter();
    let iterations = files.filter(|(path, _)| path.contains("/iterations/iter-"));
    iterations
        .filter(|(_, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            text.contains("rolled-back-pre-commit") && text.contains("No space left")
        })
        .count()
}

/// Checks that the work file has all its lines, each either unchanged or a valid row.
fn whole_work(fixture: &Fixture, place: &str) {
    let work = fixture.read(WORK_FILE);
    let lines: Vec<&str> = work.lines().collect();
    assert!(work.ends_with('\n') && lines.len() >= WORK.lines().count(), "{place}: {work}");
    for (number, line) in lines.iter().enumerate() {
        let kept = WORK.lines().nth(number) == Some(line);
        let row = serde_json::from_str::<serde_json::Value>(line);
        assert!(kept || row.is_ok_and(|it| it.is_object()), "{place}: {line}");
    }
}
