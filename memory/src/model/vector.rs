//! Text vectors and their similarity.

use super::DIMENSIONS;

/// The direction of a string in the embedding space, as integers from −127 to 127.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    values: Box<[i8; DIMENSIONS]>,
    /// The square of the length.
    square: i32,
}

impl Vector {
    /// Returns the vector for a sum of rows, or `None` if one component is infinite or every
    /// component is zero or NaN.
    pub(super) fn nearest_to(sum: &[f32; DIMENSIONS]) -> Option<Self> {
        let largest = sum.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        if !largest.is_finite() || largest <= 0.0 {
            return None;
        }
        let scale = 127.0 / largest;
        let mut values = Box::new([0; DIMENSIONS]);
        for (value, exact) in values.iter_mut().zip(sum) {
            #[expect(clippy::cast_possible_truncation, reason = "at most 127 by its scale")]
            let rounded = (exact * scale).round() as i8;
            *value = rounded;
        }
        let square = dot(&values, &values);
        Some(Self { values, square })
    }

    /// Returns the cosine of the angle between two vectors, from −1 to 1.
    pub fn cosine(&self, other: &Self) -> f32 {
        let lengths = (self.square as f32).sqrt() * (other.square as f32).sqrt();
        dot(&self.values, &other.values) as f32 / lengths
    }

    /// Returns the indices of the `most` vectors nearest to this one, with their cosines, nearest
    /// first. All vectors are compared.
    pub fn nearest(&self, all: &[Self], most: usize) -> Vec<(usize, f32)> {
        let mut found: Vec<(usize, f32)> =
            all.iter().enumerate().map(|(at, other)| (at, self.cosine(other))).collect();
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if most < found.len() {
            found.select_nth_unstable_by(most, order);
            found.truncate(most);
        }
        found.sort_by(order);
        found
    }
}

fn dot(a: &[i8; DIMENSIONS], b: &[i8; DIMENSIONS]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: u32) -> Vector {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut sum = [0.0; DIMENSIONS];
        for value in &mut sum {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        }
        Vector::nearest_to(&sum).unwrap()
    }

    #[test]
    fn cosines_rank_vectors() {
        let all: Vec<Vector> = (0..50).map(vector).collect();
        for (at, one) in all.iter().enumerate() {
            let near = one.nearest(&all, 3);
            assert_eq!((near.len(), near[0].0), (3, at));
            assert!((near[0].1 - 1.0).abs() < 1e-5 && near[1].1 < 0.5);
        }
        assert!(Vector::nearest_to(&[0.0; DIMENSIONS]).is_none());
        assert!(Vector::nearest_to(&[f32::NAN; DIMENSIONS]).is_none());
        assert_eq!(all[0].nearest(&all, 90).len(), 50);
    }
}
