//! Finds the nearest known word for "did you mean" hints.
//!
//! A distant word must never be suggested, because a wrong suggestion is worse than none.

use strsim::osa_distance;

/// Returns the candidate with the fewest edits from `word`, or `None` if every candidate is too far
/// away. If several candidates are equally near, the first one is returned.
///
/// An edit inserts, deletes or replaces a letter, or swaps two adjacent letters. Letter case is
/// ignored, and `_` and `-` are considered equal. An empty word, or a word of more than 64 letters,
/// has no match.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word);
    let length = word.chars().count();
    if !(1..=LONGEST).contains(&length) {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = folded(candidate);
        let other_length = other.chars().count();
        let limit = allowed(length.max(other_length));
        let beaten = best.is_some_and(|(edits, _)| edits == 0);
        if beaten || other_length > LONGEST || length.abs_diff(other_length) > limit {
            continue;
        }
        let edits = osa_distance(&word, &other);
        // If all letters are replaced, even short words are not similar.
        let alike = edits < length.min(other_length) || edits == 0;
        if alike && edits <= limit && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Returns the maximum number of edits that are considered a typo in a word of `length` letters.
fn allowed(length: usize) -> usize {
    match length {
        0..=4 => 1,
        5..=8 => 2,
        _ => 3,
    }
}

/// Maximum length in letters of a word to compare. A comparison takes time proportional to the
/// product of both lengths.
const LONGEST: usize = 64;

fn folded(word: &str) -> String {
    word.chars()
        .take(LONGEST + 1)
        .flat_map(char::to_lowercase)
        .map(|c| if c == '_' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEYS: [&str; 8] =
        ["max_ideas", "turns", "wall", "backend", "trigger", "sandbox", "writes", "cadence"];

    #[test]
    fn typos_find_the_intended_word() {
        for (slip, meant) in [
            ("max-ideas", "max_ideas"),
            ("maxideas", "max_ideas"),
            ("Turns", "turns"),
            ("trun", "turns"),
            ("wlal", "wall"),
            ("bakcend", "backend"),
            ("triger", "trigger"),
            ("snadbox", "sandbox"),
            ("cadance", "cadence"),
        ] {
            assert_eq!(nearest(slip, KEYS), Some(meant), "{slip}");
        }
    }

    #[test]
    fn distant_words_have_no_match() {
        for word in ["", "x", "model", "temperature", "ab", "zzzz", &"max_ideas".repeat(10)] {
            assert_eq!(nearest(word, KEYS), None, "{word}");
        }
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest("on", ["off", "no"]), Some("no"));
        assert_eq!(nearest("anything", []), None);
        let long = "x".repeat(70);
        assert_eq!(nearest(&format!("{long}a"), [format!("{long}b").as_str()]), None);
    }

    #[test]
    fn ties_return_the_first_candidate() {
        assert_eq!(nearest("cat", ["car", "bat"]), Some("car"));
        assert_eq!(nearest("cat", ["car", "cat", "bat"]), Some("cat"));
    }

    #[test]
    fn distance_matches_known_values() {
        let edits = |a: &str, b: &str| osa_distance(&folded(a), &folded(b));
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("ab", "ba"), 1);
        assert_eq!(edits("ca", "abc"), 3);
        assert_eq!(edits("naïve", "naive"), 1);
    }

    proptest! {
        #[test]
        fn distance_is_symmetric_and_bounded(a in "[a-d]{0,8}", b in "[a-d]{0,8}") {
            let (a, b) = (folded(&a), folded(&b));
            let edits = osa_distance(&a, &b);
            prop_assert_eq!(edits, osa_distance(&b, &a));
            prop_assert_eq!(edits == 0, a == b);
            prop_assert!(edits <= a.len().max(b.len()));
            prop_assert!(edits >= a.len().abs_diff(b.len()));
        }

        #[test]
        fn exact_candidate_is_the_nearest(word in "[a-z]{1,12}", others in prop::collection::vec("[a-z]{1,12}", 0..5)) {
            let all: Vec<&str> = others.iter().map(String::as_str).chain([word.as_str()]).collect();
            prop_assert_eq!(nearest(&word, all), Some(word.as_str()));
        }
    }
}
