//! A light English stemmer for plurals, `-ed`, `-ing` and a final `-e`.
//!
//! An ambiguous word must stay unchanged. A full Porter stemmer would give "universe" and
//! "university" the same stem.

/// Returns the stem of a lower-case word. Words with characters other than ASCII letters are
/// returned unchanged.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let singular = singular(word);
    let base = verb(&singular);
    without_e(&base).to_owned()
}

fn singular(word: &str) -> String {
    if let Some(base) = word.strip_suffix("ies").filter(|base| base.len() > 1) {
        return format!("{base}y");
    }
    for ending in ["sses", "xes", "ches", "shes", "zzes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    let kept = ["ss", "us", "is", "as", "os"];
    match word.strip_suffix('s') {
        Some(base) if !kept.iter().any(|ending| word.ends_with(ending)) => base.to_owned(),
        _ => word.to_owned(),
    }
}

fn verb(word: &str) -> String {
    if let Some(base) = word.strip_suffix("ied").filter(|base| base.len() > 1) {
        return format!("{base}y");
    }
    let base = match word.strip_suffix("ing").or_else(|| word.strip_suffix("ed")) {
        Some(base) if base.len() >= 3 && has_vowel(base) && !base.ends_with('e') => base,
        _ => return word.to_owned(),
    };
    let tail = base.as_bytes();
    let (last, before) = (tail[tail.len() - 1], tail[tail.len() - 2]);
    // The ending doubled the `n` of "running", but the `ss` of "processing" belongs to the word.
    let doubled = last == before && !matches!(last, b'l' | b's' | b'z' | b'f');
    let end = base.len() - usize::from(doubled && base.len() > 3);
    base[..end].to_owned()
}

fn without_e(word: &str) -> &str {
    match word.strip_suffix('e') {
        Some(base) if base.len() >= 3 && !base.ends_with('e') && has_vowel(base) => base,
        _ => word,
    }
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
            assert_eq!(stem(word), stemmed, "{word}");
        }
    }
}
