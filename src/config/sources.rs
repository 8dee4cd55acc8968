//! Where settings are written: files, the environment, a command line; and the place of each for
//! errors about it and for whoever asks.
//!
//! The texts are kept and looked through only when a place is asked for, so that reading a good
//! configuration costs nothing more. Must never write a file.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::place::Spot;
use crate::cli::Failure;

/// More than this is no configuration, in bytes.
const LARGEST: u64 = 64 << 20;

/// What is wrong, and where.
#[derive(Clone, Debug)]
pub(super) struct Mistake {
    /// The setting, by its whole name; empty where a file cannot be read at all.
    pub(super) key: String,
    said: String,
    drawing: Option<String>,
    exit: Exit,
}

impl From<Mistake> for Failure {
    fn from(mistake: Mistake) -> Self {
        let failure = match mistake.exit {
            Exit::Usage => Self::usage(mistake.said),
            _ => Self::configuration(mistake.said),
        };
        match mistake.drawing {
            Some(drawing) => failure.drawn(drawing),
            None => failure,
        }
    }
}

impl Mistake {
    /// About a file as a whole.
    pub(super) fn of_file(path: &Path, why: &str) -> Self {
        Self {
            key: String::new(),
            said: format!("{}: {why}", path.display()),
            drawing: None,
            exit: Exit::Configuration,
        }
    }

    fn at(path: &Path, text: &str, span: Range<usize>, key: &str, why: &str) -> Self {
        let spot = Spot::of(text, span);
        let named = if key.is_empty() {
            String::new()
        } else {
            format!("{key}: ")
        };
        Self {
            key: key.to_owned(),
            said: format!(
                "{}:{}:{}: {named}{why}",
                path.display(),
                spot.line,
                spot.column
            ),
            drawing: Some(spot.drawing),
            exit: Exit::Configuration,
        }
    }

    /// What it says without its drawing: two that say the same are one.
    pub(super) fn said(&self) -> &str {
        &self.said
    }
}

/// A file of settings.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// What it is: `default`, `user` or `project`.
    pub(super) name: &'static str,
    /// Where it lies; for the default, its name in runner's own sources.
    pub(super) path: PathBuf,
    /// What it says, without a byte order mark.
    pub(super) text: Cow<'static, str>,
}

/// A setting that is in no file.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Its whole name.
    pub(super) key: String,
    /// What it is: `environment`, `flag` or `set`.
    pub(super) layer: &'static str,
    /// How it was given, like `--config night.at`.
    pub(super) said: String,
}

/// Where a resolved configuration was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// Files, later ones override.
    pub(super) layers: Vec<Layer>,
    /// What is in no file, later ones override.
    pub(super) given: Vec<Given>,
}

/// Reads the text of one layer; `None` where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, Mistake> {
    let cannot =
        |error: std::io::Error| Mistake::of_file(path, &format!("cannot read it: {error}"));
    match fs::metadata(path) {
        Ok(data) if !data.is_file() => return Err(Mistake::of_file(path, "it is not a file")),
        Ok(data) if data.len() > LARGEST => {
            return Err(Mistake::of_file(
                path,
                "it is too long to be settings (64 MiB at most)",
            ));
        }
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(cannot(error)),
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST).read_to_end(&mut bytes))
        .map_err(cannot)?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let bad = good..good + '\u{fffd}'.len_utf8();
        Mistake::at(path, &text, bad, "", "this is not UTF-8")
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(Some(text))
}

/// Reads a layer's text as TOML.
pub(super) fn parse(layer: &Layer) -> Result<Table, Mistake> {
    toml::from_str(&layer.text).map_err(|error| syntax(layer, &error))
}

/// All mistakes in a layer's TOML.
pub(super) fn syntax_mistakes(layer: &Layer) -> Vec<Mistake> {
    match parse(layer) {
        Ok(_) => Vec::new(),
        Err(first) => {
            let (_, errors) = DeTable::parse_recoverable(&layer.text);
            let mut all: Vec<Mistake> = errors.iter().map(|error| syntax(layer, error)).collect();
            if all.is_empty() {
                all.push(first);
            }
            all
        }
    }
}

fn syntax(layer: &Layer, error: &toml::de::Error) -> Mistake {
    let why = error.message().replace('\n', ", ");
    let span = error.span().unwrap_or(0..0);
    Mistake::at(&layer.path, &layer.text, span, "", &why)
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

/// An error about a value: it names the command line's own words for it, or the place in the last
/// file that sets it or, failing that, of the table it would stand in.
pub(super) fn wrong(sources: &Sources, key: &str, why: &str) -> Mistake {
    about(sources, key, why, true)
}

/// The same about a key that should not be there at all.
pub(super) fn unknown(sources: &Sources, key: &str, why: &str) -> Mistake {
    about(sources, key, why, false)
}

fn about(sources: &Sources, key: &str, why: &str, of_value: bool) -> Mistake {
    let mut given = sources
        .given
        .iter()
        .rev()
        .find(|given| within(key, &given.key));
    let best = if given.is_none() {
        innermost(sources, key)
    } else {
        None
    };
    if best
        .as_ref()
        .is_none_or(|(_, found)| found.said < key.len())
    {
        // A table that no file has is there because of what lies in it.
        given = given.or_else(|| {
            sources
                .given
                .iter()
                .rev()
                .find(|given| within(&given.key, key))
        });
    }
    if let Some(given) = given {
        return Mistake {
            key: key.to_owned(),
            said: format!("{}: {why}", given.said),
            drawing: None,
            exit: match given.layer {
                "environment" => Exit::Configuration,
                _ => Exit::Usage,
            },
        };
    }
    match best {
        Some((layer, found)) => {
            let span = match found.value {
                Some(value) if of_value => value,
                _ => found.key,
            };
            Mistake::at(&layer.path, &layer.text, span, key, why)
        }
        None => Mistake {
            key: key.to_owned(),
            said: format!("the configuration: {key}: {why}"),
            drawing: None,
            exit: Exit::Configuration,
        },
    }
}

/// The last file that says most of a key's name.
fn innermost<'a>(sources: &'a Sources, key: &str) -> Option<(&'a Layer, Found)> {
    let mut best: Option<(&Layer, Found)> = None;
    for layer in sources
        .layers
        .iter()
        .filter(|layer| layer.name != "default")
    {
        let Ok(table) = DeTable::parse(&layer.text) else {
            continue;
        };
        let Some(found) = find(table.get_ref(), key) else {
            continue;
        };
        if best
            .as_ref()
            .is_none_or(|(_, most)| found.said >= most.said)
        {
            best = Some((layer, found));
        }
    }
    best
}

/// Whether `key` is `table` or lies in it.
fn within(key: &str, table: &str) -> bool {
    key.strip_prefix(table)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Where a key stands in a file.
struct Found {
    /// How much of the key's name is said there.
    said: usize,
    /// Its name, or that of the innermost table around it.
    key: Range<usize>,
    /// What it is set to, where that is no table.
    value: Option<Range<usize>>,
}

fn find(table: &DeTable<'_>, key: &str) -> Option<Found> {
    let mut best: Option<Found> = None;
    for (name, value) in table {
        let Some(rest) = key.strip_prefix(name.get_ref().as_ref()) else {
            continue;
        };
        let own = |said: usize, whole: bool| Found {
            said,
            key: name.span(),
            value: (whole && value.get_ref().as_table().is_none()).then(|| value.span()),
        };
        let said = key.len() - rest.len();
        let found = match (rest.strip_prefix('.'), value.get_ref()) {
            (None, _) if rest.is_empty() => own(said, true),
            (None, _) => continue,
            (Some(rest), DeValue::Table(inner)) => match find(inner, rest) {
                Some(found) => Found {
                    said: found.said + said + 1,
                    ..found
                },
                None => own(said, false),
            },
            (Some(_), _) => own(said, false),
        };
        if best.as_ref().is_none_or(|best| found.said > best.said) {
            best = Some(found);
        }
    }
    best
}

/// The line, counted from 1, of each value of a layer that is no table, by its path.
pub(super) fn lines(layer: &Layer) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    if let Ok(table) = DeTable::parse(&layer.text) {
        collect(table.get_ref(), &mut Vec::new(), &mut found);
    }
    // Sorted by where they stand, the lines are counted once through the text.
    found.sort_by_key(|(_, at)| *at);
    let (mut line, mut from) = (1, 0);
    found
        .into_iter()
        .map(|(path, at)| {
            line += layer.text[from..at].matches('\n').count();
            from = at;
            (path, line)
        })
        .collect()
}

fn collect(table: &DeTable<'_>, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, usize)>) {
    for (name, value) in table {
        path.push(name.get_ref().to_string());
        match Spanned::get_ref(value) {
            DeValue::Table(inner) => collect(inner, path, found),
            _ => found.push((path.clone(), name.span().start)),
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_own_table() {
        let text = "[jobs.a]\nquiet = \"x\" # [jobs.b]\n\n[ jobs . \"b\" ]\nkind = \"command\"\nquiet = \"y\"\nbudget = { calls = 3 }\nartifacts.from = 3\n\"jobs.c\" = '''\nzone = 3'''\n";
        let table = DeTable::parse(text).unwrap();
        let line = |key| find(table.get_ref(), key).map(|found| Spot::of(text, found.key).line);
        assert_eq!(line("jobs.a.quiet"), Some(2));
        assert_eq!(line("jobs.b.quiet"), Some(6));
        assert_eq!(line("jobs.b.budget.calls"), Some(7));
        assert_eq!(line("jobs.b.artifacts"), Some(8));
        assert_eq!(line("jobs.b.zone"), Some(4));
        assert_eq!(line("jobs.b.jobs.c"), Some(9));
        assert_eq!(line("jobs.ab.quiet"), Some(1));
        assert_eq!(line("job"), None);
    }
}
