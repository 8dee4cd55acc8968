//! Pure functions on text.
//!
//! This is the lowest layer. It must not access files, the clock, the environment or the network. A
//! function must never panic on any input, and must take linear time unless its documentation
//! states otherwise.
//!
//! The input often comes from a model or a stranger and is never trusted.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read only files that they wrote")
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
mod shell;
pub mod terms;
pub mod values;

pub use counted::{counted, some_of};
pub use near::mix;
pub use shell::{shell_line, shell_word};

/// The English names of the months, in lower case.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
