//! The only form in which text may be stored, printed or sent.
//!
//! Secrets are replaced first, then control characters are removed, and only then may the text be
//! cut. In any other order, part of a secret could remain and not be recognized. Every sink must
//! take its text as [`Redacted`].

use std::fmt;
use std::ops::Deref;
use std::sync::{LazyLock, PoisonError, RwLock};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{Redactor, StreamRedactor};

/// The secrets that this process has loaded, and the redactor for them. Their encoded forms are
/// computed once, because all text that is stored or shown is searched for them.
static KNOWN: LazyLock<RwLock<(Vec<String>, Redactor)>> =
    LazyLock::new(|| RwLock::new((Vec::new(), Redactor::new(Vec::new()))));

/// Text without recognized secrets and without characters that a terminal would interpret, except
/// for line feeds and tabs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Redacted(String);

/// Adds secrets to be replaced in every later [`Redacted`] in this process.
pub fn learn(secrets: impl IntoIterator<Item = String>) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let (all, redactor) = &mut *known;
    let before = all.len();
    all.extend(secrets);
    all.sort_unstable();
    all.dedup();
    if all.len() != before {
        *redactor = Redactor::new(all.clone());
    }
}

/// Returns a redactor for all secrets that this process has loaded.
fn process_redactor() -> Redactor {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).1.clone()
}

impl Redacted {
    /// Replaces the secrets in text and removes its control characters.
    pub fn of(text: &str) -> Self {
        Self::by(&process_redactor(), text)
    }

    /// Creates a redactor for text that arrives in pieces. Each piece that it returns must still
    /// become a [`Redacted`], which removes its control characters.
    pub fn stream() -> StreamRedactor {
        process_redactor().stream()
    }

    fn by(redactor: &Redactor, text: &str) -> Self {
        // A control character can hide a secret, so the text is redacted before and after the
        // removal.
        let text = redactor.redact(text);
        if text.chars().all(|c| is_plain(&c)) {
            return Self(text.into_owned());
        }
        let plain: String = text.chars().filter(is_plain).collect();
        Self(redactor.redact(&plain).into_owned())
    }

    /// Returns the first `most` characters, with an ellipsis in place of the rest.
    #[must_use]
    pub fn head(self, most: usize) -> Self {
        match self.0.char_indices().nth(most) {
            Some((at, _)) => Self(format!("{}…", &self.0[..at])),
            None => self,
        }
    }

    /// Returns the last `most` characters, with an ellipsis in place of the rest.
    #[must_use]
    pub fn tail(self, most: usize) -> Self {
        let length = self.0.chars().count();
        match self.0.char_indices().nth(length.saturating_sub(most)) {
            Some((at, _)) if at > 0 => Self(format!("…{}", &self.0[at..])),
            _ => self,
        }
    }

    /// Returns the redacted text as a plain string.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Serializes a value as JSON on one line, with every string redacted except for keys. If a
    /// string contains no secret, its control characters are escaped instead of removed, so that
    /// programs read paths unchanged.
    pub fn json(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::to_string(&cleaned(value)?).map(|text| Self(escaped(text)))
    }

    /// Serializes a value like [`Redacted::json`], but over several lines.
    pub fn pretty_json(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::to_string_pretty(&cleaned(value)?).map(|text| Self(escaped(text)))
    }
}

fn cleaned(value: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(value)?;
    clean(&process_redactor(), &mut value);
    Ok(value)
}

/// Redacts every string in a value except for keys.
fn clean(redactor: &Redactor, value: &mut Value) {
    match value {
        Value::String(text) => {
            let shown = Redacted::by(redactor, text);
            let plain: String = text.chars().filter(is_plain).collect();
            // If redaction only removed control characters, the string contains no secret and is
            // kept.
            if *shown != *plain {
                *text = shown.0;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(redactor, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| clean(redactor, field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether the character is a line feed, a tab, or one that a terminal displays without
/// interpreting it.
fn is_plain(c: &char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || steers(*c))
}

/// Escapes the characters in JSON text that a terminal would interpret. They occur only inside
/// strings.
fn escaped(text: String) -> String {
    if text.chars().all(|c| is_plain(&c)) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_plain(&c) {
            true => out.push(c),
            false => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    out
}

/// Returns whether a character changes the direction of text or separates lines.
fn steers(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

impl Deref for Redacted {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Redacted {
    fn from(text: &str) -> Self {
        Self::of(text)
    }
}

impl From<String> for Redacted {
    fn from(text: String) -> Self {
        Self::of(&text)
    }
}

impl<'de> Deserialize<'de> for Redacted {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input).map(Self::from)
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";

    #[test]
    fn truncation_leaves_no_partial_secret() {
        let text = format!("the key {KEY} was refused");
        for most in 0..text.len() {
            for cut in [Redacted::of(&text).head(most), Redacted::of(&text).tail(most)] {
                assert!(!cut.contains("ghijkl"), "{cut}");
            }
        }
    }

    #[test]
    fn control_characters_hide_no_secret() {
        let hidden = format!("a\u{1b}[31m{}\u{8}{}\u{7}", &KEY[..20], &KEY[20..]);
        let shown = Redacted::of(&hidden);
        assert!(!shown.contains("0123456789"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert_eq!(&*Redacted::of("a\r\n\tb"), "a\n\tb");
    }

    #[test]
    fn forms_of_secrets_are_computed_once() {
        learn(["a word that is learned once".to_owned()]);
        let forms = process_redactor().secrets;
        learn(["a word that is learned once".to_owned()]);
        let _shown = Redacted::of("a text");
        // Another test in this process may add a secret at any time.
        let same = (0..100).any(|_| {
            std::sync::Arc::ptr_eq(&process_redactor().secrets, &process_redactor().secrets)
        });
        assert!(same && forms.len() > 1);
    }

    #[test]
    fn learned_secrets_are_redacted() {
        learn(["plain-looking word".to_owned()]);
        let value = serde_json::json!({"why": ["it is the plain-looking word"], "n": 1});
        let text = Redacted::json(&value).unwrap();
        assert!(!text.contains("plain-looking"), "{text}");
        assert!(text.ends_with("\"n\":1}"), "{text}");
        let path = serde_json::json!("a\u{202e}b\u{9b}c\u{1b}");
        let text = Redacted::json(&path).unwrap();
        assert_eq!(&*text, r#""a\u202eb\u009bc\u001b""#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), path);
    }
}
