//! Runs model APIs in the suite, against a test server that speaks their dialects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use runner_backends::{Backend, BackendError as E, NullSink, Reply, Request, Temperature, build};
use runner_engine::process::Cancel;
use serde_json::{Value, json};

use super::block_on;
use super::hostile_http::question;

use super::http::behaviours::Behaviour as B;
use super::http::dialect::{COST, Dialect, Why};
use super::http::{Server, Talk};
use super::{CANARY, Case, Situation as S, around, spec};

pub fn anthropic(situation: S, place: &Path) -> Option<Case> {
    api("anthropic", situation, place)
}

pub fn openai(situation: S, place: &Path) -> Option<Case> {
    api("openai", situation, place)
}

pub fn ollama(situation: S, place: &Path) -> Option<Case> {
    api("ollama", situation, place)
}

/// Builds a backend that sends requests to `base`, with the canary as its key and with `more`
/// settings.
pub fn backend(kind: &str, base: &str, more: Value) -> Arc<dyn Backend> {
    let mut settings = json!({ "model": "m", "base_url": base, "key": "SECRET" });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let env = BTreeMap::from([("SECRET".to_owned(), CANARY.to_owned())]);
    build(&spec(kind, settings), &around(&env)).unwrap()
}

/// Sends the model list and returns `true` if the request asks for the list. Otherwise, returns
/// `false`.
pub fn lists(talk: &mut Talk, line: &str, dialect: Dialect) -> bool {
    if !line.starts_with("GET") {
        return false;
    }
    let json = [("content-type", "application/json")];
    talk.reply(200, &json, dialect.models(&["m"]));
    true
}

fn api(kind: &str, situation: S, place: &Path) -> Option<Case> {
    let behaviour = match situation {
        S::Good | S::UsageStated | S::CancelledBefore => B::Good,
        S::UsageUnknown => B::UsageMissing,
        S::SilentStart | S::CancelledMidway => B::NeverAnswers,
        S::Stall => B::StallsMidway,
        S::Drip => B::DripsSignsOfLife,
        S::Prose | S::LeaksMalformed => B::Prose,
        S::NotText => B::NoUtf8,
        S::Empty => B::EmptyAnswer,
        S::OverLong => B::EndlessText,
        S::NoAuth => B::NoKey,
        S::RateLimited => B::LimitBare,
        S::Refused => B::BadRequest,
        S::Unreachable => B::Overloaded,
        _ => return None,
    };
    let dialect = match kind {
        "anthropic" => Dialect::Messages,
        "openai" => Dialect::Chat,
        _ => Dialect::Ollama,
    };
    let fifo = place.join("fifo");
    let begun = (situation == S::CancelledMidway).then(|| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        fifo.clone()
    });
    let reported = begun.clone();
    let server = Server::start(move |talk, seen| {
        if lists(talk, &seen.line, dialect) {
            return;
        }
        if let Some(fifo) = &reported {
            fs::write(fifo, "begun").unwrap();
        }
        if situation == S::LeaksMalformed {
            let text = format!("your key is {CANARY}");
            let events = dialect.events(&[&text], Why::Done, COST).concat();
            return talk.reply(200, &[("content-type", dialect.content_type())], events);
        }
        behaviour.answer(dialect, talk, seen, "http://127.0.0.1:1");
    });
    let backend = backend(kind, &server.url(), json!({}));
    Some(Case {
        backend,
        answer: |_| json!(["ä€", "😀 x", "z\n"]),
        calls: Box::new(move || server.calls()),
        begun,
    })
}

/// Returns the body of the first model call to `server`.
fn body(server: &Server) -> Value {
    let seen = server.seen();
    let call = seen.iter().find(|seen| seen.is_call()).unwrap();
    serde_json::from_slice(&call.body).unwrap()
}

fn ask(backend: &dyn Backend, request: &Request) -> Result<Reply, E> {
    let cancel = Cancel::new().unwrap();
    block_on(backend.run(request, &mut NullSink, &cancel))
}

#[test]
fn ollama_prompt_truncation_is_detected() {
    let words =
        |count: usize| Request { instructions: "word ".repeat(count).into(), ..question(None) };
    // The server reports an input token count equal to the requested context window.
    let cuts = Server::start(|talk, seen| {
        if lists(talk, &seen.line, Dialect::Ollama) {
            return;
        }
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        let window = asked["options"]["num_ctx"].as_i64().unwrap();
        let cost = Some((window, 0, 3));
        let lines = Dialect::Ollama.events(&["[1]"], Why::Done, cost).concat();
        talk.reply(200, &[("content-type", "application/x-ndjson")], lines);
    });
    let backend =
        self::backend("ollama", &cuts.url(), json!({ "num_ctx": 2_048, "keep_alive": "5m" }));
    match ask(&*backend, &words(100)) {
        Err(E::Malformed { why, .. }) => {
            assert!(why.contains("truncated to the context window of 2048"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    let asked = body(&cuts);
    assert_eq!(asked["keep_alive"], "300s");
    assert_eq!(asked["format"], json!({"type": "array"}), "the schema was changed");

    let before = cuts.calls();
    match ask(&*backend, &words(2_000)) {
        Err(E::Rejected { why }) => assert!(why.contains("backends.under-test.num_ctx"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(cuts.calls(), before, "the question was sent anyway");

    // Without a configured window, the window grows with the question up to a limit.
    for (count, window) in [(100, 4_096), (3_000, 8_192), (15_000, 32_768)] {
        let server = Server::start(|talk, seen| B::Good.answer(Dialect::Ollama, talk, seen, ""));
        let backend = self::backend("ollama", &server.url(), json!({}));
        ask(&*backend, &words(count)).unwrap();
        assert_eq!(body(&server)["options"]["num_ctx"], window, "{count} words");
    }
    let backend = self::backend("ollama", &cuts.url(), json!({}));
    assert!(matches!(ask(&*backend, &words(60_000)), Err(E::Rejected { .. })));
}

#[test]
fn exceeded_window_names_its_setting() {
    for error in [
        json!({"code": 400, "type": "exceed_context_size_error", "n_ctx": 8192, "message": "m"}),
        json!({"code": "context_length_exceeded", "type": "invalid_request_error", "message": "m"}),
        json!({"code": 400, "type": "BadRequestError", "message": "This model's maximum context length is 8192 tokens."}),
        json!({"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}),
    ] {
        let body = json!({ "error": error }).to_string();
        let server = Server::start(move |talk, _| {
            talk.reply(400, &[("content-type", "application/json")], body.clone());
        });
        let backend = self::backend("openai", &server.url(), json!({ "context_window": 2_000 }));
        match ask(&*backend, &question(None)) {
            Err(E::Rejected { why }) => {
                assert!(why.contains("set backends.under-test.context_window"), "{why}")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(backend.window(), Some(2_000));
        let asked = self::body(&server);
        let most = [&asked["max_tokens"], &asked["max_completion_tokens"]];
        assert!(most.iter().any(|most| **most == 500), "{asked}");
    }
}

#[test]
fn each_provider_gets_its_schema_form() {
    let closed = json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}},
        "required": ["a"], "additionalProperties": false}});
    let mut request = Request { schema: Some(closed.clone()), ..question(None) };
    request.limits.temperature = Some(Temperature::hundredths(80));
    let asked = |kind: &str, dialect: Dialect, more: Value| {
        let server = Server::start(move |talk, seen| B::Good.answer(dialect, talk, seen, ""));
        ask(&*backend(kind, &server.url(), more), &request).unwrap();
        body(&server)
    };
    let chat = asked("openai", Dialect::Chat, json!({}));
    let format = &chat["response_format"]["json_schema"];
    assert_eq!(
        (&format["strict"], &format["schema"]["properties"]["answer"]),
        (&json!(true), &closed)
    );
    assert_eq!(
        (&chat["max_tokens"], &chat["stream_options"]["include_usage"]),
        (&json!(1_000), &json!(true))
    );
    assert_eq!(chat["temperature"], 0.8);
    assert_eq!(asked("ollama", Dialect::Ollama, json!({}))["options"]["temperature"], 0.8);
    let responses = asked("openai", Dialect::Responses, json!({ "api": "responses" }));
    assert_eq!(responses["temperature"], 0.8);
    assert_eq!(responses["text"]["format"]["schema"]["properties"]["answer"], closed);
    assert_eq!(responses["store"], false);
    let schema = asked("anthropic", Dialect::Messages, json!({ "structured": "schema" }));
    assert!(schema["temperature"].is_null());
    let quiet = asked("openai", Dialect::Chat, json!({ "temperature": false }));
    assert!(quiet["temperature"].is_null());
    let warm = asked("anthropic", Dialect::Messages, json!({ "temperature": true }));
    assert_eq!(warm["temperature"], 0.8);
    assert_eq!(schema["output_config"]["format"]["schema"]["properties"]["answer"], closed);
    let words = asked("openai", Dialect::Chat, json!({ "structured": "prompt" }));
    assert!(words["response_format"].is_null());
    let short = asked("openai", Dialect::Chat, json!({ "max_output_tokens": 7 }));
    assert_eq!(short["max_tokens"], 7);

    // If the answer arrives through a tool, other text is not part of the answer.
    let server = Server::start(|talk, _| {
        let frame = |value: Value| Dialect::Messages.frame(&value);
        let delta = |at: u8, delta: Value| {
            frame(json!({"type": "content_block_delta", "index": at, "delta": delta}))
        };
        let events = [
            Dialect::Messages.begin(COST),
            delta(0, json!({"type": "text_delta", "text": "Let me see."})),
            frame(json!({"type": "content_block_start", "index": 1,
                "content_block": {"type": "tool_use", "id": "t", "name": "answer", "input": {}}})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "{\"answer\": [{\"a\""})),
            delta(1, json!({"type": "input_json_delta", "partial_json": ": \"ä\"}]}"})),
            Dialect::Messages.finish("", Why::Tool, COST),
        ];
        talk.reply(200, &[("content-type", "text/event-stream")], events.concat());
    });
    let reply = ask(&*backend("anthropic", &server.url(), json!({})), &request).unwrap();
    assert_eq!(reply.value, Some(json!([{"a": "ä"}])));
    assert_eq!(reply.notes, ["text around the answer was ignored"]);
    let asked = body(&server);
    assert_eq!(asked["tool_choice"]["name"], "answer");
    assert_eq!(asked["tools"][0]["input_schema"]["properties"]["answer"], closed);
}
