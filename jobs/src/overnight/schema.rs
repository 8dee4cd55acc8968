//! The published JSON schemas of the artifacts, and a check of a night's artifacts against them.
//!
//! The checker supports the keywords used by runner's own schemas, and rejects a schema with any
//! other keyword. A full validator is not used, because it would add about a hundred crates,
//! including a regular expression engine and a resolver that uses the network.

use std::fs;
use std::path::Path;

use runner_engine::error_chain::error_chain;
use runner_engine::files::{DOCUMENT, read_in};
use serde::Serialize;
use serde_json::Value;

macro_rules! schemas {
    ($($name:literal),* $(,)?) => {
        /// The name and the text of each schema.
        pub const SCHEMAS: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../config/schemas/overnight/", $name, ".schema.json")),
        )),*];
    };
}
schemas!(
    "summary",
    "iteration",
    "morning-packet",
    "morning-packets",
    "metrics-health",
    "retrieval-bench",
    "close-loop",
    "defrag",
    "briefing",
    "harvest",
    "next-work-row",
    "commit-marker",
    "warn-only-budget",
    "council-packet",
    "council-report",
    "council-wildcard",
    "council-synthesis",
    "council-ledger",
    "packet-corroboration",
);

pub fn text(name: &str) -> Option<&'static str> {
    let mut all = SCHEMAS.iter();
    all.find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// A schema violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchemaError {
    pub artifact: String,
    /// The position in the artifact, for example `/steps/2/name`.
    pub at: String,
    pub why: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckedArtifacts {
    /// The checked artifacts, as paths relative to the folder.
    pub artifacts: Vec<String>,
    pub mistakes: Vec<SchemaError>,
}

/// Checks every artifact of a night in its output folder. Only the summary, as JSON and as
/// Markdown, and the artifacts that it names are required.
pub fn check_folder(folder: &Path) -> CheckedArtifacts {
    let mut checked = CheckedArtifacts::default();
    let fixed = [
        ("summary.json", "summary", true),
        ("close-loop.json", "close-loop", false),
        ("defrag/latest.json", "defrag", false),
        ("metrics-health.json", "metrics-health", false),
        ("retrieval-bench.json", "retrieval-bench", false),
        ("briefing.json", "briefing", false),
        ("briefing-fallback.json", "briefing", false),
        ("packet-corroboration.json", "packet-corroboration", false),
        ("morning-packets/index.json", "morning-packets", false),
        ("council/packet.json", "council-packet", false),
        ("council/synthesis.json", "council-synthesis", false),
        ("council/ledger.json", "council-ledger", false),
        ("council/wildcard.json", "council-wildcard", false),
    ];
    for (name, schema, needed) in fixed {
        if needed || folder.join(name).exists() {
            checked.file(folder, name, schema);
        }
    }
    for name in names(folder, "morning-packets") {
        if name.ends_with(".json") && name != "index.json" {
            checked.file(folder, &format!("morning-packets/{name}"), "morning-packet");
        }
    }
    let others = ["packet.json", "synthesis.json", "ledger.json", "wildcard.json"];
    for name in names(folder, "council") {
        if name.ends_with(".json") && !others.contains(&name.as_str()) {
            checked.file(folder, &format!("council/{name}"), "council-report");
        }
    }
    for run in names(folder, "") {
        for name in names(folder, &format!("{run}/iterations")) {
            checked.file(folder, &format!("{run}/iterations/{name}"), "iteration");
        }
    }
    let summary = read_in(folder, "summary.json", DOCUMENT).ok();
    let summary: Option<Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let named = summary.as_ref().and_then(|it| it["artifacts"].as_object());
    for (key, name) in named.into_iter().flatten() {
        let path = name.as_str().unwrap_or_default();
        if !folder.join(path).is_file() {
            checked.mistakes.push(SchemaError {
                artifact: "summary.json".to_owned(),
                at: format!("/artifacts/{key}"),
                why: format!("{path:?} does not exist"),
            });
        }
    }
    if !folder.join("summary.md").is_file() {
        checked.mistakes.push(SchemaError {
            artifact: "summary.md".to_owned(),
            at: String::new(),
            why: "it does not exist".to_owned(),
        });
    }
    checked
}

fn names(folder: &Path, below: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.join(below))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

impl CheckedArtifacts {
    fn file(&mut self, folder: &Path, name: &str, schema: &str) {
        self.artifacts.push(name.to_owned());
        let value = read_in(folder, name, DOCUMENT)
            .map_err(|error| error_chain(&error))
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
        match value {
            Ok(value) => {
                for (at, why) in check(&value, schema) {
                    self.mistakes.push(SchemaError { artifact: name.to_owned(), at, why });
                }
            }
            Err(why) => self.mistakes.push(SchemaError {
                artifact: name.to_owned(),
                at: String::new(),
                why,
            }),
        }
    }
}

/// Checks a document against the schema with the given name. Returns the position and the
/// description of each violation.
pub fn check(value: &Value, schema: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    match text(schema).map(serde_json::from_str::<Value>) {
        Some(Ok(schema)) => check_value(value, &schema, String::new(), 0, &mut found),
        _ => found.push((String::new(), format!("there is no schema {schema}"))),
    }
    found
}

/// Maximum nesting depth that the check follows.
const DEEPEST: usize = 32;

/// Returns the violations of one rule, excluding those in the values inside `value`.
fn violations(value: &Value, word: &str, rule: &Value) -> Vec<String> {
    let all = || rule.as_array().into_iter().flatten();
    let length = || value.as_str().map(|text| text.chars().count() as u64).zip(rule.as_u64());
    let number = || value.as_f64().zip(rule.as_f64());
    let wrong = match word {
        "$schema"
        | "$id"
        | "title"
        | "description"
        | "properties"
        | "items"
        | "anyOf"
        | "$ref"
        | "additionalProperties" => None,
        "type" => {
            let wanted: Vec<&str> = match rule {
                Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
                one => one.as_str().into_iter().collect(),
            };
            let fits = wanted.iter().any(|it| is(value, it));
            (!fits)
                .then(|| format!("it must be {}, but it is {}", wanted.join(" or "), kind(value)))
        }
        "enum" => (!all().any(|it| it == value))
            .then(|| format!("it must be one of {rule}, but it is {value}")),
        "const" => (value != rule).then(|| format!("it must be {rule}, but it is {value}")),
        "required" => {
            let keys = all().filter_map(Value::as_str);
            let missing =
                keys.filter(|key| value.as_object().is_some_and(|it| !it.contains_key(*key)));
            return missing.map(|key| format!("it has no {key:?}")).collect();
        }
        "minimum" | "maximum" => number()
            .filter(|(own, limit)| if word == "minimum" { own < limit } else { own > limit })
            .map(|(own, limit)| format!("its {word} is {limit}, but it is {own}")),
        "minLength" | "maxLength" => length()
            .filter(|(own, limit)| if word == "minLength" { own < limit } else { own > limit })
            .map(|(own, limit)| format!("its {word} is {limit}, but its length is {own}")),
        other => Some(format!("the schema has a rule that is not known: {other}")),
    };
    wrong.into_iter().collect()
}

fn check_value(
    value: &Value,
    schema: &Value,
    at: String,
    depth: usize,
    found: &mut Vec<(String, String)>,
) {
    let Some(rules) = schema.as_object() else {
        return;
    };
    if depth > DEEPEST {
        found.push((at, "it is nested too deeply".to_owned()));
        return;
    }
    let wrong = rules.iter().flat_map(|(word, rule)| violations(value, word, rule));
    found.extend(wrong.map(|why| (at.clone(), why)));
    if let Some(name) = rules.get("$ref").and_then(Value::as_str) {
        let name = name.trim_end_matches(".schema.json");
        match text(name).and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            Some(other) => check_value(value, &other, at.clone(), depth + 1, found),
            None => found.push((at.clone(), format!("there is no schema {name}"))),
        }
    }
    if let Some(all) = rules.get("anyOf").and_then(Value::as_array) {
        let fits = all.iter().any(|one| {
            let mut own = Vec::new();
            check_value(value, one, at.clone(), depth + 1, &mut own);
            own.is_empty()
        });
        if !fits {
            found.push((at.clone(), "it matches none of the allowed forms".to_owned()));
        }
    }
    if let Some(own) = value.as_object() {
        let known = rules.get("properties").and_then(Value::as_object);
        for (key, inner) in own {
            let rule =
                known.and_then(|it| it.get(key)).or_else(|| rules.get("additionalProperties"));
            if let Some(rule) = rule {
                check_value(inner, rule, format!("{at}/{key}"), depth + 1, found);
            }
        }
    }
    if let (Some(own), Some(rule)) = (value.as_array(), rules.get("items")) {
        for (index, inner) in own.iter().enumerate() {
            check_value(inner, rule, format!("{at}/{index}"), depth + 1, found);
        }
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        wanted => kind(value) == wanted,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overnight::summary::Summary;
    use serde_json::json;

    #[test]
    fn each_violation_is_reported_with_its_location() {
        let whole = serde_json::to_value(Summary::planned("R")).unwrap();
        assert_eq!(check(&whole, "summary"), [], "a planned summary is valid");
        for (path, bad, place) in [
            ("/status", json!("dead"), "/status"),
            ("/schema_version", json!(1), "/schema_version"),
            ("/steps/0/name", json!(3), "/steps/0/name"),
            ("/runtime", json!({}), "/runtime"),
            ("/artifacts", json!({"a": 1}), "/artifacts/a"),
        ] {
            let mut value = whole.clone();
            *value.pointer_mut(path).unwrap() = bad;
            let found = check(&value, "summary");
            assert!(found.iter().all(|(at, _)| at == place) && !found.is_empty(), "{found:?}");
        }
        let mut missing = whole.clone();
        missing.as_object_mut().unwrap().remove("next_action");
        assert_eq!(
            check(&missing, "summary"),
            [(String::new(), "it has no \"next_action\"".to_owned())]
        );
        let mut packets = whole;
        packets["morning_packets"] = json!([{"id": "dream-1"}]);
        assert!(check(&packets, "summary").iter().any(|(at, _)| at == "/morning_packets/0/id"));
        let row = json!({"items": [{"title": "t", "type": "b", "severity": "low", "source": null, "description": ""}]});
        assert_eq!(check(&row, "next-work-row"), []);
    }

    #[test]
    fn schemas_use_only_known_rules() {
        for (name, text) in SCHEMAS {
            let schema: Value = serde_json::from_str(text).unwrap();
            assert_eq!(schema["$id"], json!(format!("{name}.schema.json")));
            assert!(unknown_rules(&schema).is_empty(), "{name}: {:?}", unknown_rules(&schema));
        }
        let nested = json!({"properties": {"a": {"items": {"oneOf": []}}}});
        assert_eq!(unknown_rules(&nested), ["the schema has a rule that is not known: oneOf"]);
    }

    /// Returns the violations about unknown rules in a schema and in all schemas inside it.
    fn unknown_rules(schema: &Value) -> Vec<String> {
        let Some(rules) = schema.as_object() else { return Vec::new() };
        let mut found: Vec<String> =
            rules.iter().flat_map(|(word, rule)| violations(&Value::Null, word, rule)).collect();
        found.retain(|why| why.contains("not known"));
        let named = rules.get("properties").and_then(Value::as_object).into_iter().flatten();
        let inner = named.map(|(_, inner)| inner);
        let inner = inner.chain(["items", "additionalProperties"].map(|word| &schema[word]));
        let inner = inner.chain(schema["anyOf"].as_array().into_iter().flatten());
        found.extend(inner.flat_map(unknown_rules));
        found
    }
}
