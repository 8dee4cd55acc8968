//! Reads JSON fields that may have an unexpected form. Such a field is treated as empty, and the
//! fields around it are read as usual.
//!
//! The input is read once, unless serde rejects it. This module must never keep a value that has an
//! unexpected form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The forms of JSON that a field accepts. Every other form is treated as the default.
pub(super) trait Form<'de>: Default {
    fn of_text(_: &str) -> Self {
        Self::default()
    }

    fn of_flag(_: bool) -> Self {
        Self::default()
    }

    fn of_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl Form<'_> for Option<String> {
    fn of_text(text: &str) -> Self {
        Some(text.to_owned())
    }
}

impl Form<'_> for Option<bool> {
    fn of_flag(flag: bool) -> Self {
        Some(flag)
    }
}

/// An object, or `None` for any other form.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Form<'de> for Object<T> {
    fn of_map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Ok(Self(Some(T::deserialize(MapAccessDeserializer::new(map))?)))
    }
}

struct AnyForm<T>(PhantomData<T>);

impl<'de, T: Form<'de>> Visitor<'de> for AnyForm<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::of_text(text))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<T, E> {
        Ok(T::of_flag(flag))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::of_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::of_seq(seq)
    }
}

/// Reads a field of any form. Use it with `#[serde(deserialize_with)]`.
pub(super) fn any_form<'de, D: Deserializer<'de>, T: Form<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(AnyForm(PhantomData))
}

/// Reads an object from text that is known to be JSON. Text that serde rejects is read once more,
/// with unpaired surrogates replaced and only the last of any duplicate fields kept.
pub(super) fn object<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(json).ok().or_else(|| {
        let value: serde_json::Value = serde_json::from_str(&without_half_pairs(json)).ok()?;
        serde_json::from_value(value).ok()
    })
}

/// Replaces the escapes of unpaired surrogates, which programs write when they truncate text in the
/// middle of a character.
fn without_half_pairs(json: &str) -> String {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (whole, length) = match unit(rest) {
            Some(0xd800..=0xdbff) => match unit(&rest[6..]) {
                Some(0xdc00..=0xdfff) => (true, 12),
                _ => (false, 6),
            },
            Some(0xdc00..=0xdfff) => (false, 6),
            Some(_) => (true, 6),
            // A single-character escape, such as `\\`.
            None => (true, 1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
        };
        out.push_str(if whole { &rest[..length] } else { "\\ufffd" });
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}
