//! Tests `runner dream delta` and `runner dream submit`, with which a program that runner did not
//! start can answer a dream pass's request.

use serde_json::{Value, json};

use crate::fixture::Fixture;

const MAPS: &str =
    "# Offline maps\n\nThe map of a region should be available on a train without a network.\n";
const RETRY: &str = "# Retry policy with jitter\n\nCalls in `src/retry.rs` fail at night.\n\n- Add jitter to each wait\n";
const LINE: &str = "let wait = base + jitter(attempt);";

/// Creates a project with a finished idea and an open idea. The project's backend is a program that
/// does not exist. Returns the start of the hash of the commit that implemented the finished idea.
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

/// Writes an answer outside the project and submits it.
fn submit(fixture: &Fixture, answer: &str) -> crate::fixture::CommandOutput {
    submit_to(fixture, answer, &[])
}

fn submit_to(fixture: &Fixture, answer: &str, request: &[&str]) -> crate::fixture::CommandOutput {
    let file = fixture.root().join("answer.json");
    std::fs::write(&file, answer).unwrap();
    fixture.run(&[&["dream", "submit", file.to_str().unwrap(), "--json"], request].concat())
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
    assert!(shown.contains(LINE), "the request does not show the candidate's change: {shown}");
    assert!(shown.contains("UNTRUSTED"), "the ideas are not marked as untrusted: {shown}");
    assert_eq!(request["request"]["rule_answer"].as_array().unwrap().len(), 2);
    assert_eq!(request["outcome"], Value::Null);
    assert!(fixture.tree("dreams").is_empty(), "the request published something");

    fixture.run(&["dream", "submit", "absent.json"]).ends(65).expect_text("absent.json");
    for text in [request.to_string(), format!("a line of a log\n{request:#}\nand another\n")] {
        submit(&fixture, &text).ends(65).expect_text("is a request, not an answer");
    }
    let absent = fixture.run(&["dream", "delta", "--idea", "ideas/absent.md"]).ends(78);
    assert!(
        absent.err.contains("`runner dream delta --all`") && absent.out.is_empty(),
        "{absent:?}"
    );
    fixture
        .run(&["dream", "submit", "x", "--request", "y"])
        .ends(65)
        .expect_text("no request y awaits");
    let invented = [element("maps", ("implemented", "archive"), "0123456789ab did it", "")];
    let answer = [element("retry", ("implemented", "archive"), &hash, LINE), invented[0].clone()];
    let run = submit(&fixture, &format!("My answer:\n{}\n", json!(answer))).ends(0).json();
    assert_eq!(run["outcome"], "succeeded", "{run:#}");
    assert!(run.to_string().contains("no backend was asked"), "{run:#}");
    let claims = ["ideas/maps.md keep low", "ideas/retry.md archive high"];
    assert_eq!(proposals(&fixture), claims, "the invented commit was accepted");

    let over = delta(&fixture);
    assert_eq!((&over["request"], ideas(&over).len()), (&Value::Null, 0));
    assert_eq!(over["outcome"]["outcome"], "skipped", "{over:#}");
    let id = run["id"].as_str().unwrap();
    assert_eq!(fixture.run(&["replay", id, "--json"]).ends(0).json()["equal"], true);
    submit(&fixture, &json!(answer).to_string())
        .ends(65)
        .expect_text("no request awaits an answer");
}

#[test]
fn answer_applies_only_to_its_own_request() {
    let (fixture, _) = fixture();
    let first = delta(&fixture);
    fixture
        .write("ideas/maps.md", "# Never offline maps\n\nMaps on a train are not wanted at all.\n");
    fixture.run(&["dream", "delta"]).ends(0);
    let second = delta(&fixture);
    assert_ne!(first["id"], second["id"]);
    let answer =
        json!([element("maps", ("meritorious", "promote"), "worth doing", "")]).to_string();
    submit(&fixture, &answer).ends(2).expect_text("2 requests await an answer");
    let of_first = ["--request", first["id"].as_str().unwrap()];
    let run = submit_to(&fixture, &answer, &of_first).ends(0).json();
    assert!(
        run["lines"].to_string().contains("ideas/maps.md"),
        "the changed idea is not named: {run:#}"
    );
    assert!(proposals(&fixture).is_empty(), "an answer about the earlier content was accepted");
    let of_second = ["--request", second["id"].as_str().unwrap()];
    submit_to(&fixture, &answer, &of_second).ends(0);
    assert_eq!(proposals(&fixture), ["ideas/maps.md promote high"]);
}

#[test]
fn answer_may_use_only_what_its_request_offered() {
    let (fixture, _) = fixture();
    delta(&fixture);
    // The request offers neither this commit nor this idea, because both are newer.
    fixture.write("src/maps.rs", "fn maps() {}\n");
    fixture.git(&["add", "src"]);
    fixture.git(&[
        "commit",
        "-qm",
        "feat: offline maps, the map of a region on a train without a network",
    ]);
    let new = fixture.git(&["log", "-1", "--format=%H"]);
    fixture.write("ideas/twin.md", MAPS);
    let merge = json!([{"targets": ["ideas/maps.md", "ideas/twin.md"], "status": "duplicate", "action": "merge",
                        "evidence": "the same", "commits": [], "confidence": "high", "quote": "", "rationale": "same"}]);
    submit(&fixture, &merge.to_string()).ends(1).expect_text("ideas/twin.md");
    let archive =
        json!([element("maps", ("implemented", "archive"), &new.trim()[..12], "fn maps() {}")]);
    submit(&fixture, &archive.to_string()).ends(0);
    assert_eq!(
        proposals(&fixture),
        ["ideas/maps.md keep low"],
        "a commit that was not offered was accepted"
    );
}

#[test]
fn offered_destination_remains_available() {
    let (fixture, _) = fixture();
    fixture.write("ideas/twin.md", format!("{MAPS}\nWith the age of each tile.\n"));
    let request = delta(&fixture);
    let near = request["request"]["offer"]["neighbours"]["ideas/maps.md"].to_string();
    assert!(near.contains("ideas/twin.md"), "{request:#}");
    for number in 0..12 {
        fixture.write(&format!("ideas/copy-{number}.md"), MAPS);
    }
    let merge = json!([{"targets": ["ideas/maps.md", "ideas/twin.md"], "status": "duplicate", "action": "merge",
                        "evidence": "the same", "commits": [], "confidence": "high", "quote": "", "rationale": "same"}]);
    submit(&fixture, &merge.to_string()).ends(0);
    assert_eq!(proposals(&fixture), ["ideas/maps.md merge high"]);
}

#[test]
fn partial_answers_set_no_idea_aside() {
    let (fixture, _) = fixture();
    for name in ["one", "two", "three"] {
        fixture.write(
            &format!("ideas/{name}.md"),
            format!("# Idea {name}\n\nThe {name} should be {name}.\n"),
        );
    }
    delta(&fixture);
    for name in ["one", "two", "three", "maps"] {
        let answer = json!([element(name, ("sidenote", "keep"), "a note", "")]);
        submit(&fixture, &answer.to_string()).ends(0);
    }
    assert_eq!(
        ideas(&delta(&fixture)),
        ["ideas/retry.md"],
        "the unanswered idea is not offered again"
    );
    let again = json!([element("one", ("meritorious", "promote"), "worth doing", "")]);
    let requests = fixture.run(&["dream", "delta", "--json"]).ends(0).json();
    let run =
        submit_to(&fixture, &again.to_string(), &["--request", requests["id"].as_str().unwrap()]);
    run.ends(1).expect_text("ideas/one.md");
    assert!(
        !proposals(&fixture).iter().any(|it| it.contains("one.md promote")),
        "{:?}",
        proposals(&fixture)
    );
}

#[test]
fn answer_applies_only_to_unchanged_ideas() {
    let (fixture, hash) = fixture();
    delta(&fixture);
    fixture.write("ideas/maps.md", format!("{MAPS}\nOnly for trains.\n"));
    let answer = json!([
        element("retry", ("implemented", "archive"), &hash, LINE),
        element("maps", ("sidenote", "keep"), "a note", ""),
    ]);
    let run = submit(&fixture, &answer.to_string()).ends(0).json();
    assert!(run.to_string().contains("ideas/maps.md"), "the changed idea is not named: {run:#}");
    assert_eq!(proposals(&fixture), ["ideas/retry.md archive high"]);
    assert_eq!(ideas(&delta(&fixture)), ["ideas/maps.md"], "the changed idea is not offered again");
}

#[test]
fn settled_ideas_need_no_answer() {
    let (fixture, _) = fixture();
    let keep = |name: &str| element(name, ("sidenote", "keep"), "a note", "");
    let all =
        |names: &[&str]| json!(names.iter().map(|name| keep(name)).collect::<Vec<_>>()).to_string();
    delta(&fixture);
    submit(&fixture, &all(&["maps", "retry"])).ends(0);
    let again = || fixture.run(&["dream", "delta", "--all", "--json"]).ends(0).json();
    // A request about ideas that have already been examined may be answered in two parts.
    again();
    submit(&fixture, &all(&["maps"])).ends(0);
    let run = submit(&fixture, &all(&["retry"])).ends(0).json();
    assert_eq!(run["outcome"], "succeeded", "{run:#}");
    submit(&fixture, &all(&["retry"])).ends(65).expect_text("no request awaits an answer");
    // A part that is submitted again is not treated as an unusable answer about the remaining
    // ideas.
    again();
    submit(&fixture, &all(&["maps"])).ends(0);
    for _ in 0..3 {
        let run = submit(&fixture, &all(&["maps"])).ends(0).json();
        assert_eq!(run["outcome"], "skipped", "{run:#}");
    }
    assert!(!fixture.path("dreams/.failed").exists());
    submit(&fixture, &all(&["retry"])).ends(0);
    // A decision also settles an idea.
    again();
    submit(
        &fixture,
        &json!([element("maps", ("meritorious", "promote"), "worth doing", "")]).to_string(),
    )
    .ends(0);
    again();
    let list = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let promote = list.as_array().unwrap().iter().find(|it| it["action"] == "promote").unwrap();
    fixture.run(&["dream", "skip", promote["id"].as_str().unwrap()]).ends(0);
    let blog = json!([element("maps", ("blog-candidate", "mark-blog"), "a story", "")]).to_string();
    let run = submit(&fixture, &blog).ends(0).json();
    assert_eq!(run["outcome"], "skipped", "{run:#}");
    // An ordinary pass also settles a request.
    let rules = ["--config", "jobs.dream.backend=builtin"];
    fixture.run(&[&["dream", "run", "--all"][..], &rules].concat()).ends(0);
    submit(&fixture, &blog).ends(65).expect_text("no request awaits an answer");
}

#[test]
fn destination_of_a_merge_is_not_archived() {
    let (fixture, hash) = fixture();
    fixture.write("ideas/again.md", RETRY.replace("at night", "at night too"));
    delta(&fixture);
    let mut merge = element("again", ("duplicate", "merge"), "the same policy", "");
    merge["targets"] = json!(["ideas/again.md", "ideas/retry.md"]);
    let archive = element("retry", ("implemented", "archive"), &hash, LINE);
    submit(&fixture, &json!([merge, archive]).to_string()).ends(0);
    let found = proposals(&fixture);
    assert!(found.contains(&"ideas/again.md merge high".to_owned()), "{found:?}");
    assert!(!found.iter().any(|it| it.starts_with("ideas/retry.md archive")), "{found:?}");
}

#[test]
fn next_pass_finds_a_later_commit() {
    let fixture = Fixture::with("");
    for (path, subject) in [
        ("src/term.rs", "feat: colour the output"),
        ("src/parse.rs", "fix: off by one in the parser"),
        ("src/lexer.rs", "test: cover the lexer"),
    ] {
        fixture.write(path, "fn f() {}\n");
        fixture.git(&["add", path]);
        fixture.git(&["commit", "-qm", subject]);
    }
    fixture.write("ideas/retry.md", RETRY);
    delta(&fixture);
    fixture.write("src/retry.rs", format!("fn retry(attempt: u32) {{\n    {LINE}\n}}\n"));
    fixture.git(&["add", "src"]);
    fixture.git(&["commit", "-qm", "feat: retry policy with jitter"]);
    let answer = json!([element("retry", ("sidenote", "keep"), "a note", "")]).to_string();
    submit(&fixture, &answer).ends(0);
    fixture.run(&["dream", "run"]).ends(0);
    assert!(proposals(&fixture).contains(&"ideas/retry.md archive high".to_owned()));
}

#[test]
fn concurrent_requests_are_all_recorded() {
    let (fixture, _) = fixture();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let ask = |idea: &'static str| {
            fixture.run(&["dream", "delta", "--idea", idea, "--json"]).ends(0).json()
        };
        let both = ["ideas/maps.md", "ideas/retry.md"].map(|idea| scope.spawn(move || ask(idea)));
        both.map(|one| one.join().unwrap()["id"].as_str().unwrap().to_owned()).into()
    });
    for (id, idea) in ids.iter().zip(["maps", "retry"]) {
        let answer = json!([element(idea, ("sidenote", "keep"), "a note", "")]).to_string();
        submit_to(&fixture, &answer, &["--request", id]).ends(0);
    }
    assert_eq!(proposals(&fixture).len(), 2);
}

#[test]
fn third_unusable_submission_sets_the_ideas_aside() {
    let (fixture, _) = fixture();
    delta(&fixture);
    for answer in ["", "no array", "[{\"targets\": [\"README.md\"]}]"] {
        let run = submit(&fixture, answer).ends(1).json();
        assert_eq!(run["class"], "malformed", "{answer:?}: {run:#}");
    }
    assert!(fixture.path("dreams/.failed").exists());
    let skipped = delta(&fixture);
    assert_eq!(
        skipped["outcome"]["outcome"], "skipped",
        "the ideas were not set aside after three answers without a proposal"
    );
    assert!(skipped["outcome"].to_string().contains("ideas/maps.md"), "{skipped:#}");
    let line = fixture.run(&["runs", "--json"]).json();
    assert_eq!(line.as_array().unwrap().len(), 3, "a submission was retried: {line:#}");
    let again =
        fixture.run(&["dream", "delta", "--idea", "ideas/maps.md", "--json"]).ends(0).json();
    assert_eq!(ideas(&again), ["ideas/maps.md"]);
    let answer = json!([element("maps", ("sidenote", "keep"), "a note", "")]).to_string();
    submit_to(&fixture, &answer, &["--request", again["id"].as_str().unwrap()]).ends(0);
    assert_eq!(proposals(&fixture), ["ideas/maps.md keep high"]);
    assert!(
        !fixture.path("dreams/.failed").exists(),
        "the successful pass left the failure marker"
    );
}
