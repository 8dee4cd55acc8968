//! Fuzzes redaction: text that arrives in pieces is redacted like the whole text, and redacted text
//! contains no control characters other than line feeds and tabs.
#![no_main]

use runner_text::redact::{Redacted, Redactor};

libfuzzer_sys::fuzz_target!(|input: (u8, &str)| {
    let (at, text) = input;
    let redactor = Redactor::new(vec!["a known secret".to_owned()]);
    let mut stream = redactor.stream();
    let mut at = usize::from(at).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let mut shown = stream.push(text[..at].as_bytes());
    shown.push_str(&stream.push(text[at..].as_bytes()));
    shown.push_str(&stream.finish());
    assert_eq!(shown, redactor.redact(text));
    let shown = Redacted::of(text);
    assert!(shown.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()));
});
