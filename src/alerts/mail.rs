//! Formats an email (RFC 5322) with a base64 body and injection-proof headers.
//!
//! `mail-builder` folds and encodes the subject. From the addresses, the id and the host, this
//! module removes every character that could change a header. This module is pure.

use jiff::Timestamp;
use mail_builder::MessageBuilder;
use mail_builder::headers::raw::Raw;
use mail_builder::mime::MimePart;

/// The parts of an email.
#[derive(Clone, Copy, Debug)]
pub struct Mail<'a> {
    pub recipient: &'a str,
    /// The sender; `None` leaves the sender to the mail program.
    pub sender: Option<&'a str>,
    pub subject: &'a str,
    pub text: &'a str,
    /// The message id, which consists of 26 letters and digits.
    pub id: &'a str,
    /// The host that the email comes from.
    pub host: &'a str,
    /// The time at which the message was created.
    pub at: Timestamp,
}

/// Formats the email for a program such as sendmail, with lines that end in a line feed.
pub fn bytes(mail: &Mail<'_>) -> Vec<u8> {
    let host = Some(token(mail.host)).filter(|host| !host.is_empty());
    let host = host.as_deref().unwrap_or("localhost");
    let text = mail.text.replace("\r\n", "\n").replace('\n', "\r\n");
    // A part that is not declared as text is always encoded as base64.
    let body = MimePart::raw(text.as_bytes())
        .header("Content-Type", Raw::new("text/plain; charset=utf-8"));
    let mut message = MessageBuilder::new();
    if let Some(sender) = mail.sender {
        message = message.header("From", Raw::new(token(sender)));
    }
    message = message
        .header("To", Raw::new(token(mail.recipient)))
        .subject(mail.subject)
        .date(mail.at.as_second())
        .message_id(format!("{}@{host}", token(mail.id)))
        // Suppresses automatic replies (RFC 3834).
        .header("Auto-Submitted", Raw::new("auto-generated"))
        .body(body);
    let mut out = Vec::new();
    message.serialize(&mut out);
    out.retain(|byte| *byte != b'\r');
    out
}

/// Removes every character that could end a header or begin another part of one.
fn token(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_graphic() && !"<>,;:()[]\\\"".contains(*c);
    text.chars().filter(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

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

    /// Parses an email as a mail client does, into its headers and its body.
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
            let mail = Mail {
                recipient: "me@example.org",
                sender: None,
                subject,
                text: "x",
                id: "x",
                host: "x",
                at: Timestamp::UNIX_EPOCH,
            };
            let mail = String::from_utf8(bytes(&mail)).unwrap();
            let (_, said) = mail.split_once("Subject: ").unwrap();
            let (said, _) = said.split_once("\nDate: ").unwrap();
            let mut back = Vec::new();
            if said.starts_with("=?utf-8?B?") {
                for word in said.split("\n ") {
                    assert!(word.len() <= 75, "{word}");
                    let inner = word.strip_prefix("=?utf-8?B?").unwrap();
                    back.extend(STANDARD.decode(inner.strip_suffix("?=").unwrap()).unwrap());
                }
            } else {
                back = said.as_bytes().to_vec();
            }
            assert_eq!(String::from_utf8(back).unwrap(), subject);
        }
    }
}
