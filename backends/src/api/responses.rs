//! OpenAI's Responses API: typed events, and a final response that repeats the complete content.
//!
//! The answer consists of the streamed pieces, and any text in the final response must equal it.
//! If there are no pieces, the final response is the answer. The provider is asked to store nothing
//! (`store` is false).

use serde_json::{Value, json};

use super::dialect::{Belief, Reader, Structured, named_format, provider_error, text_of};
use super::gathered::{End, Fault, Gathered};
use super::plan::EndpointPlan;
use crate::agent::prompt;
use crate::request::Request;

pub(super) fn body(plan: &EndpointPlan, request: &Request) -> Value {
    let mut body = json!({
        "model": plan.model,
        "instructions": prompt::PLACE,
        "input": prompt::text(request),
        "max_output_tokens": plan.most_tokens(request),
        "store": false,
        "stream": true,
    });
    if let (Some(schema), Structured::Schema) = (&request.schema, plan.structured) {
        let mut format = named_format(schema);
        format.insert("type".to_owned(), "json_schema".into());
        body["text"] = json!({"format": format});
    }
    if let Some(temperature) = plan.temperature(request) {
        body["temperature"] = temperature;
    }
    body
}

/// Reads the events of one response.
#[derive(Debug)]
pub(super) struct Events {
    belief: Belief,
}

impl Events {
    pub fn new(belief: Belief) -> Self {
        Self { belief }
    }

    fn finish(&self, response: &Value, into: &mut Gathered) -> Result<(), Fault> {
        let mut text = String::new();
        for item in response["output"].as_array().into_iter().flatten() {
            match item["type"].as_str() {
                Some("message") => {
                    for part in item["content"].as_array().into_iter().flatten() {
                        match part["type"].as_str() {
                            Some("output_text") => {
                                text.push_str(
                                    text_of(&part["text"], "a part")?.unwrap_or_default(),
                                );
                            }
                            Some("refusal") if into.refusal.is_empty() => {
                                let refusal = text_of(&part["refusal"], "the refusal")?;
                                into.refusal.push_str(refusal.unwrap_or_default());
                            }
                            _ => {}
                        }
                    }
                }
                Some("function_call" | "custom_tool_call") => {
                    return Err(Fault::Broken(
                        "the model requested an unavailable tool".to_owned(),
                    ));
                }
                _ => {}
            }
        }
        if into.text.is_empty() {
            into.push_text(&text)?;
        } else if !text.is_empty() && text != into.text {
            let why = "the streamed parts of the answer differ from the complete answer";
            return Err(Fault::Broken(why.to_owned()));
        }
        let usage = &response["usage"];
        let input = into.figure(&usage["input_tokens"], self.belief.input);
        let output = into.figure(&usage["output_tokens"], self.belief.output);
        let cached = &usage["input_tokens_details"]["cached_tokens"];
        let cached = into.figure(cached, self.belief.input);
        if let (Some(input), Some(output)) = (input, output) {
            into.spent.input = Some(input);
            into.spent.output = Some(output);
            into.spent.cached = cached.unwrap_or(0);
        }
        into.end = Some(match response["status"].as_str() {
            Some("completed") if !into.refusal.is_empty() => End::Refusal,
            Some("completed") => End::Done,
            Some("incomplete") => match response["incomplete_details"]["reason"].as_str() {
                Some("max_output_tokens") => End::Length,
                Some("content_filter") => End::Refusal,
                other => End::Other(other.unwrap_or("incomplete").to_owned()),
            },
            other => End::Other(other.unwrap_or("no status").to_owned()),
        });
        into.over = true;
        Ok(())
    }
}

impl Reader for Events {
    fn event(&mut self, name: &str, data: &Value, into: &mut Gathered) -> Result<(), Fault> {
        match data["type"].as_str().unwrap_or(name) {
            "response.output_text.delta" => {
                let piece = text_of(&data["delta"], "a piece of text")?;
                into.push_text(piece.unwrap_or_default())
            }
            "response.refusal.delta" => {
                let piece = text_of(&data["delta"], "a piece of a refusal")?;
                into.refusal.push_str(piece.unwrap_or_default());
                Ok(())
            }
            "response.completed" | "response.incomplete" => self.finish(&data["response"], into),
            "response.failed" => Err(provider_error(&data["response"]).unwrap_or_else(|| {
                Fault::Broken("the response failed without a reason".to_owned())
            })),
            "error" => Err(provider_error(data).unwrap_or_else(|| {
                let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
                Fault::Said { status: None, code: text("code"), text: text("message") }
            })),
            _ => provider_error(data).map_or(Ok(()), Err),
        }
    }

    fn whole(&mut self, reply: &Value, into: &mut Gathered) -> Result<(), Fault> {
        match reply["status"].as_str() {
            None => Err(Fault::Broken("the response has no status".to_owned())),
            Some(_) => self.finish(reply, into),
        }
    }
}
