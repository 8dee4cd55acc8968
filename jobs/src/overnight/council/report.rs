//! Checks one councillor's answer and converts it to a report.
//!
//! ```text
//! answer ──schema──> only offered choices? ──> redacted, cleaned, truncated ──> Report
//!             └── no ────────┴── no ──> malformed
//! ```
//!
//! The caller sets the councillor's name. Every choice must come from the offer, or the whole
//! answer is rejected. Every string is redacted and reduced to one line, long strings and lists are
//! truncated, and empty items and repeated candidates are dropped. An answer is not changed in any
//! other way.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::packet::{CONFIDENCES, CouncilPacket, KINDS};
use crate::dream::proposal::clean;

/// Maximum length of a headline, and of any other string, in characters.
const HEADLINE: usize = 200;
const TEXT: usize = 400;
/// Maximum number of items in a list.
const LINES: usize = 5;
/// Maximum number of candidates that one councillor may support.
const BACKS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Report {
    /// The councillor's name in the configuration.
    pub runner: String,
    /// The councillor's position, on one line.
    pub headline: String,
    /// One of [`KINDS`].
    pub recommended_kind: String,
    pub recommended_first_action: String,
    pub risks: Vec<String>,
    pub opportunities: Vec<String>,
    /// One of [`CONFIDENCES`].
    pub confidence: String,
    /// An unsolicited idea.
    pub wildcard_idea: String,
    /// The ids of the candidates that the councillor supports.
    #[serde(default)]
    pub backs: Vec<String>,
}

/// The creative lane's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wildcard {
    pub runner: String,
    /// Always `wildcard`.
    pub lane: String,
    pub wildcard_idea: String,
    /// Why the idea might be worthwhile.
    pub why: String,
    /// The smallest step that would show whether the idea is worthwhile.
    pub first_step: String,
    pub risks: Vec<String>,
}

/// Returns the JSON schema for a report on one packet. The schema is strict, because some models
/// reject other schemas.
pub fn schema(packet: &CouncilPacket) -> Value {
    let text = json!({"type": "string"});
    let ids = &packet.offer.backs;
    let id = match ids.is_empty() {
        true => text.clone(),
        false => json!({"type": "string", "enum": ids}),
    };
    let properties = json!({
        "headline": {"type": "string", "minLength": 1},
        "recommended_kind": {"type": "string", "enum": KINDS},
        "recommended_first_action": {"type": "string", "minLength": 1},
        "risks": {"type": "array", "items": text},
        "opportunities": {"type": "array", "items": text},
        "confidence": {"type": "string", "enum": CONFIDENCES},
        "wildcard_idea": text,
        "backs": {"type": "array", "items": id, "maxItems": BACKS},
    });
    strict(properties)
}

/// Returns the JSON schema for the creative lane's answer.
pub fn wildcard_schema() -> Value {
    let text = json!({"type": "string"});
    strict(json!({
        "wildcard_idea": {"type": "string", "minLength": 1},
        "why": text,
        "first_step": text,
        "risks": {"type": "array", "items": text},
    }))
}

fn strict(properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().into_iter().flat_map(|it| it.keys()).collect();
    let required = json!(names);
    json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    })
}

/// Checks an answer and converts it to a report. `redact` removes secrets from its strings.
///
/// # Errors
/// Returns the reason why the answer cannot be used.
pub fn read(
    value: &Value,
    runner: &str,
    packet: &CouncilPacket,
    redact: &dyn Fn(&str) -> String,
) -> Result<Report, String> {
    let texts = Texts { value, redact };
    let backs = texts.list("backs", LINES)?;
    if let Some(unknown) = backs.iter().find(|id| !packet.offer.backs.contains(id)) {
        return Err(format!("it backs {unknown:?}, which it was not shown"));
    }
    let mut own: Vec<String> = Vec::new();
    for id in backs {
        if !own.contains(&id) && own.len() < BACKS {
            own.push(id);
        }
    }
    Ok(Report {
        runner: runner.to_owned(),
        headline: texts.needed("headline", HEADLINE)?,
        recommended_kind: texts.one_of("recommended_kind", &KINDS)?,
        recommended_first_action: texts.needed("recommended_first_action", TEXT)?,
        risks: texts.list("risks", LINES)?,
        opportunities: texts.list("opportunities", LINES)?,
        confidence: texts.one_of("confidence", &CONFIDENCES)?,
        wildcard_idea: texts.text("wildcard_idea", TEXT)?,
        backs: own,
    })
}

/// Checks the creative lane's answer and converts it to a [`Wildcard`].
///
/// # Errors
/// Returns the reason why the answer cannot be used.
pub fn read_wildcard(
    value: &Value,
    runner: &str,
    redact: &dyn Fn(&str) -> String,
) -> Result<Wildcard, String> {
    let texts = Texts { value, redact };
    Ok(Wildcard {
        runner: runner.to_owned(),
        lane: super::WILDCARD.to_owned(),
        wildcard_idea: texts.needed("wildcard_idea", TEXT)?,
        why: texts.text("why", TEXT)?,
        first_step: texts.text("first_step", TEXT)?,
        risks: texts.list("risks", LINES)?,
    })
}

struct Texts<'a> {
    value: &'a Value,
    redact: &'a dyn Fn(&str) -> String,
}

impl Texts<'_> {
    fn text(&self, key: &str, most: usize) -> Result<String, String> {
        match &self.value[key] {
            Value::String(text) => Ok(clean(&(self.redact)(text), most)),
            Value::Null => Err(format!("it has no {key}")),
            _ => Err(format!("its {key} is not text")),
        }
    }

    fn needed(&self, key: &str, most: usize) -> Result<String, String> {
        let text = self.text(key, most)?;
        match text.chars().any(char::is_alphanumeric) {
            true => Ok(text),
            false => Err(format!("its {key} is empty")),
        }
    }

    fn one_of(&self, key: &str, known: &[&str]) -> Result<String, String> {
        let word = self.text(key, TEXT)?;
        match known.contains(&word.as_str()) {
            true => Ok(word),
            false => Err(format!("its {key} is {word:?}, not one of {}", known.join(", "))),
        }
    }

    fn list(&self, key: &str, most: usize) -> Result<Vec<String>, String> {
        let Value::Array(all) = &self.value[key] else {
            return Err(format!("its {key} is not a list"));
        };
        let texts = all.iter().map(|it| match it {
            Value::String(text) => Ok(clean(&(self.redact)(text), TEXT)),
            _ => Err(format!("its {key} is not a list of texts")),
        });
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        Ok(texts.into_iter().filter(|text| !text.is_empty()).take(most).collect())
    }
}
