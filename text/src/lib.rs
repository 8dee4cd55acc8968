//! Pure text processing: everything that runner does to text without access to the outside world.
//!
//! This is the lowest layer. Every function maps its arguments to its result: no files, no clock,
//! no environment, no randomness, no output. A function must never panic on any input, however
//! damaged, and never take more than linear time, except for a documented factor.
//!
//! The input was often written by a model or a stranger; it is measured, split and fenced, and
//! never trusted.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read what they made themselves")
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
pub mod values;

pub use counted::{counted, some_of};
pub use near::mix;
