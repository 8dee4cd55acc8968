//! Reads boards and outlines in org or Markdown, and edits them by byte ranges.
//!
//! ```text
//! text ──Board::read──> tasks, each with its byte ranges ──resolve──> one task
//!   │                                                                  │ moved, added
//!   └──────────────────────── edits::apply(text, edits) <──────────────┘
//! ```
//!
//! Text outside the range of an [`Edit`] is kept byte for byte, including indentation, drawers,
//! line endings and blank lines. A parser that prints its syntax tree cannot guarantee this. A
//! board uses only stars, keywords, priorities, headings, tags and property drawers from org, so a
//! complete org parser is not needed.
//!
//! | | org | markdown |
//! | --- | --- | --- |
//! | open | `** TODO X` | `- [ ] X` (or `- [ ] TODO X`) |
//! | promoted | `** NEXT X` | `- [ ] NEXT X` |
//! | in progress | `** DOING X` | `- [ ] DOING X` |
//! | done | `** DONE X` | `- [x] X` |
//! | cancelled | `** CANCELLED X — why` | `- [x] CANCELLED X — why` |
//!
//! This module must never panic and must never remove a task.

mod board;
mod edits;
mod lines;
mod owner;
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
