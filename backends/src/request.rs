//! Requests and replies: plain data, the same for every provider.
//!
//! A request carries its evidence as fenced text and the answer by rule as data; a reply may only
//! choose among the offered items and add words. A request must never gain a field for tools.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One question to one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Names this request: the run's id, then `/` and a count of its requests: `01J…/1`. It marks
    /// every process that is started for it, so that a dead run's are found by the run's id.
    pub id: String,
    /// The kind of job that asks, such as `dream`.
    pub purpose: String,
    /// The task, in runner's own text; it contains nothing from a source.
    pub instructions: String,
    /// The evidence. Untrusted text.
    pub sources: Vec<Source>,
    /// The answer that the rules give without any model.
    pub rule_answer: Value,
    /// The permitted choices: ids, targets, enums. The job refuses an answer outside of them.
    pub offer: Value,
    /// The JSON schema of the answer; with one, the reply's `value` is always there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// How long and how much.
    pub limits: RequestLimits,
    /// A private folder that exists, for a child that works with files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<PathBuf>,
    /// The tree that a working job lets a child work in, which is then where it starts; its tools and
    /// its sandbox is the configuration's and the kernel's to say. `None`: it only answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<PathBuf>,
}

impl Request {
    /// Returns the folder in which a child that answers the request starts.
    pub fn place(&self) -> PathBuf {
        let place = self.work.as_ref().or(self.run_dir.as_ref());
        place.cloned().unwrap_or_else(|| PathBuf::from("/"))
    }
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The source's name, written by runner: a path, a commit.
    pub label: String,
    /// Its text, already between fences whose nonce it cannot contain.
    pub fenced: String,
}

/// How long and how much one request may take. Durations are written in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimits {
    /// The longest answer, in the provider's tokens.
    pub max_output_tokens: u64,
    /// Until the other side is there.
    #[serde(rename = "connect_ms", with = "millis")]
    pub connect: Duration,
    /// The time until the other side sends anything.
    #[serde(rename = "first_byte_ms", with = "millis")]
    pub first_byte: Duration,
    /// Between two signs of life.
    #[serde(rename = "idle_ms", with = "millis")]
    pub idle: Duration,
    /// Over all.
    #[serde(rename = "total_ms", with = "millis")]
    pub total: Duration,
    /// The sampling temperature, if the backend accepts one; without it, the backend chooses its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
}

/// A sampling temperature, in hundredths; written as a number like 0.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "f64", from = "f64")]
pub struct Temperature(u16);

impl Temperature {
    /// Creates a temperature from hundredths: `80` is 0.8.
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
        reason = "clamped to what fits"
    )]
    fn from(number: f64) -> Self {
        Self((number * 100.0).round().clamp(0.0, 1_000.0) as u16)
    }
}

impl Default for RequestLimits {
    /// Returns the design's defaults: 10 s, 120 s, 300 s and, for a prompt, 10 minutes.
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

/// One whole answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The model's text, whole and unchanged.
    pub text: String,
    /// The text as JSON, where it is JSON; always there when the request had a schema.
    pub value: Option<Value>,
    /// The usage of the answer. `None` means that it was not stated; the reserved amount is then
    /// charged.
    pub usage: Option<Usage>,
    /// Why the model stopped.
    pub stop: Stop,
    /// Remarks for the report, such as "stdout was ignored".
    pub notes: Vec<String>,
}

/// The usage that a provider states for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written, thoughts included.
    pub output_tokens: u64,
    /// The part of `input_tokens` that came from a cache.
    pub cached_input_tokens: u64,
    /// Cost in millionths of the provider's billing currency, if the provider states it.
    pub cost_micros: Option<u64>,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// It was done.
    End,
    /// It ran into its output limit.
    Length,
    /// It would not answer.
    Refusal,
}

/// Durations as whole milliseconds.
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
    fn a_request_survives_json_and_has_no_tools() {
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
        };
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.contains("\"first_byte_ms\":120000"), "{text}");
        assert!(!text.contains("tools"), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    }
}
