//! Finds near duplicates: notes that have almost the same words.
//!
//! MinHash sketches (Broder 1997) of three-word shingles propose pairs by banding
//! (locality-sensitive hashing). Each proposed pair is then compared exactly, so a pair may be
//! missed but no false pair is returned. The result must not depend on the order of the documents,
//! and the search must never compare every document with every other.

mod band;
mod sets;
mod sketch;

pub use sets::{Sets, containment, jaccard, mix};
pub use sketch::{Sketch, similarity};

use std::collections::BTreeMap;

use band::BandKeys;

/// Minimum similarity of near duplicates. A copy with a third of its words rewritten has a
/// similarity of about 0.5. Different notes on the same subject have a similarity below 0.1.
pub const NEAR: f64 = 0.4;

/// Documents with fewer words are compared by their sets of terms instead of shingles.
pub const SHORT: usize = 20;

/// Minimum threshold for short documents, which share terms more easily.
pub const NEAR_SHORT: f64 = 0.7;

/// Maximum number of later documents in the same bucket to compare a document with.
pub const CROWD: usize = 32;

/// A document to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doc<'a> {
    /// A unique key that identifies the document in the result, for example its path.
    pub key: &'a str,
    /// The document's Markdown text. Only its plain words are compared.
    pub text: &'a str,
}

/// Two documents that are near duplicates.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<'a> {
    /// The key that sorts first.
    pub a: &'a str,
    /// The key that sorts second.
    pub b: &'a str,
    /// The Jaccard similarity, from 0 to 1.
    pub similarity: f64,
    /// The fraction of the smaller document that the larger one contains, from 0 to 1.
    pub containment: f64,
}

/// Returns pairs with a similarity of at least `threshold` (usually [`NEAR`]), ordered by
/// descending similarity and then by key. Pairs that include a short document need at least
/// [`NEAR_SHORT`].
///
/// Unless a bucket is crowded, a pair exactly at the threshold is found with a probability of at
/// least 99 %. If several documents have equal sets, each of them is paired with the first by key,
/// and only that one is compared with other documents. Within a bucket, each document is compared
/// with at most [`CROWD`] later ones, so the time grows linearly with the number of documents.
pub fn neighbours<'a>(docs: &[Doc<'a>], threshold: f64) -> Vec<Pair<'a>> {
    let mut docs = docs.to_vec();
    docs.sort_unstable();
    let mut pairs = Vec::new();
    let mut first_of: BTreeMap<u64, usize> = BTreeMap::new();
    // A document's sets take as much memory as its text, so they are recomputed for the few pairs
    // that are compared.
    let mut kept: Vec<(usize, BandKeys)> = Vec::new();
    for (at, doc) in docs.iter().enumerate() {
        let sets = Sets::of(doc.text);
        if sets.is_empty() {
            continue;
        }
        let twin = first_of.get(&sets.fingerprint()).map(|slot| kept[*slot].0);
        match twin.filter(|other| Sets::of(docs[*other].text) == sets) {
            Some(first) => pairs.push(Pair {
                a: docs[first].key,
                b: doc.key,
                similarity: 1.0,
                containment: 1.0,
            }),
            None => {
                first_of.insert(sets.fingerprint(), kept.len());
                kept.push((at, BandKeys::of(&Sketch::of_sets(&sets), threshold)));
            }
        }
    }
    let (numbers, keys): (Vec<usize>, Vec<BandKeys>) = kept.into_iter().unzip();
    let mut left_sets = (usize::MAX, Sets::of(""));
    for (left, right) in band::candidates(&keys) {
        let (a, b) = (docs[numbers[left]], docs[numbers[right]]);
        if left_sets.0 != left {
            left_sets = (left, Sets::of(a.text));
        }
        let (a_sets, b_sets) = (&left_sets.1, &Sets::of(b.text));
        let similarity = jaccard(a_sets, b_sets);
        if similarity >= a_sets.floor_with(b_sets, threshold) {
            let containment = containment(a_sets, b_sets);
            pairs.push(Pair { a: a.key, b: b.key, similarity, containment });
        }
    }
    pairs.sort_by(|x, y| {
        let by_keys = || (x.a, x.b).cmp(&(y.a, y.b));
        y.similarity.total_cmp(&x.similarity).then_with(by_keys)
    });
    pairs
}

#[cfg(test)]
mod tests;
