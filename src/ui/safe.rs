//! Escapes control characters and invisible characters in untrusted text, such as file names and
//! model answers.

/// Escapes text as one line. A tab becomes four spaces.
pub fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => safe.push_str("    "),
            c if hidden(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns whether a terminal would interpret `c`, or whether `c` could mislead a reader.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Direction marks and overrides, isolates, zero-width characters, separators, tags.
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Splits text into lines and escapes each line.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(line("plain – ü 漢 🌙"), "plain – ü 漢 🌙");
        assert_eq!(line("\u{1b}[2J\u{7}"), "\\u{1b}[2J\\u{7}");
        assert_eq!(line("a\u{202e}dm.exe\u{2066}"), "a\\u{202e}dm.exe\\u{2066}");
        assert_eq!(line("a\tb\rc\u{9b}31m"), "a    b\\u{d}c\\u{9b}31m");
        assert_eq!(line("\u{e0041}\u{200b}"), "\\u{e0041}\\u{200b}");
        assert_eq!(lines(b"one\r\ntwo\xff\n"), ["one", "two\u{fffd}"]);
    }
}
