//! Redacts secrets in errors.
//!
//! A child may print any value that it received. This module replaces everything that looks like a
//! secret, and every value from a backend's environment except short values and those of ordinary
//! variables such as `PATH`. Text is truncated only after redaction, because truncation could leave
//! part of a secret that no longer matches. Redaction must never be the only protection, because a
//! secret may look like ordinary text.

use std::collections::BTreeMap;

use runner_text::redact::Redacted;

/// Variables that contain no secrets. Every child receives those that are set.
pub(crate) const ORDINARY: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

/// Minimum length, in bytes, of a value to redact. Shorter values are usually switches (`1`,
/// `true`), and replacing them would only damage the text.
const SHORTEST: usize = 6;

/// The secret values and their replacements, longest value first.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

impl Secrets {
    pub fn of(env: &BTreeMap<String, String>) -> Self {
        let named = env
            .iter()
            .filter(|(name, value)| !ORDINARY.contains(&name.as_str()) && value.len() >= SHORTEST);
        let mut secrets: Vec<_> =
            named.map(|(name, value)| (value.clone(), format!("[{name}]"))).collect();
        secrets.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self(secrets)
    }

    /// Returns about the first `length` characters of `text`, redacted.
    pub fn head(&self, text: &str, length: usize) -> String {
        self.clean(text).head(length).into_string()
    }

    /// Returns about the last `length` characters of `bytes`, redacted and without surrounding
    /// whitespace.
    pub fn tail(&self, bytes: &[u8], length: usize) -> String {
        self.clean(String::from_utf8_lossy(bytes).trim()).tail(length).into_string()
    }

    fn clean(&self, text: &str) -> Redacted {
        let named = |text: String, (value, name): &(String, String)| text.replace(value, name);
        Redacted::from(self.0.iter().fold(text.to_owned(), named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_leaves_no_partial_secret() {
        let env = BTreeMap::from([
            ("KEY".to_owned(), "canary-123456".to_owned()),
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("FLAG".to_owned(), "1".to_owned()),
        ]);
        let secrets = Secrets::of(&env);
        for before in 0..40 {
            let text = format!("{}canary-123456{}", "ä".repeat(before), "x1".repeat(30));
            for length in 0..text.len() {
                for cut in [secrets.head(&text, length), secrets.tail(text.as_bytes(), length)] {
                    assert!(!cut.contains("123456") && !cut.contains("canary"), "{cut}");
                }
            }
        }
        let key = format!("sk-ant-api03-{}", "abcdefghij0123456789".repeat(4));
        for length in 0..200 {
            let text = format!("x {key} {}", "y ".repeat(50));
            for cut in [secrets.head(&text, length), secrets.tail(text.as_bytes(), length)] {
                assert!(!cut.contains("abcdef") && !cut.contains("456789"), "{length}: {cut}");
            }
        }
        assert_eq!(secrets.tail(b"in /usr/bin:/bin 1\n", 100), "in /usr/bin:/bin 1");
        assert_eq!(secrets.head("canary-123456!", 100), "[KEY]!");
    }
}
