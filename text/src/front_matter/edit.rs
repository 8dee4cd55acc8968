//! Lists the keys of front matter, reads its lists, and changes single values.
//!
//! A change must keep every byte outside the changed value and the spaces around it, including
//! unknown keys, comments, line endings and a byte order mark. A list, a block or unterminated
//! front matter is never changed.

use std::collections::BTreeSet;

use super::{Document, key_and_rest, quote_end, scalar, split};

/// Returns the top-level keys in their original order, including repeated keys.
pub fn keys<'a>(doc: &Document<'a>) -> Vec<&'a str> {
    let lines = doc.front().unwrap_or_default().lines();
    lines.filter_map(|line| key_and_rest(line).map(|(key, _)| key)).collect()
}

/// Returns the scalars of the list at `key`. The list is either on one line, as in `[a, b]`, or has
/// one item per line, as in `- a`. A single scalar is a list with one item. Items that are not
/// scalars are skipped, and a missing key has no items.
pub fn list(doc: &Document<'_>, key: &str) -> Vec<String> {
    let mut lines = doc.front().unwrap_or_default().lines();
    let Some(rest) = lines.find_map(|line| match key_and_rest(line) {
        Some((found, rest)) if found == key => Some(rest.trim()),
        _ => None,
    }) else {
        return Vec::new();
    };
    if let Some(inner) = rest.strip_prefix('[') {
        return flow_items(inner).into_iter().filter_map(scalar).map(str::to_owned).collect();
    }
    if !rest.is_empty() && !rest.starts_with('#') {
        return scalar(rest).map(str::to_owned).into_iter().collect();
    }
    lines
        .take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t', '-']))
        .filter_map(|line| line.trim().strip_prefix("- "))
        .filter_map(scalar)
        .map(str::to_owned)
        .collect()
}

/// Splits the items of a list on one line, up to its closing bracket. Commas and brackets in quotes
/// or in an inner list belong to their item.
fn flow_items(inner: &str) -> Vec<&str> {
    let (mut items, mut start, mut at, mut depth) = (Vec::new(), 0, 0, 0_usize);
    while let Some(c) = inner[at..].chars().next() {
        match c {
            '"' | '\'' if inner[start..at].trim().is_empty() || depth > 0 => {
                at += quote_end(&inner[at..]).unwrap_or(0);
            }
            '[' | '{' => depth += 1,
            ']' | '}' if depth > 0 => depth -= 1,
            ']' => break,
            ',' if depth == 0 => {
                items.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    items.push(&inner[start..at]);
    items
}

/// Returns the text with `key` set to the scalar `value`. A missing key is added at the end of the
/// front matter, which is created if necessary. Returns `None` if the key's value is neither empty
/// nor a scalar on one line, or if the text begins with a `---` line that does not begin front
/// matter.
pub fn set(text: &str, key: &str, value: &str) -> Option<String> {
    let doc = split(text);
    let written = quote(value);
    let Some(range) = doc.front_range() else {
        let mark = if text.starts_with('\u{feff}') { 3 } else { 0 };
        if text[mark..].lines().next().map(str::trim_end) == Some("---") {
            return None;
        }
        let end = line_end(text);
        let (before, after) = text.split_at(mark);
        return Some(format!("{before}---{end}{key}: {written}{end}---{end}{after}"));
    };
    let front = &text[range.clone()];
    let mut at = range.start;
    let mut lines = front.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let bare = line.trim_end_matches(['\n', '\r']);
        if let Some((found, rest)) = key_and_rest(bare)
            && found == key
        {
            let continued = lines
                .peek()
                .is_some_and(|next| next.starts_with([' ', '\t', '-']) && !next.trim().is_empty());
            let comment = after_value(rest).filter(|_| !continued)?;
            // Quotes end a value even if no space follows them.
            let space = if comment.starts_with('#') { " " } else { "" };
            let head = &bare[..bare.len() - rest.len()];
            return Some(format!(
                "{}{head} {written}{space}{comment}{}{}",
                &text[..at],
                &line[bare.len()..],
                &text[at + line.len()..]
            ));
        }
        at += line.len();
    }
    let end = line_end(text);
    Some(format!("{}{key}: {written}{end}{}", &text[..range.end], &text[range.end..]))
}

/// Adds the fields of `before` that `text` lacks at the end of its front matter, with their lines
/// unchanged. Returns `None` if `text` has no front matter.
pub fn with_fields_of(before: &str, text: &str) -> Option<String> {
    let range = split(text).front_range()?;
    let missing = stripped(before, text);
    let (mut fields, mut wanted) = (String::new(), false);
    let front = split(before).front_range().unwrap_or_default();
    for line in before[front].lines() {
        if let Some((key, _)) = key_and_rest(line) {
            wanted = missing.iter().any(|it| it == key);
        }
        if wanted {
            fields += line;
            fields.push('\n');
        }
    }
    Some(format!("{}{fields}{}", &text[..range.end], &text[range.end..]))
}

/// Returns the keys of `before` that are missing from `after`.
pub fn stripped(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (split(before), split(after));
    let left: BTreeSet<&str> = keys(&after).into_iter().collect();
    let mut gone: Vec<String> =
        keys(&before).into_iter().filter(|key| !left.contains(key)).map(str::to_owned).collect();
    gone.dedup();
    gone
}

/// Returns the text after a key's value: a comment and the space around it. Returns `None` if the
/// value is neither empty nor a scalar.
fn after_value(rest: &str) -> Option<&str> {
    let value = rest.trim_start();
    let length = match scalar(value) {
        Some(inner) if value.starts_with(['"', '\'']) => inner.len() + 2,
        Some(inner) => inner.len(),
        None if value.is_empty() || value.starts_with('#') => return Some(rest),
        None => {
            let null = value.split_once(" #").map_or(value, |(before, _)| before).trim_end();
            matches!(null, "~" | "null" | "Null" | "NULL").then_some(null.len())?
        }
    };
    Some(&value[length..])
}

fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Formats a scalar for YAML: plain if that is safe, otherwise in double quotes. Line breaks and
/// tabs become spaces, and other control characters are removed.
pub fn quote(value: &str) -> String {
    let plain = !value.is_empty()
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_./ ()".contains(c))
        && value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !value.ends_with(' ')
        && !matches!(
            value.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off"
        );
    if plain {
        return value.to_owned();
    }
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn set_changes_only_one_value() {
        let text =
            "---\nz: 1\nmaturity: provisional # for now\nutility: 0.80\n\nlist:\n  - a\n---\n# T\n";
        let new = set(text, "maturity", "candidate").unwrap();
        assert_eq!(new, text.replace("provisional # for now", "candidate # for now"));
        let new = set(text, "promoted_at", "2026-11-22").unwrap();
        assert_eq!(new, text.replace("  - a\n---", "  - a\npromoted_at: 2026-11-22\n---"));
        assert_eq!(set(text, "list", "x"), None, "a list was replaced");
        assert_eq!(set("---\nnever: ended\n", "a", "b"), None);
        assert_eq!(set("# T\r\nx\r\n", "a", "b").unwrap(), "---\r\na: b\r\n---\r\n# T\r\nx\r\n");
        assert_eq!(
            set("---\na: \"x # y\" # c\n---\n", "a", "1: 2").unwrap(),
            "---\na: \"1: 2\" # c\n---\n"
        );
        for (before, after) in [
            ("a: 'x' # don't change", "a: b # don't change"),
            ("a: \"x\" # \"quoted\"", "a: b # \"quoted\""),
            ("a: # to do", "a: b # to do"),
            ("a: \"x\"#why", "a: b #why"),
            ("a: null  # to do ", "a: b  # to do "),
        ] {
            let new = set(&format!("---\n{before}\n---\n"), "a", "b");
            assert_eq!(new, Some(format!("---\n{after}\n---\n")));
        }
        assert_eq!(set("---\na:\nb: 2\n---\n", "a", "1").unwrap(), "---\na: 1\nb: 2\n---\n");
    }

    #[test]
    fn both_list_forms_are_read() {
        let doc = split("---\na: [x, \"y z\", 3]\nb:\n  - p/q.rs\n  - 'r'\nc: one\nd: []\n---\n");
        assert_eq!(list(&doc, "a"), ["x", "y z", "3"]);
        assert_eq!(list(&doc, "b"), ["p/q.rs", "r"]);
        assert_eq!(list(&doc, "c"), ["one"]);
        assert_eq!(list(&doc, "d"), [""; 0]);
        assert_eq!(list(&doc, "e"), [""; 0]);
        let quoted = split("---\na: [\"b, \\\"c\\\"]\", 'd, e', don't, f] # [g]\n---\n");
        assert_eq!(list(&quoted, "a"), ["b, \\\"c\\\"]", "d, e", "don't", "f"]);
        assert_eq!(keys(&doc), ["a", "b", "c", "d"]);
    }

    #[test]
    fn quotes_and_inner_lists_do_not_split_items() {
        for (value, items) in [
            ("['it''s, x', y]", &["it''s, x", "y"][..]),
            ("[[a, b], c] # [d]", &["c"]),
            (r#"["a\", b]", 'c"']"#, &[r#"a\", b]"#, "c\""]),
            ("[it's, b", &["it's", "b"]),
            ("['open, b]", &["b"]),
            ("[{a: 1, b: 2}, ']']", &["]"]),
        ] {
            let text = format!("---\nk: {value}\n---\n");
            assert_eq!(list(&split(&text), "k"), items, "{value}");
        }
    }

    #[test]
    fn missing_fields_are_added_unchanged() {
        let before =
            "---\na: 1\nnote: \"say \\\"hi\\\"\" # mine\ntags:\n  - x\n  - y\nempty:\n---\nold";
        let new = with_fields_of(before, "---\na: 2\n---\nnew").unwrap();
        let fields = "note: \"say \\\"hi\\\"\" # mine\ntags:\n  - x\n  - y\nempty:\n";
        assert_eq!(new, format!("---\na: 2\n{fields}---\nnew"));
        assert_eq!(with_fields_of(before, &new), Some(new.clone()), "nothing is missing");
        assert_eq!(with_fields_of(before, "no front matter"), None);
    }

    #[test]
    fn stripped_keys_are_listed() {
        let before = "---\na: 1\nb: 2\n---\nx";
        assert_eq!(stripped(before, "---\nb: 3\nc: 4\n---\nx"), ["a"]);
        assert_eq!(stripped(before, "no front matter"), ["a", "b"]);
        assert_eq!(stripped("none", before), [""; 0]);
    }

    proptest! {
        #[test]
        fn set_keeps_all_other_lines(
            values in prop::collection::vec("[a-z0-9 .:#\"'-]{0,12}", 1..6), value in "\\PC{1,20}",
        ) {
            let lines: String = values.iter().enumerate()
                .map(|(at, it)| format!("k{at}: {}\n", quote(it))).collect();
            let text = format!("---\n{lines}---\nbody\n");
            let new = set(&text, "k0", &value).unwrap();
            prop_assert_eq!(new.lines().count(), text.lines().count());
            let rest = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(rest(&new), rest(&text));
            prop_assert!(stripped(&text, &new).is_empty());
            prop_assert_eq!(set(&new, "k0", &value), Some(new.clone()));
        }

        #[test]
        fn set_accepts_arbitrary_text(text in "(---\n)?[-a: \n#\"'\\[\\]\u{e9}]{0,40}(---\n)?", value in ".{0,8}") {
            if let Some(new) = set(&text, "a", &value) {
                prop_assert!(stripped(&text, &new).is_empty());
            }
            let _ = (list(&split(&text), "a"), keys(&split(&text)));
        }
    }
}
