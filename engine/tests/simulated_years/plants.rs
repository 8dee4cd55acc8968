//! Bugs that are planted to see that the year's accounts find them.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Placeholder.
    HoldsForEver,
}
