//! Rows of the screen. Text reaches the terminal only in a row or through [`shown`], so it is
//! redacted and escaped before it is cut or wrapped.
//!
//! This module must never perform I/O.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use runner_text::redact::Redacted;
use unicode_width::UnicodeWidthChar as _;

use crate::ui::safe;
use crate::ui::show::Tone;

/// The meaning of a row or a cell, which determines its appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellStyle {
    #[default]
    Plain,
    Strong,
    Faint,
    Bar,
    /// Additions and good states.
    Good,
    /// States that the user should know about.
    Warn,
    /// Problems.
    Bad,
}

/// Whether the terminal shows colours. Without them, rows differ only in being bold, faint or
/// reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    Colours,
    Monochrome,
}

impl CellStyle {
    /// Returns the style on the terminal.
    pub fn style(self, palette: Palette) -> Style {
        let style = Style::new();
        let style = match self {
            Self::Plain => return style,
            Self::Strong | Self::Bad => style.add_modifier(Modifier::BOLD),
            Self::Faint => style.add_modifier(Modifier::DIM),
            Self::Bar => style.add_modifier(Modifier::REVERSED),
            Self::Good | Self::Warn => style,
        };
        match (palette, self) {
            (Palette::Colours, Self::Good) => style.fg(Color::Green),
            (Palette::Colours, Self::Warn) => style.fg(Color::Yellow),
            (Palette::Colours, Self::Bad) => style.fg(Color::Red),
            _ => style,
        }
    }
}

impl From<Tone> for CellStyle {
    fn from(tone: Tone) -> Self {
        match tone {
            Tone::Plain => Self::Plain,
            Tone::Good => Self::Good,
            Tone::Warn => Self::Warn,
            Tone::Bad => Self::Bad,
        }
    }
}

/// One row on the screen, with text that is safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    style: CellStyle,
    text: String,
}

impl Row {
    /// Creates a row that is cut at the width.
    pub fn cut(style: CellStyle, text: &str, width: usize) -> Self {
        Self { style, text: cut(&shown(text), width) }
    }

    /// Creates a row in the bar style, filling the whole width.
    pub fn bar(text: &str, width: usize) -> Self {
        let text = cut(&shown(text), width);
        let fill = width.saturating_sub(columns(&text));
        Self { style: CellStyle::Bar, text: text + &" ".repeat(fill) }
    }

    /// Wraps text into rows, breaking between words where possible.
    pub fn wrapped(style: CellStyle, text: &str, width: usize) -> Vec<Self> {
        let mut rows = Vec::new();
        // A secret may span several lines, so the text is redacted before it is divided.
        for line in Redacted::of(text).split('\n') {
            let line = safe::line(line);
            let mut rest = line.as_str();
            loop {
                let (row, more) = broken(rest, width.max(2));
                rows.push(Self { style, text: row.to_owned() });
                if more.is_empty() {
                    break;
                }
                rest = more;
            }
        }
        rows
    }

    /// Returns the row for the terminal.
    pub fn line(&self, palette: Palette) -> Line<'_> {
        Line::styled(self.text.as_str(), self.style.style(palette))
    }

    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns text that is safe to show on one line: redacted, then escaped.
pub fn shown(text: &str) -> String {
    safe::line(&Redacted::of(text))
}

/// Returns the width of a string in columns.
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Truncates text to the width, and marks the truncation.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= width {
            break;
        }
        short.push(c);
    }
    short.push('…');
    short
}

/// Splits a line into the part that fits and the rest.
fn broken(line: &str, width: usize) -> (&str, &str) {
    let mut used = 0;
    let mut space = None;
    for (at, c) in line.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            return match space.filter(|space| *space > 0) {
                Some(space) => (&line[..space], line[space..].trim_start_matches(' ')),
                None => line.split_at(at.max(c.len_utf8() * usize::from(at == 0))),
            };
        }
        if c == ' ' {
            space = Some(at);
        }
    }
    (line, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(Row::text).collect()
    }

    #[test]
    fn wide_characters_and_long_words_wrap() {
        let wrapped = |text: &str, width| Row::wrapped(CellStyle::Plain, text, width);
        assert_eq!(text(&wrapped("漢字漢字", 5)), ["漢字", "漢字"]);
        assert_eq!(text(&wrapped("one two three", 8)), ["one two", "three"]);
        assert_eq!(text(&wrapped("abcdefgh", 3)), ["abc", "def", "gh"]);
        assert_eq!(text(&wrapped("a\n\nb", 3)), ["a", "", "b"]);
        assert_eq!(text(&wrapped("    indented", 20)), ["    indented"]);
        assert_eq!(cut("漢字漢", 4), "漢…");
    }

    #[test]
    fn secrets_are_redacted_before_wrapping() {
        let secret = "key sk-ant-api03-0123456789abcdefghijklmnop end";
        for width in 2..60 {
            let wrapped = Row::wrapped(CellStyle::Plain, secret, width);
            let all: String = wrapped.iter().map(Row::text).collect();
            assert!(!all.contains("01234") && all.contains("end"), "{width}: {all}");
            let row = Row::cut(CellStyle::Plain, secret, width);
            assert!(!row.text().contains("0123"), "{width}: {row:?}");
        }
        let hostile = Row::wrapped(CellStyle::Plain, "a\u{1b}[31mb\u{200b}\u{9b}c", 60);
        assert!(hostile[0].text().chars().all(|c| !c.is_control() && c != '\u{200b}'));
    }
}
