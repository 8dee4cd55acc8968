//! `dreams/state.json`: what was known of each idea when it was last shown and last triaged.
//!
//! An array in a form that others read too (contracts/dream.md), so entries that a pass does not
//! touch are kept byte for byte, what a touched one says besides stays as it is written (numbers of
//! any length, texts that are none in UTF-8), and a file that is not such an array is never
//! overwritten. Reading is made for 100,000 entries: one pass over the text, paths
//! and hashes borrowed from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use jiff::Timestamp;
use runner_engine::digest::Digest;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, to_string};

/// Why a text is no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadState(String);

/// The state as it was read.
#[derive(Debug, Default)]
pub struct State<'a> {
    text: &'a str,
    /// In the order of the file.
    entries: Vec<Entry<'a>>,
    /// Places in `entries`, by path; empty when the entries are in that order themselves.
    by_path: Vec<u32>,
}

#[derive(Debug)]
struct Entry<'a> {
    range: Range<usize>,
    path: Cow<'a, str>,
    hash: Option<Digest>,
    surfaced: Option<Cow<'a, str>>,
}

/// What a pass needs of an entry; everything else is passed over.
#[derive(Deserialize)]
struct Needed<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    hash: Lent<'a>,
    #[serde(borrow, default)]
    last_surfaced: Lent<'a>,
}

/// A text borrowed from the file where it can be; nothing where there is no text. (`Option<Cow>`
/// would copy.)
#[derive(Default)]
struct Lent<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Lent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Lent<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or null")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Lent(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Lent(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Lent(None))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// What a pass learned of one idea.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// It was shown now.
    pub surfaced: Timestamp,
    /// A valid answer about it arrived; none leaves it selected.
    pub triaged: Option<Triaged>,
}

/// What a valid answer was about.
#[derive(Clone, Debug, PartialEq)]
pub struct Triaged {
    /// The content.
    pub hash: Digest,
    /// When that content was written.
    pub modified: Timestamp,
    /// How much there is to it, from 0 to 1; for ranking only.
    pub merit: f64,
}

/// What a person's act made of an idea.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// `active`, `archived`, `promoted`, `merged`.
    pub status: String,
    /// The content that counts as triaged from now on; none leaves it as it is.
    pub hash: Option<String>,
    /// What happened, for `history`.
    pub happened: Value,
}

/// What the file says of an idea.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its status, if that is a text.
    pub status: Option<String>,
    /// Its content when it was triaged last.
    pub hash: Option<Digest>,
}

impl<'a> State<'a> {
    /// Reads a state file. A blank one is empty.
    ///
    /// # Errors
    /// It is not an array of objects with a `path`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadState> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| BadState(format!("it is not UTF-8: {error}")))?;
        let mut state = State {
            text,
            ..State::default()
        };
        let mut at = skip_space(text, 0);
        if at == text.len() {
            return Ok(state);
        }
        if !text[at..].starts_with('[') {
            return Err(BadState("it is not a JSON array".to_owned()));
        }
        at = skip_space(text, at + 1);
        if text[at..].starts_with(']') {
            return end(text, at, state);
        }
        loop {
            let mut values =
                serde_json::Deserializer::from_str(&text[at..]).into_iter::<Needed<'a>>();
            let number = state.entries.len();
            // The form for `Needed` could be a list of its values, too.
            if !text[at..].is_empty() && !text[at..].starts_with('{') {
                return Err(BadState(format!(
                    "entry {number} at byte {at} is not an object"
                )));
            }
            let needed = match values.next() {
                Some(Ok(needed)) => needed,
                Some(Err(error)) => {
                    return Err(BadState(format!("entry {number} at byte {at}: {error}")));
                }
                None => return Err(BadState(format!("it ends after entry {number}"))),
            };
            let range = at..at + values.byte_offset();
            let hash = needed.hash.0.as_deref().and_then(Digest::parse);
            at = skip_space(text, range.end);
            state.entries.push(Entry {
                range,
                path: needed.path,
                hash,
                surfaced: needed.last_surfaced.0,
            });
            match text.as_bytes().get(at) {
                Some(b',') => at = skip_space(text, at + 1),
                Some(b']') => return end(text, at, state),
                _ => {
                    return Err(BadState(format!(
                        "no comma or end after entry {number} at byte {at}"
                    )));
                }
            }
        }
    }

    /// How many ideas it knows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The content of the idea at `path` that was triaged last. `hint` is where it is looked for
    /// first, and afterwards names the next idea: whoever asks in the order of paths starts with 0
    /// and keeps it.
    pub fn triaged(&self, path: &str, hint: &mut usize) -> Option<Digest> {
        let guess = if self.by_path.is_empty() {
            self.entries.get(*hint)
        } else {
            self.by_path
                .get(*hint)
                .map(|at| &self.entries[*at as usize])
        };
        if let Some(entry) = guess.filter(|entry| entry.path == path) {
            *hint += 1;
            return entry.hash;
        }
        let place = self.place(path)?;
        *hint = place + 1;
        self.entries[self.at(place)].hash
    }

    /// When the idea at `path` was shown last.
    pub fn surfaced(&self, path: &str) -> Option<Timestamp> {
        self.entries[self.find(path)?]
            .surfaced
            .as_deref()?
            .parse()
            .ok()
    }

    fn find(&self, path: &str) -> Option<usize> {
        self.place(path).map(|place| self.at(place))
    }

    /// Where the idea comes in the order of paths.
    fn place(&self, path: &str) -> Option<usize> {
        let compare = |entry: &Entry<'_>| entry.path.as_ref().cmp(path);
        let found = if self.by_path.is_empty() {
            self.entries.binary_search_by(compare)
        } else {
            self.by_path
                .binary_search_by(|at| compare(&self.entries[*at as usize]))
        };
        found.ok()
    }

    /// Where the entry at a place in the order of paths stands in the file.
    fn at(&self, place: usize) -> usize {
        self.by_path.get(place).map_or(place, |at| *at as usize)
    }

    /// What the file says of the idea at `path`.
    pub fn standing(&self, path: &str) -> Option<Standing> {
        let entry = &self.entries[self.find(path)?];
        let keys = Keys::of(&self.text[entry.range.clone()]);
        Some(Standing {
            status: keys
                .get("status")
                .and_then(|raw| serde_json::from_str(raw).ok()),
            hash: entry.hash,
        })
    }

    /// The file's new content: changed entries in their old place, new ones at the end by path.
    pub fn with(&self, changes: &BTreeMap<&str, Change>) -> String {
        self.rewritten(changes, element)
    }

    /// The file's new content after acts of people on these ideas.
    pub fn marked(&self, marks: &BTreeMap<&str, Mark>) -> String {
        self.rewritten(marks, marked_element)
    }

    fn rewritten<C>(
        &self,
        changes: &BTreeMap<&str, C>,
        element: impl Fn(Keys<'_>, &str, &C) -> String,
    ) -> String {
        let mut touched: BTreeMap<usize, (&str, &C)> = BTreeMap::new();
        let mut added = Vec::new();
        for (path, change) in changes {
            match self.find(path) {
                Some(at) => {
                    touched.insert(at, (path, change));
                }
                None => added.push((*path, change)),
            }
        }
        let mut text = String::with_capacity(self.text.len() + 256 * changes.len() + 4);
        text.push('[');
        let mut put = |element: &str| {
            text.push_str(if text.len() == 1 { "\n  " } else { ",\n  " });
            text.push_str(element);
        };
        for (at, entry) in self.entries.iter().enumerate() {
            let old = &self.text[entry.range.clone()];
            match touched.get(&at) {
                None => put(old),
                Some((path, change)) => put(&element(Keys::of(old), path, change)),
            }
        }
        for (path, change) in added {
            put(&element(Keys::default(), path, change));
        }
        text.push_str(if text.len() == 1 { "]\n" } else { "\n]\n" });
        text
    }
}

fn end<'a>(text: &str, at: usize, mut state: State<'a>) -> Result<State<'a>, BadState> {
    let after = skip_space(text, at + 1);
    if after != text.len() {
        return Err(BadState(format!(
            "there is more after the array, at byte {after}"
        )));
    }
    let path = |at: &u32| &state.entries[*at as usize].path;
    if !state.entries.is_sorted_by(|a, b| a.path < b.path) {
        let mut by_path: Vec<u32> = (0..state.entries.len() as u32).collect();
        by_path.sort_by(|a, b| path(a).cmp(path(b)));
        // Of two entries for one idea the first counts.
        by_path.dedup_by(|a, b| path(a) == path(b));
        state.by_path = by_path;
    }
    Ok(state)
}

fn skip_space(text: &str, from: usize) -> usize {
    text[from..]
        .bytes()
        .position(|byte| !byte.is_ascii_whitespace())
        .map_or(text.len(), |n| from + n)
}

/// The keys of an entry with their values, as they are written.
#[derive(Default)]
struct Keys<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Keys<'a> {
    /// Those of an entry that [`State::parse`] has read.
    fn of(entry: &'a str) -> Self {
        // Both pass over what they need not know in the same way, so what one reads the other does.
        serde_json::from_str(entry).expect("the entry was read as an object before")
    }

    /// A key's value, as it is written.
    fn get(&self, key: &str) -> Option<&str> {
        let named =
            |name: &str| serde_json::from_str::<Cow<'_, str>>(name).is_ok_and(|name| name == key);
        let found = self.0.iter().find(|(name, _)| named(name));
        found.map(|(_, value)| value.as_ref())
    }

    /// Adds an element to a list; whatever else stands there stays as it is.
    fn push(&mut self, key: &str, element: &Value) {
        let element = to_string(element).expect("a history has string keys only");
        let Some(old) = self.get(key) else {
            let list = format!("[{element}]");
            self.0.push((format!("{key:?}").into(), list.into()));
            return;
        };
        let Some(open) = old
            .trim_end()
            .strip_suffix(']')
            .filter(|_| old.starts_with('['))
        else {
            return;
        };
        let comma = if open.trim_start_matches('[').trim().is_empty() {
            ""
        } else {
            ","
        };
        let list = format!("{}{comma}{element}]", open.trim_end());
        for (name, value) in &mut self.0 {
            if serde_json::from_str::<Cow<'_, str>>(name).is_ok_and(|name| name == key) {
                *value = list.clone().into();
            }
        }
    }

    /// Gives a key this value; one that is there keeps its own unless `always`.
    fn set(&mut self, key: &str, value: Value, always: bool) {
        let written = |value: &Value| to_string(value).expect("a text or a number is JSON");
        let mut known = false;
        for (name, old) in &mut self.0 {
            // A key may be written with escapes.
            if serde_json::from_str::<Cow<'_, str>>(name).is_ok_and(|name| name == key) {
                known = true;
                if always {
                    *old = written(&value).into();
                }
            }
        }
        if !known {
            self.0
                .push((written(&key.into()).into(), written(&value).into()));
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Keys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Raw;
        impl<'de> Visitor<'de> for Raw {
            type Value = Keys<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    keys.push((key.get().into(), value.get().into()));
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Raw)
    }
}

/// One element as it stands in the array, indented by two.
fn element(mut keys: Keys<'_>, path: &str, change: &Change) -> String {
    let known = !keys.0.is_empty();
    keys.set("path", path.into(), !known);
    match &change.triaged {
        Some(triaged) => {
            keys.set("hash", triaged.hash.to_string().into(), true);
            keys.set("last_modified", triaged.modified.to_string().into(), true);
            keys.set("last_surfaced", change.surfaced.to_string().into(), true);
            keys.set("merit", triaged.merit.into(), true);
        }
        None => {
            keys.set("hash", "".into(), false);
            // Never triaged: the form wants a time, this one is before all.
            let never = Timestamp::UNIX_EPOCH.to_string();
            keys.set("last_modified", never.into(), false);
            keys.set("last_surfaced", change.surfaced.to_string().into(), true);
            keys.set("merit", 0.0.into(), false);
        }
    }
    if !known {
        keys.set("status", "active".into(), true);
    }
    written(&keys)
}

/// One element after an act.
fn marked_element(mut keys: Keys<'_>, path: &str, mark: &Mark) -> String {
    if keys.0.is_empty() {
        let never = Timestamp::UNIX_EPOCH.to_string();
        keys.set("path", path.into(), true);
        keys.set("hash", "".into(), true);
        keys.set("last_modified", never.clone().into(), true);
        keys.set("last_surfaced", never.into(), true);
        keys.set("merit", 0.0.into(), true);
    }
    if let Some(hash) = &mark.hash {
        keys.set("hash", hash.as_str().into(), true);
    }
    keys.set("status", mark.status.as_str().into(), true);
    keys.push("history", &mark.happened);
    written(&keys)
}

/// An element's lines, indented by two.
fn written(keys: &Keys<'_>) -> String {
    let lines: Vec<String> = (keys.0.iter())
        .map(|(key, value)| format!("    {key}: {value}"))
        .collect();
    format!("{{\n{}\n  }}", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn triaged(content: &[u8]) -> Change {
        let triaged = Triaged {
            hash: Digest::of(content),
            modified: at(5),
            merit: 0.5,
        };
        Change {
            surfaced: at(10),
            triaged: Some(triaged),
        }
    }

    #[test]
    fn a_new_state_has_the_contracts_form() {
        let state = State::parse(b"").unwrap();
        let shown = Change {
            surfaced: at(10),
            triaged: None,
        };
        let text = state.with(&BTreeMap::from([
            ("ideas/b.md", shown),
            ("ideas/a.md", triaged(b"abc")),
        ]));
        assert_eq!(
            text,
            "[\n  {\n    \"path\": \"ideas/a.md\",\n    \"hash\": \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\n    \
             \"last_modified\": \"1970-01-01T00:00:05Z\",\n    \"last_surfaced\": \"1970-01-01T00:00:10Z\",\n    \"merit\": 0.5,\n    \
             \"status\": \"active\"\n  },\n  {\n    \"path\": \"ideas/b.md\",\n    \"hash\": \"\",\n    \
             \"last_modified\": \"1970-01-01T00:00:00Z\",\n    \"last_surfaced\": \"1970-01-01T00:00:10Z\",\n    \"merit\": 0.0,\n    \
             \"status\": \"active\"\n  }\n]\n"
        );
        let again = State::parse(text.as_bytes()).unwrap();
        assert_eq!(
            again.triaged("ideas/a.md", &mut 0),
            Some(Digest::of(b"abc"))
        );
        assert_eq!(again.triaged("ideas/b.md", &mut 0), None);
        assert_eq!(again.surfaced("ideas/b.md"), Some(at(10)));
        assert_eq!(again.surfaced("ideas/c.md"), None);
        assert_eq!(again.with(&BTreeMap::new()), text);
        assert_eq!(
            State::parse(b" [ ] ").unwrap().with(&BTreeMap::new()),
            "[]\n"
        );
    }

    #[test]
    fn an_act_marks_an_idea_and_keeps_the_rest() {
        let file = r#"[{"path":"a.md","hash":"x","n":1e999,"status":"active","history":[ {"at":1} ]},{"path":"b.md","history":"none"}]"#;
        let state = State::parse(file.as_bytes()).unwrap();
        let mark = |hash: Option<&str>| Mark {
            status: "archived".into(),
            hash: hash.map(str::to_owned),
            happened: serde_json::json!({"at": 2}),
        };
        let marks = BTreeMap::from([
            ("a.md", mark(None)),
            ("b.md", mark(Some("h"))),
            ("c.md", mark(None)),
        ]);
        let text = state.marked(&marks);
        assert!(text.contains("\"n\": 1e999"), "{text}");
        assert!(
            text.contains(r#""history": [ {"at":1},{"at":2}]"#),
            "{text}"
        );
        let again = State::parse(text.as_bytes()).unwrap();
        let archived = Some("archived".to_owned());
        for path in ["a.md", "b.md", "c.md"] {
            assert_eq!(again.standing(path).unwrap().status, archived, "{path}");
        }
        assert!(text.contains("\"hash\": \"x\""), "{text}");
        assert!(
            text.contains("\"history\": \"none\""),
            "a foreign history stays: {text}"
        );
        assert!(text.contains(r#""history": [{"at":2}]"#), "{text}");
        assert_eq!(again.standing("d.md"), None);
    }

    #[test]
    fn what_others_wrote_stays() {
        let other = r#"{"path":"z.md","hash":"x","last_surfaced":"2026-06-07T12:00:00.5-07:00","big":12345678901234567890123}"#;
        let own = r#"{ "path": "a.md", "status": "archived", "history": [{"proposal_id": "1"}], "merit": 0.9, "x": {"y": [1]} }"#;
        let file = format!("[{other},\n{own}]");
        let state = State::parse(file.as_bytes()).unwrap();
        assert_eq!((state.len(), state.triaged("z.md", &mut 0)), (2, None));
        assert_eq!(
            state.surfaced("z.md").unwrap().to_string(),
            "2026-06-07T19:00:00.5Z"
        );
        let text = state.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
        assert!(text.contains(other), "{text}");
        let values: Vec<Map<String, Value>> = serde_json::from_str(&text).unwrap();
        assert_eq!(values[1]["status"], "archived");
        assert_eq!(values[1]["history"][0]["proposal_id"], "1");
        assert_eq!(values[1]["x"]["y"][0], 1);
        assert_eq!(values[1]["merit"], 0.5);
        assert_eq!(values[1]["hash"], Digest::of(b"new").to_string());
        let shown = state.with(&BTreeMap::from([(
            "a.md",
            Change {
                surfaced: at(9),
                triaged: None,
            },
        )]));
        let values: Vec<Map<String, Value>> = serde_json::from_str(&shown).unwrap();
        assert_eq!(
            (&values[1]["merit"], &values[1]["status"]),
            (&0.9.into(), &"archived".into())
        );
    }

    #[test]
    fn what_a_touched_entry_says_besides_stays_as_it_is_written() {
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for value in [
            r#""\ud800""#,
            "1e999",
            "12345678901234567890123",
            "0.1000000000000000000000000000000000001",
            "-0.0",
            "1E+2",
            r#"{"a" : [1,  2],"a":3}"#,
            &nested,
        ] {
            let file = format!(r#"[{{"path": "a.md", "x": {value}, "p\u00e9": 1, "x": 2}}]"#);
            let state = State::parse(file.as_bytes()).unwrap();
            let text = state.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
            let kept = format!("    \"x\": {value},\n    \"p\\u00e9\": 1,\n    \"x\": 2,\n");
            assert!(text.contains(&kept), "{text}");
            let again = State::parse(text.as_bytes()).unwrap();
            assert_eq!(again.triaged("a.md", &mut 0), Some(Digest::of(b"new")));
            let twice = again.with(&BTreeMap::from([("a.md", triaged(b"new"))]));
            assert_eq!(twice, text, "a file in this form keeps it");
        }
    }

    #[test]
    fn what_no_pass_can_use_is_found_when_it_is_read() {
        for entry in [
            r#"["a.md", "hash", "time"]"#,
            r#"{"path": "a.md", "\ud800": 1}"#,
            r#"{"path": "\ud800"}"#,
            r#"{"path": "a.md", "hash": 1e999}"#,
            r#"{"path": "a.md", "path": "b.md"}"#,
            r#"{"path": "a.md", "x": 01}"#,
            r#"{"path": "a.md", "x": "\q"}"#,
        ] {
            let why = State::parse(format!("[{entry}]").as_bytes()).unwrap_err();
            assert!(why.to_string().contains("entry 0"), "{entry}: {why}");
        }
    }

    #[test]
    fn what_is_no_state_says_where() {
        for (text, expected) in [
            ("{}", "not a JSON array"),
            ("# notes", "not a JSON array"),
            ("[1]", "entry 0"),
            ("[{\"path\": \"a\"}, {\"hash\": \"x\"}]", "entry 1"),
            ("[{\"path\": \"a\"}", "no comma or end"),
            ("[{\"path\": \"a\"},", "ends after entry 1"),
            ("[] trailing", "more after the array"),
            ("[{\"path\": \"a\"} {\"path\": \"b\"}]", "no comma"),
        ] {
            let why = State::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(why.contains(expected), "{text}: {why}");
        }
        assert!(State::parse(b"\xff").is_err());
    }
}
