//! Splits text into lines with their byte ranges.

use std::ops::Range;

/// One line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// The line number, from 1.
    pub number: usize,
    /// The line's text without its line break and, on the first line, without a byte order mark.
    pub text: &'t str,
    /// The byte range of `text`.
    pub range: Range<usize>,
    /// The byte offset at which the next line begins.
    pub end: usize,
}

impl Line<'_> {
    /// Returns the line's ending, which is empty if the last line has no line break.
    pub fn ending(&self) -> &'static str {
        match self.end - self.range.end {
            0 => "",
            1 => "\n",
            _ => "\r\n",
        }
    }
}

/// Returns all lines in order. Their ranges and endings cover the text except for a byte order
/// mark.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut at = 0;
    let mut number = 0;
    text.split_inclusive('\n').map(move |whole| {
        let begin = at;
        at += whole.len();
        number += 1;
        let words = whole.strip_suffix('\n').map_or(whole, |cut| {
            // A carriage return without a newline, at the end of the text, is part of the line's
            // text.
            cut.strip_suffix('\r').unwrap_or(cut)
        });
        let mark =
            if number == 1 && words.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Line { number, text: &words[mark..], range: begin + mark..begin + words.len(), end: at }
    })
}
