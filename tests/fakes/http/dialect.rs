//! The four dialects of a well-behaved provider, in pieces that a behaviour can modify.

use serde_json::{Value, json};

/// The dialect of a provider's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Chat Completions API.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// Ollama's API.
    Ollama,
}

pub const ALL: [Dialect; 4] =
    [Dialect::Messages, Dialect::Chat, Dialect::Responses, Dialect::Ollama];

/// The reason a reply stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The reply is complete.
    Done,
    /// The reply reached its length limit.
    Length,
    /// The model refuses to answer.
    Refusal,
    /// The model wants to use a tool.
    Tool,
}

/// The reported tokens, if any: input, cached input and output.
pub type Cost = Option<(i64, i64, i64)>;

/// The tokens that a good reply reports.
pub const COST: Cost = Some((120, 20, 30));

impl Dialect {
    /// Returns the dialect of a request path.
    pub fn of(path: &str) -> Self {
        match path {
            path if path.contains("/messages") => Self::Messages,
            path if path.contains("/chat/completions") => Self::Chat,
            path if path.contains("/responses") => Self::Responses,
            _ => Self::Ollama,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Ollama => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }

    pub fn is_sse(self) -> bool {
        self != Self::Ollama
    }

    /// Returns an event in its wire format.
    pub fn frame(self, value: &Value) -> String {
        let name = value["type"].as_str().filter(|_| self != Self::Chat);
        match (self, name) {
            (Self::Ollama, _) => format!("{value}\n"),
            (_, Some(name)) => format!("event: {name}\ndata: {value}\n\n"),
            (_, None) => format!("data: {value}\n\n"),
        }
    }

    /// Returns the events before the text.
    pub fn begin(self, cost: Cost) -> String {
        let event = match self {
            Self::Messages => {
                let mut usage = json!({"output_tokens": 1});
                if let Some((read, cached, _)) = cost {
                    usage["input_tokens"] = (read - cached).into();
                    usage["cache_read_input_tokens"] = cached.into();
                    usage["cache_creation_input_tokens"] = 0.into();
                }
                let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                    "content": [], "stop_reason": null, "usage": usage});
                let start = self.frame(&json!({"type": "message_start", "message": message}));
                let block = json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}});
                return start + &self.frame(&block);
            }
            Self::Chat => json!({"id": "c", "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}),
            Self::Responses => json!({"type": "response.created", "sequence_number": 0,
                "response": {"id": "r", "status": "in_progress", "output": [], "usage": null, "error": null}}),
            Self::Ollama => return String::new(),
        };
        self.frame(&event)
    }

    pub fn piece(self, text: &str) -> String {
        self.frame(&match self {
            Self::Messages => json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}),
            Self::Chat => json!({"id": "c", "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}),
            Self::Responses => json!({"type": "response.output_text.delta", "output_index": 0, "delta": text}),
            Self::Ollama => json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
        })
    }

    /// Returns an event with a piece of a thought, which is not part of the answer.
    pub fn thought(self, text: &str) -> String {
        self.frame(&match self {
            Self::Messages => json!({"type": "content_block_delta", "index": 9,
                "delta": {"type": "thinking_delta", "thinking": text}}),
            Self::Chat => json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]}),
            Self::Responses => json!({"type": "response.reasoning_text.delta", "delta": text}),
            Self::Ollama => json!({"message": {"role": "assistant", "content": "", "thinking": text}, "done": false}),
        })
    }

    /// Returns the final events; `text` is the complete text of the reply.
    pub fn finish(self, text: &str, why: Why, cost: Cost) -> String {
        match self {
            Self::Messages => {
                let reason = match why {
                    Why::Done => "end_turn",
                    Why::Length => "max_tokens",
                    Why::Refusal => "refusal",
                    Why::Tool => "tool_use",
                };
                let mut delta = json!({"type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": null}});
                if let Some((_, _, written)) = cost {
                    delta["usage"] = json!({"output_tokens": written});
                }
                self.frame(&json!({"type": "content_block_stop", "index": 0}))
                    + &self.frame(&delta)
                    + &self.frame(&json!({"type": "message_stop"}))
            }
            Self::Chat => {
                let reason = match why {
                    Why::Done => "stop",
                    Why::Length => "length",
                    Why::Refusal => "content_filter",
                    Why::Tool => "tool_calls",
                };
                let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
                self.frame(&stop) + &self.cost(cost) + "data: [DONE]\n\n"
            }
            Self::Responses => {
                let response = response(text, why, cost);
                let kind = match why {
                    Why::Length => "response.incomplete",
                    _ => "response.completed",
                };
                self.frame(&json!({"type": kind, "response": response}))
            }
            Self::Ollama => self.frame(&last_line("", why, cost)),
        }
    }

    /// Returns the separate event that reports the tokens in the chat dialect, if there are any.
    pub fn cost(self, cost: Cost) -> String {
        match cost {
            Some(_) => self.frame(&json!({"choices": [], "usage": chat_usage(cost)})),
            None => String::new(),
        }
    }

    pub fn events(self, pieces: &[&str], why: Why, cost: Cost) -> Vec<String> {
        let mut events = vec![self.begin(cost)];
        events.extend(pieces.iter().map(|piece| self.piece(piece)));
        events.push(self.finish(&pieces.concat(), why, cost));
        events
    }

    /// Returns a reply that is not streamed.
    pub fn whole(self, text: &str, cost: Cost) -> String {
        match self {
            Self::Messages => {
                let (read, cached, written) = cost.unwrap_or_default();
                json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                    "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                    "usage": {"input_tokens": read - cached, "cache_read_input_tokens": cached,
                        "output_tokens": written}})
            }
            Self::Chat => json!({"id": "c", "object": "chat.completion", "choices": [{"index": 0,
                "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": chat_usage(cost)}),
            Self::Responses => response(text, Why::Done, cost),
            Self::Ollama => last_line(text, Why::Done, cost),
        }
        .to_string()
    }

    /// Returns an event that reports a provider's error.
    pub fn error(self, kind: &str, words: &str) -> String {
        self.frame(&match self {
            Self::Messages => json!({"type": "error", "error": {"type": kind, "message": words}}),
            Self::Chat => json!({"error": {"type": kind, "message": words}}),
            Self::Responses => json!({"type": "response.failed",
                "response": {"status": "failed", "error": {"code": kind, "message": words}}}),
            Self::Ollama => json!({"error": words}),
        })
    }

    /// Returns the body of an error response.
    pub fn refusal(self, kind: &str, words: &str) -> String {
        match self {
            Self::Messages => json!({"type": "error", "error": {"type": kind, "message": words}}),
            Self::Ollama => json!({"error": words}),
            _ => json!({"error": {"type": kind, "code": kind, "message": words, "param": null}}),
        }
        .to_string()
    }

    pub fn models(self, names: &[&str]) -> String {
        match self {
            Self::Ollama => {
                let models: Vec<Value> = names
                    .iter()
                    .map(|name| {
                        json!({"name": name, "model": name, "modified_at": "2026-01-01T00:00:00Z",
                        "size": 1, "digest": "d", "details": {}})
                    })
                    .collect();
                json!({"models": models}).to_string()
            }
            _ => {
                let models: Vec<Value> = names
                    .iter()
                    .map(|name| json!({"id": name, "object": "model", "type": "model"}))
                    .collect();
                json!({"object": "list", "data": models, "has_more": false}).to_string()
            }
        }
    }
}

fn chat_usage(cost: Cost) -> Value {
    match cost {
        Some((read, cached, written)) => {
            json!({"prompt_tokens": read, "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": cached}})
        }
        None => Value::Null,
    }
}

fn response(text: &str, why: Why, cost: Cost) -> Value {
    let part = match why {
        Why::Refusal => json!({"type": "refusal", "refusal": "I will not."}),
        _ => json!({"type": "output_text", "text": text, "annotations": []}),
    };
    let item = match why {
        Why::Tool => json!({"type": "function_call", "name": "shell", "arguments": "{}"}),
        _ => json!({"type": "message", "role": "assistant", "content": [part]}),
    };
    let mut response = json!({"id": "r", "object": "response", "error": null, "output": [item],
        "status": if why == Why::Length { "incomplete" } else { "completed" }});
    if why == Why::Length {
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    if let Some((read, cached, written)) = cost {
        response["usage"] = json!({"input_tokens": read, "output_tokens": written,
            "input_tokens_details": {"cached_tokens": cached}});
    }
    response
}

fn last_line(text: &str, why: Why, cost: Cost) -> Value {
    let reason = if why == Why::Length { "length" } else { "stop" };
    let mut message = json!({"role": "assistant", "content": text});
    if why == Why::Tool {
        message["tool_calls"] = json!([{"function": {"name": "shell", "arguments": {}}}]);
    }
    let mut line = json!({"model": "m", "message": message, "done": true, "done_reason": reason});
    if let Some((read, _, written)) = cost {
        line["prompt_eval_count"] = read.into();
        line["eval_count"] = written.into();
    }
    line
}
