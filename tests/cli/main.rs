//! The built program, from outside: hermetic homes, real git, real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test program"
)]

mod asleep;
mod backends;
mod bad_input;
mod commands;
mod config;
mod daemon;
mod deaths;
mod demo;
mod dst;
mod house;
mod kills;
mod locks;
mod look;
mod nights;
mod on_time;
mod policies;
mod queue;
mod schedule;
mod served;
mod surroundings;
