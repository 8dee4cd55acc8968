//! Checks a table against the schema: unknown keys, missing keys, and values of the wrong type or
//! out of range. Strings with a grammar are checked by their types.

use runner_engine::tick::REPORT_JOB;
use runner_text::nearest::nearest;
use serde_json::Value as Node;
use toml::{Table, Value};

use super::finding::{Fix, Part, Reason};
use super::inline::inline;
use super::reference::{self, describe, entry, properties};

/// Maximum number of reported errors.
pub(super) const MOST: usize = 100;

/// An error in the structure of a table.
#[derive(Debug)]
pub(super) struct Misfit {
    /// The parts of the setting's name.
    pub(super) path: Vec<String>,
    pub(super) why: Reason,
    pub(super) part: Part,
    pub(super) fix: Option<Fix>,
}

/// Returns the errors in a configuration. No further key is checked after [`MOST`] errors.
pub(super) fn misfits(table: &Table) -> Vec<Misfit> {
    let mut walk = Walk { path: Vec::new(), found: Vec::new() };
    walk.table(reference::whole(), table);
    walk.found
}

struct Walk {
    path: Vec<String>,
    found: Vec<Misfit>,
}

impl Walk {
    fn report(&mut self, part: Part, why: impl Into<Reason>) {
        self.found.push(Misfit { path: self.path.clone(), why: why.into(), part, fix: None });
    }

    fn table(&mut self, node: &Node, table: &Table) {
        let named = node.get("propertyNames").is_some();
        let mut meant = Vec::new();
        for (key, value) in table {
            if self.found.len() >= MOST {
                return;
            }
            self.path.push(key.clone());
            match entry(node, key) {
                None => {
                    let known: Vec<&str> = properties(node).map(|it| it.0.as_str()).collect();
                    if let Some(owners) = reference::owners(&self.path) {
                        self.found.push(Misfit {
                            path: self.path.clone(),
                            why: format!("only {owners} have this setting").into(),
                            part: Part::Key,
                            fix: Some(Fix::Unset),
                        });
                    } else {
                        meant.extend(nearest(key, known.iter().copied()));
                        self.report(Part::Key, no_such(key, &known));
                    }
                }
                Some(_) if named && !good_name(key) => {
                    self.report(Part::Value, "a name may contain only letters, digits, - and _");
                }
                Some(inner) => self.entry(inner, value),
            }
            self.path.pop();
        }
        // A setting whose name is misspelled is not also reported as missing.
        for name in missing(node, table).filter(|name| !meant.contains(name)) {
            let form = describe(&node["properties"][name]);
            self.report(Part::Missing, format!("the table has no {name} ({form})"));
        }
    }

    fn entry(&mut self, node: &Node, value: &Value) {
        match (value, self.path.as_slice()) {
            (Value::Table(_), [jobs, name]) if jobs == "jobs" && name == REPORT_JOB => {
                self.report(Part::Value, "the job name \"report\" is reserved");
            }
            (Value::Table(job), [jobs, _]) if jobs == "jobs" => {
                // Without a kind, a job may have the settings of any kind.
                let kind = job.get("kind").and_then(Value::as_str);
                self.table(kind.and_then(reference::job).unwrap_or(node), job);
            }
            (Value::Table(backend), [backends, _]) if backends == "backends" => {
                let kind = backend.get("type").and_then(Value::as_str);
                self.table(kind.and_then(reference::backend).unwrap_or(node), backend);
            }
            (Value::Table(table), _) if node["type"] == "object" => self.table(node, table),
            _ => {
                if let Some(why) = misfit(node, value) {
                    self.report(Part::Value, why);
                }
            }
        }
    }
}

/// Reports whether the name of a job, a group, a channel, a pool or a fleet is valid.
pub(super) fn good_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// Returns the required settings that are missing from a table.
fn missing<'n>(node: &'n Node, table: &Table) -> impl Iterator<Item = &'n str> {
    let required = node["required"].as_array().into_iter().flatten().filter_map(Node::as_str);
    required.filter(|name| !table.contains_key(*name))
}

/// Explains why a value does not match the schema, or returns `None` if it matches.
fn misfit(node: &Node, value: &Value) -> Option<Reason> {
    let wrong =
        || Some(Reason::from(format!("expected {}, found {}", describe(node), brief(value))));
    if let Some(options) = node["anyOf"].as_array() {
        let fits = options.iter().any(|option| misfit(option, value).is_none());
        return if fits { None } else { wrong() };
    }
    if let Some(words) = node["enum"].as_array() {
        let words = words.iter().filter_map(Node::as_str);
        let Some(text) = value.as_str() else { return wrong() };
        if words.clone().any(|word| word == text) {
            return None;
        }
        return wrong().map(|why| why.near(text, words));
    }
    let is = |kind: &str| match &node["type"] {
        Node::Array(kinds) => kinds.iter().any(|it| it == kind),
        one => one == kind,
    };
    let within = |number: f64| {
        number.is_finite()
            && node["minimum"].as_f64().is_none_or(|least| number >= least)
            && node["maximum"].as_f64().is_none_or(|most| number <= most)
    };
    #[allow(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
    let fits = match value {
        Value::String(_) => is("string"),
        Value::Boolean(_) => is("boolean"),
        Value::Integer(whole) => (is("integer") || is("number")) && within(*whole as f64),
        Value::Float(number) => is("number") && within(*number),
        Value::Array(items) if is("array") => {
            if (items.len() as u64) < node["minItems"].as_u64().unwrap_or(0) {
                return Some("expected at least one item".into());
            }
            let mut bad = items.iter().enumerate().filter_map(|(at, item)| {
                Some(misfit(&node["items"], item)?.within(&format!("number {}", at + 1)))
            });
            return bad.next();
        }
        Value::Table(table) if is("object") => return misshapen(node, table),
        _ => false,
    };
    if fits { None } else { wrong() }
}

/// Explains the first error in a table within a list, or returns `None` if there is none.
fn misshapen(node: &Node, table: &Table) -> Option<Reason> {
    let odd = table.iter().find_map(|(key, value)| match entry(node, key) {
        None => Some(Reason::from(format!("unknown key {key:?}"))),
        Some(inner) => misfit(inner, value).map(|why| why.within(key)),
    });
    odd.or_else(|| Some(format!("the table has no {:?}", missing(node, table).next()?).into()))
}

/// Explains why a key is refused, with the nearest key or the list of all keys.
pub(super) fn no_such(key: &str, known: &[&str]) -> Reason {
    let why = Reason::from("there is no such setting").near(key, known.iter().copied());
    match &why.near {
        Some(_) => why,
        None => format!("there is no such setting (there are: {})", known.join(", ")).into(),
    }
}

/// Formats a value for an error. A long value is truncated.
fn brief(value: &Value) -> String {
    const SHOWN: usize = 80;
    let text = inline(value);
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}
