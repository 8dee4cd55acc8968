//! The board of a project, and what dreams and runs do to it.
//!
//! ```text
//! newest entry ─verdicts─┐                      ┌─> the board's text, by ranges
//! board ────────────────┴─ apply, pick (pure) ─┤                                  one publication
//! history: applied before? ─────────────────────┴─> one more line of the history ─┘
//! ```
//!
//! The board is the project's file; the history is ours, `.runner/board.jsonl`: which entry was
//! applied stands there and nowhere else, and both are placed together, so that a verdict is applied
//! once whatever dies when. Must never guess what a verdict means, and never remove a task.

mod change;
mod history;
mod moves;
#[cfg(test)]
mod tests;

pub use change::{
    BoardChange, BoardEditor, BoardError, BoardRequest, JOB, history, lines, read, read_in,
};
pub use history::{
    BoardHistory, HistoryEvent, HistoryRecord, PATH, TaskMove, UnappliedVerdict, Unresolved,
};
pub use moves::{BoardEdit, add, apply, done, pick};

/// The longest board that is read, in bytes.
pub const LARGEST: u64 = 16 << 20;
