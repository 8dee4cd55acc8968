//! The JSON schema for editors, the schema that checks a file, and the list of all settings,
//! derived from the types that declare the settings.
//!
//! The published schema must never refuse a file that the reader accepts. `runner config check`
//! finds the errors that the schema does not detect.
//!
//! Deriving a schema takes longer than the rest of most commands, so files are checked with
//! `config/schemas/shapes.json`, which a test compares with the types.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use runner_backends::BackendKind;
use runner_backends::spec::KINDS as TYPES;
use runner_jobs::kinds::{KINDS, NAMES};
use runner_text::nearest::nearest;
use runner_text::some_of;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toml::Table;

use super::DEFAULT;
use super::settings::{PolicyTable, SandboxTable, Settings};

/// The tables whose entries can have any name the user chooses.
const FREE_NAMES: [&str; 2] = ["backends", "prices"];

#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The full name; `*` matches any name.
    pub(super) path: String,
    /// The job kinds or backend types that have the setting. Empty if all have it, or if it is a
    /// setting of neither.
    pub(super) kinds: Vec<&'static str>,
    /// The schema of the setting.
    pub(super) node: Value,
}

struct Reference {
    /// The schema of a file in which a job or a backend may have the settings of all kinds.
    whole: Value,
    jobs: Kinds,
    backends: Kinds,
    settings: Vec<Setting>,
}

/// The schemas of jobs or of backends.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kinds {
    /// The schema of the settings common to all kinds.
    common: Value,
    /// The schema of the settings of each kind.
    own: BTreeMap<String, Value>,
}

/// The schemas that check a file, without titles and descriptions.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Shapes {
    whole: Value,
    jobs: Kinds,
    backends: Kinds,
}

static REFERENCE: LazyLock<Reference> = LazyLock::new(build);
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let text = include_str!("../../config/schemas/shapes.json");
    serde_json::from_str(text).expect("the embedded schemas parse")
});
static DEFAULTS: LazyLock<Table> =
    LazyLock::new(|| toml::from_str(DEFAULT).expect("the embedded default parses"));

/// Returns the embedded default configuration.
pub(super) fn default() -> &'static Table {
    &DEFAULTS
}

/// Returns the schema of a file.
pub(super) fn whole() -> &'static Value {
    &SHAPES.whole
}

/// Returns the schema of a job of this kind, or `None` if there is no such kind.
pub(super) fn job(kind: &str) -> Option<&'static Value> {
    static JOINED: [OnceLock<Value>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];
    let at = NAMES.iter().position(|name| *name == kind)?;
    Some(JOINED[at].get_or_init(|| joined(&SHAPES.jobs.common, &SHAPES.jobs.own[kind])))
}

/// Returns the schema of a backend of this type, or `None` if there is no such type.
pub(super) fn backend(kind: &str) -> Option<&'static Value> {
    static JOINED: [OnceLock<Value>; TYPES.len()] = [const { OnceLock::new() }; TYPES.len()];
    let at = TYPES.iter().position(|name| *name == kind)?;
    Some(JOINED[at].get_or_init(|| joined(&SHAPES.backends.common, &SHAPES.backends.own[kind])))
}

/// Returns the schemas for [`SHAPES`], derived from the types.
#[cfg(test)]
pub(super) fn shapes() -> Shapes {
    let bare = |node: &Value| {
        let mut node = node.clone();
        strip_texts(&mut node);
        node
    };
    let kinds = |of: &Kinds| Kinds {
        common: bare(&of.common),
        own: of.own.iter().map(|(kind, node)| (kind.clone(), bare(node))).collect(),
    };
    Shapes {
        whole: bare(&REFERENCE.whole),
        jobs: kinds(&REFERENCE.jobs),
        backends: kinds(&REFERENCE.backends),
    }
}

pub(super) fn settings() -> &'static [Setting] {
    &REFERENCE.settings
}

/// Returns the published JSON Schema, draft 2020-12.
pub fn schema() -> Value {
    let mut schema = REFERENCE.whole.clone();
    // A table may be split across several files, so no file needs to contain all of its required
    // settings.
    strip_required(&mut schema);
    for name in ["description", "title", "$schema"] {
        let object = schema.as_object_mut();
        object.and_then(|it| {
            it.shift_remove(name).map(|value| it.shift_insert(0, name.into(), value))
        });
    }
    for (table, key, kinds) in
        [("jobs", "kind", &REFERENCE.jobs), ("backends", "type", &REFERENCE.backends)]
    {
        let rule = |(kind, node): (&String, &Value)| {
            let node = joined(&kinds.common, node);
            let own: Vec<&String> = properties(&node).map(|(name, _)| name).collect();
            json!({
                "if": { "properties": { key: { "const": kind } }, "required": [key] },
                "then": { "propertyNames": { "enum": own } },
            })
        };
        schema["properties"][table]["additionalProperties"]["allOf"] =
            kinds.own.iter().map(rule).collect();
    }
    schema
}

fn build() -> Reference {
    let default = serde_json::to_value(default()).expect("the defaults are valid JSON values");
    let mut generator =
        SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true).into_generator();
    let mut whole = generator.root_schema_for::<Settings>().to_value();
    tidy(&mut whole);
    state_defaults(&mut whole, &default);
    for (name, node) in properties_mut(&mut whole) {
        if node.get("additionalProperties").is_some_and(Value::is_object)
            && !FREE_NAMES.contains(&name.as_str())
        {
            node["propertyNames"] = json!({ "pattern": "^[A-Za-z0-9_-]+$" });
        }
    }
    // Any table may be omitted.
    whole.as_object_mut().map(|whole| whole.shift_remove("required"));
    let mut settings = Vec::new();
    list(&whole, &mut Vec::new(), &mut |path, node| {
        settings.push(Setting { path, kinds: Vec::new(), node: node.clone() });
    });
    let jobs = KINDS.iter().map(|row| {
        let mut own = (row.schema)(&mut generator).to_value();
        tidy(&mut own);
        if row.name == "dream" {
            state_defaults(&mut own, &default["jobs"]["dream"]);
        }
        (row.name, own)
    });
    let jobs = kinds_of("jobs", jobs.collect(), &mut whole, &mut settings);
    let backends = TYPES.iter().map(|name| {
        let parts = BackendKind::schemas(name, &mut generator);
        let mut own = json!({ "type": "object", "properties": {}, "required": [] });
        for mut part in parts.into_iter().map(Schema::to_value) {
            tidy(&mut part);
            own = joined(&own, &part);
        }
        (*name, own)
    });
    let backends = kinds_of("backends", backends.collect(), &mut whole, &mut settings);
    Reference { whole, jobs, backends, settings }
}

/// Adds the settings of each kind of jobs or backends to the schema of the whole file and to the
/// list of settings.
fn kinds_of(
    table: &str,
    kinds: Vec<(&'static str, Value)>,
    whole: &mut Value,
    settings: &mut Vec<Setting>,
) -> Kinds {
    let any = &mut whole["properties"][table]["additionalProperties"];
    let common = any.clone();
    let prefix = format!("{table}.*.");
    for (kind, own) in &kinds {
        for (name, value) in properties(own) {
            add(&mut any["properties"], name, value);
            let path = format!("{prefix}{name}");
            let same = |it: &&mut Setting| it.path == path && it.node == *value;
            match settings.iter_mut().find(same) {
                Some(known) => known.kinds.push(kind),
                None => {
                    let last = settings.iter().rposition(|it| it.path.starts_with(&prefix));
                    let setting = Setting { path, kinds: vec![kind], node: value.clone() };
                    settings.insert(last.map_or(settings.len(), |last| last + 1), setting);
                }
            }
        }
    }
    Kinds { common, own: kinds.into_iter().map(|(kind, own)| (kind.to_owned(), own)).collect() }
}

/// Combines the settings common to all kinds with those of one kind.
fn joined(common: &Value, own: &Value) -> Value {
    let mut node = common.clone();
    for (name, value) in properties(own) {
        node["properties"][name] = value.clone();
    }
    if let (Some(all), Some(more)) = (node["required"].as_array_mut(), own["required"].as_array()) {
        all.extend(more.iter().cloned());
    }
    node
}

/// Returns the schemas of a table's settings, by name.
pub(super) fn properties(node: &Value) -> impl Iterator<Item = (&String, &Value)> {
    node["properties"].as_object().into_iter().flatten()
}

fn properties_mut(node: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    node.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
}

/// Returns the schema of the entry `name` of a table, or `None` if the table cannot have such an
/// entry.
pub(super) fn entry<'n>(node: &'n Value, name: &str) -> Option<&'n Value> {
    let own = node["properties"].get(name);
    own.or_else(|| node.get("additionalProperties").filter(|it| it.is_object()))
}

fn list(node: &Value, path: &mut Vec<String>, each: &mut impl FnMut(String, &Value)) {
    let names = node.get("additionalProperties").filter(|it| it.is_object());
    let any = "*".to_owned();
    for (name, inner) in properties(node).chain(names.map(|inner| (&any, inner))) {
        path.push(name.clone());
        match inner["type"].as_str() {
            Some("object") => list(inner, path, each),
            _ => each(path.join("."), inner),
        }
        path.pop();
    }
}

/// Adds one kind's setting to the settings of all kinds. If settings have the same name, their
/// descriptions are joined, and include the defaults if these differ.
fn add(all: &mut Value, name: &str, value: &Value) {
    let Some(known) = all.get_mut(name) else {
        all[name] = value.clone();
        return;
    };
    let differ = known.get("default") != value.get("default");
    let texts = [&*known, value].map(|it| {
        let default = it.get("default").filter(|_| differ);
        let default = default.map_or_else(String::new, |it| format!(" Default: {it}."));
        format!("{}{default}", it["description"].as_str().unwrap_or_default())
    });
    let [first, second] = texts;
    if !first.contains(&second) {
        known["description"] = json!(format!("{first} {second}"));
    }
    if differ {
        known.as_object_mut().map(|known| known.shift_remove("default"));
    }
}

fn state_defaults(node: &mut Value, default: &Value) {
    for (name, inner) in properties_mut(node) {
        match default.get(name) {
            None => {}
            Some(table) if inner["type"] == "object" => state_defaults(inner, table),
            Some(value) => inner["default"] = value.clone(),
        }
    }
}

fn strip_required(node: &mut Value) {
    node.as_object_mut().map(|object| object.shift_remove("required"));
    properties_mut(node).for_each(|(_, inner)| strip_required(inner));
    if let Some(inner) = node.get_mut("additionalProperties") {
        strip_required(inner);
    }
}

/// Removes titles, descriptions and defaults. The keys of `properties` are setting names, so none
/// of them is removed.
#[cfg(test)]
fn strip_texts(node: &mut Value) {
    let Some(object) = node.as_object_mut() else { return };
    for name in ["$schema", "title", "description", "default"] {
        object.shift_remove(name);
    }
    for (name, inner) in object {
        match (name.as_str(), inner) {
            ("properties", Value::Object(settings)) => settings.values_mut().for_each(strip_texts),
            ("anyOf", Value::Array(options)) => options.iter_mut().for_each(strip_texts),
            (_, inner) => strip_texts(inner),
        }
    }
}

/// Adapts a derived schema to TOML: removes null, replaces number formats with limits, and turns a
/// choice of constants into an `enum`.
fn tidy(node: &mut Value) {
    let object = match node {
        Value::Array(items) => return items.iter_mut().for_each(tidy),
        Value::Object(object) => object,
        _ => return,
    };
    object.values_mut().for_each(tidy);
    let limits = match object.get("format").and_then(Value::as_str) {
        Some("uint32") => json!({ "maximum": u32::MAX }),
        Some("int32") => json!({ "minimum": i32::MIN, "maximum": i32::MAX }),
        Some("uint8" | "uint64" | "uint" | "double") => json!({}),
        _ => Value::Null,
    };
    if let Value::Object(limits) = limits {
        object.shift_remove("format");
        limits.into_iter().for_each(|(key, limit)| {
            object.entry(key).or_insert(limit);
        });
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|it| it != "null");
        if let [one] = types.as_slice() {
            object["type"] = one.clone();
        }
    }
    for choice in ["anyOf", "oneOf"] {
        let Some(Value::Array(options)) = object.get_mut(choice) else { continue };
        options.retain(|it| it["type"] != "null");
        if options.iter().all(|it| it.get("const").is_some()) {
            let words = options.iter().map(|it| it["const"].clone()).collect();
            object.shift_remove(choice);
            object.insert("enum".to_owned(), words);
        } else if let [Value::Object(one)] = options.as_mut_slice() {
            let one = std::mem::take(one);
            object.shift_remove(choice);
            one.into_iter().for_each(|(key, value)| {
                object.entry(key).or_insert(value);
            });
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
        object.shift_remove("type");
    }
    let nothing = |value: &Value| value.is_null() || *value == json!("") || *value == json!([]);
    if object.get("default").is_some_and(nothing) {
        object.shift_remove("default");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
}

/// Describes a valid value, for a sentence such as "expected …".
pub(super) fn describe(node: &Value) -> String {
    /// Maximum number of settings of a table that are named.
    const FEW: usize = 4;
    let like = |text: &str| match node["examples"].as_array() {
        Some(examples) => format!("{text}, like {}", listed(examples, " or ")),
        None => text.to_owned(),
    };
    if let Some(words) = node["enum"].as_array() {
        return match words.as_slice() {
            [one] => one.to_string(),
            words => format!("one of {}", listed(words, ", ")),
        };
    }
    if let Some(options) = node["anyOf"].as_array() {
        let options: Vec<String> = options.iter().map(describe).collect();
        return options.join(" or ");
    }
    if node["type"].is_array() {
        return like("a number or text");
    }
    match node["type"].as_str() {
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => format!("a whole number{}", limits(node)),
        Some("number") => format!("a number{}", limits(node)),
        Some("array") if node["items"]["type"] == "object" => {
            let names: Vec<&String> = properties(&node["items"]).map(|(name, _)| name).collect();
            let fields: Vec<String> = names.iter().map(|name| format!("{name} = \"…\"")).collect();
            format!("a list like [{{ {} }}]", fields.join(", "))
        }
        Some("array") => match node["items"]["enum"].as_array() {
            Some(words) => format!("a list of {}", listed(words, ", ")),
            None => format!("a list of {}", describe(&node["items"])),
        },
        Some("object") => {
            let names: Vec<&str> = properties(node).map(|(name, _)| name.as_str()).collect();
            match names.len() {
                1..=FEW => format!("a table with {}", names.join(", ")),
                _ => "a table".to_owned(),
            }
        }
        _ => like("text in quotes"),
    }
}

fn listed(values: &[Value], between: &str) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(between)
}

fn limits(node: &Value) -> String {
    let least = &node["minimum"];
    match (least.as_f64(), node["maximum"].as_f64()) {
        (Some(_), Some(most)) if most < f64::from(i32::MAX) => {
            format!(" from {least} to {}", node["maximum"])
        }
        (Some(0.0..), _) => format!(" of at least {least}"),
        _ => String::new(),
    }
}

/// Checks that `path` names a known setting or table.
pub(super) fn known(path: &[String]) -> Result<(), UnknownSetting> {
    let mut node = whole();
    for (at, part) in path.iter().enumerate() {
        let Some(inner) = entry(node, part) else {
            let above = path[..at].join(".");
            let names = properties(node).map(|(name, _)| name.as_str());
            let there = match above.as_str() {
                "" => format!("the sections are {}", names.collect::<Vec<_>>().join(", ")),
                above => format!("{above} has {}", some_of(names)),
            };
            return Err(UnknownSetting { near: near(path), there });
        };
        node = inner;
    }
    Ok(())
}

/// Reports whether the value of a setting must be a string.
pub(super) fn is_text<'p>(path: impl IntoIterator<Item = &'p str>) -> bool {
    let node = path.into_iter().try_fold(whole(), |node, part| entry(node, part));
    node.is_some_and(|node| node["type"] == "string")
}

/// A setting that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownSetting {
    /// The full name of the most similar setting, if any is similar.
    pub(super) near: Option<String>,
    /// A description that lists the section's settings.
    pub(super) there: String,
}

fn near(path: &[String]) -> Option<String> {
    let named = |setting: &Setting| {
        let parts = setting.path.split('.').enumerate().map(|(at, part)| match part {
            "*" => path.get(at).map_or("NAME", String::as_str),
            part => part,
        });
        parts.collect::<Vec<_>>().join(".")
    };
    let names: Vec<String> = settings().iter().map(named).collect();
    nearest(&path.join("."), names.iter().map(String::as_str)).map(str::to_owned)
}

/// Splits the key of a setting at its dots. A part that contains a dot is in quotes, as in TOML.
/// The name of a model with a price needs no quotes, as in `prices.gpt-4.1` and
/// `prices.gpt-4.1.input_cost_per_token`.
pub(super) fn key_parts(key: &str) -> Vec<String> {
    let quoted = toml_edit::Key::parse(key);
    let mut parts: Vec<String> = match &quoted {
        Ok(keys) => keys.iter().map(|key| key.get().to_owned()).collect(),
        Err(_) => key.split('.').map(str::to_owned).collect(),
    };
    let is_quoted = parts.iter().any(|part| part.contains('.'));
    if parts[0] == "prices" && parts.len() > 2 && !is_quoted {
        let price = entry(whole(), "prices").and_then(|prices| entry(prices, "model"));
        let last = parts.last().cloned().unwrap_or_default();
        let is_setting = price.is_some_and(|node| properties(node).any(|it| *it.0 == last));
        let end = parts.len() - usize::from(is_setting);
        let model = parts[1..end].join(".");
        parts.splice(1..end, [model]);
    }
    parts
}

/// Returns the reason why only the user's file may contain a setting, or `None` if any file may.
pub(super) fn users_only(path: &[&str]) -> Option<&'static str> {
    match path {
        ["daemon", ..] => Some("each user has one daemon"),
        ["serve", ..] => Some("each user has one server"),
        ["trust", ..] => Some("a project must not declare itself trusted"),
        ["retention", ..] => Some("each user has one database"),
        ["notify", "heartbeat", ..] => Some("a tick serves all projects"),
        ["fleet", ..] => Some("a project must not choose where its work is sent"),
        ["pools" | "prices", ..] => Some("all projects of a user share this setting"),
        _ => None,
    }
}

/// Reports whether a job's key belongs to its policy, which the database stores.
pub(super) fn is_policy(key: &str) -> bool {
    declares::<PolicyTable>(key)
}

/// Reports whether the value in `[defaults]` applies to a job that does not set the key.
pub(super) fn is_shared(key: &str) -> bool {
    is_policy(key) || declares::<SandboxTable>(key)
}

/// Describes the kinds of jobs or types of backends that declare this setting themselves. Returns
/// `None` if none does.
pub(super) fn owners(path: &[String]) -> Option<String> {
    let (kinds, what) = match path {
        [jobs, _, _] if jobs == "jobs" => (&SHAPES.jobs, "jobs of kind"),
        [backends, _, _] if backends == "backends" => (&SHAPES.backends, "backends of type"),
        _ => return None,
    };
    let key = path.last()?;
    let owners = kinds.own.iter().filter(|(_, node)| node["properties"].get(key).is_some());
    let owners: Vec<&str> = owners.map(|(kind, _)| kind.as_str()).collect();
    (!owners.is_empty()).then(|| format!("{what} {}", owners.join(", ")))
}

/// Reports whether the key is a setting of this job kind rather than of all kinds.
pub(super) fn is_own(kind: &str, key: &str) -> bool {
    SHAPES.jobs.own.get(kind).is_some_and(|node| node["properties"].get(key).is_some())
}

fn declares<T: JsonSchema>(key: &str) -> bool {
    let schema = T::json_schema(&mut SchemaSettings::draft2020_12().into_generator());
    schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|it: &Map<_, _>| it.contains_key(key))
}
