//! Finds a location in source text, and draws its line with a mark under the location.
//!
//! This module must never read a file and never fail: a location outside the text is treated as the
//! end of the text.

use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

/// Maximum number of characters to show of a line.
const SHOWN: usize = 100;
/// Number of characters to show before the mark if the line is too long to show in full.
const BEFORE: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    /// The line number, counted from 1.
    pub(super) line: usize,
    /// The column in characters, counted from 1.
    pub(super) column: usize,
    /// The line, with carets under the location.
    pub(super) drawing: String,
}

impl SourceLocation {
    /// Returns the location of a byte range of `text`.
    pub(super) fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor(text, span.start);
        let end = floor(text, span.end).max(start);
        let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[..begin].matches('\n').count() + 1;
        let column = text[begin..start].chars().count() + 1;
        let whole = text[begin..].split('\n').next().unwrap_or_default();
        let whole = whole.strip_suffix('\r').unwrap_or(whole);
        let marked =
            text[start..end].split('\n').next().map_or(0, |part| part.trim_end().chars().count());
        Self { line, column, drawing: draw(line, whole, column - 1, marked.max(1)) }
    }
}

/// Draws the line with a mark under `marked` characters starting at `from`.
fn draw(line: usize, whole: &str, from: usize, marked: usize) -> String {
    let length = whole.chars().count();
    let skipped = if length > SHOWN { from.saturating_sub(BEFORE) } else { 0 };
    let shown: String = whole.chars().skip(skipped).take(SHOWN).collect();
    let (left, right) =
        (if skipped > 0 { "…" } else { "" }, if length > skipped + SHOWN { "…" } else { "" });
    let before = from - skipped;
    // Keeps tabs and counts two columns for a wide character, so that the mark is aligned.
    let mut pad = " ".repeat(left.chars().count());
    for c in shown.chars().take(before) {
        match c {
            '\t' => pad.push('\t'),
            c => pad.push_str(&" ".repeat(c.width().unwrap_or(1))),
        }
    }
    let carets: usize =
        shown.chars().skip(before).take(marked).map(|c| c.width().unwrap_or(1)).sum();
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    format!(
        " {margin} |\n {number} | {left}{shown}{right}\n {margin} | {pad}{}",
        "^".repeat(carets.max(1))
    )
}

/// Returns the nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at.min(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caret_points_at_the_location() {
        let text = "a = 1\r\n日本 = \"x\"\r\n\tb = 3\n";
        let at = |what: &str| {
            let start = text.find(what).unwrap();
            SourceLocation::of(text, start..start + what.len())
        };
        assert_eq!(at("1").drawing, "   |\n 1 | a = 1\n   |     ^");
        let spot = at("\"x\"");
        assert_eq!((spot.line, spot.column), (2, 6));
        assert_eq!(spot.drawing, "   |\n 2 | 日本 = \"x\"\n   |        ^^^");
        assert_eq!(at("b").drawing, "   |\n 3 | \tb = 3\n   | \t^");
        let end = SourceLocation::of(text, 900..999);
        assert_eq!((end.line, end.column), (4, 1));
        assert_eq!(SourceLocation::of("", 0..0).drawing, "   |\n 1 | \n   | ^");
    }

    #[test]
    fn long_line_is_shortened_around_the_location() {
        let text = format!("a = \"{}\" b{}", "ü".repeat(5_000), " ".repeat(5_000));
        let start = text.find(" b").unwrap() + 1;
        let spot = SourceLocation::of(&text, start..start + 1);
        assert_eq!(spot.column, 5_008);
        let lines: Vec<&str> = spot.drawing.lines().collect();
        assert!(
            lines[1].chars().count() < 120 && lines[1].contains("…ü") && lines[1].ends_with('…')
        );
        let mark = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(mark), Some('b'));
    }
}
