//! Reads boards and outlines in org or Markdown and changes them by byte ranges, without ever
//! reprinting them.
//!
//! ```text
//! text ──Board::read──> tasks, each with its byte ranges ──resolve──> one task
//!   │                                                                  │ moved, added
//!   └──────────────────────── edits::apply(text, edits) <──────────────┘
//! ```
//!
//! Text outside the ranges of an [`Edit`] stays the same byte for byte: indentation, drawers, line
//! endings, blank lines, a missing last newline. For this reason no parser with a printer is used.
//! A board needs only stars, a keyword, a heading and tags from org, and these are at the beginning
//! and the end of a line. The only crate that parses all of org has panicked on untrusted text and
//! has had no release for two years.
//!
//! | | org | markdown |
//! | --- | --- | --- |
//! | open | `** TODO X` | `- [ ] X` (or `- [ ] TODO X`) |
//! | promoted | `** NEXT X` | `- [ ] NEXT X` |
//! | in flight | `** DOING X` | `- [ ] DOING X` |
//! | done | `** DONE X` | `- [x] X` |
//! | closed undone | `** CANCELLED X — why` | `- [x] CANCELLED X — why` |
//!
//! This module must never panic, never take more than linear time in the text, and never remove a
//! task.

mod board;
mod edits;
mod lines;
mod resolve;
mod scan;
mod task;
#[cfg(test)]
mod tests;

pub use board::{Board, BoardForm, Keyword, Odd, Task};
pub use edits::{Edit, EditError, apply};
pub use lines::{Line, lines};
pub use resolve::{Resolved, fold};
pub use scan::{Heading, headings};
