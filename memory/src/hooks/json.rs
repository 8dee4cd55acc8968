//! Parses JSON written by a host. A host that cuts a string may leave one half of a surrogate pair,
//! which JSON allows and a Rust string cannot contain.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

/// The escape sequence of the replacement character.
const REPLACEMENT: &str = "\\ufffd";

/// Parses JSON, and replaces half a surrogate pair in a string with the replacement character.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| match paired(text) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(text) => serde_json::from_str(&text),
    })
}

/// Replaces each escaped half of a surrogate pair whose other half is missing.
fn paired(text: &str) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = text[at..].find('\\') {
        at += found;
        let (unit, next) = (unit(text, at), unit(text, at + 6));
        let is = |unit: Option<u16>, range: std::ops::RangeInclusive<u16>| {
            unit.is_some_and(|unit| range.contains(&unit))
        };
        let length = match unit {
            // The character after a backslash may be a backslash.
            None => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            Some(_) if is(unit, 0xd800..=0xdbff) && is(next, 0xdc00..=0xdfff) => 12,
            Some(_) if is(unit, 0xd800..=0xdfff) => {
                let out = out.get_or_insert_default();
                out.push_str(&text[copied..at]);
                out.push_str(REPLACEMENT);
                copied = at + 6;
                6
            }
            Some(_) => 6,
        };
        at += length;
    }
    match out {
        Some(out) => Cow::Owned(out + &text[copied..]),
        None => Cow::Borrowed(text),
    }
}

/// Returns the UTF-16 code unit of the escape sequence at `at`, if there is one.
fn unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_half_pairs_are_replaced() {
        for (text, expected) in [
            (r#""a \ud83d b""#, "a \u{fffd} b"),
            (r#""\udc00\ud83d\ude00\ud83d""#, "\u{fffd}😀\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\\ud83d \n ä \ud83d""#, "\\ud83d \n ä \u{fffd}"),
            (r#""\\\ud83d\u00e9""#, "\\\u{fffd}é"),
        ] {
            assert_eq!(parse::<String>(text).unwrap(), expected, "{text}");
        }
        for text in [r#""\ud83d"#, r#""\ud83"#, "\"\\", r#"{"a": "\ud83d", }"#] {
            assert!(parse::<serde_json::Value>(text).is_err(), "{text}");
        }
    }
}
