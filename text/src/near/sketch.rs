//! MinHash sketches, which estimate the similarity of two sets from a few hundred numbers each.

use super::sets::{Sets, mix};

/// Number of hashes in a sketch. The standard error of a similarity is at most 1 / (2 √256) ≈ 0.03.
pub(super) const SIZE: usize = 256;

/// The sketch of one document. It takes about 1 KiB, or 2 KiB if it includes terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    short: bool,
    shingles: Mins,
    terms: Option<Mins>,
}

/// The minimum hash of a set under each function of a fixed family, and the size of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mins {
    pub(super) least: Box<[u32]>,
    size: usize,
}

impl Sketch {
    /// Computes the sketch of Markdown text.
    pub fn of(text: &str) -> Self {
        Self::of_sets(&Sets::of(text))
    }

    /// Computes the sketch of existing sets.
    pub fn of_sets(sets: &Sets) -> Self {
        Self {
            short: sets.is_short(),
            shingles: Mins::of(sets.shingles()),
            terms: sets.terms().map(Mins::of).filter(|mins| mins.size > 0),
        }
    }

    /// Returns the number of distinct shingles in the document.
    pub fn set_size(&self) -> usize {
        self.shingles.size
    }

    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    pub(super) fn shingles(&self) -> &Mins {
        &self.shingles
    }

    pub(super) fn terms(&self) -> Option<&Mins> {
        self.terms.as_ref()
    }
}

/// Estimates the Jaccard similarity of two documents, from 0 to 1. Terms are compared if either
/// document is short and both contain terms. Otherwise, shingles are compared.
pub fn similarity(a: &Sketch, b: &Sketch) -> f64 {
    let (x, y) = match (&a.terms, &b.terms) {
        (Some(x), Some(y)) if a.short || b.short => (x, y),
        _ => (&a.shingles, &b.shingles),
    };
    if x.size == 0 || y.size == 0 {
        return 0.0;
    }
    let both = x.least.iter().zip(&y.least);
    both.filter(|(x, y)| x == y).count() as f64 / SIZE as f64
}

impl Mins {
    /// Computes the minima with the hash family `h(x) = high half of (aᵢ·x + bᵢ)`, where `aᵢ` and
    /// `bᵢ` are fixed and `aᵢ` is odd. The elements of `set` must already be mixed.
    fn of(set: &[u64]) -> Self {
        let family: Vec<(u64, u64)> =
            (0..SIZE as u64).map(|i| (mix(2 * i) | 1, mix(2 * i + 1))).collect();
        let mut least = vec![u32::MAX; SIZE].into_boxed_slice();
        for member in set {
            for (low, (a, b)) in least.iter_mut().zip(&family) {
                let hash = (member.wrapping_mul(*a).wrapping_add(*b) >> 32) as u32;
                *low = hash.min(*low);
            }
        }
        Self { least, size: set.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jaccard;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn estimate_is_near_the_exact_similarity(
            words in prop::collection::vec("[a-z]{2,6}", 60..120), cut in 0.0..1.0_f64,
        ) {
            let cut = ((words.len() as f64 * cut) as usize).min(words.len() - 25);
            let (a, b) = (words.join(" "), words[cut..].join(" "));
            let truth = jaccard(&Sets::of(&a), &Sets::of(&b));
            let estimate = similarity(&Sketch::of(&a), &Sketch::of(&b));
            // The tolerance is five standard errors.
            prop_assert!((truth - estimate).abs() < 0.16, "{} {}", truth, estimate);
        }
    }

    #[test]
    fn equal_texts_have_similarity_one() {
        let text = "a note about something that is rather long and has more than twenty words, \
                    which is what it takes to be compared by shingles";
        let of = Sketch::of;
        assert_eq!(similarity(&of(text), &of(text)), 1.0);
        assert_eq!(similarity(&of(""), &of("")), 0.0);
        assert_eq!(similarity(&of("fix retry"), &of("retry fixes")), 1.0);
        assert_eq!(similarity(&of("fix retry"), &of(text)), 0.0);
        assert_eq!(of(text).set_size(), 22);
    }
}
