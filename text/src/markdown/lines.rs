//! Classifies the lines of a note, and tracks code fences and comments across lines.

use std::iter::Peekable;

/// A line with its kind. Inline markup is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Blank,
    /// The level and text of a heading, including underlined headings.
    Heading(u8, &'a str),
    Text(&'a str),
    /// A list item without its bullet, number and check box.
    Item(&'a str),
    Quote(&'a str),
    /// A table row, including its bars.
    Row(&'a str),
    /// A horizontal rule, or the line below a table's header.
    Rule,
    /// A line of fenced code, or a fence.
    Code,
    /// A line of an HTML comment.
    Comment,
}

pub fn lines(body: &str) -> Lines<'_> {
    Lines {
        rest: body.trim_start_matches('\u{feff}').lines().peekable(),
        fence: None,
        comment: false,
    }
}

pub struct Lines<'a> {
    rest: Peekable<std::str::Lines<'a>>,
    /// The character and length of the open code fence.
    fence: Option<(char, usize)>,
    comment: bool,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let raw = self.rest.next()?;
        let line = raw.trim();
        if let Some((mark, length)) = self.fence {
            let run = run_of(line, mark);
            if run >= length && line.len() == run {
                self.fence = None;
            }
            return Some(Line::Code);
        }
        if self.comment {
            self.comment = !line.contains("-->");
            return Some(Line::Comment);
        }
        if line.starts_with("<!--") {
            self.comment = !line.contains("-->");
            return Some(Line::Comment);
        }
        for mark in ['`', '~'] {
            let run = run_of(line, mark);
            if run >= 3 && !(mark == '`' && line[run..].contains('`')) {
                self.fence = Some((mark, run));
                return Some(Line::Code);
            }
        }
        let kind = kind(line);
        if let (Line::Text(text), Some(level)) = (kind, self.rest.peek().and_then(|l| underline(l)))
        {
            self.rest.next();
            return Some(Line::Heading(level, text));
        }
        Some(kind)
    }
}

fn kind(line: &str) -> Line<'_> {
    if line.is_empty() {
        return Line::Blank;
    }
    let hashes = run_of(line, '#');
    if (1..=6).contains(&hashes) && line[hashes..].starts_with([' ', '\t']) || hashes == line.len()
    {
        let text = line[hashes..].trim();
        let open = text.trim_end_matches('#');
        let closed = open.is_empty() || open.ends_with([' ', '\t']);
        return Line::Heading(hashes.min(6) as u8, if closed { open.trim_end() } else { text });
    }
    if line.chars().all(|c| matches!(c, '-' | '*' | '_' | '=' | '|' | ':' | ' ')) && line.len() > 2
    {
        return Line::Rule;
    }
    if let Some(text) = line.strip_prefix('>') {
        return Line::Quote(text.trim_start_matches(['>', ' ']));
    }
    if line.starts_with('|') {
        return Line::Row(line);
    }
    match item(line) {
        Some(text) => Line::Item(text),
        None => Line::Text(line),
    }
}

/// Returns the text of a list item without its bullet, number and check box.
fn item(line: &str) -> Option<&str> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let after = if (1..=9).contains(&digits) {
        line[digits..].strip_prefix(['.', ')'])?
    } else {
        line.strip_prefix(['-', '*', '+'])?
    };
    let text = after.strip_prefix([' ', '\t'])?.trim_start();
    let boxed = ["[ ] ", "[x] ", "[X] "];
    Some(boxed.iter().find_map(|mark| text.strip_prefix(mark)).unwrap_or(text))
}

/// Returns the level of the heading that this line underlines. Returns `None` if the line is not an
/// underline, or has only one character.
fn underline(line: &str) -> Option<u8> {
    let line = line.trim_end();
    if line.len() < 2 {
        return None;
    }
    match line.len() {
        all if run_of(line, '=') == all => Some(1),
        all if run_of(line, '-') == all => Some(2),
        _ => None,
    }
}

/// Counts how many times `mark`, an ASCII character, occurs at the start of `line`.
fn run_of(line: &str, mark: char) -> usize {
    line.chars().take_while(|c| *c == mark).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_kinds_are_distinguished() {
        let text = "# A #\n## B#\n#c\n---\n* * *\n|x|\n|-|-|\n> > q\n- i\n12) n\n- [x] d\n-z\n\nT\n---\n###\n";
        let got: Vec<Line> = lines(text).collect();
        assert_eq!(
            got,
            [
                Line::Heading(1, "A"),
                Line::Heading(2, "B#"),
                Line::Heading(2, "#c"),
                Line::Rule,
                Line::Row("|x|"),
                Line::Rule,
                Line::Quote("q"),
                Line::Item("i"),
                Line::Item("n"),
                Line::Item("d"),
                Line::Text("-z"),
                Line::Blank,
                Line::Heading(2, "T"),
                Line::Heading(3, ""),
            ]
        );
    }

    #[test]
    fn code_and_comments_span_lines() {
        let text =
            "````rs\n# a\n```\n````\n<!-- x\n# b\n-->\n<!-- y -->\nt\n``` `not` a fence\n~~~\nopen";
        let got: Vec<Line> = lines(text).collect();
        let mut expected = vec![Line::Code; 4];
        expected.extend([Line::Comment; 4]);
        expected.extend([Line::Text("t"), Line::Text("``` `not` a fence")]);
        expected.extend([Line::Code; 2]);
        assert_eq!(got, expected);
    }
}
