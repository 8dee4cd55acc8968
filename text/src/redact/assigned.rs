//! Finds secrets by their context: assignments, authorization headers and passwords in URLs.

use super::{LONGEST, Span, begins_word, entropy, is_wordlike};

/// Name endings that indicate a secret, without hyphens and underscores.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "secretkeybase",
    "credential",
    "credentials",
];

/// Maximum number of bytes to examine in a name.
const LONGEST_NAME: usize = 64;

/// Minimum length in bytes of a value that is checked only once, and not again for each name inside
/// it.
const LONG_VALUE: usize = 1024;

/// Adds the secrets whose names and values are in `text[from..to]`.
pub(super) fn scan(text: &str, from: usize, to: usize, spans: &mut Vec<Span>) {
    let bytes = &text.as_bytes()[..to];
    let mut values = Values { text, bytes, judged: from, spans };
    for at in from..to {
        match bytes[at] {
            b'=' | b':' if at == from || !matches!(bytes[at - 1], b'=' | b':') => {
                values.assignment(from, at);
                if bytes[at..].starts_with(b"://") {
                    values.address(at);
                }
            }
            b'-' if bytes[at..].starts_with(b"--") && begins_word(bytes, at) => values.option(at),
            b'A' | b'a' if matches!(bytes.get(at + 1), Some(b'U' | b'u')) => values.header(at),
            b'B' | b'b' if matches!(bytes.get(at + 1), Some(b'A' | b'a' | b'E' | b'e')) => {
                values.header(at);
            }
            _ => {}
        }
    }
}

/// The scanned text, and the spans found in it.
struct Values<'t, 's> {
    text: &'t str,
    bytes: &'t [u8],
    /// The end of the last very long value.
    judged: usize,
    spans: &'s mut Vec<Span>,
}

impl Values<'_, '_> {
    /// Scans `name = value`, `"name": "value"`, `name: value` and `name=value&…`, with or without
    /// escaped quotes.
    fn assignment(&mut self, from: usize, at: usize) {
        let bytes = self.bytes;
        let mut end = at;
        while end > from && at - end < 4 && matches!(bytes[end - 1], b' ' | b'\t') {
            end -= 1;
        }
        while end > from && at - end < 8 && matches!(bytes[end - 1], b'"' | b'\'' | b'`' | b'\\') {
            end -= 1;
        }
        let name = bytes[from..end].iter().rev().take(LONGEST_NAME);
        let length = name
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            .count();
        let start = end - length;
        let mut value = at + 1;
        while value - at < 3 && matches!(bytes.get(value), Some(b'=' | b':' | b'>')) {
            value += 1;
        }
        if bytes[at..value] == *b"::" {
            return;
        }
        if let Some(form) = holds_secret(&self.text[start..end]) {
            self.value(start, value, form);
        }
    }

    /// Scans `--name value`.
    fn option(&mut self, at: usize) {
        let bytes = self.bytes;
        let name = bytes[at + 2..].iter().take(LONGEST_NAME);
        let length =
            name.take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count();
        let end = at + 2 + length;
        if bytes.get(end) == Some(&b' ')
            && let Some(form) = holds_secret(&self.text[at + 2..end])
        {
            self.value(at, end, form);
        }
    }

    /// Scans the value at `at`, whose name begins at `context`. Spaces and quotes before the value
    /// are skipped, including escaped quotes.
    fn value(&mut self, context: usize, at: usize, form: SecretForm) {
        let bytes = self.bytes;
        let run = |at: usize, most: usize, wanted: &dyn Fn(u8) -> bool| {
            let tail = bytes[at.min(bytes.len())..].iter().take(most);
            at + tail.take_while(|byte| wanted(**byte)).count()
        };
        let blank = run(at, 8, &|byte| matches!(byte, b' ' | b'\t'));
        let escape = run(blank, 4, &|byte| byte == b'\\');
        let quote = bytes.get(escape).copied().filter(|b| b"\"'`".contains(b));
        let start = match quote {
            Some(_) => escape + 1,
            None if escape == blank => blank,
            None => return,
        };
        if start >= bytes.len() || start < self.judged {
            return;
        }
        let inner = |byte: u8| match quote {
            Some(quote) => byte != quote && !matches!(byte, b'\\' | b'\n'),
            None => !byte.is_ascii_whitespace() && !b"\"'`\\,;&<>()[]{}|".contains(&byte),
        };
        let end = super::floor(self.text, run(start, LONGEST, &inner));
        if end - start >= LONG_VALUE {
            self.judged = end;
        }
        // A quoted value is redacted completely if its first word is a secret.
        let value = &self.text[start..end];
        let word = value.split(' ').next().unwrap_or(value);
        let called = quote.is_none() && matches!(bytes.get(end), Some(b'(' | b'['));
        if !called && is_secret(word, form, quote) {
            self.spans.push(Span { context, start, end, kind: "assigned", rank: 5 });
        }
    }

    /// Scans `Authorization: Scheme value`, and `Bearer value` or `Basic value` if the value looks
    /// random.
    fn header(&mut self, at: usize) {
        let bytes = self.bytes;
        let is = |at: usize, word: &str| {
            let found = bytes.get(at..at + word.len());
            found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
        };
        let run = |at: usize, set: &dyn Fn(u8) -> bool, most: usize| {
            let tail = bytes[at.min(bytes.len())..].iter().take(most);
            at + tail.take_while(|byte| set(**byte)).count()
        };
        let between = |byte: u8| b" \t:=\"'`\\,".contains(&byte);
        let named = is(at, "authorization");
        let scheme = if named {
            let scheme = run(at + "authorization".len(), &between, 8);
            if scheme == at + "authorization".len() {
                return;
            }
            scheme
        } else if is(at, "bearer ") || is(at, "basic ") {
            at
        } else {
            return;
        };
        if !begins_word(bytes, at) {
            return;
        }
        let word = run(scheme, &|byte| byte.is_ascii_alphabetic(), 20);
        let space = run(word, &|byte| byte == b' ', 4);
        let start = if space > word { space } else { scheme };
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let end = run(start, &inner, LONGEST);
        let value = &self.text[start..end];
        let digit = value.bytes().any(|byte| byte.is_ascii_digit());
        let random = digit && entropy(value) >= 3.0;
        let secret = if named {
            value.len() >= 8 && (random || (value.len() >= 16 && !is_wordlike(value)))
        } else {
            value.len() >= 16 && random && !is_wordlike(value)
        };
        if secret {
            self.spans.push(Span { context: at, start, end, kind: "authorization", rank: 4 });
        }
    }

    /// Scans `scheme://user:password@host` for the password.
    fn address(&mut self, at: usize) {
        let bytes = self.bytes;
        let start = at + 3;
        let part = bytes[start..].iter().take(512);
        let length =
            part.take_while(|b| !b.is_ascii_whitespace() && !b"/\"'`<>\\?#".contains(b)).count();
        let authority = &bytes[start..start + length];
        let Some(host) = authority.iter().rposition(|byte| *byte == b'@') else {
            return;
        };
        let Some(colon) = authority[..host].iter().position(|byte| *byte == b':') else {
            return;
        };
        let (first, end) = (start + colon + 1, start + host);
        let placeholder = bytes[first..end].iter().any(|byte| b"${}[]*".contains(byte));
        if end - first >= 3 && !placeholder && self.text.is_char_boundary(end) {
            self.spans.push(Span { context: at, start: first, end, kind: "url-password", rank: 3 });
        }
    }
}

/// The typical appearance of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretForm {
    /// A key or token, which looks random.
    Random,
    /// A password, which rarely looks random.
    Password,
}

/// Returns the form of the secret that a name indicates, if any.
fn holds_secret(name: &str) -> Option<SecretForm> {
    let folded: String = name
        .bytes()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(|byte| byte.to_ascii_lowercase() as char)
        .collect();
    let short = ["_pass", "_PASS", "-pass"].iter().any(|end| name.ends_with(end));
    if !short && !NAMES.iter().any(|end| folded.ends_with(end)) {
        return None;
    }
    let password = short
        || ["password", "passwd", "passphrase", "pwd"].iter().any(|end| folded.ends_with(end));
    Some(if password { SecretForm::Password } else { SecretForm::Random })
}

/// Returns whether a value is a secret rather than a placeholder, path, type or expression.
fn is_secret(value: &str, form: SecretForm, quote: Option<u8>) -> bool {
    let digit = value.bytes().any(|b| b.is_ascii_digit());
    let letter = value.bytes().any(|b| b.is_ascii_alphabetic());
    let mark = value.bytes().any(|b| b"!@#$%^&*+?~".contains(&b));
    let placeholder = value.starts_with(['$', '<', '{', '%', '*', '/', '.', '~'])
        || value.contains("://")
        || value.contains("...")
        || value.contains("${");
    let expression = quote.is_none()
        && value.contains('.')
        && value.split('.').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && is_wordlike(part)
        });
    if placeholder || expression || !letter {
        return false;
    }
    match form {
        SecretForm::Random => {
            value.len() >= 10 && digit && entropy(value) >= 3.0 && !is_wordlike(value)
        }
        SecretForm::Password => value.len() >= 8 && (digit || mark) && entropy(value) >= 2.5,
    }
}
