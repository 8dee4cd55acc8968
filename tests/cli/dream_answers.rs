//! Tests how a dream pass handles good and bad model answers. The tests run the program with a
//! model API on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture};
use crate::http::dialect::{COST, Dialect, Why};
use crate::http::{SeenRequest, Server, Talk};

const DONE: &str = "# Retry policy with jitter\n\nCalls in `src/net/retry.rs` fail at night, and somebody has to start \
                    them again.\n\n- Add jitter to each wait\n- Cap the wait at an hour\n";
const LINE: &str = "let wait = base.min(HOUR) + jitter(attempt);";
const ONE: &str = "# Offline maps\n\nThe map of a region should be available on a train without a network.\n\n\
                   - Download the tiles of a region\n- Show the age of each tile\n";
const OTHER: &str = "# Maps without a network\n\nOn a train there is no network, but the map of the region should be \
                     there.\n\n- Tiles of a region are downloaded before\n- Each tile shows its age\n";
const MUG: &str = "# Mug\n\nMy mug is green.\n";

/// The reply to one request: its text and the reason why it ends, or `None` for no reply.
type ModelReply = Option<(String, Why)>;

struct Case {
    name: &'static str,
    replies: Vec<ModelReply>,
    /// The exit code, the outcome, and the number of requests.
    ends: (i32, &'static str, usize),
    /// The status, action and confidence of each expected proposal, by idea.
    proposals: Vec<(&'static str, &'static str)>,
}

/// Creates a project with a finished idea, two similar ideas and a note. Returns the start of the
/// hash of the commit that implemented the finished idea.
fn fixture() -> (Fixture, String) {
    let fixture = Fixture::with("");
    let code = format!("fn retry(attempt: u32) {{\n    {LINE}\n    sleep(wait);\n}}\n");
    for (path, subject, text) in [
        ("Cargo.toml", "chore: newer tools", "[package]\n"),
        ("src/parse.rs", "fix: off by one in parser", "fn parse() {}\n"),
        ("src/net/retry.rs", "feat(net): retry policy with jitter", code.as_str()),
        ("src/term.rs", "feat: coloured output", "fn colour() {}\n"),
    ] {
        fixture.write(path, text);
        fixture.git(&["add", path]);
        fixture.git(&["commit", "-qm", subject]);
    }
    let hash = fixture.git(&["log", "-1", "--format=%H", "--", "src/net/retry.rs"]);
    for (name, text) in [("retry", DONE), ("maps", ONE), ("offline", OTHER), ("mug", MUG)] {
        fixture.write(&format!("ideas/{name}.md"), text);
    }
    (fixture, hash.trim()[..12].to_owned())
}

fn server(replies: Vec<ModelReply>) -> Server {
    let count = AtomicUsize::new(0);
    let replies = Arc::new(replies);
    Server::start(move |talk: &mut Talk, seen: &SeenRequest| {
        if !seen.is_call() {
            let json = [("content-type", "application/json")];
            return talk.reply(200, &json, Dialect::Chat.models(&["m"]));
        }
        let turn = count.fetch_add(1, Ordering::SeqCst);
        match &replies[turn.min(replies.len() - 1)] {
            None => talk.wait(),
            Some((text, why)) => {
                let events = Dialect::Chat.events(&[text], *why, COST).concat();
                let kind = [("content-type", Dialect::Chat.content_type())];
                talk.reply(200, &kind, events);
            }
        }
    })
}

fn element(idea: &str, claim: (&str, &str), evidence: &str, quote: &str) -> Value {
    json!({"targets": [format!("ideas/{idea}.md")], "status": claim.0, "action": claim.1,
           "evidence": evidence, "commits": [], "confidence": "high", "quote": quote,
           "rationale": "the answer of a model"})
}

fn keep(idea: &str) -> Value {
    element(idea, ("sidenote", "keep"), "a note", "")
}

fn archive(idea: &str, evidence: &str, quote: &str) -> Value {
    element(idea, ("implemented", "archive"), evidence, quote)
}

fn merge(idea: &str, into: &str) -> Value {
    let mut value = element(idea, ("duplicate", "merge"), "the same wish", "");
    value["targets"] = json!([format!("ideas/{idea}.md"), format!("ideas/{into}.md")]);
    value
}

fn said(elements: &[Value]) -> ModelReply {
    Some((json!(elements).to_string(), Why::Done))
}

/// Returns an answer about every idea: `answer` for `idea`, and `keep` for the others.
fn with(idea: &str, answer: Value) -> Vec<Value> {
    let all = ["maps", "mug", "offline", "retry"];
    all.iter().map(|name| if *name == idea { answer.clone() } else { keep(name) }).collect()
}

const KEPT: &str = "sidenote keep high";
const STRUCK: &str = "sidenote keep low struck";
const ARCHIVED: &str = "implemented archive high";

fn case(
    name: &'static str,
    replies: Vec<ModelReply>,
    ends: (i32, &'static str, usize),
    proposals: &[(&'static str, &'static str)],
) -> Case {
    Case { name, replies, ends, proposals: proposals.to_vec() }
}

fn cases(hash: &str) -> Vec<Case> {
    let good = with("retry", archive("retry", hash, LINE));
    let text = json!(good).to_string();
    let around = |before: &str, after: &str| Some((format!("{before}{text}{after}"), Why::Done));
    let whole = (0, "succeeded", 1);
    let retry = |as_what| vec![("retry", as_what)];
    // The text ends within the third element.
    let cut = text[..text.match_indices("{\"targets\"").nth(2).unwrap().0 + 30].to_owned();
    let rest = [good[2].clone(), good[3].clone()];
    let broken = text.replacen("\"a note\"", "\"a note", 1);
    let mut unknown = keep("retry");
    unknown["status"] = json!("abandoned");
    let bad = vec![unknown, json!({"targets": ["README.md"]}), json!("text")];
    let mut unsure = archive("retry", hash, LINE);
    unsure["confidence"] = json!("med");
    let both = {
        let mut both = with("maps", merge("maps", "offline"));
        both[2] = merge("offline", "maps");
        both
    };
    let invented = "0123456789ab did it";
    vec![
        case("well", vec![said(&good)], whole, &retry(ARCHIVED)),
        case(
            "in prose",
            vec![around("Here you are:\n\n", "\n\nTell me more!")],
            whole,
            &retry(ARCHIVED),
        ),
        case("in a fence", vec![around("```json\n", "\n```\n")], whole, &retry(ARCHIVED)),
        case(
            "cut off, then the rest",
            vec![Some((cut, Why::Length)), said(&rest)],
            (0, "degraded", 2),
            &[("maps", KEPT), ("mug", KEPT), ("offline", KEPT), ("retry", ARCHIVED)],
        ),
        case(
            "one damaged element, and an empty second answer",
            vec![Some((broken, Why::Done)), said(&[])],
            (0, "degraded", 2),
            &[("retry", ARCHIVED), ("mug", KEPT)],
        ),
        case("badly", vec![said(&bad), said(&bad)], (1, "failed", 2), &[]),
        case(
            "with an invented hash",
            vec![said(&with("retry", archive("retry", invented, "")))],
            whole,
            &retry(STRUCK),
        ),
        case(
            "with an invented hash in a keep",
            vec![said(&with("mug", element("mug", ("sidenote", "keep"), invented, "")))],
            whole,
            &[("mug", STRUCK)],
        ),
        case(
            "with a file that was not offered",
            vec![said(&with("retry", archive("retry", "see README.md", "")))],
            whole,
            &retry(STRUCK),
        ),
        case(
            "with the commit of another idea",
            vec![said(&with("mug", archive("mug", hash, "")))],
            whole,
            &[("mug", STRUCK)],
        ),
        case(
            "with a quotation that is not in the change",
            vec![said(&with("retry", archive("retry", hash, "let wait = guess();")))],
            whole,
            &retry(STRUCK),
        ),
        case(
            "without certainty",
            vec![said(&with("retry", unsure))],
            whole,
            &retry("implemented keep med"),
        ),
        case(
            "with a merge",
            vec![said(&with("maps", merge("maps", "offline")))],
            whole,
            &[("maps", "duplicate merge high")],
        ),
        case(
            "with a merge in both directions",
            vec![said(&both)],
            whole,
            &[("maps", "duplicate merge high"), ("offline", STRUCK)],
        ),
        case("late", vec![None], (124, "timed-out", 1), &[]),
    ]
}

fn run(fixture: &Fixture, server: &Server, timeout: &str) -> CommandOutput {
    fixture.configure(&format!(
        "[backends.mine]\ntype = \"openai\"\nmodel = \"m\"\nbase_url = \"{}/v1\"\n\
         [jobs.dream]\nbackend = \"mine\"\ntimeout = \"{timeout}\"\nretries = 0\n",
        server.url()
    ));
    fixture.run(&["dream", "run", "--json"])
}

fn found(proposals: &Value, idea: &str) -> String {
    let path = format!("ideas/{idea}.md");
    let all = proposals.as_array().unwrap();
    let one = all.iter().find(|one| one["targets"][0] == path.as_str());
    let Some(one) = one else { return "no proposal".to_owned() };
    let text = |key: &str| one[key].as_str().unwrap();
    let struck = text("rationale").contains("does not hold");
    let struck = if struck { " struck" } else { "" };
    format!("{} {} {}{struck}", text("status"), text("action"), text("confidence"))
}

#[test]
fn each_answer_has_the_expected_outcome() {
    let (_, hash) = fixture();
    for case in cases(&hash) {
        let (fixture, hash) = fixture();
        let Case { name, .. } = case;
        // The answers must contain the hash of a commit in this fixture.
        let case = cases(&hash).into_iter().find(|other| other.name == name).unwrap();
        let server = server(case.replies.clone());
        let before = fixture.tree("ideas");
        let late = case.replies[0].is_none();
        let ended = run(&fixture, &server, if late { "2s" } else { "1m" });
        let (code, outcome, calls) = case.ends;
        let run = &fixture.run(&["runs", "--json"]).ends(0).json()[0];
        if late {
            assert_ne!(ended.code, 0, "{name}: {ended:?}");
        } else {
            assert_eq!(
                (ended.code, run["outcome"].as_str()),
                (code, Some(outcome)),
                "{name}: {ended:?}"
            );
        }
        assert_eq!(server.calls(), calls, "{name}");
        assert_eq!(fixture.tree("ideas"), before, "{name}: the pass changed an idea");
        let published: Vec<_> = fixture
            .tree("dreams")
            .into_iter()
            .filter(|(path, _)| path.ends_with("proposals.json"))
            .collect();
        assert_eq!(published.len(), usize::from(!case.proposals.is_empty()), "{name}");
        assert_eq!(fixture.path("dreams/.failed").exists(), case.proposals.is_empty(), "{name}");
        for (path, bytes) in published {
            let proposals: Value = serde_json::from_slice(&bytes).unwrap();
            for (idea, expected) in &case.proposals {
                assert_eq!(
                    found(&proposals, idea),
                    *expected,
                    "{name}: {idea} in {path}: {proposals}"
                );
            }
        }
    }
}

#[test]
fn status_counts_perhaps_done_ideas() {
    let fixture = Fixture::with("");
    fixture.write("ideas/a.md", "# A\n");
    let proposal = r#"[{"id":"01","targets":["ideas/a.md"],"status":"implemented","action":"keep","evidence":"e","confidence":"med"}]"#;
    fixture.write("dreams/20260101T000000Z/proposals.json", proposal);
    let line = "1 idea perhaps done or a duplicate";
    fixture.run(&["status"]).ends(0).expect_text(line);
    fixture.write("dreams/ledger.md", r#"- {"proposal_id":"01","decision":"skipped"}"#);
    let said = fixture.run(&["status"]).ends(0);
    assert!(!said.out.contains("perhaps"), "{said:?}");
}
