//! Combines the events of `claude -p --output-format stream-json` into one transcript.
//!
//! ```text
//! system/init ─> (stream_event | assistant | user | rate_limit_event)* ─> result
//! ```
//!
//! Unknown events are skipped. One API message arrives as several `assistant` events that repeat
//! its id and usage, so the running total counts each id once.

use std::collections::HashMap;

use jiff::Timestamp;
use runner_engine::process::OutputVerdict;
use serde_json::Value;

use crate::agent::events::AgentEvents;
use crate::api::is_not_billed;
use crate::request::Usage;
use crate::sink::{Limit, OwnedEvent, OwnedTarget, thousandths};

/// Maximum number of messages in the running total. Further messages are not counted.
const MOST_MESSAGES: usize = 10_000;

/// The combined result of the events.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// The last `result` event.
    pub result: Option<Value>,
    /// The last usage limit report.
    pub limit: Option<Limit>,
    /// The model's last text.
    pub text: Option<String>,
    usage: HashMap<String, Usage>,
}

impl AgentEvents for Transcript {
    fn event(&mut self, event: Value, tell: &mut dyn FnMut(OwnedEvent)) -> OutputVerdict {
        match event["type"].as_str() {
            Some("assistant") => self.assistant(&event, tell),
            Some("user") => user(&event, tell),
            Some("rate_limit_event") => self.limit(&event["rate_limit_info"], tell),
            Some("result") => {
                if let Some(usage) = total(&event) {
                    tell(match is_whole(&event) {
                        true => OwnedEvent::Total(usage),
                        false => OwnedEvent::Usage(usage),
                    });
                }
                self.result = Some(event);
                return OutputVerdict::ResultSeen;
            }
            Some("system") if event["subtype"] == "init" => init(&event, tell),
            Some("system") if event["subtype"] == "model_fallback" => {
                tell(OwnedEvent::Note("the program switched to another model".to_owned()));
            }
            _ => {}
        }
        OutputVerdict::Continue
    }
}

impl Transcript {
    fn assistant(&mut self, event: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
        let message = &event["message"];
        // The program itself wrote this text, not a model.
        if message["model"] == "<synthetic>" || event["is_api_error_message"] == true {
            return;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") => {
                    if let Some(text) = block["text"].as_str().filter(|text| !text.is_empty()) {
                        self.text = Some(text.to_owned());
                        tell(OwnedEvent::Text(text.to_owned()));
                    }
                }
                Some("tool_use" | "server_tool_use") => {
                    let text = |key: &str| block[key].as_str().map(str::to_owned);
                    tell(OwnedEvent::ToolUse {
                        id: text("id").unwrap_or_default(),
                        name: text("name").unwrap_or_else(|| "?".to_owned()),
                        target: OwnedTarget::of_input(&block["input"]),
                    });
                }
                _ => {}
            }
        }
        let (Some(id), Some(usage)) = (message["id"].as_str(), one(&message["usage"])) else {
            return;
        };
        if self.usage.len() < MOST_MESSAGES || self.usage.contains_key(id) {
            self.usage.insert(id.to_owned(), usage);
            tell(OwnedEvent::Usage(sum(self.usage.values().copied())));
        }
    }

    fn limit(&mut self, info: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
        let seconds = info["resetsAt"].as_i64();
        let yes = |key: &str| info[key] == true;
        let overage = yes("isUsingOverage") || yes("overageInUse");
        let limit = Limit {
            until: seconds.and_then(|at| Timestamp::from_second(at).ok()),
            reached: info["status"] == "rejected" && !overage,
            overage,
            used: info["utilization"].as_f64().and_then(thousandths),
        };
        self.limit = Some(limit);
        tell(OwnedEvent::Limit(limit));
    }
}

fn init(event: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
    let text = |key: &str| event[key].as_str().unwrap_or("?");
    tell(OwnedEvent::Note(format!(
        "claude {}, model {}, {} tools, permission mode {}",
        text("claude_code_version"),
        text("model"),
        event["tools"].as_array().map_or(0, Vec::len),
        text("permissionMode")
    )));
}

fn user(event: &Value, tell: &mut dyn FnMut(OwnedEvent)) {
    for block in event["message"]["content"].as_array().into_iter().flatten() {
        if block["type"] == "tool_result" {
            let failed = block["is_error"] == true;
            let error = failed.then(|| result_text(&block["content"])).flatten();
            tell(OwnedEvent::ToolResult {
                id: block["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                failed,
                exit_code: error.as_deref().and_then(exit_code),
                error,
            });
        }
    }
}

/// Returns a result's text, which is either a string or a list of text blocks.
fn result_text(content: &Value) -> Option<String> {
    let blocks = content.as_array().map(|blocks| {
        let texts = blocks.iter().filter_map(|block| block["text"].as_str());
        texts.collect::<Vec<_>>().join("\n")
    });
    let text = blocks.or_else(|| content.as_str().map(str::to_owned));
    text.filter(|text| !text.trim().is_empty())
}

/// Parses the exit code that the program writes before the output of a failed command.
fn exit_code(error: &str) -> Option<i64> {
    let code = error.trim_start().strip_prefix("Exit code ")?;
    code.split_whitespace().next()?.parse().ok()
}

/// The largest plausible number of tokens in a session.
const MOST_TOKENS: u64 = 10_000_000_000;
/// The largest plausible cost of a session in dollars.
const MOST_DOLLARS: f64 = 1e6;

/// Returns a token count, or 0 if none is reported. Returns `None` if the reported count is
/// negative, not an integer, or too large.
fn figure(value: &Value) -> Option<u64> {
    match value {
        Value::Null => Some(0),
        value => value.as_u64().filter(|figure| *figure <= MOST_TOKENS),
    }
}

/// Returns a cost in millionths of a dollar, or `None` if it is missing, not a number, negative or
/// too large.
fn cost(value: &Value) -> Option<u64> {
    value.as_f64().filter(|dollars| (0.0..=MOST_DOLLARS).contains(dollars)).map(micros)
}

/// Reads a message's usage from the API's fields. Returns `None` if the message reports neither
/// input nor output tokens, or if it reports an impossible number.
fn one(usage: &Value) -> Option<Usage> {
    let count = |key: &str| figure(&usage[key]);
    if usage["input_tokens"].is_null() && usage["output_tokens"].is_null() {
        return None;
    }
    let cached = count("cache_read_input_tokens")?;
    Some(Usage {
        input_tokens: count("input_tokens")?
            .saturating_add(count("cache_creation_input_tokens")?)
            .saturating_add(cached),
        output_tokens: count("output_tokens")?,
        cached_input_tokens: cached,
        cost_micros: None,
    })
}

/// Returns the total usage in a `result` event, or `None` if no usage is reported, or if a reported
/// token count or total cost is impossible. If the program used subagents, the event's `usage`
/// covers only the last part, so the sum over all models is preferred.
pub(crate) fn total(result: &Value) -> Option<Usage> {
    let models = result["modelUsage"].as_object().filter(|it| !it.is_empty());
    let total = &result["total_cost_usd"];
    let whole = cost(total);
    if whole.is_none() && !total.is_null() {
        return None;
    }
    let Some(models) = models else {
        return Some(Usage { cost_micros: whole, ..one(&result["usage"])? });
    };
    let each = models.values().map(|model| {
        let count = |key: &str| figure(&model[key]);
        let cached = count("cacheReadInputTokens")?;
        Some(Usage {
            input_tokens: count("inputTokens")?
                .saturating_add(count("cacheCreationInputTokens")?)
                .saturating_add(cached),
            output_tokens: count("outputTokens")?,
            cached_input_tokens: cached,
            cost_micros: cost(&model["costUSD"]),
        })
    });
    let sum = sum(each.collect::<Option<Vec<_>>>()?.into_iter());
    // If any model's cost is missing, only the total cost can include it.
    let stated = models.values().all(|model| cost(&model["costUSD"]).is_some());
    let of_models = sum.cost_micros.filter(|_| stated);
    Some(Usage { cost_micros: of_models.max(whole), ..sum })
}

/// Returns whether the sum in a `result` event includes everything that is billed. The program
/// counts a message when the message ends, so the sum omits a message that the API aborted, even
/// though that message may be billed. A message that the API rejected is not billed. If the program
/// stopped on its own, no message was in progress.
fn is_whole(result: &Value) -> bool {
    let status = result["api_error_status"].as_u64();
    let turned_away =
        status.and_then(|status| u16::try_from(status).ok()).is_some_and(is_not_billed);
    match result["subtype"].as_str() {
        _ if turned_away => true,
        Some("success") => result["is_error"] == false || result["stop_reason"] == "refusal",
        Some(
            "error_max_turns" | "error_max_budget_usd" | "error_max_structured_output_retries",
        ) => status.is_none(),
        _ => false,
    }
}

fn sum(all: impl Iterator<Item = Usage>) -> Usage {
    all.fold(Usage::default(), |a, b| Usage {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        cached_input_tokens: a.cached_input_tokens.saturating_add(b.cached_input_tokens),
        cost_micros: match (a.cost_micros, b.cost_micros) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        },
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller checks the range"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::events::EventStream;

    const RECORDED: [(&str, &[u8]); 4] = [
        ("answer", include_bytes!("../../tests/recorded/claude/answer.jsonl")),
        ("limit", include_bytes!("../../tests/recorded/claude/limit.jsonl")),
        ("tool", include_bytes!("../../tests/recorded/claude/tool.jsonl")),
        ("structured", include_bytes!("../../tests/recorded/claude/structured.jsonl")),
    ];

    fn fold(pieces: &[&[u8]]) -> (EventStream<Transcript>, Vec<OwnedEvent>) {
        let (mut stream, mut events) = (EventStream::new(), Vec::new());
        for piece in pieces {
            stream.feed(piece, &mut |event| events.push(event));
        }
        stream.finish(&mut |event| events.push(event));
        (stream, events)
    }

    #[test]
    fn truncated_stream_loses_only_its_end() {
        let mut cases = 0;
        for (name, stream) in RECORDED {
            let (whole, all) = fold(&[stream]);
            assert_eq!(whole.unreadable, 0, "{name}");
            assert!(whole.events.result.is_some(), "{name}");
            // The result does not depend on where the stream is split into reads.
            for at in (0..=stream.len()).step_by(17) {
                let (parts, events) = fold(&[&stream[..at], &stream[at..]]);
                assert_eq!(
                    (parts.events.result, events),
                    (whole.events.result.clone(), all.clone()),
                    "{name} {at}"
                );
                cases += 1;
            }
            // A truncated stream yields a prefix of the complete stream's events.
            let end = stream.len() - 2;
            for at in (0..end).step_by(7) {
                let (half, events) = fold(&[&stream[..at]]);
                assert!(all.starts_with(&events), "{name} {at}");
                assert!(half.events.result.is_none() && half.unreadable <= 1, "{name} {at}");
                cases += 1;
            }
            // Lost bytes damage at most two lines, and reading continues.
            for at in (0..end.saturating_sub(90)).step_by(97) {
                let (torn, _) = fold(&[&stream[..at], b"\0\0}{\xc3", &stream[at + 90..]]);
                assert!(torn.unreadable <= 2, "{name} {at}: {}", torn.unreadable);
                cases += 1;
            }
        }
        assert!(cases > 2_000, "{cases}");
    }

    #[test]
    fn key_order_and_unknown_events_are_tolerated() {
        let stream = br#"
{"message":{"content":[{"text":"a","type":"text"}],"usage":{"output_tokens":2,"input_tokens":1},"id":"m"},"type":"assistant"}
{"message":{"content":[{"text":"b","type":"text"}],"usage":{"output_tokens":2,"input_tokens":1},"id":"m"},"type":"assistant"}
{"type":"from_the_future","x":[]}
{"type":7}
[1]
null
{}
{"type":"assistant"}
{"type":"user","message":{"content":"text"}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{"command":"make"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"tool_use_id":"t","content":"Exit code 2\nno rule"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":[{"type":"text","text":"denied"}]}]}}
{"type":"rate_limit_event"}
{"result":"ab","is_error":false,"subtype":"success","usage":{"input_tokens":1},"type":"result"}"#;
        let (transcript, events) = fold(&[stream]);
        // Arrays and nulls are not events.
        assert_eq!(transcript.unreadable, 2);
        let usage = |output| {
            OwnedEvent::Usage(Usage { input_tokens: 1, output_tokens: output, ..Usage::default() })
        };
        let expected = [
            OwnedEvent::Text("a".into()),
            usage(2),
            OwnedEvent::Text("b".into()),
            usage(2),
            OwnedEvent::ToolUse {
                id: "t".into(),
                name: "Bash".into(),
                target: Some(OwnedTarget::Command("make".into())),
            },
            OwnedEvent::ToolResult {
                id: "t".into(),
                failed: true,
                exit_code: Some(2),
                error: Some("Exit code 2\nno rule".into()),
            },
            OwnedEvent::ToolResult {
                id: String::new(),
                failed: true,
                exit_code: None,
                error: Some("denied".into()),
            },
            OwnedEvent::Limit(Limit { until: None, reached: false, overage: false, used: None }),
            OwnedEvent::Total(Usage { input_tokens: 1, ..Usage::default() }),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn aborted_results_have_incomplete_usage() {
        let cases = [
            (r#"{"subtype":"success","is_error":false}"#, true),
            (r#"{"subtype":"error_max_turns","is_error":true}"#, true),
            (r#"{"subtype":"error_max_budget_usd","is_error":true}"#, true),
            (r#"{"subtype":"success","is_error":true,"stop_reason":"refusal"}"#, true),
            // The API rejected this request.
            (r#"{"subtype":"success","is_error":true,"api_error_status":429}"#, true),
            (r#"{"subtype":"success","is_error":true,"api_error_status":529}"#, true),
            // The API aborted the request, so the sum may omit usage.
            (r#"{"subtype":"success","is_error":true,"api_error_status":500}"#, false),
            (r#"{"subtype":"success","is_error":true}"#, false),
            (r#"{"subtype":"error_during_execution","is_error":true}"#, false),
            ("{}", false),
        ];
        for (event, whole) in cases {
            let event: Value = serde_json::from_str(event).unwrap();
            assert_eq!(is_whole(&event), whole, "{event}");
        }
    }

    #[test]
    fn usage_and_cost_include_subagents() {
        let result = serde_json::json!({
            "usage": {"input_tokens": 1200, "output_tokens": 5},
            "total_cost_usd": 0.5,
            "modelUsage": {
                "a": {"inputTokens": 3000, "cacheReadInputTokens": 100, "outputTokens": 7, "costUSD": 0.1},
                "b": {"inputTokens": 1800, "cacheCreationInputTokens": 10, "outputTokens": 8, "costUSD": 0.2},
            },
        });
        let usage = total(&result).unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (4910, 15));
        assert_eq!((usage.cached_input_tokens, usage.cost_micros), (100, Some(500_000)));
        assert_eq!(total(&serde_json::json!({})), None);
        let bare = total(&serde_json::json!({"usage": {"input_tokens": 3}})).unwrap();
        assert_eq!((bare.input_tokens, bare.cost_micros), (3, None));
    }

    #[test]
    fn impossible_usage_is_unknown() {
        let good = serde_json::json!({"input_tokens": 3, "output_tokens": 5});
        for value in ["-1", "0.5", "1e300", "18446744073709551615", "10000000001", "\"7\"", "[]"] {
            let value: Value = serde_json::from_str(value).unwrap();
            for key in ["input_tokens", "output_tokens", "cache_read_input_tokens"] {
                let mut usage = good.clone();
                usage[key] = value.clone();
                assert_eq!(total(&serde_json::json!({ "usage": usage })), None, "{key} {value}");
            }
            let models = serde_json::json!({"a": {"inputTokens": 1, "outputTokens": value}});
            assert_eq!(total(&serde_json::json!({ "modelUsage": models })), None, "{value}");
        }
        for value in ["-1e300", "-0.01", "1e300", "\"free\"", "{}"] {
            let value: Value = serde_json::from_str(value).unwrap();
            let event = serde_json::json!({"usage": good, "total_cost_usd": value});
            assert_eq!(total(&event), None, "{value}");
        }
        assert_eq!(total(&serde_json::json!({"usage": {}, "total_cost_usd": 0.1})), None);
        assert_eq!(one(&serde_json::json!({})), None);
        assert_eq!(
            one(&serde_json::json!({"output_tokens": 0})).map(|it| it.output_tokens),
            Some(0)
        );
    }
}
