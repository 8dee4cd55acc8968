//! The exact sets for a comparison: a document's shingles and, unless the document is long, its
//! terms.

use super::{NEAR_SHORT, SHORT};
use crate::{markdown, terms};

/// Number of words in a shingle.
const SHINGLE: usize = 3;

/// The content of a document as sorted sets of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    words: usize,
    shingles: Vec<u64>,
    /// The document's terms, or `None` if the document is too long to match a short document.
    terms: Option<Vec<u64>>,
}

impl Sets {
    /// Computes the sets for Markdown text.
    pub fn of(text: &str) -> Self {
        let plain = markdown::plain(text);
        let lower = plain.to_lowercase();
        let words: Vec<&str> =
            lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let width = SHINGLE.min(words.len().max(1));
        let shingles = words.windows(width).map(hash_words).collect();
        let terms = (words.len() < 3 * SHORT).then(|| {
            let hashed = terms::terms(&plain);
            set(hashed.iter().map(|term| hash_words(&[term])).collect())
        });
        Self { words: words.len(), shingles: set(shingles), terms }
    }

    /// Returns whether the document contains no words.
    pub fn is_empty(&self) -> bool {
        self.shingles.is_empty()
    }

    pub(super) fn is_short(&self) -> bool {
        self.words < SHORT
    }

    pub(super) fn shingles(&self) -> &[u64] {
        &self.shingles
    }

    pub(super) fn terms(&self) -> Option<&[u64]> {
        self.terms.as_deref()
    }

    /// Returns a hash of the shingles.
    pub(super) fn fingerprint(&self) -> u64 {
        self.shingles.iter().fold(0, |sum, hash| mix(sum ^ hash))
    }

    /// Returns the minimum similarity at which this document and `other` are a pair.
    pub(super) fn floor_with(&self, other: &Self, threshold: f64) -> f64 {
        if self.is_short() || other.is_short() { threshold.max(NEAR_SHORT) } else { threshold }
    }

    /// Returns the sets of both documents to compare: their terms if either document is short and
    /// both have sets of terms, or else their shingles.
    fn against<'s>(&'s self, other: &'s Self) -> (&'s [u64], &'s [u64]) {
        if self.is_short() || other.is_short() {
            // Notes that consist of stop words have shingles but no terms.
            if let (Some(a), Some(b)) = (&self.terms, &other.terms)
                && !(a.is_empty() && b.is_empty())
            {
                return (a, b);
            }
        }
        (&self.shingles, &other.shingles)
    }
}

/// Returns the Jaccard similarity of two documents, from 0 to 1. The similarity of two empty
/// documents is 0.
pub fn jaccard(a: &Sets, b: &Sets) -> f64 {
    let (a, b) = a.against(b);
    let shared = shared(a, b);
    ratio(shared, a.len() + b.len() - shared)
}

/// Returns the fraction of the smaller document that the larger one contains, from 0 to 1.
pub fn containment(a: &Sets, b: &Sets) -> f64 {
    let (a, b) = a.against(b);
    ratio(shared(a, b), a.len().min(b.len()))
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Counts the elements that two sorted sets have in common.
fn shared(a: &[u64], b: &[u64]) -> usize {
    let (mut i, mut j, mut both) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                both += 1;
                i += 1;
                j += 1;
            }
        }
    }
    both
}

fn set(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Computes FNV-1a over the words with separators, then mixes the result because FNV's high bits
/// are weak.
fn hash_words<S: AsRef<str>>(words: &[S]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for word in words {
        for byte in word.as_ref().bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    mix(hash)
}

/// Computes one step of SplitMix64, in which every input bit affects every output bit.
pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jaccard_and_containment_match_definitions() {
        let twenty = "one two three four five six seven eight nine ten \
                      red orange yellow green blue indigo violet black white grey";
        let base = Sets::of(twenty);
        assert_eq!(base.shingles().len(), 18);
        let longer = Sets::of(&format!("{twenty} alpha beta gamma delta epsilon zeta"));
        assert_eq!(jaccard(&base, &base), 1.0);
        assert_eq!(jaccard(&base, &longer), 18.0 / 24.0);
        assert_eq!(containment(&longer, &base), 1.0);
        assert_eq!(jaccard(&Sets::of(""), &Sets::of("")), 0.0);
        assert_eq!(containment(&Sets::of(""), &base), 0.0);
    }

    #[test]
    fn short_texts_ignore_word_order() {
        let a = Sets::of("Retry the upload when the network fails.");
        let b = Sets::of("when the network fails, retry the uploads");
        assert_eq!(jaccard(&a, &b), 1.0);
        assert_ne!(a, b);
        let question = Sets::of("to be or not to be");
        assert_eq!(jaccard(&question, &question), 1.0);
        assert_eq!(jaccard(&Sets::of("why not"), &Sets::of("because")), 0.0);
    }

    #[test]
    fn markup_is_ignored() {
        assert_eq!(Sets::of("---\na: 1\n---\n# One *two*\n```\ncode\n```\n"), Sets::of("one two"));
    }
}
