//! OpenAI's Chat Completions API, which many other servers also provide.
//!
//! The last message is `[DONE]`. Some servers omit it, so an answer is also complete when its stop
//! reason and its usage have arrived and the stream has ended.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::dialect::{Belief, Reader, Structured, named_format, provider_error, text_of};
use super::gathered::{End, Fault, Gathered};
use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::request::Request;

pub(super) fn body(plan: &EndpointPlan, request: &Request) -> Value {
    // OpenAI rejects the older name for its newer models, and other servers accept only the older
    // name.
    let most = if plan.is_first_hand { "max_completion_tokens" } else { "max_tokens" };
    let mut body = json!({
        "model": plan.model,
        "messages": [
            {"role": "system", "content": prompt::PLACE},
            {"role": "user", "content": prompt::text(request)},
        ],
        most: plan.most_tokens(request),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if let (Some(schema), Structured::Schema) = (&request.schema, plan.structured) {
        let format = named_format(schema);
        body["response_format"] = json!({"type": "json_schema", "json_schema": format});
    }
    if let Some(temperature) = plan.temperature(request) {
        body["temperature"] = temperature;
    }
    body
}

/// Reads the chunks of one completion.
#[derive(Debug)]
pub(super) struct Chunks {
    belief: Belief,
}

impl Chunks {
    pub fn new(belief: Belief) -> Self {
        Self { belief }
    }

    fn usage(&self, usage: &Value, into: &mut Gathered) {
        if !usage.is_object() {
            return;
        }
        let input = into.figure(&usage["prompt_tokens"], self.belief.input);
        let output = into.figure(&usage["completion_tokens"], self.belief.output);
        let cached = &usage["prompt_tokens_details"]["cached_tokens"];
        let cached = into.figure(cached, self.belief.input);
        if let (Some(input), Some(output)) = (input, output) {
            into.spent.input = Some(input);
            into.spent.output = Some(output);
            into.spent.cached = cached.unwrap_or(0);
            into.spent.micros = micros(&usage["cost"]);
        }
    }

    /// Reads the content of a choice, which may be a piece of the text or all of it.
    fn content(&self, message: &Value, into: &mut Gathered) -> Result<(), Fault> {
        if let Some(text) = text_of(&message["content"], "the content")? {
            into.push_text(text)?;
        }
        if let Some(text) = text_of(&message["refusal"], "the refusal")? {
            into.refusal.push_str(text);
        }
        let wants = |key: &str| match &message[key] {
            Value::Array(calls) => !calls.is_empty(),
            other => other.is_object(),
        };
        match wants("tool_calls") || wants("function_call") {
            true => Err(Fault::Broken("the model requested an unavailable tool".to_owned())),
            false => Ok(()),
        }
    }
}

/// Returns the cost in millionths of a dollar, rounded up, if the provider reports it.
fn micros(cost: &Value) -> Option<u64> {
    let dollars = cost.as_f64().filter(|it| (0.0..1e6).contains(it))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and a million"
    )]
    Some((dollars * 1e6).ceil() as u64)
}

fn end(reason: &Value) -> Option<End> {
    Some(match reason.as_str()? {
        "stop" | "eos" | "end_turn" => End::Done,
        "length" => End::Length,
        "content_filter" => End::Refusal,
        "tool_calls" | "function_call" => End::Tool,
        other => End::Other(other.to_owned()),
    })
}

/// Returns the choice with index 0, if there is one.
fn first(data: &Value) -> Option<&Value> {
    let choices = data["choices"].as_array()?;
    choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0)
}

/// A chunk that contains nothing but a piece of text. A field that is missing or `null` is `None`.
#[derive(Deserialize)]
struct PieceChunk<'d> {
    #[serde(borrow)]
    choices: [PieceChoice<'d>; 1],
    error: Option<IgnoredAny>,
    usage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PieceChoice<'d> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: PieceDelta<'d>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PieceDelta<'d> {
    #[serde(borrow)]
    content: Cow<'d, str>,
    refusal: Option<IgnoredAny>,
    tool_calls: Option<IgnoredAny>,
    function_call: Option<IgnoredAny>,
}

impl Reader for Chunks {
    fn piece<'d>(&self, data: &'d str) -> Option<Cow<'d, str>> {
        let chunk: PieceChunk<'d> = serde_json::from_str(data).ok()?;
        let [PieceChoice { index, delta, finish_reason }] = chunk.choices;
        let further = [
            chunk.error,
            chunk.usage,
            finish_reason,
            delta.refusal,
            delta.tool_calls,
            delta.function_call,
        ];
        let alone = index.unwrap_or(0) == 0 && further.iter().all(Option::is_none);
        alone.then_some(delta.content)
    }

    fn event(&mut self, _: &str, data: &Value, into: &mut Gathered) -> Result<(), Fault> {
        if let Some(fault) = provider_error(data) {
            return Err(fault);
        }
        if let Some(choice) = first(data) {
            self.content(&choice["delta"], into)?;
            if let Some(end) = end(&choice["finish_reason"]) {
                into.end = Some(end);
            }
        }
        self.usage(&data["usage"], into);
        Ok(())
    }

    fn whole(&mut self, reply: &Value, into: &mut Gathered) -> Result<(), Fault> {
        let choice =
            first(reply).ok_or_else(|| Fault::Broken("the reply has no choices".to_owned()))?;
        self.content(&choice["message"], into)?;
        self.usage(&reply["usage"], into);
        into.end = end(&choice["finish_reason"]);
        into.over = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_piece_is_read_without_a_copy() {
        let chunks = Chunks::new(Belief { input: 9, output: 9 });
        let chunk = |choice: &str, rest: &str| format!("{{\"id\":7,\"choices\":[{choice}]{rest}}}");
        let delta = r#"{"index":0,"delta":{"content":"a\n"},"finish_reason":null}"#;
        for (text, piece) in [
            (chunk(r#"{"delta":{"content":"a b"}}"#, ""), Some("a b")),
            (chunk(delta, r#","usage":null"#), Some("a\n")),
            (chunk(delta, r#","usage":{"prompt_tokens":1}"#), None),
            (chunk(delta, r#","error":"overloaded""#), None),
            (chunk(r#"{"index":1,"delta":{"content":"a"}}"#, ""), None),
            (chunk(&format!("{delta},{delta}"), ""), None),
            (chunk(r#"{"delta":{"content":"a"},"finish_reason":"stop"}"#, ""), None),
            (chunk(r#"{"delta":{"content":"a","refusal":"no"}}"#, ""), None),
            (chunk(r#"{"delta":{"content":"a","tool_calls":[{}]}}"#, ""), None),
            (chunk(r#"{"delta":{"content":null}}"#, ""), None),
            (chunk(r#"{"delta":{"content":7}}"#, ""), None),
            (chunk(delta, "").replace("}]", "}"), None),
        ] {
            assert_eq!(chunks.piece(&text).as_deref(), piece, "{text}");
            // The general code path reads the same text.
            let value: Option<Value> = serde_json::from_str(&text).ok();
            let mut into = Gathered::new(100);
            if let (Some(value), Some(piece)) = (value, piece) {
                Reader::event(&mut Chunks::new(chunks.belief), "", &value, &mut into).unwrap();
                assert_eq!((into.text.as_str(), into.end), (piece, None));
            }
        }
    }
}
