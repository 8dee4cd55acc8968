//! Tests the built program from outside, with temporary homes, real git and real processes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test program"
)]

mod alerts;
mod apis;
mod archive;
mod asleep;
mod awake;
mod backends;
mod bad_input;
mod broken_setups;
mod budgets;
mod commands;
mod config;
mod council;
mod curator;
mod curator_chain;
mod curator_work;
mod daemon;
mod db;
mod demo;
mod docs;
mod doctor;
mod dream_answers;
mod dream_bench;
mod dream_external;
mod dry_run;
mod dst;
mod first_hour;
mod fixture;
mod fleet_week;
mod following;
mod forgeries;
mod hook;
#[path = "../fakes/http/mod.rs"]
mod http;
mod layouts;
mod lifecycle;
mod lifecycle_agents;
mod locks;
mod memory;
mod memory_hosts;
mod memory_import;
mod memory_jobs;
#[cfg(feature = "mcp")]
mod memory_mcp;
mod messages;
mod metrics;
mod nights;
mod on_time;
#[cfg(feature = "otel")]
mod otel;
mod output;
mod overnight;
mod planted;
mod policies;
mod projects;
mod queue;
mod random_kills;
mod recovery;
mod rem;
mod rem_answers;
mod replay;
mod report;
mod review;
mod sandbox;
mod schedule;
mod serve;
mod served;
mod session_kills;
mod sessions;
mod setup;
mod sinks;
mod snapshots;
mod status;
mod surroundings;
mod top;
mod trust;
mod unreadable;
mod week;
