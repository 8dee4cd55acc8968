//! The differences between providers: the path and the body of a question, and the events of a
//! reply.
//!
//! A dialect creates request bodies and reads events, but opens no connection and has no deadlines.
//! An event of an unknown kind is skipped. An event whose text has the wrong type is an error,
//! because text must never be lost silently.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::gathered::{Fault, Gathered};
use super::plan::EndpointPlan;
pub(crate) use super::shape::Dialect;
use super::{anthropic, chat, ollama, responses};
use crate::agent::prompt;
use crate::request::Request;
pub(crate) use crate::spec::Structured;

/// Interprets one reply.
pub(crate) trait Reader: Send {
    /// Processes one event. `name` is empty if the event has none.
    fn event(&mut self, name: &str, data: &Value, into: &mut Gathered) -> Result<(), Fault>;

    /// Returns the text of an event that contains only a piece of text, and `None` for any other
    /// event, which [`Reader::event`] then processes. [`Reader::event`] would also read a piece of
    /// text correctly, but would copy it first.
    fn piece<'d>(&self, _data: &'d str) -> Option<Cow<'d, str>> {
        None
    }

    /// Processes a reply that arrived as a single JSON document.
    fn whole(&mut self, reply: &Value, into: &mut Gathered) -> Result<(), Fault>;
}

impl Dialect {
    /// Returns the path for questions, relative to the base address.
    pub fn path(self) -> &'static str {
        match self {
            Self::Messages => "v1/messages",
            Self::Chat => "chat/completions",
            Self::Responses => "responses",
            Self::Ollama => "api/chat",
        }
    }

    /// Returns the path of the model list.
    pub fn models(self) -> &'static str {
        match self {
            Self::Messages => "v1/models?limit=1000",
            Self::Chat | Self::Responses => "models",
            Self::Ollama => "api/tags",
        }
    }

    pub fn body(self, plan: &EndpointPlan, request: &Request) -> Value {
        match self {
            Self::Messages => anthropic::body(plan, request),
            Self::Chat => chat::body(plan, request),
            Self::Responses => responses::body(plan, request),
            Self::Ollama => ollama::body(plan, request),
        }
    }

    /// Returns a reader for the reply to a request body of `asked` bytes.
    pub fn reader(self, plan: &EndpointPlan, request: &Request, asked: usize) -> Box<dyn Reader> {
        let belief = Belief::of(plan, request, asked);
        match self {
            Self::Messages => Box::new(anthropic::Messages::new(belief)),
            Self::Chat => Box::new(chat::Chunks::new(belief)),
            Self::Responses => Box::new(responses::Events::new(belief)),
            Self::Ollama => Box::new(ollama::Lines::new(belief, plan, request)),
        }
    }
}

/// Limits for plausible usage. Text has at most one token per byte, apart from the tokens that a
/// provider adds, and an answer does not greatly exceed its token limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub input: u64,
    pub output: u64,
}

impl Belief {
    fn of(plan: &EndpointPlan, request: &Request, asked: usize) -> Self {
        const ADDED: u64 = 64 * 1024;
        Self {
            input: u64::try_from(asked).unwrap_or(u64::MAX).saturating_add(ADDED),
            output: plan.most_tokens(request).saturating_mul(2).saturating_add(ADDED),
        }
    }
}

/// Returns the error that the provider reports in `value`, if any.
pub(crate) fn provider_error(value: &Value) -> Option<Fault> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let (mut code, sentence) = match error {
        Value::String(sentence) => (String::new(), sentence.clone()),
        error => {
            let code = [&error["type"], &error["code"]];
            let words: Vec<String> =
                code.into_iter().map(text).filter(|it| !it.is_empty()).collect();
            (words.join(" "), text(&error["message"]))
        }
    };
    if code.is_empty() {
        code = text(&value["code"]);
    }
    let status = [&error["status"], &error["code"], &value["status"]]
        .into_iter()
        .find_map(Value::as_u64)
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (400..600).contains(status));
    Some(Fault::Said { status, code, text: sentence })
}

/// Returns the text in `value`, or `None` if `value` is null. Any other type is an error.
pub(crate) fn text_of<'v>(value: &'v Value, what: &str) -> Result<Option<&'v str>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => Err(Fault::Broken(format!("{what} is not text but {}", kind(other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns the schema as a named format, for providers that expect it in that form. The format is
/// strict if the schema is closed, because providers can enforce only closed schemas.
pub(crate) fn named_format(schema: &Value) -> serde_json::Map<String, Value> {
    let rooted = prompt::rooted(schema);
    let strict = prompt::is_closed(&rooted);
    let schema = if strict { portable(&rooted) } else { rooted };
    let format = json!({"name": "answer", "schema": schema, "strict": strict});
    match format {
        Value::Object(format) => format,
        _ => serde_json::Map::new(),
    }
}

/// Removes string length limits, which strict formats reject. The job checks these limits itself.
pub(crate) fn portable(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let kept = map
                .iter()
                .filter(|(key, value)| {
                    !(matches!(key.as_str(), "minLength" | "maxLength") && value.is_u64())
                })
                .map(|(key, value)| (key.clone(), portable(value)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(portable).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_error_shapes_are_recognized() {
        let of = |value: Value| match provider_error(&value) {
            Some(Fault::Said { status, code, text }) => Some((status, code, text)),
            _ => None,
        };
        let said =
            |status, code: &str, text: &str| Some((status, code.to_owned(), text.to_owned()));
        for (value, expected) in [
            (json!({"error": "model not found"}), said(None, "", "model not found")),
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
                said(None, "overloaded_error", "Overloaded"),
            ),
            (
                json!({"error": {"code": 429, "message": "slow down", "metadata": {}}}),
                said(Some(429), "429", "slow down"),
            ),
            (
                json!({"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "x"}}),
                said(None, "insufficient_quota insufficient_quota", "x"),
            ),
            (json!({"error": null, "choices": []}), None),
            (json!({"choices": []}), None),
        ] {
            assert_eq!(of(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn closed_schema_is_strict_without_lengths() {
        let closed = json!({"type": "array", "items": {"type": "object", "properties": {
            "a": {"type": "string", "minLength": 1, "pattern": "^x$"}, "minLength": {"type": "string"}},
            "required": ["a", "minLength"], "additionalProperties": false}});
        let format = Value::Object(named_format(&closed));
        assert_eq!(format["strict"], true);
        let items = &format["schema"]["properties"]["answer"]["items"];
        assert_eq!(items["properties"]["a"], json!({"type": "string", "pattern": "^x$"}));
        assert!(items["properties"]["minLength"].is_object());
        let open = Value::Object(named_format(&json!({"type": "object", "minLength": 3})));
        assert_eq!((&open["strict"], &open["schema"]["minLength"]), (&json!(false), &json!(3)));
    }
}
