//! Tests that one report covers the curator's work by day and the dream at night.

use serde_json::{Value, json};

use crate::fixture::Fixture;

const DAY: &str = "2027-03-01T12:00:00Z";
const EVENING: &str = "2027-03-01T18:00:00Z";
const NIGHT: &str = "2027-03-02T02:30:00Z";

/// Returns a session of two chunks, with a failure and its fix in the first and a correction by the
/// user in the second.
fn session() -> String {
    let row = |at: usize, kind: &str, content: Value| {
        let second = at % 60;
        json!({ "type": kind, "timestamp": format!("2027-02-28T10:00:{second:02}Z"), "cwd": "/p",
                "message": { "role": kind, "content": content } })
        .to_string()
    };
    let call = |id: &str, words: &str| json!([{ "type": "tool_use", "id": id, "name": "Bash", "input": { "command": words } }]);
    let came = |id: &str, failed: bool, text: &str| json!([{ "type": "tool_result", "tool_use_id": id, "is_error": failed, "content": text }]);
    let mut lines: Vec<String> =
        (0..5_200).map(|at| row(at, "user", json!(format!("step {at}")))).collect();
    lines[9] = row(9, "assistant", call("t1", "cargo test --all"));
    lines[10] = row(
        10,
        "user",
        came(
            "t1",
            true,
            "Exit code 101\nerror: package `tide` needs the feature `moon` to be built",
        ),
    );
    let mut retried = call("t2", "cargo test --all --features moon");
    let why = "The tests fail because the package leaves the feature out by default.";
    retried.as_array_mut().unwrap().insert(0, json!({ "type": "text", "text": why }));
    lines[11] = row(11, "assistant", retried);
    lines[12] = row(12, "user", came("t2", false, "test result: ok. 12 passed"));
    lines[5_100] = row(
        40,
        "user",
        json!(
            "From now on always run the linter before you say that it is done, because the build refuses warnings"
        ),
    );
    lines.push("{\"type\":\"user\",\"torn".to_owned());
    lines.join("\n")
}

#[test]
fn report_covers_notes_and_session_results() {
    let fixture = Fixture::new();
    fixture.run_at(DAY, &["init"]).ends(0);
    // The script kills the process of its run once, during the session's first chunk.
    let script = "cat > /dev/null; cd \"$0\"; if [ ! -e killed ]; then touch killed; \
                  kill -9 $(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' .runner/curator/processing/*.owner); fi; echo no";
    let root = fixture.project().display().to_string();
    fixture.configure(&format!(
        "[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\nbackend = \"model\"\nsandbox = \"off\"\nretries = 0\n\
         [backends.model]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}, {root:?}]\nfallback = [\"builtin\"]\n"
    ));
    fixture.write("docs/index.md", "# Index\n\n[plan](plan.md) [gone](gone.md)\n");
    fixture.write(
        "docs/plan.md",
        "# Plan\n\n- [ ] Retry the upload of a tide table after a connection reset, with a backoff that grows\n",
    );
    fixture.write("s.jsonl", session());
    fixture.run_at(DAY, &["tick"]).ends(0);
    fixture
        .run_at(
            DAY,
            &["curator", "enqueue", "--kind", "ingest-claude-session", "--source", "s.jsonl"],
        )
        .ends(0);
    let killed = fixture.run_at(DAY, &["curator", "work", "--once"]);
    assert_ne!(killed.code, 0, "{killed:?}");
    assert!(fixture.path("killed").exists());
    assert!(!fixture.path(".agents/learnings").exists(), "the killed run published learnings");
    for kind in ["lint-wiki", "dream-seed"] {
        fixture.run_at(EVENING, &["curator", "enqueue", "--kind", kind]).ends(0);
    }
    fixture.run_at(EVENING, &["curator", "work"]).ends(0);
    assert_eq!(
        fixture.tree(".runner/curator/done").len(),
        4,
        "expected two chunks and one job of each other kind"
    );
    let learnings = fixture.tree(".agents/learnings");
    assert_eq!(learnings.len(), 2, "{learnings:?}");

    // The corpus accepts the learnings, and would promote one that has been used.
    let used = learnings.iter().map(|(path, _)| {
        let cited = json!({ "artifact_path": format!(".agents/learnings/{path}"), "session_id": "later",
                            "cited_at": "2027-03-02T02:00:00Z", "citation_type": "applied" });
        format!("{cited}\n")
    });
    fixture.write(".agents/ao/citations.jsonl", used.collect::<String>());
    let health = fixture.run_at(NIGHT, &["corpus", "health", "--json"]).json();
    assert_eq!(health["maturity_mix"]["unknown"], 2, "{health}");
    let rise = fixture
        .run_at(NIGHT, &["corpus", "close-loop", "--threshold", "0", "--dry-run", "--json"])
        .ends(0)
        .json();
    assert_eq!(rise["considered"], 2, "{rise}");
    assert!(
        rise["promoted"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["path"].as_str().unwrap().contains("cargo-test")),
        "{rise}"
    );

    fixture.run_at(NIGHT, &["tick"]).ends(0);
    let report = fixture.read(".runner/reports/2027-03-02/report.md");
    for words in [
        "## By day",
        "the process that worked on it died",
        "lines 1 to 5000: 1 learning of 1 found",
        "continues at line 5001",
        "lines 5001 to 5201: 1 learning of 1 found; 200 lines read, 1 unfinished",
        "1 draft of 1 open point in 2 notes",
        "finding in 2 notes",
    ] {
        assert!(report.contains(words), "no {words:?} in {report}");
    }
    let page = fixture.read(".runner/reports/2027-03-02/report.html");
    assert!(page.contains("By day") && page.contains("continues at line 5001"));
    let reported: Value =
        serde_json::from_str(&fixture.read(".runner/reports/2027-03-02/report.json")).unwrap();
    let seeded =
        reported["proposals"].as_array().unwrap().iter().any(|one| {
            one["targets"][0].as_str().unwrap().starts_with("ideas/seed-retry-the-upload")
        });
    assert!(seeded, "{reported}");
    // The next report does not repeat the work of the first day.
    fixture.run_at("2027-03-03T02:30:00Z", &["tick"]).ends(0);
    let next = fixture.read(".runner/reports/2027-03-03/report.md");
    assert!(!next.contains("## By day"), "{next}");
}
