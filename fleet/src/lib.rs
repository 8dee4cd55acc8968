//! Lets several hosts share occurrences, claims, leases and budgets in a PostgreSQL database.
//!
//! ```text
//! home host ──offer──> pending ──claim──> claimed ──deliver──> delivered ──publish──> settled
//!                        any host that has joined      home host only
//! ```
//!
//! Every operation of a [`FleetStore`] is one transaction, which uses the database's clock. The
//! decisions are pure ([`decide`]). There are two implementations: [`Postgres`], and the
//! [`Simulation`] that the tests compare it with. This crate must never run a job, publish a
//! project's file, or base a decision on a host's clock.

pub mod decide;
#[cfg(feature = "fault-injection")]
mod injected_bug;
mod postgres;
mod rows;
mod simulation;
mod store;
mod types;

#[cfg(feature = "fault-injection")]
pub use injected_bug::InjectedBug;
pub use postgres::blobs::LARGEST_CONTENT;
pub use postgres::init::Initialized;
pub use postgres::{Postgres, Pruned, Signals};
pub use rows::{
    AttemptRow, BudgetRow, Ending, HostRow, HostState, OccurrenceRow, Overview, Snapshot, State,
};
pub use simulation::Simulation;
pub use store::{FleetError, FleetStore, Result};
pub use types::{
    Claim, ClaimRequest, Declined, Deliverable, Delivery, HostInfo, Lease, Offer, Release, Stale,
    Verdict,
};
