//! Encodings that other programs use for secrets: the forms of a known secret, and the decoded form
//! of a line.
//!
//! A secret that is encoded together with other text appears in Base64 in one of three forms,
//! depending on its position. The characters at its ends also contain bits of the surrounding text,
//! so they are not part of a form.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

/// Minimum length of a form in bytes. Ordinary text could contain a shorter form by chance.
const SHORTEST: usize = 8;

/// Returns the Base64 and hexadecimal forms of a secret.
pub(super) fn encoded(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for alphabet in [&STANDARD, &URL_SAFE] {
        let engine = GeneralPurpose::new(alphabet, NO_PAD);
        // The `before` bytes fill `skip` characters of 6 bits each, the last one only partly.
        for (before, skip) in [(0, 0), (1, 2), (2, 3)] {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(secret.as_bytes());
            let text = engine.encode(&bytes);
            let whole = bytes.len() * 8 / 6;
            forms.push(text[skip..whole.max(skip)].to_owned());
        }
    }
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.extend([hex.to_uppercase(), hex]);
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// A line whose percent-encoded ASCII characters are decoded.
pub(super) struct PercentDecoded {
    /// The decoded line. An encoded line break is written as `\n`, so the text remains one line.
    pub text: String,
    /// The position in the original line of each byte of `text`, and of its end.
    pub origin: Vec<usize>,
}

impl PercentDecoded {
    /// Decodes a line. Returns `None` if the line contains nothing encoded.
    pub fn of(line: &str) -> Option<Self> {
        let bytes = line.as_bytes();
        let code = |at: usize| {
            if bytes[at] != b'%' {
                return None;
            }
            let digits = bytes.get(at + 1..at + 3)?;
            let code = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            (digits[0] != b'+').then_some(code)
        };
        let first = line.match_indices('%').map(|it| it.0).find(|at| code(*at).is_some())?;
        let mut text = line[..first].to_owned();
        let mut origin: Vec<usize> = (0..first).collect();
        let mut at = first;
        while let Some(c) = line.get(at..).and_then(|rest| rest.chars().next()) {
            let before = text.len();
            let next = match code(at) {
                Some(b'\n') => {
                    text.push_str("\\n");
                    at + 3
                }
                Some(b'\r') => at + 3,
                Some(code) if code.is_ascii_graphic() || matches!(code, b' ' | b'\t') => {
                    text.push(code.into());
                    at + 3
                }
                _ => {
                    text.push(c);
                    at + c.len_utf8()
                }
            };
            // The bytes of a character that was not decoded keep their own positions.
            let plain = next - at == text.len() - before;
            origin.extend((0..text.len() - before).map(|byte| if plain { at + byte } else { at }));
            at = next;
        }
        origin.push(line.len());
        Some(Self { text, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Redactor;
    use super::*;
    use base64::engine::general_purpose::{STANDARD as PLAIN, URL_SAFE as URL};

    #[test]
    fn decoded_bytes_keep_their_origin() {
        let line = "é%20a%3Db%0Ac%ZZ%C3%A9%";
        let decoded = PercentDecoded::of(line).unwrap();
        assert_eq!(decoded.text, "é a=b\\nc%ZZ%C3%A9%");
        assert_eq!(decoded.origin.len(), decoded.text.len() + 1);
        assert_eq!(&line[decoded.origin[3]..decoded.origin[5]], "a%3D");
        assert_eq!(decoded.origin.last(), Some(&line.len()));
        assert!(PercentDecoded::of("100 % of it, 5%, %").is_none());
    }

    #[test]
    fn encoded_secrets_are_found_at_every_position() {
        for secret in ["correct horse battery", "pä55~wörd?", "tr0ub4"] {
            let redactor = Redactor::new(vec![secret.to_owned()]);
            for before in ["", "u", "us", "user:", "\u{0}\u{0}"] {
                for after in ["", "\n", "!!", "@host"] {
                    let text = format!("{before}{secret}{after}");
                    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                    for form in [PLAIN.encode(&text), URL.encode(&text), hex.to_uppercase(), hex] {
                        if secret.len() < 8 && !form.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                            continue;
                        }
                        let shown = redactor.redact(&form);
                        assert!(shown.contains("[redacted:secret]"), "{text:?} in {form}: {shown}");
                    }
                }
            }
        }
    }
}
