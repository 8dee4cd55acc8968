//! OpenAI's Chat Completions API, which many other servers also provide.
//!
//! The last message is `[DONE]`. Some servers omit it, so an answer is also complete when its stop
//! reason and its usage have arrived and the stream has ended.

use serde_json::{Value, json};

use super::dialect::{Belief, Reader, Structured, named_format, provider_error, text_of};
use super::gathered::{End, Fault, Gathered};
use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::request::Request;

pub(super) fn body(plan: &EndpointPlan, request: &Request) -> Value {
    // OpenAI rejects the older name for its newer models, and other servers accept only that name.
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
            true => Err(Fault::Broken("it uses a tool that was not offered".to_owned())),
            false => Ok(()),
        }
    }
}

/// Returns the cost in millionths of a dollar, rounded up, if the provider states it.
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

impl Reader for Chunks {
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
        let choice = first(reply).ok_or_else(|| Fault::Broken("it has no choices".to_owned()))?;
        self.content(&choice["message"], into)?;
        self.usage(&reply["usage"], into);
        into.end = end(&choice["finish_reason"]);
        into.over = true;
        Ok(())
    }
}
