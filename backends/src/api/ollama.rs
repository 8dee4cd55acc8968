//! Ollama's own API, which sends JSON lines.
//!
//! Ollama silently truncates a question that is too long for its context window. The request
//! therefore always sets the window: the configured one or, by default, the smallest of [`WINDOWS`]
//! that fits the question and an answer. A question that does not fit is rejected before it is
//! sent. A reply is rejected if its token counts show that the question was truncated. An error may
//! arrive as a line of a reply that started successfully.

use serde_json::{Value, json};

use super::dialect::{Belief, Reader, Structured, provider_error, text_of};
use super::gathered::{End, Fault, Gathered};
use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::error::BackendError;
use crate::request::Request;

/// Default context windows in tokens.
const WINDOWS: [u64; 4] = [4_096, 8_192, 16_384, 32_768];
/// Estimated number of tokens that the model's template adds to a question.
const TEMPLATE: u64 = 256;
/// Minimum number of tokens to leave for an answer.
const MIN_ANSWER: u64 = 1_024;

/// Estimates the number of tokens in the whole question. Text averages about four bytes per token.
/// The estimate assumes three, which leaves a margin for code and other languages.
fn estimate(request: &Request) -> u64 {
    let bytes = prompt::PLACE.len() + prompt::text(request).len();
    u64::try_from(bytes).unwrap_or(u64::MAX) / 3 + TEMPLATE
}

/// Returns the largest context window that a request can have, in tokens.
pub fn largest(plan: &EndpointPlan) -> u64 {
    plan.num_ctx.unwrap_or(WINDOWS[WINDOWS.len() - 1])
}

/// Returns the context window to request.
///
/// # Errors
/// Returns [`BackendError::Rejected`] if the request does not fit into the context window.
pub(super) fn window(plan: &EndpointPlan, request: &Request) -> Result<u64, BackendError> {
    let needed = estimate(request).saturating_add(MIN_ANSWER.min(plan.most_tokens(request)));
    let window = match plan.num_ctx {
        Some(window) => Some(window).filter(|window| needed <= *window),
        None => WINDOWS.into_iter().find(|window| needed <= *window),
    };
    window.ok_or_else(|| BackendError::Rejected {
        why: format!(
            "{}: the request needs about {needed} tokens, but Ollama would silently truncate it at {}; \
             set backends.{}.num_ctx to the largest value that the model and this machine support",
            plan.name,
            plan.num_ctx.unwrap_or(WINDOWS[3]),
            plan.name
        ),
    })
}

pub(super) fn body(plan: &EndpointPlan, request: &Request) -> Value {
    let window = window(plan, request).unwrap_or(WINDOWS[3]);
    let mut body = json!({
        "model": plan.model,
        "messages": [
            {"role": "system", "content": prompt::PLACE},
            {"role": "user", "content": prompt::text(request)},
        ],
        "stream": true,
        "options": {
            "num_ctx": window,
            "num_predict": plan.most_tokens(request).min(window),
        },
    });
    if let Some(temperature) = plan.temperature(request) {
        body["options"]["temperature"] = temperature;
    }
    if let Some(keep_alive) = &plan.keep_alive {
        body["keep_alive"] = keep_alive.clone().into();
    }
    if let (Some(schema), Structured::Schema) = (&request.schema, plan.structured) {
        body["format"] = schema.clone();
    }
    body
}

/// Reads the lines of one reply.
#[derive(Debug)]
pub(super) struct Lines {
    belief: Belief,
    window: u64,
    /// Whether the answer is free of charge.
    free: bool,
}

impl Lines {
    pub fn new(belief: Belief, plan: &EndpointPlan, request: &Request) -> Self {
        Self {
            belief,
            window: window(plan, request).unwrap_or(WINDOWS[3]),
            free: plan.is_loopback && !plan.model.ends_with("cloud"),
        }
    }
}

impl Reader for Lines {
    fn event(&mut self, _: &str, data: &Value, into: &mut Gathered) -> Result<(), Fault> {
        if let Some(fault) = provider_error(data) {
            return Err(fault);
        }
        let message = &data["message"];
        if let Some(text) = text_of(&message["content"], "the content")? {
            into.push_text(text)?;
        }
        if message["tool_calls"].as_array().is_some_and(|it| !it.is_empty()) {
            return Err(Fault::Broken("the model requested an unavailable tool".to_owned()));
        }
        if data["done"] != true {
            return Ok(());
        }
        into.over = true;
        let read = into.figure(&data["prompt_eval_count"], self.belief.input);
        let written = into.figure(&data["eval_count"], self.belief.output);
        if let (Some(read), Some(written)) = (read, written) {
            // Older servers omit cached tokens from the count, and some report 0.
            if read > 0 || written > 0 {
                into.spent.input = Some(read);
                into.spent.output = Some(written);
                into.spent.micros = self.free.then_some(0);
            }
            let length = data["done_reason"] == "length";
            if read >= self.window || (!length && read.saturating_add(written) > self.window) {
                return Err(Fault::Broken(format!(
                    "the question was truncated to the context window of {} tokens, so the model did not see the complete question; \
                     increase num_ctx",
                    self.window
                )));
            }
        }
        into.end = match data["done_reason"].as_str() {
            Some("stop") | None => Some(End::Done),
            Some("length") => Some(End::Length),
            Some(other) => Some(End::Other(other.to_owned())),
        };
        Ok(())
    }

    fn whole(&mut self, reply: &Value, into: &mut Gathered) -> Result<(), Fault> {
        if reply["done"] != true || !reply["message"].is_object() {
            return Err(Fault::Broken("the reply has no complete message".to_owned()));
        }
        self.event("", reply, into)
    }
}
