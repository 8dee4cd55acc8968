//! Formats values for JSON files.

use serde::Serialize;

/// Formats a value as an indented JSON document that ends with a newline.
///
/// # Panics
/// Panics if the value cannot be represented as JSON.
pub fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("the keys are strings");
    text.push('\n');
    text
}

/// Formats a value as one line of a JSON Lines file.
///
/// # Panics
/// Panics if the value cannot be represented as JSON.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("the keys are strings");
    line.push(b'\n');
    line
}
