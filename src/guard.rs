//! Guards that other programs call: a hook for agents, and queries about paths.
//!
//! A guard is not the sandbox: the kernel enforces the sandbox whether or not a program calls a
//! guard.

pub mod hook;
pub mod private_paths;
pub mod reach;
pub mod shell;
pub mod tools;
