//! Formats values and names as TOML on one line.

use toml::Value;

pub fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => {
            let items: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{} = {}", bare(key), inline(value)))
                .collect();
            match items.as_slice() {
                [] => "{}".to_owned(),
                items => format!("{{ {} }}", items.join(", ")),
            }
        }
        value => value.to_string(),
    }
}

/// Formats a key, in quotes if TOML requires them.
fn bare(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

/// Quotes text with JSON's escapes, which TOML accepts. TOML also requires an escape for the DEL
/// character.
fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string().replace('\u{7f}', "\\u007F")
}

/// Formats the name of a setting from its parts.
pub(super) fn joined(path: &[String]) -> String {
    let parts: Vec<String> = path.iter().map(|part| bare(part)).collect();
    parts.join(".")
}
