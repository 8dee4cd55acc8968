//! One entry of `dreams/state.json` as text. A pass or a user's decision changes some of its
//! values; all other keys and values are kept byte for byte.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, to_string};

use super::{IdeaUpdate, Mark};

/// The keys of an entry and their values, as written.
#[derive(Default)]
pub(super) struct Keys<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Keys<'a> {
    /// Returns the keys of an entry that [`super::DreamState::parse`] has accepted.
    pub(super) fn of(entry: &'a str) -> Self {
        // Both parsers skip unknown values in the same way, so this parser accepts text that the
        // other parser has accepted.
        serde_json::from_str(entry).expect("the entry was already parsed as an object")
    }

    /// Returns the value of a key, as written, or `None` if the entry does not have the key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| is_key(name, key));
        found.map(|(_, value)| value.as_ref())
    }

    /// Appends an element to a key's list. Creates the list if the key is missing, and keeps a
    /// value that is not a list.
    fn push(&mut self, key: &str, element: &Value) {
        let element = to_string(element).expect("a history has string keys only");
        let Some(old) = self.get(key) else {
            let list = format!("[{element}]");
            self.0.push((format!("{key:?}").into(), list.into()));
            return;
        };
        let Some(open) = old.trim_end().strip_suffix(']').filter(|_| old.starts_with('[')) else {
            return;
        };
        let comma = if open.trim_start_matches('[').trim().is_empty() { "" } else { "," };
        let list = format!("{}{comma}{element}]", open.trim_end());
        for (_, value) in self.0.iter_mut().filter(|(name, _)| is_key(name, key)) {
            *value = list.clone().into();
        }
    }

    /// Sets every occurrence of a key to this value, or adds the key if it is missing.
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = to_string(&value.into()).expect("strings and numbers serialize to JSON");
        let mut known = false;
        for (_, old) in self.0.iter_mut().filter(|(name, _)| is_key(name, key)) {
            *old = value.clone().into();
            known = true;
        }
        if !known {
            let key = to_string(key).expect("strings serialize to JSON");
            self.0.push((key.into(), value.into()));
        }
    }

    /// Sets a key to this value unless the entry already has the key.
    fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        if self.get(key).is_none() {
            self.set(key, value);
        }
    }
}

/// Returns whether a key, which may be written with escapes, has this name.
fn is_key(written: &str, name: &str) -> bool {
    serde_json::from_str::<Cow<'_, str>>(written).is_ok_and(|written| written == name)
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

/// Formats one element of the array after a pass, indented by two spaces.
pub(super) fn element(mut keys: Keys<'_>, path: &str, change: &IdeaUpdate) -> String {
    let known = !keys.0.is_empty();
    if !known {
        keys.set("path", path);
    }
    // The format requires times even if the idea was never triaged or shown; the epoch precedes
    // all other times.
    let never = Timestamp::UNIX_EPOCH.to_string();
    let at = change.at.to_string();
    match &change.triaged {
        Some(triaged) => {
            keys.set("hash", triaged.hash.to_string());
            keys.set("last_modified", triaged.modified.to_string());
        }
        None => {
            keys.set_default("hash", "");
            keys.set_default("last_modified", never.as_str());
        }
    }
    match change.shown {
        true => {
            keys.set("last_surfaced", at.as_str());
            // An idea with a valid answer exists, even if an earlier idea at its path was archived.
            // A shown idea without a valid answer may have been archived during the pass.
            let status = keys.get("status").filter(|_| change.triaged.is_some());
            if status.is_some_and(|status| status != r#""active""#) {
                keys.set("status", "active");
            }
        }
        false => keys.set_default("last_surfaced", never),
    }
    match &change.triaged {
        Some(triaged) => keys.set("merit", triaged.merit),
        None => keys.set_default("merit", 0.0),
    }
    if !known {
        keys.set("status", "active");
        keys.set("first_seen", at);
    }
    written(&keys)
}

/// Formats one element of the array after a user's decision.
pub(super) fn marked_element(mut keys: Keys<'_>, path: &str, mark: &Mark) -> String {
    if keys.0.is_empty() {
        let never = Timestamp::UNIX_EPOCH.to_string();
        keys.set("path", path);
        keys.set("hash", "");
        keys.set("last_modified", never.as_str());
        keys.set("last_surfaced", never);
        keys.set("merit", 0.0);
    }
    if let Some(hash) = &mark.hash {
        keys.set("hash", hash.as_str());
    }
    keys.set("status", mark.status.as_str());
    keys.push("history", &mark.happened);
    written(&keys)
}

fn written(keys: &Keys<'_>) -> String {
    let lines: Vec<String> =
        (keys.0.iter()).map(|(key, value)| format!("    {key}: {value}")).collect();
    format!("{{\n{}\n  }}", lines.join(",\n"))
}
