//! Settings for one command, outside the files: `RUNNER_CONFIG__NIGHT__AT=23:00` in its environment
//! and `--config night.at=23:00` on its command line.
//!
//! These settings apply only to the command and to the runs that it starts. Some settings, such as
//! job schedules, are stored in the database for every later command. Overrides must never change
//! those settings, because two commands would alternately overwrite them. An override of such a
//! setting is refused rather than ignored. Only commands that neither start nor store anything
//! accept it.

use std::ffi::{OsStr, OsString};

use toml::{Table, Value};

use super::reader::did_you_mean;
use super::reference;
use super::sources::{InlineSetting, Sources, replace_types};
use crate::ui::Failure;

/// Keys that cannot be changed for a single run.
pub(super) const SCHEDULES: [&str; 17] = [
    "fleet",
    "fleet_tags",
    "success_within",
    "kind",
    "trigger",
    "enabled",
    "zone",
    "catch_up",
    "catch_up_window",
    "catch_up_cap",
    "stagger",
    "overlap",
    "group",
    "priority",
    "start_within",
    "retries",
    "backoff",
];

/// The prefix of a variable's name. `__` precedes each part of the setting's name.
const PREFIX: &str = "RUNNER_CONFIG";

/// The settings that a command accepts from its environment and its command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrideScope {
    /// The settings of a run: its limits, its backend and the settings of its kind.
    #[default]
    Run,
    /// All settings, for commands that neither start nor store anything.
    Look,
}

/// Maximum number of parts in a name. No setting has that many parts, and nested tables consume
/// stack space.
pub(super) const PARTS: usize = 16;

/// One setting outside the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// `environment` or `flag`.
    layer: &'static str,
    /// The flag or variable as it appears in errors.
    said: String,
    /// The parts of the setting's name.
    path: Vec<String>,
    /// The value as it was given.
    text: String,
}

/// All settings for one command from outside the files; later settings override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    list: Vec<Override>,
    /// The settings that the overrides may change.
    pub reach: OverrideScope,
}

impl Overrides {
    /// Reads the overrides from an environment.
    ///
    /// # Errors
    /// Returns an error if a variable has the prefix for settings but is malformed or not UTF-8.
    pub fn of_environment(
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Failure> {
        let mut list = Vec::new();
        for (name, text) in variables {
            if !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            list.push(variable(&name, &text)?);
        }
        list.sort_by(|a, b| a.said.cmp(&b.said));
        Ok(Self { list, reach: OverrideScope::Run })
    }

    /// Adds the settings from a command line, each in the form `KEY=VALUE`.
    ///
    /// # Errors
    /// Returns a usage error if a setting does not have this form.
    pub fn add_flags(&mut self, flags: &[String]) -> Result<(), Failure> {
        for flag in flags {
            let parts = flag.split_once('=').map(|(key, text)| (key.trim(), text));
            let named =
                |path: &[String]| path.iter().all(|part| !part.is_empty()) && path.len() <= PARTS;
            let parts = parts.map(|(key, text)| (key, reference::key_parts(key), text));
            let good = parts.filter(|(_, path, _)| named(path));
            let Some((key, path, text)) = good else {
                return Err(Failure::usage(format!(
                    "--config {flag}: expected --config KEY=VALUE, like --config night.budget.calls=3"
                )));
            };
            self.list.push(Override {
                layer: "flag",
                said: format!("--config {key}"),
                path,
                text: text.to_owned(),
            });
        }
        Ok(())
    }

    /// Refuses settings that this command may not override, without reading a project.
    ///
    /// # Errors
    /// Returns an error that names the variable or flag.
    pub fn honoured(&self) -> Result<(), Failure> {
        for one in &self.list {
            let path = match one.layer {
                "environment" => one.path.iter().map(|part| part.to_ascii_lowercase()).collect(),
                _ => one.path.clone(),
            };
            let mut leaves = Vec::new();
            spread(path, value(&one.text), &mut leaves);
            for (path, _) in leaves {
                self.check(one, &path)?;
            }
        }
        Ok(())
    }

    /// Applies the settings to `merged`, and adds their origin to `sources`.
    ///
    /// # Errors
    /// Returns an error that names the variable or flag if a single command cannot change the
    /// setting, if the name of a variable is ambiguous or contains an unknown job or backend, or if
    /// the setting that contains it is not a table.
    pub(super) fn lay_over(
        &self,
        merged: &mut Table,
        sources: &mut Sources,
    ) -> Result<(), Failure> {
        let mut all = Vec::new();
        let mut whole = Table::new();
        for one in &self.list {
            let path = match one.layer {
                "environment" => named(merged, one)?,
                _ => one.path.clone(),
            };
            let mut leaves = Vec::new();
            spread(path, value(&one.text), &mut leaves);
            for (path, value) in &leaves {
                self.check(one, path)?;
                insert(&mut whole, path.iter().map(String::as_str), value.clone());
            }
            all.push((one, leaves));
        }
        replace_types(merged, &whole);
        for (one, leaves) in all {
            for (path, value) in leaves {
                if !insert(merged, path.iter().map(String::as_str), value) {
                    return Err(one.refuse("the setting that contains it is not a table"));
                }
                sources.given.push(InlineSetting {
                    key: path.join("."),
                    layer: one.layer,
                    said: one.said.clone(),
                });
            }
        }
        Ok(())
    }

    fn check(&self, one: &Override, path: &[String]) -> Result<(), Failure> {
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let lasting = match parts.as_slice() {
            ["project", ..] => {
                return Err(one.refuse(
                    "the id connects this folder to its history and cannot be overridden",
                ));
            }
            ["daemon", ..] => {
                return Err(one
                    .refuse("this setting is read only from the user's file")
                    .hint("runner daemon --drain DURATION"));
            }
            ["retention" | "pools" | "prices" | "serve" | "fleet", ..] => {
                return Err(one
                    .refuse("this setting is read only from the user's file")
                    .hint(format!("runner config set --user {} VALUE", path.join("."))));
            }
            ["night", key, ..] => *key != "budget",
            // Alerts are delivered later, by a process without this command's overrides.
            ["groups" | "defaults" | "notify" | "channels", ..] => true,
            ["jobs", _, key, ..] => SCHEDULES.contains(key) || reference::is_policy(key),
            _ => false,
        };
        if lasting && self.reach == OverrideScope::Run {
            return Err(one
                .refuse(
                    "the database stores this setting for all commands, so one command cannot change it",
                )
                .hint(format!("runner config set {} VALUE", path.join("."))));
        }
        Ok(())
    }
}

impl Override {
    fn refuse(&self, why: &str) -> Failure {
        let why = format!("{}: {why}", self.said);
        match self.layer {
            "environment" => Failure::configuration(why),
            _ => Failure::usage(why),
        }
    }
}

fn variable(name: &OsStr, text: &OsStr) -> Result<Override, Failure> {
    let said = name.to_string_lossy().into_owned();
    let (Some(name), Some(text)) = (name.to_str(), text.to_str()) else {
        return Err(Failure::configuration(format!("{said} is not UTF-8")));
    };
    let parts: Option<Vec<String>> = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix("__"))
        .map(|rest| rest.split("__").map(str::to_owned).collect());
    match parts {
        Some(path) if path.len() <= PARTS && path.iter().all(|part| !part.is_empty()) => {
            Ok(Override { layer: "environment", said, path, text: text.to_owned() })
        }
        _ => Err(Failure::configuration(format!(
            "{said} is not a setting: two underscores separate the parts of a name, like \
             {PREFIX}__NIGHT__BUDGET__CALLS"
        ))
        .hint(format!("unset {said}"))),
    }
}

/// Converts a variable's parts to configuration names. A part may match an existing name in any
/// case, and its `_` matches `-`. A part that matches no name is lowercased.
fn named(merged: &Table, one: &Override) -> Result<Vec<String>, Failure> {
    let folded = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let mut table = Some(merged);
    let mut path = Vec::new();
    for part in &one.path {
        let mut alike =
            table.into_iter().flat_map(Table::keys).filter(|key| folded(key) == folded(part));
        let name = match (alike.next(), alike.next()) {
            (Some(first), Some(second)) => {
                return Err(one.refuse(&format!("the name matches both {first:?} and {second:?}")));
            }
            (Some(name), None) => name.clone(),
            (None, _) => part.to_ascii_lowercase(),
        };
        table = table.and_then(|table| table.get(&name)).and_then(Value::as_table);
        path.push(name);
    }
    // This error is reported here, because the reader would only report that a job has no kind.
    if let [group @ ("jobs" | "backends"), name, _, ..] =
        path.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
        && let Some(known) = merged.get(*group).and_then(Value::as_table)
        && !known.contains_key(*name)
    {
        let near = did_you_mean(name, known.keys().map(String::as_str));
        return Err(one.refuse(&format!("there is no [{group}.{name}]{near}")));
    }
    Ok(path)
}

/// Splits a table into individual settings, so that each is checked separately.
fn spread(path: Vec<String>, value: Value, leaves: &mut Vec<(Vec<String>, Value)>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                let mut path = path.clone();
                path.push(key);
                spread(path, value, leaves);
            }
        }
        value => leaves.push((path, value)),
    }
}

/// Inserts a value at its path. Returns `false` if part of the path is a value rather than a table.
pub(super) fn insert<'k>(
    table: &mut Table,
    path: impl Iterator<Item = &'k str>,
    value: Value,
) -> bool {
    let mut path = path.peekable();
    let mut table = table;
    while let Some(key) = path.next() {
        if path.peek().is_none() {
            table.insert(key.to_owned(), value);
            return true;
        }
        let inner = table.entry(key.to_owned()).or_insert_with(|| Value::Table(Table::new()));
        match inner {
            Value::Table(inner) => table = inner,
            _ => return false,
        }
    }
    false
}

/// Parses the value as TOML or, failing that, treats it as a string. A date is also treated as a
/// string, because no setting is a date.
pub(super) fn value(text: &str) -> Value {
    let plain = || Value::String(text.to_owned());
    let Ok(mut table) = toml::from_str::<Table>(&format!("value = {text}")) else { return plain() };
    match table.remove("value") {
        Some(Value::Datetime(_)) | None => plain(),
        // A line break would start another key.
        Some(_) if !table.is_empty() => plain(),
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_plain_text() {
        let text = |text: &str| Value::String(text.to_owned());
        assert_eq!(value("3"), Value::Integer(3));
        assert_eq!(value("true"), Value::Boolean(true));
        assert_eq!(value("[\"a\"]"), Value::Array(vec![text("a")]));
        assert_eq!(value("\"3\""), text("3"));
        for plain in ["30m", "two words", "02:30", "2026-11-21", "", "1\nother = 2"] {
            assert_eq!(value(plain), text(plain));
        }
    }

    fn of(name: &str, text: &str) -> Result<Vec<(String, String)>, Failure> {
        let mut merged: Table = toml::from_str(
            "[jobs.My-Job]\ntimeout = \"1m\"\n[jobs.a-b]\n[jobs.a_b]\n[night]\nat = \"02:30\"\n",
        )
        .unwrap();
        let variables = [(name, text), ("RUNNER_LOG", "debug"), ("RUNNER", "x")];
        let variables = variables.into_iter().map(|(name, text)| (name.into(), text.into()));
        let mut sources = Sources::default();
        Overrides::of_environment(variables)?.lay_over(&mut merged, &mut sources)?;
        Ok(sources.given.into_iter().map(|given| (given.key, given.said)).collect())
    }

    #[test]
    fn variable_names_map_to_existing_keys() {
        for (name, text, key) in [
            ("RUNNER_CONFIG__NIGHT__BUDGET__CALLS", "3", "night.budget.calls"),
            ("RUNNER_CONFIG__JOBS__MY_JOB__TIMEOUT", "5m", "jobs.My-Job.timeout"),
            ("RUNNER_CONFIG__jobs__My-Job__timeout", "5m", "jobs.My-Job.timeout"),
            ("RUNNER_CONFIG__DAY", "{ budget = { calls = 3 } }", "day.budget.calls"),
        ] {
            let given = of(name, text).unwrap();
            assert_eq!(given, [(key.to_owned(), name.to_owned())]);
        }
        for (name, text, why) in [
            ("RUNNER_CONFIG__JOBS__A_B__TIMEOUT", "5m", "\"a-b\" and \"a_b\""),
            ("RUNNER_CONFIG__JOBS__MYJOB__TIMEOUT", "5m", "did you mean \"My-Job\""),
            ("RUNNER_CONFIG__NIGHT__AT__X", "3", "for all commands"),
            ("RUNNER_CONFIG__JOBS", "{ My-Job = { kind = \"dream\" } }", "for all commands"),
            ("RUNNER_CONFIG__DAEMON__DRAIN", "3s", "the user's file"),
            ("RUNNER_CONFIG__", "3", "two underscores"),
            ("RUNNER_CONFIG", "3", "two underscores"),
            ("RUNNER_CONFIGS", "3", "two underscores"),
            ("RUNNER_CONFIG__A____B", "3", "two underscores"),
        ] {
            let said = of(name, text).unwrap_err().to_string();
            assert!(said.starts_with(name) && said.contains(why), "{said}");
        }
    }
}
