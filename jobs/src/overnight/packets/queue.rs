//! The pinned queue: a Markdown list of the items that an operator wants first.
//!
//! A `-` or `*` bullet is an item. The lines that follow it, up to a blank line, a heading or the
//! next bullet, are its description. The markers `[file: p]` and `[severity: high]` are parsed and
//! removed. Other markers remain in the text. One-line comments and all other lines are skipped.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// The path of the queue's file, relative to the project.
    pub path: String,
    /// The line number of the item in the file, starting at 1.
    pub line: usize,
    /// The text of the bullet without the known markers.
    pub title: String,
    /// The lines of the description, without the known markers.
    pub description: String,
    /// The files named in the item's markers.
    pub files: Vec<String>,
    pub severity: Option<String>,
}

pub fn parse(path: &str, text: &str) -> Vec<Pinned> {
    let mut items: Vec<Pinned> = Vec::new();
    let mut open = false;
    for (at, line) in text.lines().enumerate() {
        let bare = line.trim();
        let comment = bare.starts_with("<!--") && bare.ends_with("-->");
        if bare.is_empty() {
            open = false;
            continue;
        }
        if comment {
            continue;
        }
        if bare.starts_with('#') {
            open = false;
            continue;
        }
        if let Some(text) = bare.strip_prefix("- ").or_else(|| bare.strip_prefix("* ")) {
            let mut item = Pinned { path: path.to_owned(), line: at + 1, ..Pinned::default() };
            item.title = take_markers(text, &mut item);
            open = !item.title.is_empty();
            if open {
                items.push(item);
            }
        } else if open && let Some(item) = items.last_mut() {
            let mut marked = std::mem::take(item);
            let words = take_markers(bare, &mut marked);
            if !words.is_empty() {
                if !marked.description.is_empty() {
                    marked.description.push('\n');
                }
                marked.description.push_str(&words);
            }
            *item = marked;
        }
    }
    items
}

/// Moves the known markers in a line to `item`, and returns the line without them.
fn take_markers(text: &str, item: &mut Pinned) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let Some(close) = rest[open..].find(']').map(|at| open + at) else {
            break;
        };
        let inside = &rest[open + 1..close];
        let known = inside.split_once(':').is_some_and(|(key, value)| {
            let value = value.trim();
            match key.trim().to_lowercase().as_str() {
                "file" => item.files.push(value.to_owned()),
                "severity" => item.severity = Some(value.to_lowercase()),
                _ => return false,
            }
            true
        });
        if known {
            out.push_str(rest[..open].trim_end());
        } else {
            out.push_str(&rest[..=close]);
        }
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_items_and_markers_are_parsed() {
        let text = "# Tonight\n<!-- one line -->\nprose is not an item\n\n- Fix the retry [file: src/net.rs] [severity: High] now [owner: me]\n  it gives up\n  too early [file: tests/net.rs]\n\n  not its text any more\n* Second\n-not one\n- [severity: low]\n";
        let items = parse("q.md", text);
        assert_eq!(items.len(), 2, "{items:?}");
        assert_eq!(items[0].title, "Fix the retry now [owner: me]");
        assert_eq!(items[0].description, "it gives up\ntoo early");
        assert_eq!(items[0].files, ["src/net.rs", "tests/net.rs"]);
        assert_eq!(items[0].severity.as_deref(), Some("high"));
        assert_eq!((items[0].line, items[1].line), (5, 10));
        assert_eq!(items[1].title, "Second");
        assert_eq!(items[1].description, "-not one");
        assert!(parse("q.md", "[file: x]\n").is_empty());
    }
}
