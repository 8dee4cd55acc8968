//! Splits text into the pieces of a WordPiece vocabulary, as uncased BERT models do.
//!
//! Punctuation is omitted, because it provides no information about the subject.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// Maximum length of a word in bytes. A longer word has no pieces.
const LONGEST: usize = 100;

/// Returns the first `most` pieces of a string. `find` returns the index of a piece, whose text
/// begins with `##` if the piece continues a word. A word that cannot be split into known pieces is
/// omitted.
pub fn pieces(text: &str, most: usize, find: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut word = String::new();
    let plain = text.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase);
    for c in plain.chain([' ']) {
        if is_ideograph(c) {
            split(&word, &find, &mut found);
            split(c.encode_utf8(&mut [0; 4]), &find, &mut found);
            word.clear();
        } else if c.is_alphanumeric() {
            word.push(c);
        } else if !word.is_empty() {
            split(&word, &find, &mut found);
            word.clear();
        }
        if found.len() >= most {
            break;
        }
    }
    found.truncate(most);
    found
}

/// Adds the pieces of a word: the longest known prefix, then repeatedly the longest continuation.
fn split(word: &str, find: &impl Fn(&str) -> Option<u32>, found: &mut Vec<u32>) {
    if word.is_empty() || word.len() > LONGEST {
        return;
    }
    let (before, mut rest) = (found.len(), word);
    let mut key = String::with_capacity(word.len() + 2);
    while !rest.is_empty() {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
        let longest = ends.into_iter().find_map(|end| {
            key.clear();
            key.push_str(if found.len() > before { "##" } else { "" });
            key.push_str(&rest[..end]);
            Some((end, find(&key)?))
        });
        let Some((end, piece)) = longest else {
            // One unknown piece makes the whole word unknown.
            return found.truncate(before);
        };
        found.push(piece);
        rest = &rest[end..];
    }
}

/// Returns whether a character is a word by itself.
fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x2_FA1F)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_their_longest_pieces() {
        let known = ["un", "##afford", "##able", "cafe", "漢", "字", "x"];
        let find = |piece: &str| known.iter().position(|it| *it == piece).map(|at| at as u32);
        assert_eq!(pieces("Unaffordable, CAFÉ!", 9, find), [0, 1, 2, 3]);
        assert_eq!(pieces("漢字x", 9, find), [4, 5, 6]);
        assert_eq!(pieces("unknown un xx", 9, find), [0]);
        assert_eq!(pieces(&"un ".repeat(50), 9, find).len(), 9);
        assert!(pieces(&"x".repeat(101), 9, find).is_empty() && pieces("", 9, find).is_empty());
    }
}
