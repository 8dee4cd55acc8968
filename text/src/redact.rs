//! Replaces secrets in text before the text is stored or shown.
//!
//! Secrets that the program was given, and any text in a well-known secret format, are replaced by
//! `[redacted:kind]`. A chunk boundary, a JSON escape or a colour code must never hide a secret.
//! Hashes, ids and paths are common in reports and must never be mistaken for secrets. Complete
//! strings and streams use the same line-by-line scanner, so their results agree.
//!
//! The scanners are hand-written, because a table of prefixes, alphabets and lengths is clearer
//! than regular expressions.

mod assigned;
mod encoded;
mod pem;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod shapes;
mod sink;
mod stream;
mod table;

use encoded::{PercentDecoded, encoded};
pub use sink::{Redacted, learn};
pub use stream::StreamRedactor;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Minimum length of a known secret in bytes. Replacing shorter secrets would damage ordinary text.
pub const SHORTEST: usize = 6;

/// Maximum length in bytes of a secret that is recognized by its format.
const LONGEST: usize = 8 * 1024;

/// Number of bytes by which the scanner advances in a very long line. The overlap between two parts
/// is scanned twice. Unless a known secret is very long, the overlap is much shorter than a part.
const WINDOW: usize = 16 * LONGEST;

/// Maximum number of bytes that the scanner may read before its starting position.
const LOOK_BACK: usize = 24;

/// Finds and replaces secrets. A redactor is cheap to clone, and its `Debug` output never shows the
/// secrets.
#[derive(Clone)]
pub struct Redactor {
    secrets: Arc<[String]>,
    /// Number of bytes by which two parts of a very long line overlap.
    overlap: usize,
}

/// A range of the text that contains a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// The start of the text that identifies the secret, such as the name before an assigned value.
    context: usize,
    start: usize,
    end: usize,
    /// The name of the secret's kind. If the name is empty, the span continues an earlier secret
    /// and is removed without a replacement.
    kind: &'static str,
    /// The priority of the name: among overlapping spans, the lowest rank determines the name.
    rank: u8,
}

impl Redactor {
    /// Creates a redactor that finds these secrets in addition to the known formats. Their
    /// JSON-escaped, percent-encoded, Base64 and hexadecimal forms are found too. Each line of a
    /// multi-line secret is a separate secret.
    pub fn new(secrets: Vec<String>) -> Self {
        let mut all: Vec<String> = Vec::new();
        for secret in &secrets {
            for line in secret.lines().map(str::trim) {
                let json = serde_json::Value::from(line).to_string();
                let json = json[1..json.len() - 1].to_owned();
                all.extend([line.to_owned(), json, percent_encoded(line)]);
                all.extend(encoded(line));
            }
            // An encoder also encodes the line breaks.
            all.extend(encoded(secret));
        }
        all.retain(|secret| secret.len() >= SHORTEST);
        all.sort_unstable();
        all.dedup();
        let longest = all.iter().map(String::len).max().unwrap_or(0);
        Self { secrets: all.into(), overlap: (2 * LONGEST).max(2 * longest) }
    }

    /// Returns `text` with every secret replaced. The result is borrowed if there is no secret.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_beginning(text, usize::MAX)
    }

    /// Returns the beginning of the text that [`Redactor::redact`] returns: more than `least`
    /// bytes, or the complete text. Use it for text that is cut afterwards.
    pub fn redact_beginning<'t>(&self, text: &'t str, least: usize) -> Cow<'t, str> {
        let mut state = RedactState::default();
        let mut out: Option<String> = None;
        let mut at = 0;
        while at < text.len() && out.as_ref().map_or(at, String::len) <= least {
            let (end, spans) =
                self.step(&mut state, text, at, Tail::Final).unwrap_or((text.len(), vec![]));
            if !spans.is_empty() {
                let out = out.get_or_insert_with(|| text[..at].to_owned());
                write_spans(out, text, at, end, &spans);
            } else if let Some(out) = &mut out {
                out.push_str(&text[at..end]);
            }
            at = end;
        }
        out.map_or(Cow::Borrowed(&text[..at]), Cow::Owned)
    }

    /// Creates a redactor for text that arrives in pieces.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// Scans the next line of `text` from `at`, or the next part of a very long line. Returns the
    /// end of the scanned text and the secrets in it, or `None` if the line has no end yet and more
    /// text may follow. The caller may drop the text before `at`, except its last [`LOOK_BACK`] bytes.
    fn step(
        &self,
        state: &mut RedactState,
        text: &str,
        at: usize,
        tail: Tail,
    ) -> Option<(usize, Vec<Span>)> {
        let window = WINDOW + self.overlap;
        let limit = floor(text, at.saturating_add(window));
        let line = text[at..limit].find('\n');
        let full = text.len() >= at.saturating_add(window);
        let end = match line {
            Some(length) => at + length + 1,
            None if full => limit,
            None if tail == Tail::Final => text.len(),
            None => return None,
        };
        let spans = merged(self.spans(state, text, at, end));
        if line.is_some() || !full {
            return Some((end, spans));
        }
        // A secret must not be split, so the cut moves to the end of a secret that crosses it.
        let mut cut = floor(text, end - self.overlap);
        for span in &spans {
            if span.context < cut && span.end > cut {
                cut = span.end;
            }
        }
        if spans.last().is_some_and(|span| span.end > cut) {
            // A key that begins after the cut is found again in the next part.
            state.in_key = false;
        }
        let spans = spans.into_iter().filter(|span| span.end <= cut).collect();
        Some((cut, spans))
    }

    /// Finds the secrets in a line, including those recognized only after percent-decoding.
    fn spans(&self, state: &mut RedactState, text: &str, from: usize, to: usize) -> Vec<Span> {
        let mut spans = self.written_spans(state, text, from, to);
        if let Some(line) = PercentDecoded::of(&text[from..to]) {
            let mut apart = RedactState::default();
            let found = self.written_spans(&mut apart, &line.text, 0, line.text.len());
            spans.extend(found.into_iter().map(|span| Span {
                context: from + line.origin[span.context],
                start: from + line.origin[span.start],
                end: from + line.origin[span.end],
                ..span
            }));
        }
        spans
    }

    fn written_spans(
        &self,
        state: &mut RedactState,
        text: &str,
        from: usize,
        to: usize,
    ) -> Vec<Span> {
        let mut spans = Vec::new();
        let from = pem::scan(&mut state.in_key, text, from, to, &mut spans);
        shapes::scan(text, from, to, &mut spans);
        assigned::scan(text, from, to, &mut spans);
        for secret in self.secrets.iter() {
            let mut at = from;
            while let Some(found) = text[at..to].find(secret.as_str()) {
                let start = at + found;
                spans.push(Span {
                    context: start,
                    start,
                    end: start + secret.len(),
                    kind: "secret",
                    rank: 2,
                });
                let first = secret.chars().next().map_or(1, char::len_utf8);
                at = start + first;
            }
        }
        spans
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms of secrets)", self.secrets.len())
    }
}

/// Whether more text may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Open,
    Final,
}

/// The scanner's state between lines.
#[derive(Clone, Copy, Debug, Default)]
struct RedactState {
    /// Whether the text is inside a private key.
    in_key: bool,
}

/// Sorts the spans by their start, and merges those that overlap.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.start, span.end));
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(before) if span.start < before.end => {
                before.end = before.end.max(span.end);
                before.context = before.context.min(span.context);
                if span.rank < before.rank {
                    (before.kind, before.rank) = (span.kind, span.rank);
                }
            }
            _ => out.push(span),
        }
    }
    out
}

fn write_spans(out: &mut String, text: &str, from: usize, to: usize, spans: &[Span]) {
    let mut at = from;
    for span in spans {
        out.push_str(&text[at..span.start]);
        if !span.kind.is_empty() {
            out.push_str("[redacted:");
            out.push_str(span.kind);
            out.push(']');
        }
        at = span.end;
    }
    out.push_str(&text[at..to]);
}

fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Returns whether a word can begin at `at`: at the start, after a byte other than an ASCII letter
/// or digit, after an escape (`\n`, `\u0022`, `%20`), or after a colour code.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    let back = |n: usize| at.checked_sub(n).map(|i| bytes[i]);
    let Some(before) = back(1) else { return true };
    if !before.is_ascii_alphanumeric() {
        return true;
    }
    let hex = |n: usize| (1..=n).all(|i| back(i).is_some_and(|b| b.is_ascii_hexdigit()));
    if matches!(before, b'n' | b'r' | b't') && back(2) == Some(b'\\') {
        return true;
    }
    if (hex(2) && back(3) == Some(b'%'))
        || (hex(4) && back(5) == Some(b'u') && back(6) == Some(b'\\'))
    {
        return true;
    }
    if before != b'm' {
        return false;
    }
    let codes =
        (2..12).take_while(|n| back(*n).is_some_and(|b| b.is_ascii_digit() || b == b';')).count();
    let open = codes + 2;
    let escape = |form: &[u8]| {
        form.iter()
            .rev()
            .enumerate()
            .all(|(i, byte)| back(open + 1 + i).is_some_and(|b| b.eq_ignore_ascii_case(byte)))
    };
    let forms: [&[u8]; 5] = [b"\x1b", b"\\u001b", b"\\x1b", b"\\033", b"\\e"];
    back(open) == Some(b'[') && forms.iter().any(|form| escape(form))
}

/// Returns whether a value consists of words and small numbers, as names and placeholders do.
fn is_wordlike(value: &str) -> bool {
    let (mut signs, mut pieces, mut digits) = (0_usize, 0_usize, 0_usize);
    let (mut inner_numbers, mut joined) = (0_usize, true);
    let mut before = b' ';
    for byte in value.bytes() {
        if byte.is_ascii_alphabetic() {
            let continues = before.is_ascii_lowercase() == byte.is_ascii_lowercase()
                || (before.is_ascii_uppercase() && byte.is_ascii_lowercase());
            pieces += usize::from(!(before.is_ascii_alphabetic() && continues));
            inner_numbers += usize::from(digits > 0);
        }
        joined &= byte.is_ascii_alphanumeric();
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        // One or two digits are part of the word before them.
        let alone = digits == 1 && !before.is_ascii_alphabetic();
        pieces += usize::from(alone || digits == 3);
        signs += usize::from(byte.is_ascii_alphanumeric());
        before = byte;
    }
    // Two numbers inside a single word are typical of base32 rather than of words.
    2 * signs >= 7 * pieces && !(joined && inner_numbers >= 2)
}

/// Computes the Shannon entropy of the bytes, in bits per byte.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length = value.len() as f64;
    let used = counts.iter().filter(|count| **count > 0);
    used.map(|count| {
        let share = f64::from(*count) / length;
        -share * share.log2()
    })
    .sum()
}

#[cfg(test)]
mod tests;
