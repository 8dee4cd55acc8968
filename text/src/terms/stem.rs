//! A light English stemmer for plurals, `-ed`, `-ing` and a final `-e`.
//!
//! An ambiguous word must not be changed. A full Porter stemmer would give "universe" and
//! "university" the same stem.

/// Shortens a lower-case word to its stem. A word of fewer than four letters, or with characters
/// other than ASCII letters, is not changed.
pub(super) fn stem(word: &mut String) {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return;
    }
    strip_plural(word);
    strip_verb_ending(word);
    if let Some(base) = word.strip_suffix('e')
        && base.len() >= 3
        && !base.ends_with('e')
        && has_vowel(base)
    {
        word.truncate(base.len());
    }
}

fn strip_plural(word: &mut String) {
    if ends_after(word, "ies") {
        return replace_end(word, 3, "y");
    }
    if ["sses", "xes", "ches", "shes", "zzes"].iter().any(|ending| word.ends_with(ending)) {
        return replace_end(word, 2, "");
    }
    let kept = ["ss", "us", "is", "as", "os"];
    if word.ends_with('s') && !kept.iter().any(|ending| word.ends_with(ending)) {
        replace_end(word, 1, "");
    }
}

fn strip_verb_ending(word: &mut String) {
    if ends_after(word, "ied") {
        return replace_end(word, 3, "y");
    }
    let base = match word.strip_suffix("ing").or_else(|| word.strip_suffix("ed")) {
        Some(base) if base.len() >= 3 && has_vowel(base) && !base.ends_with('e') => base,
        _ => return,
    };
    let tail = base.as_bytes();
    let (last, before) = (tail[tail.len() - 1], tail[tail.len() - 2]);
    // The ending doubled the `n` of "running", but the `ss` of "processing" is part of the word.
    let doubled = last == before && !matches!(last, b'l' | b's' | b'z' | b'f');
    word.truncate(base.len() - usize::from(doubled && base.len() > 3));
}

/// Returns whether a word ends with `ending` after at least two other letters.
fn ends_after(word: &str, ending: &str) -> bool {
    word.strip_suffix(ending).is_some_and(|base| base.len() > 1)
}

fn replace_end(word: &mut String, length: usize, end: &str) {
    word.truncate(word.len() - length);
    word.push_str(end);
}

fn has_vowel(word: &str) -> bool {
    word.bytes().any(|b| matches!(b, b'a' | b'e' | b'i' | b'o' | b'u' | b'y'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_stripped_selectively() {
        for (word, stemmed) in [
            ("string", "string"),
            ("thing", "thing"),
            ("speed", "speed"),
            ("need", "need"),
            ("status", "status"),
            ("analysis", "analysis"),
            ("bus", "bus"),
            ("ties", "tie"),
            ("free", "free"),
            ("file", "fil"),
            ("files", "fil"),
            ("added", "add"),
            ("add", "add"),
            ("stopped", "stop"),
            ("falling", "fall"),
            ("using", "using"),
            ("sha256s", "sha256s"),
            ("hashes", "hash"),
            ("queries", "query"),
        ] {
            let mut short = word.to_owned();
            stem(&mut short);
            assert_eq!(short, stemmed, "{word}");
        }
    }
}
