//! Cleans the text of an entry: removes characters that would change its lines.

/// Joins the lines as they are, without the blank lines around them.
pub(super) fn prose<'t>(lines: impl IntoIterator<Item = &'t str>) -> String {
    let text = lines.into_iter().map(|line| clean(line).trim().to_owned());
    let text: Vec<String> = text.collect();
    text.join("\n").trim_matches('\n').to_owned()
}

/// Converts a text to one line without control characters, with single spaces and none at the ends.
/// The line must not begin like a list item, because the caller makes it a list item.
pub(super) fn one_line(text: &str) -> String {
    let clean = clean(text);
    let words: Vec<&str> = clean.split_whitespace().collect();
    let mut text = words.join(" ");
    while let Some(rest) = text.strip_prefix("- ").or_else(|| text.strip_prefix("+ ")) {
        text = rest.to_owned();
    }
    if matches!(text.as_str(), "-" | "+") {
        text.clear();
    }
    text
}

/// Replaces control characters, and characters that reorder a line on display, with blanks.
fn clean(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect()
}
