//! Anthropic's Messages API, which sends the blocks of a message as named events.
//!
//! An answer with a schema arrives as the input of a single tool named `answer`, which does
//! nothing. A tool is used because every model and every server that speaks this dialect supports
//! tools. `structured = "schema"` requests the newer `output_config` instead.

use serde_json::{Value, json};

use super::dialect::{Belief, Reader, Structured, portable, provider_error, text_of};
use super::gathered::{End, Fault, Gathered};
use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::request::Request;

/// Name of the tool whose input is the answer.
const ANSWER: &str = "answer";

pub(super) fn body(plan: &EndpointPlan, request: &Request) -> Value {
    let mut body = json!({
        "model": plan.model,
        "max_tokens": plan.most_tokens(request),
        "system": prompt::PLACE,
        "messages": [{"role": "user", "content": prompt::text(request)}],
        "stream": true,
    });
    if let Some(temperature) = plan.temperature(request) {
        body["temperature"] = temperature;
    }
    if let Some(schema) = &request.schema {
        let rooted = prompt::rooted(schema);
        match plan.structured {
            Structured::Tool => {
                body["tools"] = json!([{
                    "name": ANSWER,
                    "description": "Takes the answer.",
                    "input_schema": rooted,
                }]);
                body["tool_choice"] =
                    json!({"type": "tool", "name": ANSWER, "disable_parallel_tool_use": true});
            }
            Structured::Schema => {
                let format = json!({"type": "json_schema", "schema": portable(&rooted)});
                body["output_config"] = json!({"format": format});
            }
            Structured::Prompt => {}
        }
    }
    body
}

/// Reads the blocks of one message.
#[derive(Debug)]
pub(super) struct Messages {
    belief: Belief,
    /// The index of the block that contains the answer, and the block's initial input.
    tool: Option<(u64, Value)>,
    /// Input tokens by category: uncached, written to a cache, read from a cache.
    read: [u64; 3],
}

impl Messages {
    pub fn new(belief: Belief) -> Self {
        Self { belief, tool: None, read: [0; 3] }
    }

    /// Records the usage in an event. A later count replaces an earlier one.
    fn usage(&mut self, usage: &Value, last: bool, into: &mut Gathered) {
        let keys = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        let mut found = usage["input_tokens"].is_number() && !last;
        for (at, key) in keys.into_iter().enumerate() {
            // The last event of a stream may omit counts that the first event reported, or
            // report them as 0.
            if let Some(figure) = into.figure(&usage[key], self.belief.input)
                && (figure > 0 || !last)
            {
                self.read[at] = figure;
                found = true;
            }
        }
        if found {
            let sum = self.read.iter().fold(0_u64, |sum, it| sum.saturating_add(*it));
            into.spent.input = Some(sum);
            into.spent.cached = self.read[2];
        }
        if last && let Some(output) = into.figure(&usage["output_tokens"], self.belief.output) {
            into.spent.output = Some(output);
        }
    }

    fn begin(&mut self, at: u64, block: &Value, into: &mut Gathered) -> Result<(), Fault> {
        match block["type"].as_str() {
            Some("text") => {
                into.push_text(text_of(&block["text"], "a block's text")?.unwrap_or_default())
            }
            Some("tool_use") if block["name"] == ANSWER => {
                if self.tool.is_some() {
                    return Err(Fault::Broken("the model answered twice".to_owned()));
                }
                self.tool = Some((at, block["input"].clone()));
                into.give("")
            }
            Some("tool_use") => {
                Err(Fault::Broken("the model requested an unavailable tool".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Records a tool input that arrived complete at the start of its block instead of in pieces.
    fn close(&mut self, into: &mut Gathered) -> Result<(), Fault> {
        match (&self.tool, into.given.as_deref()) {
            (Some((_, input)), Some("")) if !input.is_null() => into.give(&input.to_string()),
            _ => Ok(()),
        }
    }
}

fn end(reason: &Value) -> Option<End> {
    Some(match reason.as_str()? {
        "end_turn" | "stop_sequence" => End::Done,
        "tool_use" => End::Tool,
        "max_tokens" => End::Length,
        "model_context_window_exceeded" => End::Context,
        "refusal" => End::Refusal,
        other => End::Other(other.to_owned()),
    })
}

impl Reader for Messages {
    fn event(&mut self, name: &str, data: &Value, into: &mut Gathered) -> Result<(), Fault> {
        let at = data["index"].as_u64().unwrap_or(0);
        match data["type"].as_str().unwrap_or(name) {
            "message_start" => self.usage(&data["message"]["usage"], false, into),
            "content_block_start" => self.begin(at, &data["content_block"], into)?,
            "content_block_delta" => {
                let delta = &data["delta"];
                match delta["type"].as_str() {
                    Some("text_delta") => {
                        let text = text_of(&delta["text"], "a piece of text")?;
                        into.push_text(text.unwrap_or_default())?;
                    }
                    Some("input_json_delta") if matches!(self.tool, Some((tool, _)) if tool == at) =>
                    {
                        let json = text_of(&delta["partial_json"], "a piece of an input")?;
                        into.give(json.unwrap_or_default())?;
                    }
                    // Thinking blocks and their signatures are ignored.
                    _ => {}
                }
            }
            "message_delta" => {
                self.usage(&data["usage"], true, into);
                if let Some(end) = end(&data["delta"]["stop_reason"]) {
                    into.end = Some(end);
                }
            }
            "message_stop" => {
                self.close(into)?;
                into.over = true;
            }
            "error" => {
                return Err(provider_error(data)
                    .unwrap_or(Fault::Broken("an error without a message".into())));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, reply: &Value, into: &mut Gathered) -> Result<(), Fault> {
        let blocks = reply["content"]
            .as_array()
            .ok_or_else(|| Fault::Broken("the reply has no content".to_owned()))?;
        for (at, block) in blocks.iter().enumerate() {
            self.begin(at as u64, block, into)?;
        }
        self.close(into)?;
        self.usage(&reply["usage"], false, into);
        self.usage(&reply["usage"], true, into);
        into.end = end(&reply["stop_reason"]);
        into.over = true;
        Ok(())
    }
}
