//! The built program, from outside: hermetic homes, real git, real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs
)]

mod bad_input;
mod commands;
mod demo;
mod house;
mod kills;
mod locks;
mod look;
