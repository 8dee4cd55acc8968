//! Finds YAML front matter, splits it off without loss, and reads single values.
//!
//! Only top-level `key: value` lines are supported, and only if the value is clearly a single
//! scalar on one line. The parser must never guess the meaning of a list, a block or a damaged
//! line, and must never panic. A YAML library would refuse a whole document because of one
//! malformed line.

pub mod edit;

use std::ops::Range;

/// A Markdown document, split into front matter and body. `head` and `body` together are the
/// complete text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    text: &'a str,
    front: Option<Range<usize>>,
    body: usize,
}

/// Splits off the front matter, which extends from a `---` line at the top to the next `---` or
/// `...` line. A byte order mark may come first. Because `---` may also be a horizontal rule, the
/// complete text is the body if there is no such end, or if the first line that is neither blank
/// nor a comment has no key.
pub fn split(text: &str) -> Document<'_> {
    find(text).unwrap_or(Document { text, front: None, body: 0 })
}

fn find(text: &str) -> Option<Document<'_>> {
    let mut at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut lines = text[at..].split_inclusive('\n');
    let opening = lines.next()?;
    if opening.trim_end() != "---" || !opening.ends_with('\n') {
        return None;
    }
    at += opening.len();
    let start = at;
    let mut keyed = false;
    for line in lines {
        let bare = line.trim_end();
        if bare == "---" || bare == "..." {
            return Some(Document { text, front: Some(start..at), body: at + line.len() });
        }
        let blank = bare.is_empty() || bare.starts_with('#');
        if !keyed && !blank {
            key_and_rest(bare)?;
            keyed = true;
        }
        at += line.len();
    }
    None
}

impl<'a> Document<'a> {
    /// Returns the lines between the delimiters, if there is front matter.
    pub fn front(&self) -> Option<&'a str> {
        self.front.clone().map(|range| &self.text[range])
    }

    /// Returns the byte range of the lines between the delimiters, if there is front matter.
    pub fn front_range(&self) -> Option<Range<usize>> {
        self.front.clone()
    }

    /// Returns the text before the body, including the delimiters and the byte order mark. The
    /// result is empty if there is no front matter.
    pub fn head(&self) -> &'a str {
        &self.text[..self.body]
    }

    pub fn body(&self) -> &'a str {
        &self.text[self.body..]
    }

    /// Returns the byte offset at which the body begins.
    pub fn body_start(&self) -> usize {
        self.body
    }

    /// Returns the value of a top-level key without its quotes, if the value is a single scalar on
    /// one line. Escapes inside quotes are kept. Returns `None` for a missing key, `null`, `~`,
    /// empty values, lists, maps, blocks, anchors and unbalanced quotes. If a key occurs several
    /// times, only the first occurrence is read.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let mut lines = self.front()?.lines().peekable();
        while let Some(line) = lines.next() {
            match key_and_rest(line) {
                Some((found, rest)) if found == key => {
                    let continued = lines.peek().is_some_and(|next| {
                        next.starts_with([' ', '\t']) && !next.trim().is_empty()
                    });
                    return if continued { None } else { scalar(rest) };
                }
                _ => {}
            }
        }
        None
    }
}

/// Splits an unindented line `key: rest` or `"key": rest`.
fn key_and_rest(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = match line.chars().next()? {
        quote @ ('"' | '\'') => {
            let (key, rest) = line[1..].split_once(quote)?;
            (key, rest.trim_start().strip_prefix(':')?)
        }
        first if first.is_alphanumeric() || first == '_' || first == '$' => line.split_once(':')?,
        _ => return None,
    };
    let key = key.trim_end();
    let apart = rest.is_empty() || rest.starts_with([' ', '\t', '\r']);
    (apart && !key.is_empty()).then_some((key, rest))
}

fn scalar(rest: &str) -> Option<&str> {
    let value = rest.trim();
    match value.chars().next()? {
        '"' | '\'' => {
            let end = quote_end(value)?;
            let after = value[end + 1..].trim_start();
            (after.is_empty() || after.starts_with('#')).then_some(&value[1..end])
        }
        '[' | '{' | '|' | '>' | '&' | '*' | '!' | '%' | '@' | '`' | '#' | ',' | ']' | '}' => None,
        '-' | '?' if value.len() == 1 || value[1..].starts_with(' ') => None,
        _ => {
            let plain = value.split_once(" #").map_or(value, |(before, _)| before);
            let plain = plain.trim_end();
            (!matches!(plain, "~" | "null" | "Null" | "NULL")).then_some(plain)
        }
    }
}

/// Returns the position of the quote that ends the string at the start of `value`, or `None` if it
/// does not end.
fn quote_end(value: &str) -> Option<usize> {
    let (quote, mut at) = (value.chars().next()?, 1);
    loop {
        at += value[at..].find([quote, '\\'])?;
        let escapes = quote == '"' && value[at..].starts_with('\\');
        match value[at + 1..].chars().next() {
            Some(next) if escapes => at += 1 + next.len_utf8(),
            Some('\'') if quote == '\'' && value[at..].starts_with(quote) => at += 2,
            _ if value[at..].starts_with(quote) => return Some(at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn split_loses_nothing() {
        let text = "---\ntitle: A note\nstatus: draft\n---\n\n# Heading\n";
        let doc = split(text);
        assert_eq!(doc.front(), Some("title: A note\nstatus: draft\n"));
        assert_eq!(doc.front_range(), Some(4..32));
        assert_eq!(doc.body(), "\n# Heading\n");
        assert_eq!(doc.head(), &text[..doc.body_start()]);
        assert_eq!(doc.get("title"), Some("A note"));
        assert_eq!(doc.get("status"), Some("draft"));
        assert_eq!(doc.get("stat"), None);
    }

    #[test]
    fn crlf_bom_and_end_variants_are_tolerated() {
        let doc = split("\u{feff}---\r\ntitle: A\r\ngenerated_by: runner\r\n---\r\nbody\r\n");
        assert_eq!(doc.get("title"), Some("A"));
        assert_eq!(doc.get("generated_by"), Some("runner"));
        assert_eq!(doc.body(), "body\r\n");
        assert_eq!(split("---\na: 1\n...\nbody").body(), "body");
        assert_eq!(split("---\na: 1\n---").body(), "");
        assert_eq!(split("---\n---\nbody").front(), Some(""));
        assert_eq!(split("--- \n# comment\n\na: 1\n--- \nb").get("a"), Some("1"));
    }

    #[test]
    fn invalid_front_matter_is_body() {
        for text in [
            "",
            "---",
            "---\n",
            "---\ntitle: never ended\n",
            "---\nA ruler, then prose.\n---\n",
            "---\n- a list\n---\n",
            " ---\na: 1\n---\n",
            "\n---\na: 1\n---\n",
            "----\na: 1\n----\n",
            "# Title\n---\na: 1\n---\n",
            "\u{feff}plain",
        ] {
            let doc = split(text);
            assert_eq!(doc.front(), None, "{text:?}");
            assert_eq!(doc.body(), text);
            assert_eq!(doc.get("a"), None);
        }
    }

    #[test]
    fn only_single_line_scalars_are_values() {
        let doc = split(
            "---\n\
             plain: some words # a comment\n\
             colon: a: b\n\
             url: https://example.org/#part\n\
             double: \"two words\" # c\n\
             escaped: \"say \\\"hi\\\"\"\n\
             single: 'it''s'\n\
             \"quoted key\": yes\n\
             spaced : 1\n\
             negative: -4\n\
             dash: -\n\
             list: [a, b]\n\
             map: {a: b}\n\
             block: |\n  text\n\
             folded: long words\n  that go on\n\
             empty:\n\
             null: null\n\
             tilde: ~\n\
             open: \"no end\n\
             after: \"a\" b\n\
             anchor: &x y\n\
             nested:\n  inner: 5\n\
             tight:value\n\
             plain: second\n\
             ---\n",
        );
        for (key, value) in [
            ("plain", "some words"),
            ("colon", "a: b"),
            ("url", "https://example.org/#part"),
            ("double", "two words"),
            ("escaped", "say \\\"hi\\\""),
            ("single", "it''s"),
            ("quoted key", "yes"),
            ("spaced", "1"),
            ("negative", "-4"),
        ] {
            assert_eq!(doc.get(key), Some(value), "{key}");
        }
        for key in [
            "dash", "list", "map", "block", "folded", "empty", "null", "tilde", "open", "after",
            "anchor", "nested", "inner", "tight",
        ] {
            assert_eq!(doc.get(key), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_splits_without_loss(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just("---"), Just("\n"), Just("\r\n"), Just("..."), Just("a: "), Just("'"),
                    Just("\""), Just("\\"), Just("é"), Just(" "), Just("#"), Just("\u{feff}"),
                    Just("[x]"), Just("key:"),
                ],
                0..24,
            ),
            lead: bool,
        ) {
            let text = format!("{}{}", if lead { "---\n" } else { "" }, pieces.concat());
            let doc = split(&text);
            prop_assert_eq!(format!("{}{}", doc.head(), doc.body()), text.clone());
            prop_assert_eq!(doc.front().is_none(), doc.head().is_empty());
            let _ = (doc.get("a"), doc.get("key"), doc.get("é"), doc.get(""));
        }
    }
}
