//! Overrides of one job for one run, as a command line gives them: `--set key=value`.
//!
//! Only what is a run's own matter can be set so; when and how often a job runs is its schedule's,
//! and stands in a file.

use toml::{Table, Value};

use super::sources::Sources;
use crate::cli::Failure;

/// What is no matter of one run.
const SCHEDULES: [&str; 14] = [
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

/// Lays `settings` over the table of `job` in `merged`, and notes in `sources` where they are from.
///
/// # Errors
/// Usage, naming the `--set`.
pub(super) fn lay_over(
    merged: &mut Table,
    sources: &mut Sources,
    job: &str,
    settings: &[(String, String)],
) -> Result<(), Failure> {
    for (key, text) in settings {
        let refuse = |why: &str| Err(Failure::usage(format!("--set {key}: {why}")));
        let segments: Vec<&str> = key.split('.').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return refuse("it must be --set KEY=VALUE, like --set budget.calls=3");
        }
        if SCHEDULES.contains(&segments[0]) {
            return Err(Failure::usage(format!(
                "--set {key}: this is a matter of the job's schedule, not of one run"
            ))
            .mend(format!("set it under [jobs.{job}] in runner.toml")));
        }
        let path = ["jobs", job].into_iter().chain(segments.iter().copied());
        if !insert(merged, path, value(text)) {
            return refuse("what it lies in is no table");
        }
        sources.set.push((format!("jobs.{job}.{key}"), key.clone()));
    }
    Ok(())
}

/// Puts a value in its place; false where a table would have to be something else.
fn insert<'k>(table: &mut Table, path: impl Iterator<Item = &'k str>, value: Value) -> bool {
    let mut path = path.peekable();
    let mut table = table;
    while let Some(key) = path.next() {
        if path.peek().is_none() {
            table.insert(key.to_owned(), value);
            return true;
        }
        let inner = table
            .entry(key.to_owned())
            .or_insert_with(|| Value::Table(Table::new()));
        match inner {
            Value::Table(inner) => table = inner,
            _ => return false,
        }
    }
    false
}

/// The value as TOML, else as the text that it is; so are dates, which no setting is.
fn value(text: &str) -> Value {
    let plain = || Value::String(text.to_owned());
    let Ok(mut table) = toml::from_str::<Table>(&format!("value = {text}")) else {
        return plain();
    };
    match table.remove("value") {
        Some(Value::Datetime(_)) | None => plain(),
        // A line break would begin another key.
        Some(_) if !table.is_empty() => plain(),
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_else_text() {
        let text = |text: &str| Value::String(text.to_owned());
        assert_eq!(value("3"), Value::Integer(3));
        assert_eq!(value("true"), Value::Boolean(true));
        assert_eq!(value("[\"a\"]"), Value::Array(vec![text("a")]));
        assert_eq!(value("\"3\""), text("3"));
        for plain in [
            "30m",
            "two words",
            "02:30",
            "2026-11-21",
            "",
            "1\nother = 2",
        ] {
            assert_eq!(value(plain), text(plain));
        }
    }
}
