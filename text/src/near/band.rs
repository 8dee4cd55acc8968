//! Selects pairs of sketches for an exact comparison, by banding.

use std::collections::BTreeSet;

use super::sets::mix;
use super::sketch::{Mins, SIZE, Sketch};
use super::{CROWD, NEAR_SHORT};

/// Minimum probability of finding a pair exactly at the threshold.
const RECALL: f64 = 0.99;

/// The keys of one document in each band. Documents with equal keys in a band agree in all of its
/// rows, apart from rare collisions.
#[derive(Clone, Debug)]
pub(super) struct BandKeys {
    short: bool,
    shingles: Box<[u32]>,
    terms: Option<Box<[u32]>>,
}

impl BandKeys {
    /// Returns the keys of a sketch for pairs with a similarity of at least `threshold`.
    pub(super) fn of(sketch: &Sketch, threshold: f64) -> Self {
        let keys = |mins: &Mins, rows: usize| {
            let key = |part: &[u32]| part.iter().fold(0, |sum, low| mix(sum ^ u64::from(*low)));
            mins.least.chunks_exact(rows).map(|part| (key(part) >> 32) as u32).collect()
        };
        Self {
            short: sketch.is_short(),
            shingles: keys(sketch.shingles(), rows_for(threshold)),
            terms: sketch.terms().map(|mins| keys(mins, rows_for(threshold.max(NEAR_SHORT)))),
        }
    }
}

/// Returns the pairs of indices, the lower first, whose documents agree in at least one band.
/// Shingles are compared for all pairs, and terms only if one of the documents is short.
pub(super) fn candidates(all: &[BandKeys]) -> BTreeSet<(usize, usize)> {
    let mut found = BTreeSet::new();
    collect(all, |keys| Some(&keys.shingles), |_, _| true, &mut found);
    let with_short = |a: usize, b: usize| all[a].short || all[b].short;
    collect(all, |keys| keys.terms.as_deref(), with_short, &mut found);
    found
}

fn collect<'k>(
    all: &'k [BandKeys],
    pick: impl Fn(&'k BandKeys) -> Option<&'k [u32]>,
    wanted: impl Fn(usize, usize) -> bool,
    found: &mut BTreeSet<(usize, usize)>,
) {
    let bands = all.iter().filter_map(|keys| Some(pick(keys)?.len())).max().unwrap_or(0);
    for band in 0..bands {
        let numbered = all.iter().enumerate();
        let mut members: Vec<(u32, usize)> =
            numbered.filter_map(|(at, keys)| Some((*pick(keys)?.get(band)?, at))).collect();
        members.sort_unstable();
        for bucket in members.chunk_by(|a, b| a.0 == b.0) {
            for (i, (_, a)) in bucket.iter().enumerate() {
                let next = bucket[i + 1..].iter().take(CROWD);
                found.extend(next.filter(|(_, b)| wanted(*a, *b)).map(|(_, b)| (*a, *b)));
            }
        }
    }
}

/// Returns the largest number of rows per band, at most 8, that still reaches [`RECALL`] at
/// `threshold`, or 1 if none does. Fewer rows find more pairs but require more comparisons.
fn rows_for(threshold: f64) -> usize {
    let recall = |rows: usize| {
        let bands = (SIZE / rows) as i32;
        1.0 - (1.0 - threshold.clamp(0.0, 1.0).powi(rows as i32)).powi(bands)
    };
    let fitting = (2..=8).rev().find(|rows| recall(*rows) >= RECALL);
    fitting.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_count_depends_on_the_threshold() {
        assert_eq!(rows_for(crate::near::NEAR), 3);
        assert_eq!(rows_for(NEAR_SHORT), 6);
        assert_eq!(rows_for(1.0), 8);
        assert_eq!(rows_for(0.0), 1);
        assert_eq!(rows_for(f64::NAN), 1);
    }

    #[test]
    fn identical_sketches_yield_linear_candidates() {
        let crowd = vec![BandKeys::of(&Sketch::of("the same few words"), 0.4); 500];
        let found = candidates(&crowd);
        assert!(found.len() <= 500 * CROWD);
        assert!((1..500).all(|i| found.contains(&(i - 1, i))));
    }
}
