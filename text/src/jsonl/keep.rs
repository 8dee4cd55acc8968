//! Edits JSON lines in place, rewriting only the changed lines.
//!
//! Broken, blank and unchanged lines are kept byte for byte. In a changed record, all other
//! values keep their order and their original text (such as `0.80`). This module must never drop or
//! reorder fields, or reformat values, that the caller did not change.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The byte order mark in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A JSON object that keeps the original text of its values.
#[derive(Clone, Debug)]
pub struct Object {
    fields: Vec<(String, Box<RawValue>)>,
    /// The object's original text, or `None` if the object is new or has been changed.
    text: Option<String>,
}

struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl Object {
    pub fn new<'k>(fields: impl IntoIterator<Item = (&'k str, Value)>) -> Self {
        let mut object = Self { fields: Vec::new(), text: None };
        for (key, value) in fields {
            object.set(key, &value);
        }
        object
    }

    /// Parses an object and keeps its original text.
    ///
    /// # Errors
    /// Returns an error if the text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let Fields(fields) = serde_json::from_str(text)?;
        Ok(Self { fields, text: Some(text.to_owned()) })
    }

    /// Returns the value of a key. If the key occurs several times, the last value is returned.
    pub fn get(&self, key: &str) -> Option<Value> {
        serde_json::from_str(self.raw(key)?.get()).ok()
    }

    /// Returns the value of a key, if the value is a string.
    pub fn text_of(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.raw(key)?.get()).ok()
    }

    /// Returns the keys in their original order, including repeated keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(key, _)| key.as_str())
    }

    fn raw(&self, key: &str) -> Option<&RawValue> {
        let mut all = self.fields.iter().rev();
        all.find(|(name, _)| name == key).map(|(_, raw)| &**raw)
    }

    /// Sets the value of an existing key in place, or appends the key. Returns whether the value
    /// changed.
    pub fn set(&mut self, key: &str, value: &Value) -> bool {
        if self.get(key).as_ref() == Some(value) {
            return false;
        }
        let raw = to_raw_value(value).expect("a JSON value can be written");
        self.put(key, raw);
        true
    }

    fn put(&mut self, key: &str, raw: Box<RawValue>) {
        match self.fields.iter_mut().rev().find(|(name, _)| name == key) {
            Some((_, held)) => *held = raw,
            None => self.fields.push((key.to_owned(), raw)),
        }
        self.text = None;
    }

    /// Returns the elements of an array of objects, or `None` if the key is missing or has any
    /// other value.
    pub fn objects(&self, key: &str) -> Option<Vec<Self>> {
        let raws: Vec<Box<RawValue>> = serde_json::from_str(self.raw(key)?.get()).ok()?;
        raws.iter().map(|raw| Self::parse(raw.get()).ok()).collect()
    }

    /// Sets a key to an array of objects. Unchanged objects keep their original text.
    pub fn set_objects(&mut self, key: &str, objects: &[Self]) {
        let parts: Vec<String> = objects.iter().map(Self::to_text).collect();
        let joined = format!("[{}]", parts.join(","));
        let raw = RawValue::from_string(joined).expect("a list of JSON values in brackets is JSON");
        self.put(key, raw);
    }

    /// Returns the object's original text, or its new text if the object has been changed.
    pub fn to_text(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(key, raw)| {
                let key = serde_json::to_string(key).expect("a key can be written");
                format!("{key}:{}", raw.get())
            })
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

#[derive(Clone, Debug)]
struct Line {
    bytes: Vec<u8>,
    row: Result<Object, String>,
}

/// A JSON lines file, held entirely in memory.
#[derive(Clone, Debug, Default)]
pub struct KeptLines {
    lines: Vec<Line>,
    /// Whether the last line has a line break.
    ended: bool,
}

impl KeptLines {
    /// Parses a file and keeps all of its bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        let ended = bytes.ends_with(b"\n");
        let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if whole.is_empty() && !ended {
            return Self { lines: Vec::new(), ended: true };
        }
        let lines = whole
            .split(|byte| *byte == b'\n')
            .map(|line| Line { bytes: line.to_vec(), row: read(line) });
        Self { lines: lines.collect(), ended }
    }

    /// Returns the valid rows with their line numbers, counted from 1.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Object)> {
        let all = self.lines.iter().enumerate();
        all.filter_map(|(at, line)| line.row.as_ref().ok().map(|row| (at + 1, row)))
    }

    /// Returns the line number of each line that is neither blank nor an object, with the reason.
    pub fn broken(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.lines.iter().enumerate();
        all.filter(|(_, line)| !line.bytes.iter().all(u8::is_ascii_whitespace))
            .filter_map(|(at, line)| line.row.as_ref().err().map(|why| (at + 1, why.as_str())))
    }

    /// Replaces line `line` with a changed row and keeps the line's byte order mark and carriage
    /// return. A line number outside the file is ignored.
    pub fn replace(&mut self, line: usize, row: Object) {
        if let Some(held) = line.checked_sub(1).and_then(|at| self.lines.get_mut(at)) {
            let carriage = held.bytes.ends_with(b"\r");
            let mark = if held.bytes.starts_with(MARK) { MARK } else { &[] };
            held.bytes = [mark, row.to_text().as_bytes()].concat();
            if carriage {
                held.bytes.push(b'\r');
            }
            held.row = Ok(row);
        }
    }

    /// Appends a row. If the last line has no line break, one is added first.
    pub fn push(&mut self, row: Object) {
        self.lines.push(Line { bytes: row.to_text().into_bytes(), row: Ok(row) });
        self.ended = true;
    }

    /// Returns the content of the whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            out.extend_from_slice(&line.bytes);
            if at + 1 < self.lines.len() || self.ended {
                out.push(b'\n');
            }
        }
        out
    }
}

fn read(line: &[u8]) -> Result<Object, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err("blank".to_owned());
    }
    Object::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const FILE: &str = "{\"b\": 1.50,  \"a\": {\"x\": [1, 2]}}\r\nnot json\n\n{\"items\":[{\"t\":\"one\",\"n\":0.80},{\"t\":\"two\"}],\"z\":null}\n{\"torn\":";

    #[test]
    fn only_changed_lines_are_rewritten() {
        let mut kept = KeptLines::parse(FILE.as_bytes());
        assert_eq!(kept.to_bytes(), FILE.as_bytes());
        assert_eq!(kept.rows().map(|(at, _)| at).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(kept.broken().map(|(at, _)| at).collect::<Vec<_>>(), [2, 5]);
        let mut row = kept.rows().nth(1).unwrap().1.clone();
        let mut items = row.objects("items").unwrap();
        assert!(items[1].set("id", &json!("dream-1")));
        assert!(!items[0].set("n", &json!(0.8)), "the number was rewritten");
        row.set_objects("items", &items);
        kept.replace(4, row);
        kept.push(Object::new([("new", json!(true))]));
        let expected = "{\"b\": 1.50,  \"a\": {\"x\": [1, 2]}}\r\nnot json\n\n{\"items\":[{\"t\":\"one\",\"n\":0.80},{\"t\":\"two\",\"id\":\"dream-1\"}],\"z\":null}\n{\"torn\":\n{\"new\":true}\n";
        assert_eq!(String::from_utf8(kept.to_bytes()).unwrap(), expected);
        let mut marked = KeptLines::parse("\u{feff}{\"a\":1}\r\n".as_bytes());
        marked.replace(1, Object::new([("a", json!(2))]));
        assert_eq!(marked.to_bytes(), "\u{feff}{\"a\":2}\r\n".as_bytes());
    }

    #[test]
    fn changed_object_keeps_unknown_fields() {
        let mut object = Object::parse("{\"a\": 1.0, \"odd\": [ 1 ], \"a\": 2.00}").unwrap();
        assert_eq!(object.get("a"), Some(json!(2.0)), "the last value is not used");
        object.set("b", &json!("é"));
        assert_eq!(object.to_text(), "{\"a\":1.0,\"odd\":[ 1 ],\"a\":2.00,\"b\":\"é\"}");
        assert!(Object::parse("[1]").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_round_trip(bytes in prop::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'{'), Just(b'}'), Just(b'"'), Just(b':'), Just(b'\r'), any::<u8>()], 0..60)) {
            prop_assert_eq!(KeptLines::parse(&bytes).to_bytes(), bytes);
        }
    }
}
