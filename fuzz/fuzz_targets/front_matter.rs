//! Fuzzes front matter: the head and the body of any text together make up the whole text.
#![no_main]

use runner_text::front_matter::split;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let document = split(text);
    assert_eq!(format!("{}{}", document.head(), document.body()), text);
    assert_eq!(&text[document.body_start()..], document.body());
    if let Some(range) = document.front_range() {
        assert_eq!(Some(&text[range]), document.front());
    }
    for line in text.lines().take(20) {
        let _ = document.get(line.split(':').next().unwrap_or_default());
    }
});
