//! Functions for tests that split input at random positions. A failing test prints its seed.

/// A random number generator that produces the same sequence for the same seed. The seed must not
/// be 0.
pub(crate) struct TestRandom(pub u64);

impl TestRandom {
    /// Returns a random number less than `below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("the remainder fits into a usize")
    }

    /// Splits `all` at random positions into at most `most` pieces, some of which may be empty.
    pub fn cut<'a>(&mut self, all: &'a [u8], most: usize) -> Vec<&'a [u8]> {
        let mut at: Vec<usize> = (0..self.below(most)).map(|_| self.below(all.len() + 1)).collect();
        at.extend([0, all.len()]);
        at.sort_unstable();
        at.windows(2).map(|pair| &all[pair[0]..pair[1]]).collect()
    }
}

/// Returns `count` multiplied by `RUNNER_TEST_SCALE`, rounded up, or `count` if the variable is not
/// a number.
#[allow(
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test's case count is small"
)]
pub(crate) fn scaled(count: usize) -> usize {
    let scale = std::env::var("RUNNER_TEST_SCALE").ok();
    let scale: f64 = scale.and_then(|it| it.parse().ok()).unwrap_or(1.0);
    (count as f64 * scale).ceil() as usize
}

/// Writes a line to stderr directly, so that the test harness does not capture it.
pub(crate) fn print_line(line: &str) {
    let line = format!("{line}\n");
    let _closed = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
