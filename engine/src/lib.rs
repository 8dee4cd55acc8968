//! The layer on which every job runs: time, database, admission, locks, budget usage, processes and
//! publishing.
//!
//! This crate must never run a job itself, depend on a higher crate, read the environment or print.
//! It returns what to start, and the program starts it.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read what they made themselves")
)]

pub mod admission;
pub mod alerts;
pub mod awake;
pub mod digest;
pub mod error_chain;
pub mod failpoint;
pub mod file_lock;
pub mod files;
pub mod git;
pub mod host;
pub mod ids;
pub mod launch;
pub mod locks;
pub mod outcome;
pub mod policy;
pub mod process;
pub mod process_id;
pub mod publish;
pub mod queue;
pub mod recording;
pub mod recover;
pub mod sandbox;
pub mod schedule;
pub mod scope;
pub mod store;
pub mod tick;
pub mod time;
pub mod work;
