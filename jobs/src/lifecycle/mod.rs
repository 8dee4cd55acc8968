//! The lifecycle: what a project's agents do in turn, and the entry that each night's sleep leaves
//! (contracts/lifecycle.md).

pub mod board;
pub mod entry;
pub mod position;
pub mod spec;
pub mod step;
