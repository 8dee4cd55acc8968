//! The resolved settings for users and programs, each with its origin.
//!
//! This module must never show a configuration that the reader refuses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use toml::{Table, Value};

use super::inline::joined;
use super::sources::lines;
use super::{Failure, Stack, dream, first, layers, reference, resolve};

/// The origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct SettingOrigin {
    /// `default`, `user`, `ctxrc`, `project`, `environment`, `set` or `flag`.
    pub layer: &'static str,
    /// The file; `None` for a setting outside the files.
    pub file: Option<PathBuf>,
    /// The line number in the file, counted from 1.
    pub line: Option<usize>,
    /// The variable or flag.
    #[serde(rename = "given")]
    pub said: Option<String>,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line, &self.said) {
            (Some(file), Some(line), _) => write!(f, "{} {}:{line}", self.layer, file.display()),
            (.., Some(said)) => write!(f, "{} {said}", self.layer),
            _ => f.write_str(self.layer),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ResolvedSetting {
    /// The parts of the setting's name.
    pub path: Vec<String>,
    pub value: Value,
    pub origin: SettingOrigin,
}

/// All settings of a valid configuration.
#[derive(Debug)]
pub struct ResolvedSettings {
    /// The settings as one table.
    pub table: Table,
    /// The individual settings, ordered by name.
    pub entries: Vec<ResolvedSetting>,
}

impl ResolvedSettings {
    /// Reads all layers.
    ///
    /// # Errors
    /// Returns the first error in the layers.
    pub fn of(stack: &Stack<'_>) -> Result<Self, Failure> {
        let (table, sources) = layers(stack)?;
        resolve(&table, &sources).map_err(first)?;
        let mut origins: BTreeMap<Vec<String>, SettingOrigin> = BTreeMap::new();
        for layer in &sources.layers {
            for (path, line) in lines(layer) {
                let origin = SettingOrigin {
                    layer: layer.name,
                    file: Some(layer.path.clone()),
                    line: Some(line),
                    said: None,
                };
                origins.insert(path, origin);
            }
        }
        let mut entries = Vec::new();
        flatten(&table, &mut Vec::new(), &mut |path, value| {
            let whole = path.join(".");
            let given = sources.given.iter().rev().find(|given| given.key == whole);
            let origin = match given {
                Some(given) => Some(SettingOrigin {
                    layer: given.layer,
                    said: Some(given.said.clone()),
                    ..SettingOrigin::default()
                }),
                None => origins.get(path).cloned().or_else(|| {
                    let default = SettingOrigin { layer: "default", ..SettingOrigin::default() };
                    dream::is_completed(path).then_some(default)
                }),
            };
            let origin = origin.expect("every value was read from one of the layers");
            entries.push(ResolvedSetting { path: path.to_owned(), value: value.clone(), origin });
        });
        Ok(Self { table, entries })
    }

    /// Returns one value, or a table of values. A key that a job does not set is looked up in
    /// `[defaults]`. Returns `None` if nothing is set.
    ///
    /// # Errors
    /// Returns an error if there is no such key, or no job, backend or other entry with its name.
    pub fn get(&self, key: &str) -> Result<Option<Value>, Failure> {
        let path = reference::key_parts(key);
        let at = |path: &[String]| {
            let mut value = None;
            let mut table = Some(&self.table);
            for part in path {
                value = table.and_then(|table| table.get(part));
                table = value.and_then(Value::as_table);
            }
            value.cloned()
        };
        if let Some(value) = at(&path) {
            return Ok(Some(value));
        }
        let unknown = |near: Option<String>, there: &str| {
            let what = format!("there is no setting {key:?}");
            match near {
                Some(near) => {
                    Failure::configuration(what).hint(format!("runner config get {near}"))
                }
                None => Failure::configuration(what + there)
                    .hint("runner config show   (lists all settings)"),
            }
        };
        reference::known(&path)
            .map_err(|error| unknown(error.near, &format!(": {}", error.there)))?;
        if let [
            group @ ("jobs" | "backends" | "groups" | "pools" | "prices" | "channels" | "fleet"),
            name,
            ..,
        ] = path.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
            && at(&path[..2]).is_none()
        {
            let names: Vec<String> = at(&path[..1])
                .and_then(|value| Some(value.as_table()?.keys().cloned().collect()))
                .unwrap_or_default();
            let near =
                runner_text::nearest::nearest(name, names.iter().map(String::as_str)).map(|near| {
                    key.replacen(&format!("{group}.{name}"), &format!("{group}.{near}"), 1)
                });
            return Err(unknown(near, ""));
        }
        Ok(match path.as_slice() {
            [jobs, _, key] if jobs == "jobs" && reference::is_shared(key) => {
                at(&["defaults".to_owned(), key.clone()])
            }
            _ => None,
        })
    }
}

fn flatten(table: &Table, path: &mut Vec<String>, each: &mut impl FnMut(&[String], &Value)) {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            Value::Table(inner) => flatten(inner, path, each),
            value => each(path, value),
        }
        path.pop();
    }
}

impl ResolvedSetting {
    /// Returns the full name in TOML syntax.
    pub fn name(&self) -> String {
        joined(&self.path)
    }

    /// Returns the name of the table that contains the setting.
    pub fn name_of_table(&self) -> String {
        joined(&self.path[..self.path.len() - 1])
    }

    /// Returns the setting's name within its table, in TOML syntax.
    pub fn own_name(&self) -> String {
        joined(&self.path[self.path.len() - 1..])
    }
}
