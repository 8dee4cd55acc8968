//! How anything runs: time, ledger, admission, locks, accounts, processes, placement.
//!
//! The floor under every job. It must never run a job itself, name a higher crate, read the
//! environment or print: it returns what to start, and the program starts it.

pub mod digest;
pub mod ids;
pub mod outcome;
pub mod time;
