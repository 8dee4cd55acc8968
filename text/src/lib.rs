//! Pure text: everything runner does to words, with no outside world in reach.
//!
//! The lowest floor. Every function here maps what it is given to what it returns: no files, no
//! clock, no environment, no randomness, no output. It must never panic on any input, however
//! damaged, and never take more than linear time in it, apart from a factor that is stated. What
//! is read here was often written by a model or a stranger; it is measured, split and fenced, and
//! never believed.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what they made themselves"
    )
)]

mod counted;
pub mod fence;
pub mod front_matter;
pub mod json_extract;
pub mod jsonl;
pub mod markdown;
pub mod near;
pub mod nearest;
pub mod org;
pub mod redact;
pub mod terms;

pub use counted::counted;
