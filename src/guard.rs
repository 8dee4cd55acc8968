//! Guards that other programs call: an agent's hook, and answers about a path.
//!
//! No guard is the sandbox. The kernel enforces the sandbox, whether or not a program calls a
//! guard.

pub mod hook;
pub mod private_paths;
pub mod reach;
pub mod shell;
pub mod tools;
