//! The engine that underlies all jobs: schedules, database, admission, locks, budgets, processes
//! and publication.
//!
//! This crate must never run a job itself, depend on a higher-level crate, print, or read the
//! environment (except `TZ`, in [`zones`]). It returns the runs to start, and the `runner` program
//! starts them.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests read only files that they wrote")
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
pub mod zones;
