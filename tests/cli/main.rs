//! The built program, from outside: hermetic homes, real git, real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test program"
)]

mod alerts;
mod asleep;
mod awake;
mod backends;
mod bad_input;
mod budgets;
mod commands;
mod config;
mod daemon;
mod deaths;
mod demo;
mod docs;
mod doctor;
mod dream_bench;
mod dry;
mod dst;
mod following;
mod hook;
mod house;
mod kills;
mod ledger;
mod locks;
mod look;
mod nights;
mod on_time;
mod policies;
mod projects;
mod queue;
mod replay;
mod review;
mod schedule;
mod served;
mod setup;
mod status;
mod surroundings;
mod walls;
