//! The `dream:` section of a project's `.ctxrc`, a file that other programs also read. The section
//! is a configuration layer between the user's file and the project's.
//!
//! | in `.ctxrc` | in runner |
//! | --- | --- |
//! | `enabled`, `max`, `quiet_minutes` | `jobs.dream.enabled`, `max_ideas`, `quiet_minutes` |
//! | `cadence`: a cron expression | `jobs.dream.trigger` |
//! | `budget`: tokens, or a mapping of units | `jobs.dream.budget` |
//! | `executor`: a program, alone or with its arguments | the command backend `[backends.ctxrc]` |
//! | `model` | the `model` of that backend |
//! | `mode` | `discipline`, the only value |
//! | `local_curator`: a mapping | `curator` |
//!
//! The reader parses YAML as events, so deep nesting uses no stack. It ignores the other sections
//! and rejects unknown keys in this one. It must never guess a type.

use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use toml::{Table, Value};

use super::finding::Reason;
use super::overrides::insert;
use super::shape::no_such;
use super::sources::{ConfigMistake, Layer, within};

pub(super) const NAME: &str = "ctxrc";
pub const FILE: &str = ".ctxrc";
/// Maximum size of the file in bytes.
const LARGEST: usize = 1 << 20;

static KEYS: [&str; 9] = [
    "enabled",
    "mode",
    "max",
    "cadence",
    "quiet_minutes",
    "model",
    "budget",
    "executor",
    "local_curator",
];

/// The section, translated to runner's own settings.
#[derive(Debug, Default)]
pub(super) struct Ctxrc {
    /// The settings under their runner names.
    pub(super) table: Table,
    /// The location of each setting in the file.
    pub(super) places: Vec<CtxrcPlace>,
}

/// The location of a setting in the file.
#[derive(Clone, Debug)]
pub(super) struct CtxrcPlace {
    /// The setting's name in runner.
    pub(super) key: String,
    /// The name in the file, such as `dream.max`.
    pub(super) said: String,
    /// The byte range of the name in the file.
    pub(super) name: Range<usize>,
    /// The byte range of the value in the file.
    pub(super) value: Range<usize>,
}

/// A key of the section with its value, which is `None` for YAML's null.
struct CtxrcEntry {
    key: String,
    name: Range<usize>,
    node: Option<YamlNode>,
}

struct YamlNode {
    value: Value,
    span: Range<usize>,
    /// Each name with its byte range and that of its value, if the node is a mapping.
    inner: Vec<(String, Range<usize>, Range<usize>)>,
}

/// Reads the `dream:` section of a layer.
pub(super) fn read(layer: &Layer) -> Result<Ctxrc, ConfigMistake> {
    if layer.text.len() > LARGEST {
        let why = "the file is larger than 1 MiB";
        return Err(ConfigMistake::of_file(&layer.path, why));
    }
    let mut reader = CtxrcReader::new(layer, &KEYS);
    let entries = reader.section()?;
    translate(&reader, entries)
}

/// Returns the settings in the `dream:` section of another program's YAML file, keyed by the names
/// that program uses.
pub(super) fn foreign(layer: &Layer) -> Result<Vec<(String, Value)>, ConfigMistake> {
    let entries = CtxrcReader::new(layer, &[]).section()?;
    Ok(entries.into_iter().filter_map(|it| Some((it.key, it.node?.value))).collect())
}

fn translate(reader: &CtxrcReader<'_>, entries: Vec<CtxrcEntry>) -> Result<Ctxrc, ConfigMistake> {
    let mut out = Ctxrc::default();
    let executor = entries.iter().any(|it| it.key == "executor" && it.node.is_some());
    for CtxrcEntry { key, name, node } in entries {
        let Some(YamlNode { value, span, inner }) = node else { continue };
        let wrong = |why: &str| Err(reader.wrong(&format!("dream.{key}"), span.clone(), why));
        let mut add =
            |path: &[&str], value: Value, at: (Range<usize>, Range<usize>), said: String| {
                insert(&mut out.table, path.iter().copied(), value);
                out.places.push(CtxrcPlace { key: path.join("."), said, name: at.0, value: at.1 });
            };
        let said = format!("dream.{key}");
        let at = (name, span.clone());
        match (key.as_str(), value) {
            ("enabled", value) => add(&["jobs", "dream", "enabled"], value, at, said),
            ("max", value) => add(&["jobs", "dream", "max_ideas"], value, at, said),
            ("quiet_minutes", value) => add(&["jobs", "dream", "quiet_minutes"], value, at, said),
            ("mode", value) if value.as_str() == Some("discipline") => {}
            ("mode", value) => {
                let why = format!("unknown mode {value}; the only mode is \"discipline\"");
                return wrong(&why);
            }
            ("cadence", Value::String(cron)) => {
                add(&["jobs", "dream", "trigger"], format!("cron {cron}").into(), at, said);
            }
            ("cadence", value) => {
                return wrong(&format!("expected a cron expression, found {value}"));
            }
            ("model", _) if !executor => {
                return wrong(
                    "`model` has no effect without `executor`; add `executor` or remove `model`",
                );
            }
            ("model", value) => add(&["backends", NAME, "model"], value, at, said),
            (own @ ("budget" | "local_curator"), Value::Table(settings)) => {
                let budget = ["jobs", "dream", "budget"];
                let under = if own == "budget" { &budget[..] } else { &["curator"] };
                for (own, value) in settings {
                    let found = inner.iter().find(|(name, ..)| *name == own);
                    let at =
                        found.map_or(at.clone(), |(_, name, value)| (name.clone(), value.clone()));
                    add(&[under, &[&own]].concat(), value, at, format!("{said}.{own}"));
                }
            }
            ("budget", tokens) => add(&["jobs", "dream", "budget", "tokens"], tokens, at, said),
            ("local_curator", _) => return wrong("expected a mapping (key: value)"),
            (_, value) => {
                let words = program_and_arguments(&value);
                let Some((program, args)) = words.as_deref().and_then(<[Value]>::split_first)
                else {
                    return wrong(
                        "expected a program (\"my-model\") or a list with the program and its arguments \
                         ([my-model, --json])",
                    );
                };
                for (path, value) in [
                    (["jobs", "dream", "backend"], NAME.into()),
                    (["backends", NAME, "type"], "command".into()),
                    (["backends", NAME, "program"], program.clone()),
                    (["backends", NAME, "args"], Value::Array(args.to_vec())),
                ] {
                    add(&path, value, at.clone(), said.clone());
                }
            }
        }
    }
    Ok(out)
}

/// Returns a program and its arguments, or `None` if the value is neither a non-empty string
/// without whitespace nor a list of strings.
fn program_and_arguments(value: &Value) -> Option<Vec<Value>> {
    match value {
        // A string that a shell would split is rejected, because splitting it would be a guess.
        Value::String(text) if !text.trim().is_empty() && !text.contains(char::is_whitespace) => {
            Some(vec![value.clone()])
        }
        Value::Array(items) if items.iter().all(Value::is_str) => Some(items.clone()),
        _ => None,
    }
}

struct CtxrcReader<'a> {
    layer: &'a Layer,
    /// The known keys; if there are none, every key is accepted.
    keys: &'static [&'static str],
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    starts: CharStarts,
}

/// Converts character positions to byte offsets. Each search continues from the previous result.
#[derive(Default)]
struct CharStarts {
    index: usize,
    byte: usize,
}

impl CharStarts {
    fn byte(&mut self, text: &str, mark: Marker) -> usize {
        if mark.index() < self.index {
            *self = Self::default();
        }
        for c in text[self.byte..].chars().take(mark.index() - self.index) {
            self.byte += c.len_utf8();
        }
        self.index = mark.index();
        self.byte
    }
}

impl Ctxrc {
    /// Returns the location that matches the longest prefix of a key's name, with the length of
    /// that prefix.
    pub(super) fn find(&self, key: &str) -> Option<(usize, &CtxrcPlace)> {
        let said = |place: &CtxrcPlace| match (within(key, &place.key), within(&place.key, key)) {
            (true, _) => Some(place.key.len()),
            // A table is given the location of one of its entries.
            (_, true) => Some(key.len()),
            _ => None,
        };
        let all = self.places.iter().filter_map(|it| Some((said(it)?, it)));
        all.max_by_key(|(said, _)| *said)
    }
}

impl<'a> CtxrcReader<'a> {
    fn new(layer: &'a Layer, keys: &'static [&'static str]) -> Self {
        let events = Parser::new_from_str(&layer.text);
        Self { layer, keys, events, starts: CharStarts::default() }
    }

    fn wrong(&self, key: &str, span: Range<usize>, why: impl Into<Reason>) -> ConfigMistake {
        ConfigMistake::at(&self.layer.path, &self.layer.text, span, key, why)
    }

    fn next(&mut self) -> Result<(Event<'a>, Range<usize>), ConfigMistake> {
        match self.events.next_event() {
            None => Ok((Event::StreamEnd, 0..0)),
            Some(Ok((event, Span { start, end, .. }))) => {
                let start = self.starts.byte(&self.layer.text, start);
                let end = self.starts.byte(&self.layer.text, end);
                Ok((event, start..end))
            }
            Some(Err(error)) => {
                let at = self.starts.byte(&self.layer.text, *error.marker());
                let why = error.info().replace('\n', ", ");
                Err(self.wrong("", at..at, &why))
            }
        }
    }

    /// Reads the entries of `dream:` in the first document. Returns an empty list if there is no
    /// such section.
    fn section(&mut self) -> Result<Vec<CtxrcEntry>, ConfigMistake> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                (Event::MappingStart(..), _) => break,
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Vec::new()),
                (Event::Scalar(text, ScalarStyle::Plain, _, None), _) if is_null(&text) => {
                    return Ok(Vec::new());
                }
                (_, span) => return Err(self.wrong("", span, "expected a mapping (key: value)")),
            }
        }
        let mut found = None;
        loop {
            let (key, span) = self.next()?;
            match key {
                Event::MappingEnd | Event::DocumentEnd | Event::StreamEnd => break,
                Event::Scalar(name, ..) if name == "dream" => {
                    if found.is_some() {
                        return Err(self.wrong("dream", span, "the key is set twice"));
                    }
                    found = Some(self.entries()?);
                }
                other => {
                    self.skip(&other)?;
                    let (value, _) = self.next()?;
                    self.skip(&value)?;
                }
            }
        }
        // The rest of the file must also be valid YAML.
        while self.next()?.0 != Event::StreamEnd {}
        Ok(found.unwrap_or_default())
    }

    fn entries(&mut self) -> Result<Vec<CtxrcEntry>, ConfigMistake> {
        match self.next()? {
            (Event::MappingStart(..), _) => {}
            (Event::Scalar(text, ScalarStyle::Plain, _, None), _) if is_null(&text) => {
                return Ok(Vec::new());
            }
            (_, span) => {
                let why = "expected a mapping (key: value)";
                return Err(self.wrong("dream", span, why));
            }
        }
        let mut entries: Vec<CtxrcEntry> = Vec::new();
        loop {
            let (key, name) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(entries),
                (Event::Scalar(key, ..), span) => (key.into_owned(), span),
                (_, span) => return Err(self.wrong("dream", span, "a key must be plain text")),
            };
            if entries.iter().any(|entry| entry.key == key) {
                return Err(self.wrong(&format!("dream.{key}"), name, "the key is set twice"));
            }
            if !self.keys.is_empty() && !self.keys.contains(&key.as_str()) {
                let why = no_such(&key, self.keys);
                return Err(self.wrong(&format!("dream.{key}"), name, why));
            }
            let said = format!("dream.{key}");
            let first = self.next()?;
            let node = self.node(&said, first, 0)?;
            entries.push(CtxrcEntry { key, name, node });
        }
    }

    /// Reads one value. Returns `None` for null. A list may contain only scalars, and a mapping may
    /// contain only scalars and lists.
    fn node(
        &mut self,
        said: &str,
        (event, span): (Event<'a>, Range<usize>),
        depth: u8,
    ) -> Result<Option<YamlNode>, ConfigMistake> {
        let plain = |value| YamlNode { value, span: span.clone(), inner: Vec::new() };
        match event {
            Event::Scalar(_, _, _, Some(_)) => {
                Err(self.wrong(said, span, "tags (!…) are not supported"))
            }
            Event::Scalar(text, style, _, None) => {
                Ok(scalar(&text, style == ScalarStyle::Plain).map(plain))
            }
            Event::SequenceStart(..) if depth <= 1 => {
                let mut items = Vec::new();
                loop {
                    let next = self.next()?;
                    if matches!(next.0, Event::SequenceEnd | Event::StreamEnd) {
                        break;
                    }
                    let at = next.1.clone();
                    match self.node(said, next, depth + 2)? {
                        Some(node) => items.push(node.value),
                        None => return Err(self.wrong(said, at, "the list has an empty item")),
                    }
                }
                Ok(Some(plain(Value::Array(items))))
            }
            Event::MappingStart(..) if depth == 0 => {
                let (mut table, mut inner) = (Table::new(), Vec::new());
                loop {
                    let (key, name) = match self.next()? {
                        (Event::MappingEnd | Event::StreamEnd, _) => break,
                        (Event::Scalar(key, ..), span) => (key.into_owned(), span),
                        (_, span) => {
                            return Err(self.wrong(said, span, "a key must be plain text"));
                        }
                    };
                    let said = format!("{said}.{key}");
                    if table.contains_key(&key) {
                        return Err(self.wrong(&said, name, "the key is set twice"));
                    }
                    let next = self.next()?;
                    if let Some(node) = self.node(&said, next, depth + 1)? {
                        inner.push((key.clone(), name, node.span));
                        table.insert(key, node.value);
                    }
                }
                let mut node = plain(Value::Table(table));
                node.inner = inner;
                Ok(Some(node))
            }
            Event::Alias(_) => {
                Err(self.wrong(said, span, "aliases are not supported; write the value itself"))
            }
            _ => Err(self.wrong(said, span, "the value is nested too deeply")),
        }
    }

    /// Skips the rest of the node that begins with `first`.
    fn skip(&mut self, first: &Event<'a>) -> Result<(), ConfigMistake> {
        let mut depth = change(first);
        while depth > 0 {
            let (event, _) = self.next()?;
            if event == Event::StreamEnd {
                return Ok(());
            }
            depth += change(&event);
        }
        Ok(())
    }
}

fn change(event: &Event<'_>) -> i64 {
    match event {
        Event::MappingStart(..) | Event::SequenceStart(..) => 1,
        Event::MappingEnd | Event::SequenceEnd => -1,
        _ => 0,
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Converts a scalar according to the YAML 1.2 core schema. A quoted scalar is a string, and so are
/// hexadecimal and octal numbers, infinities and NaN. Returns `None` for null.
fn scalar(text: &str, plain: bool) -> Option<Value> {
    if !plain {
        return Some(Value::String(text.to_owned()));
    }
    if is_null(text) {
        return None;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    Some(match text {
        "true" | "True" | "TRUE" => Value::Boolean(true),
        "false" | "False" | "FALSE" => Value::Boolean(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Value::Integer(whole),
            (_, Ok(number_)) if number && number_.is_finite() => Value::Float(number_),
            _ => Value::String(text.to_owned()),
        },
    })
}
