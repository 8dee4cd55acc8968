//! The SplitMix64 random number generator. The seed of a year determines all its events.

#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number in `from..to`.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        let span = (to - from).max(1).cast_unsigned();
        from + (self.next() % span).cast_signed()
    }

    /// Returns `true` with a probability of `chance` per thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.next() % 1000 < chance
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.next() % all.len() as u64;
        &all[usize::try_from(index).unwrap()]
    }

    /// Returns a number in `from..=to` whose logarithm is evenly distributed. Most numbers are near
    /// `from`.
    pub fn spread(&mut self, from: i64, to: i64) -> i64 {
        #[allow(clippy::cast_precision_loss)]
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        #[allow(clippy::cast_precision_loss)]
        let (low, high) = ((from.max(1) as f64).ln(), (to as f64).ln());
        #[allow(clippy::cast_possible_truncation)]
        let value = (low + share * (high - low)).exp() as i64;
        value.clamp(from, to)
    }
}
