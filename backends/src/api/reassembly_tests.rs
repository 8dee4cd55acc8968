//! Checks in every dialect that the text of a reply does not depend on how its bytes are split.

#[path = "../../../tests/fakes/http/dialect.rs"]
#[allow(dead_code, reason = "the server's own tests use the rest")]
mod dialect;

use std::collections::BTreeMap;

use runner_engine::time::Clock;
use serde_json::json;

use super::*;
use crate::api::chance_tests::{TestRandom, print_line, scaled};
use crate::api::framing::Framing;
use crate::registry::Surroundings;
use crate::{BackendKind, BackendSpec, Request, Usage};
use dialect::{COST, Dialect, Why};

fn plan(dialect: Dialect) -> EndpointPlan {
    let (kind, api) = match dialect {
        Dialect::Messages => ("anthropic", "chat"),
        Dialect::Chat => ("openai", "chat"),
        Dialect::Responses => ("openai", "responses"),
        Dialect::Ollama => ("ollama", "chat"),
    };
    let mut table = json!({ "model": "m", "base_url": "http://127.0.0.1:1", "api": api });
    let spec = BackendSpec::new("mine", BackendKind::read(kind, &mut table).unwrap());
    let around = Surroundings {
        env: &BTreeMap::new(),
        sandbox_start: None,
        slots: None,
        clock: &Clock::Host,
    };
    EndpointPlan::of(&spec, &around).unwrap()
}

fn question() -> Request {
    Request {
        work: None,
        form: crate::AnswerForm::default(),
        id: "r/1".into(),
        purpose: "test".into(),
        instructions: "Say.".into(),
        sources: Vec::new(),
        rule_answer: json!(null),
        offer: json!({}),
        schema: None,
        limits: RequestLimits::default(),
        run_dir: None,
    }
}

/// Reads a reply from `pieces`, and returns the gathered reply and the text that a sink would
/// receive.
fn read(plan: &EndpointPlan, kind: &str, pieces: &[&[u8]]) -> (Gathered, String) {
    let request = question();
    let mut reader = plan.dialect.reader(plan, &request, 1_000);
    let mut gathered = Gathered::new(1_000_000);
    let mut framing = Framing::of(kind).unwrap();
    let whole = framing.is_whole();
    let mut heard = String::new();
    for piece in pieces.iter().map(Some).chain([None]) {
        let mut each = |name: &[u8], data: &[u8]| {
            event(name, data, whole, &mut *reader, &mut gathered).unwrap();
            ControlFlow::Continue(())
        };
        match piece {
            Some(piece) => framing.feed(piece, &mut each).unwrap(),
            None => framing.finish(&mut each),
        }
        heard.push_str(&gathered.news());
    }
    (gathered, heard)
}

#[test]
fn random_chunks_lose_no_reply_text() {
    let seed = 0x0dd5_eed5_u64;
    let mut random = TestRandom(seed);
    let words =
        ["a", "ä€", "😀", "\"", "\\", "\n", "data: ", "\u{7f}", "[DONE]", "\r\n", "\u{2028}"];
    let plans = dialect::ALL.map(|dialect| (dialect, plan(dialect)));
    let cases = scaled(10_000);
    for case in 0..cases {
        let (dialect, plan) = &plans[case % 4];
        let texts: Vec<String> = (0..=random.below(6))
            .map(|_| (0..=random.below(6)).map(|_| words[random.below(words.len())]).collect())
            .collect();
        let text = texts.concat();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let in_one_piece = random.below(8) == 0;
        let (kind, reply) = match in_one_piece {
            true => ("application/json", dialect.whole(&text, COST)),
            false => (dialect.content_type(), dialect.events(&texts, Why::Done, COST).concat()),
        };
        let end = match (dialect.is_sse() && !in_one_piece, random.below(3)) {
            (true, 0) => "\r",
            (_, 1) => "\r\n",
            _ => "\n",
        };
        // Line breaks inside JSON strings are escaped, so this replaces only actual line endings.
        let reply = reply.replace('\n', end).into_bytes();
        let pieces = random.cut(&reply, 60);
        let (gathered, heard) = read(plan, kind, &pieces);
        let about = format!("seed {seed:#x}, case {case}, {dialect:?}, {end:?}, {pieces:?}");
        assert_eq!(gathered.text, text, "{about}");
        assert_eq!(heard, text, "the text in the sink: {about}");
        assert!(gathered.over, "{about}");
        let Usage { input_tokens, output_tokens, .. } = gathered.usage().unwrap();
        assert_eq!((input_tokens, output_tokens), (120, 30), "{about}");
    }
    print_line(&format!(
        "reassembly: {cases} random cuts of replies in 4 dialects, seed {seed:#x}"
    ));
}
