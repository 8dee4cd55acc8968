//! The JSON schema of a configuration file, for editors: made from the table of keys.
//!
//! It must never refuse what the reader takes; what it lets through, `runner config check` finds.

use serde_json::{Map, Value, json};
use toml::Table;

use super::DEFAULT;
use super::keys::{Key, Shape, TABLES, all};

const DURATION: &str = concat!(
    r"([0-9]+(\.[0-9]+)? ?(h|hr|hrs|hours?|m|min|mins|minutes?|s|secs?|seconds?|ms|msecs?|millis|",
    r"milliseconds?|us|µs|ns),? ?)+"
);
const AGE: &str = "[0-9]+ *(d|days?|w|weeks?)";
const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9]";

/// Returns the JSON Schema, draft 2020-12.
pub fn schema() -> Value {
    let default: Table = toml::from_str(DEFAULT).expect("the embedded default parses");
    let default = serde_json::to_value(default).expect("settings are text, numbers and lists");
    let keys = all();
    let mut schema = table("", &keys, &default);
    let outer = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "runner's configuration",
        "description": "runner.toml of a project, or config.toml of a user; what neither says is as in config/default.toml.",
    });
    if let (Value::Object(outer), Value::Object(inner)) = (outer, &mut schema) {
        for (at, (name, value)) in outer.into_iter().enumerate() {
            inner.shift_insert(at, name, value);
        }
    }
    schema
}

/// Builds the schema of the table at `path`, in which `*` matches any name.
fn table(path: &str, keys: &[Key], default: &Value) -> Value {
    let mut properties = Map::new();
    let mut names = None;
    for key in keys {
        let Some(rest) = below(&key.path, path) else {
            continue;
        };
        let first = rest.split('.').next().unwrap_or(rest);
        let inner = if path.is_empty() { first.to_owned() } else { format!("{path}.{first}") };
        if first == "*" {
            names = Some(inner);
        } else if rest == first {
            add(&mut properties, first, value(key, default));
        } else if !properties.contains_key(first) {
            let value = table(&inner, keys, default);
            properties.insert(first.to_owned(), value);
        }
    }
    let mut schema = json!({ "type": "object" });
    if let Some((_, about)) = TABLES.iter().find(|(name, _)| *name == path) {
        schema["description"] = json!(about);
    }
    match names {
        Some(inner) => {
            schema["additionalProperties"] = table(&inner, keys, default);
            if path != "backends" && path != "prices" {
                schema["propertyNames"] = json!({ "pattern": "^[A-Za-z0-9_-]+$" });
            }
        }
        None => {
            schema["properties"] = Value::Object(properties);
            schema["additionalProperties"] = json!(false);
        }
    }
    if path == "jobs.*" {
        schema["allOf"] = of_kinds(keys);
    }
    schema
}

/// Builds the rules that allow a job only the keys of its kind.
fn of_kinds(keys: &[Key]) -> Value {
    let rule = |kind: &&str| {
        let mut own: Vec<&str> = keys
            .iter()
            .filter(|key| key.kinds.is_empty() || key.kinds.contains(kind))
            .filter_map(|key| below(&key.path, "jobs.*")?.split('.').next())
            .collect();
        own.dedup();
        json!({
            "if": { "properties": { "kind": { "const": kind } }, "required": ["kind"] },
            "then": { "propertyNames": { "enum": own } },
        })
    };
    Value::Array(runner_jobs::kinds::NAMES.iter().map(rule).collect())
}

/// Adds a property. If two kinds have a key of the same name, the descriptions of both are joined.
fn add(properties: &mut Map<String, Value>, name: &str, value: Value) {
    let Some(known) = properties.get_mut(name) else {
        properties.insert(name.to_owned(), value);
        return;
    };
    let both = [&known["description"], &value["description"]]
        .map(|text| text.as_str().unwrap_or_default().to_owned());
    known["description"] = json!(both.join(" "));
}

fn below<'a>(path: &'a str, table: &str) -> Option<&'a str> {
    if table.is_empty() {
        return Some(path);
    }
    path.strip_prefix(table)?.strip_prefix('.')
}

fn value(key: &Key, default: &Value) -> Value {
    let pattern = |pattern: &str| json!({ "type": "string", "pattern": format!("^({pattern})$") });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let mut schema = match key.shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Whole(least, i64::MAX) => json!({ "type": "integer", "minimum": least }),
        Shape::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Shape::CountCap => json!({
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "unlimited" }],
        }),
        Shape::MoneyCap => json!({
            "anyOf": [{ "type": "number", "minimum": 0 }, { "const": "unlimited" }],
        }),
        Shape::TimeCap => pattern(&format!("unlimited|{DURATION}")),
        Shape::Number(u32::MAX) => json!({ "type": "number", "minimum": 0 }),
        Shape::Number(most) => json!({ "type": "number", "minimum": 0, "maximum": most }),
        Shape::Texts => texts,
        Shape::Duration | Shape::Wait => pattern(DURATION),
        Shape::Limit => pattern(&format!("none|{DURATION}")),
        Shape::Age => pattern(AGE),
        Shape::AgeLimit => pattern(&format!("none|{AGE}")),
        Shape::Waits => json!({
            "type": "array",
            "minItems": 1,
            "items": { "type": "string", "pattern": format!("^({DURATION})$") },
        }),
        Shape::Time => pattern(TIME),
        Shape::Hours => pattern(&format!("none|{TIME} ?- ?{TIME}")),
        Shape::Zone => pattern("system|[A-Za-z][A-Za-z0-9_+/-]*"),
        Shape::Size => json!({
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": "^[0-9]+ *([kKmMgG][iI]?)?[bB]?$",
        }),
        Shape::Trigger => pattern(
            "night|manual|lifecycle|every +.+|daily +.+|cron +.+|after +[A-Za-z0-9_-]+( +ends)? *",
        ),
        Shape::OneOf(words) => json!({ "enum": words }),
        Shape::Artifacts => json!({
            "type": "array",
            "items": {
                "type": "object",
                "properties": { "from": { "type": "string" }, "to": { "type": "string" } },
                "required": ["from", "to"],
                "additionalProperties": false,
            },
        }),
        Shape::Id => pattern("[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}"),
    };
    schema["description"] = json!(key.about);
    // The default's own dream job provides the defaults of dream keys only.
    let own = match key.kinds {
        ["dream"] => key.path.replace("jobs.*", "jobs.dream"),
        _ => key.path.clone(),
    };
    if let Some(value) = default.pointer(&format!("/{}", own.replace('.', "/"))) {
        schema["default"] = value.clone();
    }
    schema
}
