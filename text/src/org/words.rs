//! Normalises the words of a heading for comparison.

use unicode_normalization::UnicodeNormalization as _;

/// Returns the text in the form that is used for comparison: NFKC, uniform hyphens and quotes,
/// single spaces.
pub fn fold(words: &str) -> String {
    // Most texts are ASCII and need no normalisation.
    if words.is_ascii() {
        return joined(words.chars(), words.len());
    }
    joined(words.nfkc(), words.len())
}

fn joined(words: impl Iterator<Item = char>, length: usize) -> String {
    let mut out = String::with_capacity(length);
    let mut blank = false;
    for c in words {
        let c = match c {
            '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{00ad}' => '-',
            '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{00b4}' | '`' => '\'',
            '\u{201c}'..='\u{201f}' | '\u{2033}' | '«' | '»' => '"',
            c => c,
        };
        if c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}' | '\u{feff}') {
            blank = !out.is_empty();
            continue;
        }
        if blank {
            out.push(' ');
            blank = false;
        }
        out.push(c);
    }
    out
}
