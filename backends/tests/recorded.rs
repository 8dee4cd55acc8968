//! Passes streams recorded from the real programs through the complete adapters and checks the
//! results.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // test set-up may panic

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use runner_backends::{
    BackendError, BackendKind, BackendSpec, OwnedEvent, OwnedTarget, Reply, Request, RequestLimits,
    Surroundings, VecSink, build,
};
use runner_engine::outcome::Class;
use runner_engine::process::Cancel;
use runner_engine::time::Clock;
use serde_json::{Value, json};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

fn replay(
    recording: &str,
    code: u8,
    schema: Option<Value>,
) -> (Result<Reply, BackendError>, Vec<OwnedEvent>) {
    let (kind, _) = recording.split_once('/').unwrap();
    let file = format!("{HERE}/recorded/{recording}.jsonl");
    assert!(Path::new(&file).exists(), "{file}");
    replay_file(kind, file, code, schema)
}

/// Runs the adapter for `kind` with a program that prints this file.
fn replay_file(
    kind: &str,
    file: String,
    code: u8,
    schema: Option<Value>,
) -> (Result<Reply, BackendError>, Vec<OwnedEvent>) {
    let run_dir = tempfile::tempdir().unwrap();
    let env: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin".to_owned()),
        ("TZ", "UTC".to_owned()),
        ("REPLAY", file),
        ("CODE", code.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let mut settings =
        json!({ "program": format!("{HERE}/fakes/replay"), "env": ["REPLAY", "CODE"] });
    let spec = BackendSpec::new("recorded", BackendKind::read(kind, &mut settings).unwrap());
    let around = Surroundings {
        env: &env,
        sandbox_start: None,
        slots: Some(run_dir.path()),
        clock: &Clock::Host,
    };
    let backend = build(&spec, &around).unwrap();
    let request = Request {
        id: format!("recorded{}/1", run_dir.path().display()),
        purpose: "recorded".into(),
        instructions: "say".into(),
        sources: Vec::new(),
        rule_answer: json!(null),
        offer: json!({}),
        schema,
        limits: RequestLimits::default(),
        run_dir: Some(run_dir.path().to_owned()),
        work: None,
        form: runner_backends::AnswerForm::default(),
    };
    let mut sink = VecSink::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let cancel = Cancel::new().unwrap();
    let answer = runtime.unwrap().block_on(backend.run(&request, &mut sink, &cancel));
    (answer, sink.events)
}

fn plain(recording: &str, code: u8) -> Result<Reply, BackendError> {
    replay(recording, code, None).0
}

#[test]
fn recorded_answers_are_read() {
    let list = || Some(json!({"type": "array", "items": {"type": "integer"}}));
    for (recording, tokens, cost, notes) in [
        ("claude/answer", (6500, 17, 5000), Some(2_160), &[][..]),
        ("claude/tool", (13_000, 34, 10_000), Some(4_320), &[]),
        ("codex/answer", (6500, 17, 5000), None, &[]),
        ("codex/tool", (13_000, 34, 10_000), None, &["1 of the agent's commands failed"]),
    ] {
        let (reply, events) = replay(recording, 0, None);
        let reply = reply.unwrap_or_else(|error| panic!("{recording}: {error:?}"));
        assert_eq!(reply.text, "five words from the stub", "{recording}");
        let usage = reply.usage.unwrap();
        let counted = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens);
        assert_eq!((counted, usage.cost_micros), (tokens, cost), "{recording}");
        assert_eq!(reply.notes, notes, "{recording}");
        let heard = OwnedEvent::Text(reply.text);
        assert_eq!(events.iter().filter(|event| **event == heard).count(), 1, "{recording}");
        let is_failure =
            |event: &OwnedEvent| matches!(event, OwnedEvent::ToolResult { failed: true, .. });
        let failed = events.iter().any(is_failure);
        if recording.ends_with("tool") {
            // The id links the tool's target to its result.
            let used = events.iter().find_map(|event| match event {
                OwnedEvent::ToolUse { id, target: Some(OwnedTarget::Command(line)), .. } => {
                    Some((id.clone(), line.clone()))
                }
                _ => None,
            });
            let (id, line) = used.unwrap_or_else(|| panic!("{recording}: {events:?}"));
            let back = events.iter().find_map(|event| match event {
                OwnedEvent::ToolResult { id: of, exit_code, .. } if *of == id => Some(*exit_code),
                _ => None,
            });
            assert!(!id.is_empty() && !line.is_empty(), "{recording}");
            assert!(back.flatten().is_some_and(|code| code != 0), "{recording}: {events:?}");
        }
        assert_eq!(failed, recording.ends_with("tool"), "{recording}: {events:?}");
    }
    for recording in ["claude/structured", "codex/structured"] {
        let reply = replay(recording, 0, list()).0.unwrap();
        assert_eq!((reply.value, reply.text.as_str()), (Some(json!([1])), "[1]"), "{recording}");
    }
}

/// Replays a stream in which the model answers with `said` as plain text, and the program then
/// fails with `subtype`.
fn as_text(subtype: &str, said: &str) -> Result<Reply, BackendError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.jsonl");
    let lines = [
        json!({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": said}]}}),
        json!({"type": "result", "subtype": subtype, "is_error": true, "num_turns": 4,
               "errors": ["Reached maximum number of turns (3)"],
               "usage": {"input_tokens": 9, "output_tokens": 3}}),
    ];
    std::fs::write(&path, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let list = json!({"type": "array", "items": {"type": "integer"}});
    replay_file("claude", path.display().to_string(), 1, Some(list)).0
}

#[test]
fn answer_as_text_is_accepted() {
    for said in ["[1, 2]", "{\"answer\": [1, 2]}"] {
        for subtype in ["error_max_turns", "error_max_structured_output_retries"] {
            let reply = as_text(subtype, said).unwrap();
            assert_eq!(reply.value, Some(json!([1, 2])), "{subtype} {said}");
            assert_eq!(reply.usage.unwrap().output_tokens, 3);
            assert_eq!(reply.notes.len(), 1, "{:?}", reply.notes);
        }
    }
    let prose = as_text("error_max_turns", "I cannot do that").unwrap_err();
    assert_eq!(prose.class(), Class::Malformed, "{prose}");
    assert!(as_text("error_during_execution", "[1]").is_err());
}

#[test]
fn recorded_refusals_map_to_classes() {
    for (recording, code, class, word) in [
        ("claude/status-401", 1, Class::Auth, "401"),
        ("claude/status-429", 1, Class::RateLimited, "429"),
        ("claude/status-529", 1, Class::RateLimited, "529"),
        ("claude/credit", 1, Class::OverBudget, "Credit balance"),
        ("claude/empty", 0, Class::Malformed, "empty"),
        ("claude/cut", 1, Class::RateLimited, ""),
        ("claude/max-turns", 1, Class::Malformed, "max_turns"),
        ("claude/not-logged-in", 1, Class::Auth, "/login"),
        ("claude/limit", 1, Class::RateLimited, "5-hour limit"),
        ("codex/status-401", 1, Class::Auth, "401"),
        ("codex/status-429", 1, Class::RateLimited, "429"),
        ("codex/status-503", 1, Class::RateLimited, "503"),
        ("codex/credit", 1, Class::OverBudget, "credit balance"),
        ("codex/empty", 0, Class::Malformed, "empty"),
        ("codex/cut", 1, Class::RateLimited, "disconnected"),
        // The exit code alone does not determine the result.
        ("claude/answer", 1, Class::Crash, "then failed"),
        ("claude/status-401", 0, Class::Auth, "401"),
        ("codex/status-401", 0, Class::Auth, "401"),
        ("codex/answer", 1, Class::Crash, "failed"),
    ] {
        let error = plain(recording, code).unwrap_err();
        assert_eq!(error.class(), class, "{recording}: {error:?}");
        assert!(error.to_string().contains(word), "{recording}: {error}");
    }
}

#[test]
fn recorded_limits_state_their_end() {
    let until: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    for (recording, code, overage) in [("claude/limit", 1, false), ("claude/overage", 0, true)] {
        let (answer, events) = replay(recording, code, None);
        match answer {
            // The caller decides whether an answer beyond the subscription is allowed.
            Ok(reply) if overage => assert_eq!(reply.text, "five words from the stub"),
            Err(BackendError::RateLimited { until: reported, .. }) => {
                assert_eq!(reported, Some(until))
            }
            other => panic!("{recording}: {other:?}"),
        }
        let reported = events.iter().any(|event| {
            matches!(event, OwnedEvent::Limit(limit) if limit.overage == overage
                && limit.reached != overage && limit.until == Some(until))
        });
        assert!(reported, "{recording}: {events:?}");
    }
}
