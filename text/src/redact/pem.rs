//! Finds private keys in PEM blocks, across several lines or escaped on a single line.
//!
//! ```text
//! outside ──BEGIN … PRIVATE KEY──> inside ──END … or a line that is not part of a key──> outside
//! ```
//!
//! In a truncated key, every line that still has the form of key material is redacted.

use super::{LONGEST, Span, floor};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Maximum number of failed checks for a key after unterminated BEGIN markers in one part of a
/// line.
const MOST_TRIES: usize = 128;

/// Number of bytes after an unterminated BEGIN marker that decide whether a key follows. A hash
/// further away does not make the text before it a key.
const NEAR: usize = 6 * LONGEST;

/// Adds the keys in the line `text[from..to]`. If `in_key` is set, the line may continue an open
/// key. Returns where the open key ends, or `from` if there is none.
pub(super) fn scan(
    in_key: &mut bool,
    text: &str,
    from: usize,
    to: usize,
    spans: &mut Vec<Span>,
) -> usize {
    let mut at = from;
    if *in_key {
        let line = &text[from..to];
        let end = match line.find(END) {
            Some(end) => {
                *in_key = false;
                behind_marker(text, from + end + END.len(), to)
            }
            None if is_body(line) => to,
            None => {
                *in_key = false;
                from
            }
        };
        // The rest of the last line is redacted with the key if it is blank.
        let end = if text[end..to].trim().is_empty() { to } else { end };
        push(spans, from, end, "");
        at = end;
    }
    let free = at;
    // `endless` is set when the rest of the line has no END marker. `tries` is the number of checks
    // for a key that may still fail.
    let (mut endless, mut tries) = (false, MOST_TRIES);
    while let Some(found) = text[at..to].find(BEGIN) {
        let start = at + found;
        let label = start + BEGIN.len();
        at = label;
        let Some(length) = text[label..to].find(DASHES) else {
            break;
        };
        if length > 40 || !text[label..label + length].contains("PRIVATE KEY") {
            continue;
        }
        let inner = label + length + DASHES.len();
        let end = if endless { None } else { text[inner..to].find(END) };
        endless |= end.is_none();
        if let Some(end) = end {
            at = behind_marker(text, inner + end + END.len(), to);
        } else {
            let rest = text[inner..to].trim_end_matches(['\n', '\r']);
            if tries == 0 || !is_body(&rest[..floor(rest, NEAR)]) {
                tries = tries.saturating_sub(1);
                continue;
            }
            *in_key = true;
            at = inner + rest.len();
        }
        push(spans, start, at, "private-key");
    }
    free
}

fn push(spans: &mut Vec<Span>, start: usize, end: usize, kind: &'static str) {
    if start < end {
        spans.push(Span { context: start, start, end, kind, rank: 0 });
    }
}

/// Returns the position after the closing dashes of the marker whose label begins at `label`.
fn behind_marker(text: &str, label: usize, to: usize) -> usize {
    let close = text[label..to].find(DASHES);
    close.map_or(to, |length| label + length + DASHES.len())
}

/// Returns whether a line, or the rest of a line, may be part of a key. Such a line is blank, a
/// header or base64, or it contains a long run of base64.
fn is_body(line: &str) -> bool {
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let mark = |c: char| c.is_whitespace() || c.is_ascii_digit() || "→|>:*#\"'\\,".contains(c);
    let unescaped = line.replace("\\n", "").replace("\\r", "");
    let bare = unescaped
        .trim_start_matches(mark)
        .trim_matches(|c: char| c.is_whitespace() || "\"',\\".contains(c));
    let headers = ["Proc-Type:", "DEK-Info:", "Version:", "Comment:", "Hash:"];
    bare.bytes().all(base64)
        || headers.iter().any(|header| bare.starts_with(header))
        || line.as_bytes().split(|byte| !base64(*byte)).any(|run| run.len() >= 40)
}
