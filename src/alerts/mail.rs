//! Formats a mail (RFC 5322) with a base64 text and with headers into which nothing can be
//! injected.
//!
//! Addresses were checked when the configuration was read. All other parts of a header are reduced
//! to harmless bytes here. This module is pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Maximum number of text bytes in one encoded word (RFC 2047 allows 75 characters for the whole
/// word).
const WORD: usize = 45;
/// Maximum length of a line of base64, in characters.
const COLUMNS: usize = 76;

/// The parts of a mail.
#[derive(Clone, Copy, Debug)]
pub struct Mail<'a> {
    pub recipient: &'a str,
    /// The sender; `None` leaves the sender to the mail program.
    pub sender: Option<&'a str>,
    pub subject: &'a str,
    pub text: &'a str,
    /// The id of the message, which has 26 letters and digits.
    pub id: &'a str,
    /// The host that the mail comes from.
    pub host: &'a str,
    /// The time at which the message was made.
    pub at: Timestamp,
}

/// Formats the mail for a program like sendmail: lines end in a line feed.
pub fn bytes(mail: &Mail<'_>) -> Vec<u8> {
    let mut out = String::new();
    if let Some(sender) = mail.sender {
        out.push_str(&format!("From: {}\n", token(sender)));
    }
    out.push_str(&format!("To: {}\n", token(mail.recipient)));
    out.push_str(&format!("Subject: {}\n", encode_subject(mail.subject)));
    let date = mail.at.strftime("%a, %d %b %Y %H:%M:%S +0000");
    out.push_str(&format!("Date: {date}\n"));
    let host = match token(mail.host) {
        host if host.is_empty() => "localhost".to_owned(),
        host => host,
    };
    out.push_str(&format!("Message-ID: <{}@{host}>\n", token(mail.id)));
    // Suppresses automatic replies (RFC 3834).
    out.push_str("Auto-Submitted: auto-generated\nMIME-Version: 1.0\n");
    out.push_str("Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n");
    let text = mail.text.replace("\r\n", "\n").replace('\n', "\r\n");
    let encoded = STANDARD.encode(text);
    for line in encoded.as_bytes().chunks(COLUMNS) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.into_bytes()
}

/// Removes every character that could end a header or begin another part of one.
fn token(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_graphic() && !"<>,;:()[]\\\"".contains(*c);
    text.chars().filter(plain).collect()
}

/// Encodes a subject: unchanged if it is plain and short, else as encoded words, one on each line.
fn encode_subject(text: &str) -> String {
    let plain = |c: char| c == ' ' || c.is_ascii_graphic();
    // A text that looks like an encoded word would be decoded as one.
    if text.len() <= 60 && text.chars().all(plain) && !text.contains("=?") {
        return text.trim().to_owned();
    }
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.floor_char_boundary(WORD));
        lines.push(format!("=?utf-8?B?{}?=", STANDARD.encode(line)));
        rest = more;
    }
    lines.join("\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INJECTIONS: &[&str] = &[
        "x\nBcc: evil@example.org",
        "x\r\nBcc: evil@example.org\r\n\r\nbody",
        "x\rBcc: evil@example.org",
        "x\u{2028}Bcc: evil@example.org",
        "x\n\nMIME-Version: 9",
        "=?utf-8?Q?x=0ABcc:_evil@example.org?=",
        "\0\u{b}\u{c}\u{85}Bcc: evil@example.org",
        "x\n.\nQUIT",
        "",
    ];

    /// Parses a mail as a reader does, into its headers and its text.
    fn read(mail: &[u8]) -> (Vec<(String, String)>, String) {
        let whole = std::str::from_utf8(mail).unwrap();
        assert!(whole.is_ascii() && !whole.contains('\r'), "{whole}");
        let (head, body) = whole.split_once("\n\n").unwrap();
        let head = head.replace("\n ", " ");
        let headers = head
            .lines()
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap_or((line, ""));
                (name.to_owned(), value.to_owned())
            })
            .collect();
        let body = STANDARD.decode(body.replace('\n', "")).unwrap();
        (headers, String::from_utf8(body).unwrap())
    }

    #[test]
    fn hostile_fields_add_no_headers() {
        for evil in INJECTIONS {
            for at in 0..4 {
                let field = |this: usize| if at == this { *evil } else { "x" };
                let mail = Mail {
                    recipient: "me@example.org",
                    sender: Some("runner@example.org"),
                    subject: field(0),
                    text: field(1),
                    id: field(2),
                    host: field(3),
                    at: Timestamp::UNIX_EPOCH,
                };
                let (headers, text) = read(&bytes(&mail));
                let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(
                    names,
                    [
                        "From",
                        "To",
                        "Subject",
                        "Date",
                        "Message-ID",
                        "Auto-Submitted",
                        "MIME-Version",
                        "Content-Type",
                        "Content-Transfer-Encoding"
                    ],
                    "{evil:?}"
                );
                let unix = |text: &str| text.replace("\r\n", "\n");
                assert_eq!(unix(&text), unix(field(1)));
                for (_, value) in &headers {
                    assert!(value.len() < 998);
                }
            }
        }
    }

    #[test]
    fn subjects_in_any_script_round_trip() {
        for subject in ["Nachtschicht", "ä".repeat(150).as_str(), "夜の仕事 failed", "=?x?="] {
            let said = encode_subject(subject);
            let mut back = Vec::new();
            if said.starts_with("=?utf-8?B?") {
                for word in said.split("\n ") {
                    assert!(word.len() <= 75, "{word}");
                    let inner = word.strip_prefix("=?utf-8?B?").unwrap();
                    back.extend(STANDARD.decode(inner.strip_suffix("?=").unwrap()).unwrap());
                }
            } else {
                back = said.into_bytes();
            }
            assert_eq!(String::from_utf8(back).unwrap(), subject);
        }
    }
}
