//! A project's board, and the changes that dreams, runs and the user make to it.
//!
//! ```text
//! newest entry ─verdicts─┐                      ┌─> edits of the board's text
//! board ────────────────┴─ apply, pick (pure) ─┤                                  one publication
//! history: applied before? ─────────────────────┴─> one more line of the history ─┘
//! ```
//!
//! The project owns the board, and runner owns the history (`.runner/board.jsonl`). Only the
//! history records which entries were applied. Both files are published together, so a verdict is
//! applied exactly once, even if a process dies. This module must never guess the meaning of a
//! verdict or remove a task.

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
pub use moves::{BoardEdit, add, apply, current, done, pick};

/// Maximum size of a board, in bytes.
pub const LARGEST: u64 = 16 << 20;
