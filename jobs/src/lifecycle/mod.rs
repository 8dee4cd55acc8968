//! The lifecycle: the cycle of states that each agent runs through, the journal entry that each
//! dream writes, and the project's board.

pub mod audit;
pub mod board;
mod claims;
pub mod cycle;
pub mod daydream;
pub mod entry;
pub mod files;
pub mod log;
pub mod manifest;
pub mod orient;
pub mod position;
pub mod prompts;
pub mod provenance;
pub mod publish;
pub mod rem;
pub mod spec;
pub mod step;
pub mod work;

pub use files::Files;

/// The default path of a project's board.
pub const BOARD: &str = "plan.org";
