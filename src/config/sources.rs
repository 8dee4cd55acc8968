//! Where settings are written: files, and overrides on a command line; and the place of each for
//! errors about it.
//!
//! Must never write a file.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::cli::Failure;

/// Where a resolved configuration was read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Files, later ones override.
    pub(super) files: Vec<PathBuf>,
    /// Whole names of the keys that the command line gives, with their names there.
    pub(super) set: Vec<(String, String)>,
}

/// Reads one layer; `None` where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Table>, Failure> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| Failure::configuration(format!("{} is not UTF-8", path.display())))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::configuration(format!(
                "cannot read {}: {error}",
                path.display()
            )));
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    toml::from_str(text).map(Some).map_err(|error| {
        let place = error.span().map_or_else(String::new, |span| {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before
                .rsplit('\n')
                .next()
                .map_or(0, |line| line.chars().count())
                + 1;
            format!(":{line}:{column}")
        });
        Failure::configuration(format!("{}{place}: {}", path.display(), error.message()))
    })
}

/// Lays `over` over `under`: tables merge, anything else replaces.
pub(super) fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// An error about a key: it names the command line's own words for it, or the line of the last file
/// that sets it or, failing that, the table it would stand in.
pub(super) fn wrong(sources: &Sources, key: &str, why: &str) -> Failure {
    let given = sources.set.iter().find(|(whole, _)| within(key, whole));
    if let Some((_, given)) = given {
        return Failure::usage(format!("--set {given}: {why}"));
    }
    let mut best: Option<(usize, String)> = None;
    for path in &sources.files {
        let Some((length, line)) = fs::read_to_string(path)
            .ok()
            .and_then(|text| line_of(&text, key))
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(most, _)| length >= *most) {
            best = Some((length, format!("{}:{line}", path.display())));
        }
    }
    let place = best.map_or_else(|| "the configuration".to_owned(), |(_, place)| place);
    Failure::configuration(format!("{place}: {key}: {why}"))
}

/// Whether `key` is `table` or lies in it.
fn within(key: &str, table: &str) -> bool {
    key.strip_prefix(table)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The line, counted from 1, that sets `key` or else the innermost table around it, and how much of
/// the key's name is said there.
fn line_of(text: &str, key: &str) -> Option<(usize, usize)> {
    let mut table = String::new();
    let mut best: Option<(usize, usize)> = None;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        let named = if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_start_matches('[');
            table = plain(header.split(']').next().unwrap_or_default());
            table.clone()
        } else if let Some((name, _)) = line.split_once('=') {
            let name = plain(name);
            if table.is_empty() {
                name
            } else {
                format!("{table}.{name}")
            }
        } else {
            continue;
        };
        // `jobs.a.budget.calls = 3` says more than is asked for when `jobs.a.budget` is wrong.
        let said = if within(&named, key) { key } else { &named };
        if within(key, said) && best.is_none_or(|(most, _)| said.len() > most) {
            best = Some((said.len(), index + 1));
        }
    }
    best
}

/// A dotted key without the quotes and spaces that TOML allows in it.
fn plain(key: &str) -> String {
    key.chars()
        .filter(|c| !c.is_whitespace() && *c != '"' && *c != '\'')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_own_table() {
        let text = "[jobs.a]\nquiet = \"x\" # [jobs.b]\n\n[ jobs . \"b\" ]\nkind = \"command\"\nquiet = \"y\"\nbudget = { calls = 3 }\nartifacts.from = 3\n";
        let line = |key| line_of(text, key).map(|(_, line)| line);
        assert_eq!(line("jobs.a.quiet"), Some(2));
        assert_eq!(line("jobs.b.quiet"), Some(6));
        assert_eq!(line("jobs.b.budget.calls"), Some(7));
        assert_eq!(line("jobs.b.artifacts"), Some(8));
        assert_eq!(line("jobs.b.zone"), Some(4));
        assert_eq!(line("jobs.c"), None);
        assert_eq!(line("jobs.ab.quiet"), None);
    }
}
