//! The lifecycle: what a project's agents do in turn, and the entry that each night's sleep leaves
//! (contracts/lifecycle.md).

pub mod audit;
pub mod board;
pub mod cycle;
pub mod daydream;
pub mod entry;
pub mod files;
pub mod manifest;
pub mod newest;
pub mod orient;
pub mod position;
pub mod publish;
pub mod rem;
mod settings;
pub mod spec;
pub mod step;
pub mod work;

pub use files::Files;

/// The board that a project has when it names none of its own.
pub const BOARD: &str = "plan.org";
