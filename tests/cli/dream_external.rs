//! Tests passes that a program answers which runner does not start: `runner dream delta` and `runner dream submit`.

use serde_json::{Value, json};

use crate::fixture::Fixture;

const MAPS: &str =
    "# Offline maps\n\nThe map of a region should be available on a train without a network.\n";
const RETRY: &str = "# Retry policy with jitter\n\nCalls in `src/retry.rs` fail at night.\n\n- Add jitter to each wait\n";
const LINE: &str = "let wait = base + jitter(attempt);";

/// Creates a project with a finished idea and an open one. Its backend is a program that does not exist.
fn fixture() -> (Fixture, String) {
    let fixture = Fixture::with(
        "[backends.harness]\ntype = \"command\"\nprogram = \"/nonexistent/harness\"\n\
         [jobs.dream]\nbackend = \"harness\"\n",
    );
    fixture.write("src/retry.rs", format!("fn retry(attempt: u32) {{\n    {LINE}\n}}\n"));
    fixture.git(&["add", "src"]);
    fixture.git(&["commit", "-qm", "feat: retry policy with jitter"]);
    let hash = fixture.git(&["log", "-1", "--format=%H"]);
    fixture.write("ideas/maps.md", MAPS);
    fixture.write("ideas/retry.md", RETRY);
    (fixture, hash.trim()[..12].to_owned())
}

fn delta(fixture: &Fixture) -> Value {
    fixture.run(&["dream", "delta", "--json"]).ends(0).json()
}

fn ideas(delta: &Value) -> Vec<&str> {
    delta["ideas"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn element(idea: &str, claim: (&str, &str), evidence: &str, quote: &str) -> Value {
    json!({"targets": [format!("ideas/{idea}.md")], "status": claim.0, "action": claim.1, "evidence": evidence,
           "commits": [], "confidence": "high", "quote": quote, "rationale": "the harness"})
}

/// Writes an answer outside of the project and submits it.
fn submit(fixture: &Fixture, answer: &str) -> crate::fixture::CommandOutput {
    let file = fixture.root().join("answer.json");
    std::fs::write(&file, answer).unwrap();
    fixture.run(&["dream", "submit", file.to_str().unwrap(), "--json"])
}

fn proposals(fixture: &Fixture) -> Vec<String> {
    let list = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let mut all: Vec<String> = (list.as_array().unwrap().iter())
        .map(|it| {
            format!("{} {} {}", it["targets"][0], it["action"], it["confidence"]).replace('"', "")
        })
        .collect();
    all.sort();
    all
}

#[test]
fn harness_answers_a_pass_without_a_backend() {
    let (fixture, hash) = fixture();
    fixture
        .run(&["dream", "submit", "answer.json"])
        .ends(65)
        .expect_text("runner dream delta --json");
    let request = delta(&fixture);
    assert_eq!(ideas(&request), ["ideas/maps.md", "ideas/retry.md"]);
    let shown = request["request"]["sources"].to_string();
    assert!(shown.contains(LINE), "the request shows the change of the candidate: {shown}");
    assert!(shown.contains("UNTRUSTED"), "ideas are fenced: {shown}");
    assert_eq!(request["request"]["rule_answer"].as_array().unwrap().len(), 2);
    assert_eq!(request["outcome"], Value::Null);
    assert!(fixture.tree("dreams").is_empty(), "a request publishes nothing");

    fixture.run(&["dream", "submit", "absent.json"]).ends(65).expect_text("absent.json");
    let invented = [element("maps", ("implemented", "archive"), "0123456789ab did it", "")];
    let answer = [element("retry", ("implemented", "archive"), &hash, LINE), invented[0].clone()];
    let run = submit(&fixture, &format!("My answer:\n{}\n", json!(answer))).ends(0).json();
    assert_eq!(run["outcome"], "succeeded", "{run:#}");
    assert!(run.to_string().contains("no backend was asked"), "{run:#}");
    let claims = ["ideas/maps.md keep low", "ideas/retry.md archive high"];
    assert_eq!(proposals(&fixture), claims, "an invented commit is struck");

    let over = delta(&fixture);
    assert_eq!((&over["request"], ideas(&over).len()), (&Value::Null, 0));
    assert_eq!(over["outcome"]["outcome"], "skipped", "{over:#}");
    let id = run["id"].as_str().unwrap();
    assert_eq!(fixture.run(&["replay", id, "--json"]).ends(0).json()["equal"], true);
}

#[test]
fn submitted_answer_applies_only_to_the_content_of_the_request() {
    let (fixture, hash) = fixture();
    delta(&fixture);
    fixture.write("ideas/maps.md", format!("{MAPS}\nOnly for trains.\n"));
    let answer = json!([
        element("retry", ("implemented", "archive"), &hash, LINE),
        element("maps", ("sidenote", "keep"), "a note", ""),
    ]);
    let run = submit(&fixture, &answer.to_string()).ends(0).json();
    assert!(run.to_string().contains("ideas/maps.md"), "the changed idea is named: {run:#}");
    assert_eq!(proposals(&fixture), ["ideas/retry.md archive high"]);
    assert_eq!(ideas(&delta(&fixture)), ["ideas/maps.md"], "the changed idea stays selected");
}

#[test]
fn unusable_submission_fails_and_keeps_the_ideas_selected() {
    let (fixture, _) = fixture();
    delta(&fixture);
    for answer in ["", "no array", "[{\"targets\": [\"README.md\"]}]"] {
        let run = submit(&fixture, answer).ends(1).json();
        assert_eq!(run["class"], "malformed", "{answer:?}: {run:#}");
    }
    assert!(fixture.path("dreams/.failed").exists());
    let parked = delta(&fixture);
    assert_eq!(
        parked["outcome"]["outcome"], "skipped",
        "three answers without a proposal park the ideas"
    );
    assert!(parked["outcome"].to_string().contains("ideas/maps.md"), "{parked:#}");
    let again =
        fixture.run(&["dream", "delta", "--idea", "ideas/maps.md", "--json"]).ends(0).json();
    assert_eq!(ideas(&again), ["ideas/maps.md"]);
    submit(&fixture, &json!([element("maps", ("sidenote", "keep"), "a note", "")]).to_string())
        .ends(0);
    assert_eq!(proposals(&fixture), ["ideas/maps.md keep high"]);
    assert!(
        !fixture.path("dreams/.failed").exists(),
        "a pass that succeeds removes the failure marker"
    );
}
