//! Requests and replies, which are the same for every provider.
//!
//! A request contains its evidence as fenced text. A reply may only choose among the offered items
//! and add text. A request must never have a field for tools.

use std::path::PathBuf;
use std::time::Duration;

use runner_text::redact::Redacted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One question to one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The run's id, `/` and the request number, such as `01J…/1`. Every process started for the
    /// request is marked with this id, so that the processes of a dead run can be found.
    pub id: String,
    /// The kind of job making the request, such as `dream`.
    pub purpose: String,
    /// The task, without any text from a source.
    pub instructions: Redacted,
    /// The evidence, as untrusted text.
    pub sources: Vec<Source>,
    /// The rule-based answer, which needs no model.
    pub rule_answer: Value,
    /// The permitted choices: ids, targets, enums. The job rejects any other choice.
    pub offer: Value,
    /// The JSON schema of the answer. If there is a schema, the reply's `value` is always present,
    /// unless `form` is [`AnswerForm::Elements`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The form of text that is accepted as an answer.
    #[serde(default, skip_serializing_if = "AnswerForm::is_document")]
    pub form: AnswerForm,
    pub limits: RequestLimits,
    /// A private, existing folder for the files that a child exchanges with runner. `None` if no
    /// files are exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<PathBuf>,
    /// The work tree in which a child starts and may work. The configuration determines the child's
    /// tools, and the kernel enforces its sandbox. `None` if the child only answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<PathBuf>,
}

impl Request {
    /// Returns the folder in which a child for this request starts.
    pub fn place(&self) -> PathBuf {
        let place = self.work.as_ref().or(self.run_dir.as_ref());
        place.cloned().unwrap_or_else(|| PathBuf::from("/"))
    }
}

/// The form of text that is accepted as an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerForm {
    /// If the request has a schema, the text must be one JSON document. Otherwise, any text is
    /// accepted.
    #[default]
    Document,
    /// The job extracts elements from any text, even if there is prose around them, one of them is
    /// damaged, or the text is cut off after some of them.
    Elements,
}

impl AnswerForm {
    fn is_document(&self) -> bool {
        *self == Self::Document
    }
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The source's name, supplied by runner: a path or a commit.
    pub label: Redacted,
    /// The text with the fence around it. The text itself cannot contain the fence's nonce.
    pub fenced: Redacted,
}

impl Source {
    /// Creates a piece of evidence from its name and its fenced text, both redacted.
    pub fn new(label: impl Into<Redacted>, fenced: impl Into<Redacted>) -> Self {
        Self { label: label.into(), fenced: fenced.into() }
    }
}

/// The limits and the sampling temperature of one request. Durations are serialized in
/// milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimits {
    /// Maximum length of the answer in the provider's tokens.
    pub max_output_tokens: u64,
    /// Maximum time until the provider is reached.
    #[serde(rename = "connect_ms", with = "millis")]
    pub connect: Duration,
    /// Maximum time until an API's response body or a program's output begins.
    #[serde(rename = "first_byte_ms", with = "millis")]
    pub first_byte: Duration,
    /// Maximum time between two signs of activity.
    #[serde(rename = "idle_ms", with = "millis")]
    pub idle: Duration,
    /// Maximum total time.
    #[serde(rename = "total_ms", with = "millis")]
    pub total: Duration,
    /// The sampling temperature, or `None` for the backend's default. `command` and `ollama`
    /// backends receive it, and so do OpenAI-compatible servers other than OpenAI's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
}

/// A sampling temperature in hundredths, serialized as a number such as 0.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "f64", from = "f64")]
pub struct Temperature(u16);

impl Temperature {
    /// Creates a temperature from hundredths, so `80` is 0.8.
    pub const fn hundredths(hundredths: u16) -> Self {
        Self(hundredths)
    }
}

impl From<Temperature> for f64 {
    fn from(temperature: Temperature) -> Self {
        Self::from(temperature.0) / 100.0
    }
}

impl From<f64> for Temperature {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the valid range"
    )]
    fn from(number: f64) -> Self {
        Self((number * 100.0).round().clamp(0.0, 1_000.0) as u16)
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_output_tokens: 16_384,
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(600),
            temperature: None,
        }
    }
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The complete answer as text. If the model passed the answer to a tool or wrapped it in an
    /// object, this is the JSON of the answer alone.
    pub text: String,
    /// The text parsed as JSON, if it is JSON. It is always present if the request has a schema,
    /// unless the request's form is [`AnswerForm::Elements`].
    pub value: Option<Value>,
    /// The usage of the answer, or `None` if the provider does not report it.
    pub usage: Option<Usage>,
    pub stop: Stop,
    /// Remarks for the report, such as "stdout was ignored".
    pub notes: Vec<String>,
}

/// The usage that a provider reports for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, including cached tokens.
    pub input_tokens: u64,
    /// Output tokens, including the model's reasoning.
    pub output_tokens: u64,
    /// The part of `input_tokens` that was read from a cache.
    pub cached_input_tokens: u64,
    /// Cost in millionths of a US dollar, if reported.
    pub cost_micros: Option<u64>,
}

/// The reason a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The answer is finished.
    End,
    /// The model reached its output limit.
    Length,
    /// The model refused to answer.
    Refusal,
}

/// Serialization of durations as whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_round_trips_through_json() {
        let request = Request {
            id: "01J/2".into(),
            purpose: "dream".into(),
            instructions: "choose".into(),
            sources: vec![Source { label: "ideas/a.md".into(), fenced: "<<<…>>>".into() }],
            rule_answer: serde_json::json!([{"id": "x"}]),
            offer: serde_json::json!({"ids": ["x"]}),
            schema: None,
            limits: RequestLimits::default(),
            run_dir: None,
            work: None,
            form: AnswerForm::default(),
        };
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.contains("\"first_byte_ms\":120000"), "{text}");
        assert!(!text.contains("tools"), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    }
}
