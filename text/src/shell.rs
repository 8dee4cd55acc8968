//! Quotes text for a POSIX shell, so that users can paste printed commands.

use std::fmt::Display;

/// Returns text as one word of a shell command, quoted if necessary. A null byte, which no shell
/// can quote, becomes the replacement character.
pub fn shell_word(text: impl Display) -> String {
    let text = text.to_string().replace('\0', "\u{fffd}");
    shlex::try_quote(&text).unwrap_or_default().into_owned()
}

/// Returns a shell command that consists of these words.
pub fn shell_line<W: Display>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_commands_can_be_pasted() {
        assert_eq!(shell_word("/a/b-c_1.d:e"), "/a/b-c_1.d:e");
        for name in ["a`b", "a(b)", "a*b", "a b", "it's", "a;b", "", "$x", "é\n"] {
            let line = shell_line(["runner", name]);
            assert_ne!(line, format!("runner {name}"), "the name is not quoted");
            assert_eq!(shlex::split(&line).unwrap(), ["runner", name]);
        }
        assert_eq!(shlex::split(&shell_word("a\0 b")).unwrap(), ["a\u{fffd} b"]);
    }
}
