//! Translates `[dream]` to runner's names. Other programs use this table for the settings of the
//! overnight job and of the local curator. If the file also has a setting under its runner name,
//! that setting takes precedence.
//!
//! | in `[dream]` | in runner |
//! | --- | --- |
//! | `local_curator` | `curator` |
//! | `private` | `jobs.dream.private` |
//! | `at = "HH:MM"` | `jobs.overnight.trigger = "daily HH:MM"` |
//! | `run_timeout` | `jobs.overnight.timeout` |
//! | `runner` | `jobs.overnight.runners` |
//! | any other key | the same key of `jobs.overnight` |
//!
//! If no file sets the overnight job's kind or trigger, the job runs only manually. The translation
//! must never skip a key: an unknown key is reported as an error in the job to which it would
//! belong.

use toml::{Table, Value};

const TABLE: &str = "dream";
/// The nested table with the curator's settings.
const CURATOR: (&str, &str) = ("local_curator", "curator");
/// The setting of the dream job that this table also contains.
const PRIVATE: &str = "private";
const PASS: &str = "dream";
/// The job to which all other settings belong.
const JOB: &str = "overnight";
/// The settings whose names differ, each with the other programs' name and runner's name.
const NAMES: [(&str, &str); 3] =
    [("at", "trigger"), ("run_timeout", "timeout"), ("runner", "runners")];

/// Translates a file's `[dream]` table to runner's names.
pub(super) fn under_our_names(mut file: Table) -> Table {
    let mut dream = match file.remove(TABLE) {
        Some(Value::Table(dream)) => dream,
        // If the value is not a table, the file check reports it.
        Some(other) => {
            file.insert(TABLE.to_owned(), other);
            return file;
        }
        None => return file,
    };
    if let Some(other) = dream.remove(CURATOR.0) {
        under(&mut file, CURATOR.1, other);
    }
    if let Some(private) = dream.remove(PRIVATE) {
        let jobs = file.entry("jobs").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(jobs) = jobs {
            under(jobs, PASS, Value::Table(Table::from_iter([(PRIVATE.to_owned(), private)])));
        }
    }
    if dream.is_empty() {
        return file;
    }
    let night: Table = dream
        .into_iter()
        .map(|(key, value)| match (ours(&key), value) {
            ("trigger", Value::String(at)) if key == "at" => {
                ("trigger".to_owned(), Value::String(format!("daily {at}")))
            }
            (own, value) => (own.to_owned(), value),
        })
        .collect();
    let jobs = file.entry("jobs").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(jobs) = jobs {
        under(jobs, JOB, Value::Table(night));
    }
    file
}

/// Adds the kind of the job `overnight` if no file sets it and, if the trigger is missing too, the
/// trigger `manual`.
pub(super) fn complete(merged: &mut Table) {
    let Some(Value::Table(jobs)) = merged.get_mut("jobs") else { return };
    if let Some(Value::Table(night)) = jobs.get_mut(JOB)
        && !night.contains_key("kind")
    {
        night.insert("kind".to_owned(), Value::String(JOB.to_owned()));
        night.entry("trigger").or_insert_with(|| Value::String("manual".to_owned()));
    }
}

/// Reports whether a setting may exist only because of [`complete`].
pub(super) fn is_completed(path: &[String]) -> bool {
    matches!(path, [jobs, job, key] if jobs == "jobs" && job == JOB && (key == "kind" || key == "trigger"))
}

/// Returns the names that a setting may have in `[dream]`.
pub(super) fn other_names(key: &str) -> Vec<String> {
    if let Some(rest) = below(key, CURATOR.1) {
        return vec![format!("{TABLE}.{}{rest}", CURATOR.0)];
    }
    if key == format!("jobs.{PASS}.{PRIVATE}") {
        return vec![format!("{TABLE}.{PRIVATE}")];
    }
    let Some(rest) = below(key, &format!("jobs.{JOB}")).and_then(|it| it.strip_prefix('.')) else {
        return Vec::new();
    };
    let theirs = NAMES.iter().filter(|(_, own)| *own == rest);
    theirs.map(|(other, _)| *other).chain([rest]).map(|name| format!("{TABLE}.{name}")).collect()
}

/// Translates the path of a setting in `[dream]` to runner's names. Other paths are unchanged.
pub(super) fn our_path(path: Vec<String>) -> Vec<String> {
    match path.split_first() {
        Some((table, rest)) if table == TABLE && !rest.is_empty() => {
            let (first, rest) = (&rest[0], &rest[1..]);
            let start = match first.as_str() {
                name if name == CURATOR.0 => vec![CURATOR.1],
                name if name == PRIVATE => vec!["jobs", PASS, PRIVATE],
                name => vec!["jobs", JOB, ours(name)],
            };
            let start = start.into_iter().map(str::to_owned);
            start.chain(rest.iter().cloned()).collect()
        }
        _ => path,
    }
}

fn ours(name: &str) -> &str {
    let found = NAMES.iter().find(|(other, _)| *other == name);
    found.map_or(name, |(_, own)| own)
}

fn below<'a>(key: &'a str, table: &str) -> Option<&'a str> {
    key.strip_prefix(table).filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Adds `value` to `table` as `name`. Existing settings in `table` take precedence.
fn under(table: &mut Table, name: &str, value: Value) {
    match (table.get_mut(name), value) {
        (Some(Value::Table(own)), Value::Table(other)) => {
            for (key, value) in other {
                own.entry(key).or_insert(value);
            }
        }
        (None, value) => {
            table.insert(name.to_owned(), value);
        }
        _ => {}
    }
}
