//! Selects pairs of sketches for an exact comparison, by banding.

use std::collections::{BTreeSet, HashMap};

use super::sets::mix;
use super::sketch::{Mins, SIZE, Sketch};
use super::{CROWD, NEAR_SHORT};

/// Minimum probability of finding a pair exactly at the threshold.
const RECALL: f64 = 0.99;

/// Returns the pairs of indices, the lower first, whose sketches agree in at least one band.
/// Shingles are compared for all pairs, and terms only if one of the documents is short.
pub(super) fn candidates(sketches: &[Sketch], threshold: f64) -> BTreeSet<(usize, usize)> {
    let mut found = BTreeSet::new();
    let all = each(sketches, |sketch| Some(sketch.shingles()));
    collect(&all, rows_for(threshold), |_, _| true, &mut found);
    let termed = each(sketches, Sketch::terms);
    let with_short = |a: usize, b: usize| sketches[a].is_short() || sketches[b].is_short();
    let rows = rows_for(threshold.max(NEAR_SHORT));
    collect(&termed, rows, with_short, &mut found);
    found
}

fn each<'s>(
    sketches: &'s [Sketch],
    pick: impl Fn(&'s Sketch) -> Option<&'s Mins>,
) -> Vec<(usize, &'s Mins)> {
    let numbered = sketches.iter().enumerate();
    numbered.filter_map(|(at, sketch)| pick(sketch).map(|mins| (at, mins))).collect()
}

fn collect(
    members: &[(usize, &Mins)],
    rows: usize,
    wanted: impl Fn(usize, usize) -> bool,
    found: &mut BTreeSet<(usize, usize)>,
) {
    for band in 0..SIZE / rows {
        let mut buckets: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, mins) in members {
            let part = &mins.least[band * rows..(band + 1) * rows];
            let key = part.iter().fold(0, |sum, low| mix(sum ^ u64::from(*low)));
            buckets.entry(key).or_default().push(*at);
        }
        for bucket in buckets.values() {
            for (i, a) in bucket.iter().enumerate() {
                let next = bucket[i + 1..].iter().take(CROWD);
                found.extend(next.filter(|b| wanted(*a, **b)).map(|b| (*a, *b)));
            }
        }
    }
}

/// Returns the largest number of rows per band that still reaches [`RECALL`] at `threshold`. Fewer
/// rows find more pairs but require more comparisons.
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
        let crowd = vec![Sketch::of("the same few words"); 500];
        let found = candidates(&crowd, 0.4);
        assert!(found.len() <= 500 * CROWD);
        assert!((1..500).all(|i| found.contains(&(i - 1, i))));
    }
}
