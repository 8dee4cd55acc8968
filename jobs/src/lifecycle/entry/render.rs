//! Renders an entry as org text.
//!
//! Text never leaves its section. An item is one line that begins with a hyphen. A line of the tale
//! never begins with a star or a `#`, so it is neither a heading nor a keyword.

use super::{Entry, HEADINGS, VerdictMove};

/// Returns the content of the entry's file.
pub fn render(entry: &Entry) -> String {
    let sections = &entry.sections;
    let mut out =
        format!("#+TITLE: {}\n#+MODEL: {}\n", one_line(&entry.title), one_line(&entry.model));
    let unseen = entry.unseen.iter().map(|what| one_line(&what.replace(';', ",")));
    let unseen: Vec<String> = unseen.filter(|what| !what.is_empty()).collect();
    if !unseen.is_empty() {
        out.push_str(&format!("#+UNSEEN: {}\n", unseen.join("; ")));
    }
    for fact in entry.facts.iter().map(|fact| one_line(fact)).filter(|fact| !fact.is_empty()) {
        out.push_str(&format!("#+FACT: {fact}\n"));
    }
    let verdicts = sections.verdicts.iter().map(|it| match (it.act, it.said.as_str()) {
        (act @ VerdictMove::KeepCourse, "") => act.describe().to_owned(),
        (act @ VerdictMove::KeepCourse, why) => format!("{} — {why}", act.describe()),
        (act, said) => format!("{}: {said}", act.describe()),
    });
    let verdicts: Vec<String> = verdicts.chain(sections.unread.iter().cloned()).collect();
    for (at, name) in HEADINGS.iter().enumerate() {
        out.push_str(if at == 0 { "\n* " } else { "* " });
        out.push_str(name);
        out.push('\n');
        let items = match at {
            0 => {
                tale(&mut out, &sections.tale);
                continue;
            }
            1 => &sections.goals,
            2 => &sections.blue_sky,
            3 => &sections.fears,
            4 => &verdicts,
            _ => &sections.carry,
        };
        for item in items {
            let item = one_line(item);
            if !item.is_empty() {
                out.push_str("- ");
                out.push_str(&item);
                out.push('\n');
            }
        }
    }
    out
}

fn tale(out: &mut String, text: &str) {
    for line in prose(text.lines()).lines() {
        // A leading space is enough, because headings and keywords begin only in the first column.
        if line.starts_with(['*', '#']) {
            out.push(' ');
        }
        out.push_str(line);
        out.push('\n');
    }
}

/// Joins the cleaned and trimmed lines, without leading and trailing blank lines.
pub(super) fn prose<'t>(lines: impl IntoIterator<Item = &'t str>) -> String {
    let text = lines.into_iter().map(|line| clean(line).trim().to_owned());
    let text: Vec<String> = text.collect();
    text.join("\n").trim_matches('\n').to_owned()
}

/// Converts text to one line with single spaces and without control characters. Removes leading
/// list markers, because the callers use the line as a list item.
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

/// Replaces control characters, and characters that reorder a line on display, with spaces.
fn clean(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect()
}
