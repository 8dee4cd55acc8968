//! Parses durations, sizes and other values as people write them in settings.

use std::borrow::Cow;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The longest duration, in hours: about ten years.
pub const LONGEST: i64 = 10 * 366 * 24;

const DURATION: &str = concat!(
    r"([0-9]+(\.[0-9]+)? ?(h|hr|hrs|hours?|m|min|mins|minutes?|s|secs?|seconds?|ms|msecs?|millis|",
    r"milliseconds?|us|µs|ns),? ?)+"
);

/// Matches the sizes that [`size`] parses, and larger ones, because a pattern has no upper limit.
const SIZE: &str = "^[0-9]+( *([kKmMgG][iI]?)?[bB])?$";

/// The text format of a setting: its parser, its pattern in a schema, and an example.
pub trait Grammar {
    /// The type of a parsed value.
    type Value;

    /// An example, or an empty string if any string is valid.
    const EXAMPLE: &'static str;

    /// A keyword that represents the absence of a value, or an empty string if the format has none.
    const WORD: &'static str = "";

    /// Returns a regular expression that matches every valid string, or an empty string if any
    /// string is valid.
    fn pattern() -> String;

    /// Parses a value.
    ///
    /// # Errors
    /// Returns the reason, phrased for the user, if the string does not have this format.
    fn read(text: &str) -> Result<Self::Value, String>;
}

/// Declares types that implement [`Grammar`], each with its name, value type, example, pattern and
/// parser.
#[macro_export]
macro_rules! grammar {
    ($($(#[$doc:meta])* $name:ident: $value:ty, $example:expr, $pattern:expr, $read:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl $crate::values::Grammar for $name {
            type Value = $value;
            const EXAMPLE: &'static str = $example;

            fn pattern() -> String {
                $pattern.to_owned()
            }

            fn read(text: &str) -> Result<Self::Value, String> {
                $read(text)
            }
        }
    )+};
}

grammar! {
    /// A duration above zero.
    Span: SignedDuration, "8h", DURATION, duration;
    /// A duration that may be zero.
    Wait: SignedDuration, "30s", DURATION, wait;
}

/// A setting in the format `G`.
#[derive(Debug)]
pub struct Text<G: Grammar>(pub G::Value);

impl<'de, G: Grammar> Deserialize<'de> for Text<G> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_text::<G, D>(deserializer).map(Self)
    }
}

impl<G: Grammar> JsonSchema for Text<G> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string" });
        if !G::pattern().is_empty() {
            schema.insert("pattern".to_owned(), format!("^({})$", G::pattern()).into());
        }
        let examples = [G::EXAMPLE, G::WORD].into_iter().filter(|it| !it.is_empty());
        let examples: Vec<&str> = examples.collect();
        if !examples.is_empty() {
            schema.insert("examples".to_owned(), examples.into());
        }
        schema
    }
}

/// Deserializes a field in the format `G`, for `deserialize_with`.
///
/// # Errors
/// Returns an error if the value is not a string in this format.
pub fn read_text<'de, G: Grammar, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<G::Value, D::Error> {
    G::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// A size in bytes: a number, or a string such as "512KB".
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl Size {
    /// Deserializes a field as a number of bytes, for `deserialize_with`.
    ///
    /// # Errors
    /// Returns an error if the value is not a size.
    pub fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Self::deserialize(deserializer).map(|size| size.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => size(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": SIZE,
            "examples": ["512KB"],
        })
    }
}

/// Parses a duration above zero, such as "8h", "90s" or "1h 30m".
///
/// # Errors
/// Returns the reason, phrased for the user, if the text is not such a duration or if the duration
/// is longer than [`LONGEST`].
pub fn duration(text: &str) -> Result<SignedDuration, String> {
    match wait(text)? {
        SignedDuration::ZERO => Err(no_duration(text)),
        duration => Ok(duration),
    }
}

/// Parses a duration that may be zero, such as "0s".
///
/// # Errors
/// Returns the reason, phrased for the user, if the text is not such a duration or if the duration
/// is longer than [`LONGEST`].
pub fn wait(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| no_duration(text))?;
    if duration.is_negative() {
        return Err(no_duration(text));
    }
    // Adding a longer duration to a time could overflow.
    if duration > SignedDuration::from_hours(LONGEST) {
        return Err(format!("{text:?} is too long (ten years at most)"));
    }
    Ok(duration)
}

fn no_duration(text: &str) -> String {
    format!("{text:?} is not a duration (like \"8h\", \"90s\" or \"1h 30m\")")
}

/// Parses a size in bytes such as "512KB", "1MB" or "2GiB", with decimal and binary multiples.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size (like \"512KB\" or \"1MB\")");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start_matches(' ').to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" if end == text.len() => 1,
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Removes a trailing slash, except from the root folder.
pub fn folder(text: &str) -> &str {
    match text.strip_suffix('/') {
        Some(bare) if !bare.is_empty() => bare,
        _ => text,
    }
}

/// Deserializes a folder without a trailing slash, for `deserialize_with`.
///
/// # Errors
/// Returns an error if the value is not a string.
pub fn read_folder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| folder(&text).to_owned())
}

/// Deserializes a list of paths without trailing slashes, for `deserialize_with`.
///
/// # Errors
/// Returns an error if the value is neither null nor a list of strings.
pub fn read_folders<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let paths: Option<Vec<String>> = Option::deserialize(deserializer)?;
    Ok(paths.map(|paths| paths.iter().map(|path| folder(path).to_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_durations_and_sizes_are_refused() {
        assert_eq!(duration("1h 30m").unwrap(), SignedDuration::from_mins(90));
        assert_eq!(size("512 KB"), Ok(512_000));
        assert_eq!(size("2MiB"), Ok(2 << 20));
        for bad in ["", "8", "-8h", "0s", "8 parsecs", "99999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(wait("0s").unwrap(), SignedDuration::ZERO);
        assert!(wait("-1s").is_err());
        for bad in ["", "MB", "1XB", "-1MB", "99999999999GB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn size_pattern_and_parser_agree() {
        let pattern = regex::Regex::new(SIZE).unwrap();
        let mut read = 0;
        for number in ["", "0", "5", "512", "+5", "-5", "5.5", " 5"] {
            for space in ["", " ", "  ", "\t"] {
                for unit in
                    ["", "b", "B", "k", "kb", "KB", "Ki", "KiB", "mb", "MIB", "gB", "tb", "bb"]
                {
                    let text = format!("{number}{space}{unit}");
                    assert_eq!(pattern.is_match(&text), size(&text).is_ok(), "{text:?}");
                    read += usize::from(size(&text).is_ok());
                }
            }
        }
        assert!(read > 50, "{read} sizes");
    }

    #[test]
    fn trailing_slash_is_removed() {
        assert_eq!(["a/", "a", "/", "a/b/"].map(folder), ["a", "a", "/", "a/b"]);
    }
}
