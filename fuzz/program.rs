//! The part of the program that the targets are about: it is a program and no library.

#[path = "../src/ui/failure.rs"]
mod failure;

/// The part of the command line that the configuration depends on.
pub mod cli {
    pub use super::failure::Failure;
}

#[path = "../src/config/mod.rs"]
pub mod config;
