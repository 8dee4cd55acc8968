//! Extracts the title, summary and plain text of a Markdown note.
//!
//! This is a line-by-line reader for typical notes, not a CommonMark parser. It must never be used
//! to rewrite a document. Every function takes time linear in the length of the text, even if it
//! contains many brackets.

mod inline;
mod lines;

use crate::front_matter;
pub use lines::{Line, Lines, lines};

/// Returns the front matter's `title`, or else the first level-one heading, or else the file's stem
/// in readable form.
pub fn title(text: &str, fallback_file_stem: &str) -> String {
    let doc = front_matter::split(text);
    let declared = doc.get("title").map(str::trim).filter(|t| !t.is_empty());
    if let Some(declared) = declared {
        return declared.to_owned();
    }
    lines(doc.body())
        .find_map(|line| match line {
            Line::Heading(1, heading) => Some(inline::strip(heading)).filter(|t| !t.is_empty()),
            _ => None,
        })
        .unwrap_or_else(|| humanized(fallback_file_stem))
}

/// Turns `2026-03-01-retry_on-429` into "Retry on 429". Separators become spaces, and a leading
/// date or number is removed if words follow.
fn humanized(stem: &str) -> String {
    let words: Vec<&str> = stem
        .split(|c: char| c == '-' || c == '_' || c == '.' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    let numbers = words.iter().take_while(|word| word.bytes().all(|b| b.is_ascii_digit())).count();
    let kept = if numbers < words.len() { numbers } else { 0 };
    let joined = words[kept..].join(" ");
    let mut chars = joined.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => stem.to_owned(),
    }
}

/// Returns the first paragraph of prose on one line, shortened to at most `max_chars` characters
/// including the ellipsis. Headings, lists, tables, quotes, code, images and lines like
/// `**Status:** draft` are skipped. If there is no prose, the first list item or quote is returned.
pub fn summary(text: &str, max_chars: usize) -> String {
    let doc = front_matter::split(text);
    let mut prose: Vec<String> = Vec::new();
    let mut instead: Option<String> = None;
    for line in lines(doc.body()) {
        match line {
            Line::Text(text) if !is_metadata(text) && !is_picture(text) => {
                prose.push(inline::strip(text))
            }
            Line::Item(text) | Line::Quote(text) if prose.is_empty() => {
                let words = inline::strip(text);
                if instead.is_none() && !words.is_empty() {
                    instead = Some(words);
                }
            }
            _ if prose.iter().any(|words| !words.is_empty()) => break,
            _ => prose.clear(),
        }
    }
    prose.retain(|words| !words.is_empty());
    let words = if prose.is_empty() { instead.unwrap_or_default() } else { prose.join(" ") };
    shortened(&words, max_chars)
}

/// Returns whether a line has the form `**Key:** value` or `**Key**: value`, which is common below
/// a note's title.
fn is_metadata(line: &str) -> bool {
    let Some((key, rest)) =
        line.trim_start().strip_prefix("**").and_then(|inner| inner.split_once("**"))
    else {
        return false;
    };
    let marked = key.ends_with(':') || rest.starts_with(':');
    marked && key.split_whitespace().count() <= 3
}

/// Returns whether a line begins with an image or a badge.
fn is_picture(line: &str) -> bool {
    line.starts_with("![") || line.starts_with("[![")
}

fn shortened(words: &str, max_chars: usize) -> String {
    if words.chars().count() <= max_chars {
        return words.to_owned();
    }
    let Some(room) = max_chars.checked_sub(1) else {
        return String::new();
    };
    let cut = words.char_indices().nth(room).map_or(words.len(), |(at, _)| at);
    let head = &words[..cut];
    let whole = words[cut..].starts_with(char::is_whitespace);
    let kept = match head.rfind(char::is_whitespace) {
        Some(space) if !whole && space > 0 => &head[..space],
        _ => head,
    };
    let kept = kept.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':'));
    format!("{kept}…")
}

/// Returns the note's text without markup, front matter, fenced code, comments or link targets.
/// Each source line with words becomes one line. Text in backticks is kept.
pub fn plain(text: &str) -> String {
    let doc = front_matter::split(text);
    let mut out = String::with_capacity(text.len());
    for line in lines(doc.body()) {
        let words = match line {
            Line::Heading(_, text) | Line::Text(text) | Line::Item(text) | Line::Quote(text) => {
                inline::strip(text)
            }
            Line::Row(text) => inline::strip(&text.replace('|', " ")),
            Line::Blank | Line::Rule | Line::Code | Line::Comment => continue,
        };
        if !words.is_empty() {
            out.push_str(&words);
            out.push('\n');
        }
    }
    out
}

/// Counts the words in the note's [`plain`] text.
pub fn word_count(text: &str) -> usize {
    plain(text).split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOTE: &str = "\
---
status: draft
---
<!-- written on
a train -->
# Retry *politely* on `429`

**Status:** draft
**Owner**: nobody

![diagram](a.png)

The client should wait as long as the [server](https://example.org/a_(b)) says,
and not a second longer.

## Why

- [ ] measured twice
- see `max_wait_ms`

```sh
# not a heading
curl --retry 3
```

| a | b |
|---|---|
| one | **two** |
";

    #[test]
    fn title_prefers_front_matter_then_heading() {
        assert_eq!(title(NOTE, "x"), "Retry politely on 429");
        assert_eq!(title("---\ntitle: 'Declared'\n---\n# Other", "x"), "Declared");
        assert_eq!(title("---\ntitle:\n---\n# Other #", "x"), "Other");
        assert_eq!(title("```\n# no\n```\n## no\n# yes", "x"), "yes");
        assert_eq!(title("~~~~\n~~~\n# no\n~~~~\n", "a-b"), "A b");
        assert_eq!(title("Underlined\n===\n", "x"), "Underlined");
        assert_eq!(title("#hashtag", "2026-03-01-retry_on-429"), "Retry on 429");
        assert_eq!(title("", "2026-03-01"), "2026 03 01");
        assert_eq!(title("", "élan.vital"), "Élan vital");
        assert_eq!(title("", ""), "");
        assert_eq!(title("# \n", "--"), "--");
    }

    #[test]
    fn summary_is_the_first_prose() {
        assert_eq!(
            summary(NOTE, 200),
            "The client should wait as long as the server says, and not a second longer."
        );
        assert_eq!(summary(NOTE, 30), "The client should wait as…");
        assert_eq!(summary("# T\n\n- first *item*\n- second", 99), "first item");
        assert_eq!(summary("# T\n\n> quoted\n\nProse.", 99), "Prose.");
        assert_eq!(summary("# T\n```\ncode\n```\n", 99), "");
        assert_eq!(summary("Under\n---\nText", 99), "Text");
    }

    #[test]
    fn summary_respects_its_maximum_length() {
        assert_eq!(summary("one two", 7), "one two");
        assert_eq!(summary("one two", 6), "one…");
        assert_eq!(summary("one two three", 8), "one two…");
        assert_eq!(summary("unbreakable", 5), "unbr…");
        assert_eq!(summary("one", 1), "…");
        assert_eq!(summary("one", 0), "");
        assert_eq!(summary("ééé ééé", 5), "ééé…");
    }

    #[test]
    fn plain_text_omits_markup() {
        assert_eq!(
            plain(NOTE),
            "Retry politely on 429\nStatus: draft\nOwner: nobody\ndiagram\n\
             The client should wait as long as the server says,\nand not a second longer.\n\
             Why\nmeasured twice\nsee max_wait_ms\na b\none two\n"
        );
        assert_eq!(word_count(NOTE), 33);
        assert_eq!(word_count("one — two"), 2);
    }

    #[test]
    fn hostile_brackets_take_linear_time() {
        for piece in ["[", "](", "<a", "*", "`", "<!--", "[[]("] {
            let text = piece.repeat(200_000);
            assert!(plain(&text).len() <= text.len() + 1);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_accepted(text in "([a-z#*_`~<>!|=\\-\\[\\]() \\n\\r\\t]|é){0,80}", max in 0_usize..40) {
            prop_assert!(summary(&text, max).chars().count() <= max);
            let _ = (title(&text, &text), plain(&text), word_count(&text));
        }
    }
}
