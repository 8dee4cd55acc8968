//! The sources of settings (files, the environment, a command line) and the location of each
//! setting, for error messages and for `config show --origin`.
//!
//! The files' contents are kept, but are searched only when a location is needed, so that reading a
//! valid configuration has no additional cost. This module must never write a file.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, read_host, read_no_link};
use runner_engine::outcome::Exit;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use serde::Serialize;

use super::finding::{Finding, Fix, Part, Reason};
use super::source_location::SourceLocation;
use super::{ctxrc, dream};
use crate::ui::Failure;

/// Maximum number of reported syntax errors per file.
const SYNTAX: usize = 20;

/// A configuration error and its location.
#[derive(Clone, Debug)]
pub(super) struct ConfigMistake {
    /// The full name of the setting; empty if the error is not about a setting.
    pub(super) key: String,
    said: String,
    /// The file, and the line and column in it, counted from 1.
    place: Option<Box<WrittenAt>>,
    /// The description without the location and the name.
    why: Reason,
    drawing: Option<String>,
    fix: Option<Fix>,
    exit: Exit,
}

/// A file, and the line and column in it.
type WrittenAt = (PathBuf, Option<(usize, usize)>);

/// An error in the form reported to users and programs.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigFinding {
    /// The file; `None` for an error outside the files.
    pub file: Option<PathBuf>,
    /// The line number, counted from 1.
    pub line: Option<usize>,
    /// The column in characters, counted from 1.
    pub column: Option<usize>,
    /// The full name of the setting; `None` if the error is not about a setting.
    pub key: Option<String>,
    pub message: String,
    pub hint: Option<String>,
    /// The name that was probably meant.
    pub nearest: Option<String>,
    /// The complete error, for users.
    #[serde(skip)]
    pub failure: Failure,
}

impl ConfigFinding {
    /// Returns the description with the suggested name.
    #[cfg(test)]
    pub(super) fn said_why(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        }
    }
}

impl From<ConfigMistake> for ConfigFinding {
    fn from(mistake: ConfigMistake) -> Self {
        let message = mistake.why.text.to_string();
        let nearest = mistake.why.near.as_deref().map(str::to_owned);
        let (file, spot) = match mistake.place.clone().map(|place| *place) {
            Some((file, spot)) => (Some(file), spot),
            None => (None, None),
        };
        let near = nearest.as_ref().map(|near| format!("did you mean {near:?}?"));
        Self {
            hint: near.or_else(|| mistake.fix.map(|fix| fix.text(&mistake.key, file.as_deref()))),
            file,
            line: spot.map(|(line, _)| line),
            column: spot.map(|(_, column)| column),
            key: (!mistake.key.is_empty()).then(|| mistake.key.clone()),
            message,
            nearest,
            failure: mistake.into(),
        }
    }
}

impl From<Failure> for ConfigFinding {
    fn from(failure: Failure) -> Self {
        let (message, hint) = failure.parts();
        Self {
            file: None,
            line: None,
            column: None,
            key: None,
            message,
            hint,
            nearest: None,
            failure,
        }
    }
}

impl From<ConfigMistake> for Failure {
    fn from(mistake: ConfigMistake) -> Self {
        let mut failure = match mistake.exit {
            Exit::Usage => Self::usage(mistake.said),
            _ => Self::configuration(mistake.said),
        };
        if let Some(fix) = mistake.fix {
            let file = mistake.place.as_ref().map(|place| place.0.as_path());
            failure = failure.hint(fix.text(&mistake.key, file));
        }
        match mistake.drawing {
            Some(drawing) => failure.drawn(drawing),
            None => failure,
        }
    }
}

impl ConfigMistake {
    /// Creates an error about a whole file.
    pub(super) fn of_file(path: &Path, why: &str) -> Self {
        Self {
            key: String::new(),
            said: format!("{}: {why}", path.display()),
            place: Some(Box::new((path.to_owned(), None))),
            why: why.into(),
            drawing: None,
            fix: None,
            exit: Exit::Configuration,
        }
    }

    /// Creates an error about a location in a file.
    pub(super) fn at(
        path: &Path,
        text: &str,
        span: Range<usize>,
        key: &str,
        why: impl Into<Reason>,
    ) -> Self {
        let why = why.into();
        let spot = SourceLocation::of(text, span);
        let named = if key.is_empty() { String::new() } else { format!("{key}: ") };
        Self {
            key: key.to_owned(),
            said: format!("{}:{}:{}: {named}{why}", path.display(), spot.line, spot.column),
            place: Some(Box::new((path.to_owned(), Some((spot.line, spot.column))))),
            why,
            drawing: Some(spot.drawing),
            fix: None,
            exit: Exit::Configuration,
        }
    }

    /// Describes the fix, if it needs more than a valid value.
    pub(super) fn fix(&self) -> Option<String> {
        self.fix.map(|fix| fix.text(&self.key, None))
    }

    /// Returns the description with the suggested name, without the location and the key.
    pub(super) fn reason(&self) -> String {
        self.why.to_string()
    }
}

/// A settings file.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The kind of layer: `default`, `user`, `ctxrc` or `project`.
    pub(super) name: &'static str,
    /// The path of the file; for the default, its path in runner's sources.
    pub(super) path: PathBuf,
    /// The content, without a byte order mark.
    pub(super) text: Cow<'static, str>,
}

/// A setting outside the files.
#[derive(Clone, Debug)]
pub(super) struct InlineSetting {
    /// The full name of the setting.
    pub(super) key: String,
    /// The origin: `environment`, `flag` or `set`.
    pub(super) layer: &'static str,
    /// The variable or flag that sets it, such as `--config night.at`.
    pub(super) said: String,
}

/// The sources of a resolved configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// The files; later ones override earlier ones.
    pub(super) layers: Vec<Layer>,
    /// The settings outside the files; later ones override earlier ones.
    pub(super) given: Vec<InlineSetting>,
}

/// Reads the contents of the user's layer, which may be a link. Returns `None` if the file does not
/// exist.
pub(super) fn read_user(path: &Path) -> Result<Option<String>, ConfigMistake> {
    layer_text(path, read_host(path, DOCUMENT))
}

/// Reads the contents of a layer in a project's root without following links. Returns `None` if the
/// file does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, ConfigMistake> {
    layer_text(path, read_no_link(path, DOCUMENT))
}

fn layer_text(
    path: &Path,
    read: std::io::Result<Vec<u8>>,
) -> Result<Option<String>, ConfigMistake> {
    match read {
        Ok(bytes) => decoded(path, bytes).map(Some),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => {
            let mistake = ConfigMistake::of_file(path, &format!("cannot read it: {error}"));
            Err(ConfigMistake { fix: Some(Fix::ReadableFile), ..mistake })
        }
    }
}

/// Decodes a file's contents and strips a byte order mark.
pub(super) fn decoded(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigMistake> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let bad = good..good + '\u{fffd}'.len_utf8();
        ConfigMistake::at(path, &text, bad, "", "this is not UTF-8")
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// Parses the contents of a layer.
pub(super) fn parse(layer: &Layer) -> Result<Table, ConfigMistake> {
    if layer.name == ctxrc::NAME {
        return Ok(ctxrc::read(layer)?.table);
    }
    toml::from_str(&layer.text).map_err(|error| syntax(layer, &error))
}

/// Returns the syntax errors in a layer's contents: at most [`SYNTAX`] errors, and only the first
/// error in a `.ctxrc`.
pub(super) fn syntax_mistakes(layer: &Layer) -> Vec<ConfigMistake> {
    match parse(layer) {
        Ok(_) => Vec::new(),
        Err(first) if layer.name == ctxrc::NAME => vec![first],
        Err(first) => {
            let (_, errors) = DeTable::parse_recoverable(&layer.text);
            // Each error includes the offending line, so a report of all errors could be very long.
            let shown = errors.iter().take(SYNTAX);
            let mut all: Vec<ConfigMistake> = shown.map(|error| syntax(layer, error)).collect();
            if all.is_empty() {
                all.push(first);
            }
            all
        }
    }
}

fn syntax(layer: &Layer, error: &toml::de::Error) -> ConfigMistake {
    let why = match error.message() {
        // The parser's messages name the type that it tried, so they are replaced.
        said if said.ends_with("value was too large") => "the number is too large".to_owned(),
        said if said.ends_with("value was too small") => "the number is too small".to_owned(),
        // The parser accepts integers wider than 64 bits, but no setting does.
        said if said.starts_with("invalid type: integer `-") => {
            "the number is too small".to_owned()
        }
        said if said.starts_with("invalid type: integer `") => "the number is too large".to_owned(),
        said => said.replace('\n', ", "),
    };
    let span = error.span().unwrap_or(0..0);
    ConfigMistake::at(&layer.path, &layer.text, span, "", why)
}

/// Applies `over` to `under`: tables are merged, other values are replaced.
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

/// Removes the settings of each backend to which a later layer gives another type, because they may
/// not apply to that type. Its pool and its fallbacks apply to every type.
pub(super) fn replace_types(under: &mut Table, over: &Table) {
    let (Some(Value::Table(under)), Some(Value::Table(over))) =
        (under.get_mut("backends"), over.get("backends"))
    else {
        return;
    };
    for (name, earlier) in under.iter_mut() {
        let later = over.get(name).and_then(|later| later.get("type"));
        if later.is_some_and(|later| earlier.get("type") != Some(later))
            && let Some(earlier) = earlier.as_table_mut()
        {
            earlier.retain(|key, _| matches!(key as &str, "pool" | "fallback"));
        }
    }
}

/// Creates an error about a value. The error names the variable or flag that sets the value, if
/// there is one. Otherwise, it gives the location in the last file that sets the value or, failing
/// that, the location of the value's table.
pub(super) fn wrong(sources: &Sources, key: &str, why: &str) -> ConfigMistake {
    let finding = Finding { key: key.to_owned(), why: why.into(), part: Part::Value, fix: None };
    about(sources, &Places::of(sources), finding).1
}

/// Looks up the locations of errors, and returns the errors ordered by file and line. Errors about
/// missing settings follow, and errors without a location come last.
pub(super) fn locate(sources: &Sources, found: Vec<Finding>) -> Vec<ConfigMistake> {
    let places = Places::of(sources);
    let found = found.into_iter().map(|finding| about(sources, &places, finding));
    let mut found: Vec<(Order, ConfigMistake)> = found.collect();
    found.sort_by_key(|(order, _)| *order);
    found.dedup_by(|(_, a), (_, b)| a.said == b.said);
    found.into_iter().map(|(_, mistake)| mistake).collect()
}

/// The sort key of an error: whether the setting is missing, the index of its file among the
/// layers, and its position in the file.
type Order = (bool, usize, usize);

/// The files of a configuration, parsed once for all errors.
struct Places<'a>(Vec<(&'a Layer, ParsedLayer<'a>)>);

enum ParsedLayer<'a> {
    Toml(Option<Spanned<DeTable<'a>>>),
    Ctxrc(ctxrc::Ctxrc),
}

impl<'a> Places<'a> {
    fn of(sources: &'a Sources) -> Self {
        let parsed = |layer: &'a Layer| match layer.name {
            ctxrc::NAME => ParsedLayer::Ctxrc(ctxrc::read(layer).unwrap_or_default()),
            _ => ParsedLayer::Toml(DeTable::parse(&layer.text).ok()),
        };
        let written = sources.layers.iter().filter(|layer| layer.name != "default");
        Self(written.map(|layer| (layer, parsed(layer))).collect())
    }

    /// Returns the last file that sets the longest prefix of a key's path, the file's index, and
    /// the location there.
    fn innermost(&self, key: &str) -> Option<(usize, &'a Layer, KeyLocation)> {
        let find = |parsed: &ParsedLayer<'a>| match parsed {
            ParsedLayer::Ctxrc(read) => read.find(key).map(|(said, place)| KeyLocation {
                said,
                key: place.name.clone(),
                value: Some(place.value.clone()),
                name: Some(format!("{} ({key})", place.said)),
            }),
            ParsedLayer::Toml(table) => named(table.as_ref()?.get_ref(), key),
        };
        let all = self.0.iter().enumerate();
        all.filter_map(|(at, (layer, parsed))| Some((at, *layer, find(parsed)?)))
            .max_by_key(|(.., found)| found.said)
    }
}

fn about(sources: &Sources, places: &Places<'_>, finding: Finding) -> (Order, ConfigMistake) {
    let Finding { key, why, part, fix } = finding;
    let mut given = sources.given.iter().rev().find(|given| within(&key, &given.key));
    let best = if given.is_none() { places.innermost(&key) } else { None };
    if best.as_ref().is_none_or(|(.., found)| found.said < key.len()) {
        // If no file contains the table, a setting outside the files created it.
        given = given.or_else(|| sources.given.iter().rev().find(|given| within(&given.key, &key)));
    }
    // Only a setting in a TOML file, under its own name, can be unset.
    let can_unset = given.is_none()
        && (best.as_ref())
            .is_some_and(|(_, layer, found)| layer.name != ctxrc::NAME && found.name.is_none());
    let (order, mut mistake) = match (given, best) {
        (None, Some((at, layer, found))) => {
            let span = match found.value {
                Some(value) if part != Part::Key => value,
                _ => found.key,
            };
            let name = found.name.as_deref().unwrap_or(&key);
            let order = (part == Part::Missing, at, span.start);
            (order, ConfigMistake::at(&layer.path, &layer.text, span, name, why))
        }
        (given, _) => {
            let (place, exit) = match given {
                Some(given) if given.layer == "environment" => {
                    (given.said.clone(), Exit::Configuration)
                }
                Some(given) => (given.said.clone(), Exit::Usage),
                None => (format!("the configuration: {key}"), Exit::Configuration),
            };
            let said = format!("{place}: {why}");
            let (place, drawing, key) = (None, None, String::new());
            let mistake = ConfigMistake { key, said, place, why, drawing, fix: None, exit };
            ((true, usize::MAX, 0), mistake)
        }
    };
    mistake.key = key;
    let fix = fix.filter(|fix| *fix != Fix::Unset || can_unset);
    if fix.is_some() {
        mistake.exit = Exit::Configuration;
        mistake.fix = fix;
    }
    (order, mistake)
}

/// Finds the location of a key by its own name, or by an alternative name for the full key.
fn named(table: &DeTable<'_>, key: &str) -> Option<KeyLocation> {
    let own = find(table, key);
    if own.as_ref().is_some_and(|own| own.said == key.len()) {
        return own;
    }
    let other = dream::other_names(key).into_iter().find_map(|name| {
        let found = find(table, &name).filter(|found| found.said == name.len())?;
        Some(KeyLocation { said: key.len(), name: Some(format!("{name} ({key})")), ..found })
    });
    other.or(own)
}

/// Reports whether `key` is `table` or inside it.
pub(super) fn within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The location of a key in a file.
struct KeyLocation {
    /// The length of the prefix of the key's name that was found.
    said: usize,
    /// The range of its name, or of the name of the innermost table around it.
    key: Range<usize>,
    /// The range of its value, unless the value is a table.
    value: Option<Range<usize>>,
    /// Its name in the file, if it differs from runner's name.
    name: Option<String>,
}

fn find(table: &DeTable<'_>, key: &str) -> Option<KeyLocation> {
    let mut best: Option<KeyLocation> = None;
    for (name, value) in table {
        let Some(rest) = key.strip_prefix(name.get_ref().as_ref()) else { continue };
        let own = |said: usize, whole: bool| KeyLocation {
            said,
            key: name.span(),
            value: (whole && value.get_ref().as_table().is_none()).then(|| value.span()),
            name: None,
        };
        let said = key.len() - rest.len();
        let found = match (rest.strip_prefix('.'), value.get_ref()) {
            (None, _) if rest.is_empty() => own(said, true),
            (None, _) => continue,
            (Some(rest), DeValue::Table(inner)) => match find(inner, rest) {
                Some(found) => KeyLocation { said: found.said + said + 1, ..found },
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

/// Returns the 1-based line number of each non-table value in a layer, keyed by its path.
pub(super) fn lines(layer: &Layer) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    if layer.name == ctxrc::NAME {
        let read = ctxrc::read(layer).unwrap_or_default();
        let places = read.places.into_iter();
        found.extend(places.map(|it| {
            let path = it.key.split('.').map(str::to_owned).collect();
            (path, it.name.start)
        }));
    } else if let Ok(table) = DeTable::parse(&layer.text) {
        collect(table.get_ref(), &mut Vec::new(), &mut found);
    }
    // A setting under its runner name takes precedence.
    let own: BTreeSet<Vec<String>> = found.iter().map(|(path, _)| path.clone()).collect();
    found.retain_mut(|(path, _)| {
        let ours = dream::our_path(path.clone());
        let wins = ours == *path || !own.contains(&ours);
        *path = ours;
        wins
    });
    // After sorting by position, one pass over the text counts the lines.
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
    fn key_is_found_in_its_table() {
        let text = "[jobs.a]\nquiet = \"x\" # [jobs.b]\n\n[ jobs . \"b\" ]\nkind = \"command\"\nquiet = \"y\"\nbudget = { calls = 3 }\nartifacts.from = 3\n\"jobs.c\" = '''\nzone = 3'''\n";
        let table = DeTable::parse(text).unwrap();
        let line =
            |key| find(table.get_ref(), key).map(|found| SourceLocation::of(text, found.key).line);
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
