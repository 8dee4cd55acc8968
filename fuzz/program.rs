//! The part of the program that the targets are about: it is a program and no library.

#[path = "../src/cli/failure.rs"]
mod failure;

/// What the settings know of the terminal's side.
pub mod cli {
    pub use super::failure::Failure;
}

#[path = "../src/config/mod.rs"]
pub mod config;
