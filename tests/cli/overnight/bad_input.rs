//! A corpus, a folder or a host that is not as it should be.

use std::fs;
use std::os::unix::fs::symlink;

use super::{LATEST, command, json, night, said, start, summary_of, tree};

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
        let mut command = command(&house, &["overnight", "start"]);
        command
            .env("RUNNER_TEST_KILL", at.to_string())
            .output()
            .unwrap();
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
    let summary = summary_of(&house);
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
