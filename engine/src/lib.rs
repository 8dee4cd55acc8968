//! How anything runs: time, ledger, admission, locks, accounts, processes, placement.
//!
//! The floor under every job. It must never run a job itself, name a higher crate, read the
//! environment or print: it returns what to start, and the program starts it.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests read what they made themselves"
    )
)]

pub mod admission;
pub mod alerts;
pub mod awake;
pub mod causes;
pub mod digest;
pub mod failpoint;
pub mod files;
pub mod git;
pub mod host;
pub mod ids;
pub mod launch;
pub mod ledger;
pub mod locks;
pub mod outcome;
pub mod owner;
pub mod placement;
pub mod policy;
pub mod process;
pub mod queue;
pub mod recover;
pub mod schedule;
pub mod scope;
pub mod tape;
pub mod tick;
pub mod time;
pub mod walls;
