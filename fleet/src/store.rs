//! The operations of a fleet's database.

use runner_engine::outcome::Outcome;

use crate::rows::{HostState, Snapshot};
use crate::types::{
    Claim, ClaimRequest, Declined, Deliverable, Delivery, HostInfo, Lease, Offer, Release, Stale,
    Verdict,
};

/// The result of an operation.
pub type Result<T, E = FleetError> = std::result::Result<T, E>;

/// A fleet database error.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The database cannot be reached or did not respond in time, or the connection ended. The
    /// operation may have completed.
    #[error("the fleet's database cannot be reached: {0}")]
    Unreachable(String),
    /// The database contains no fleet.
    #[error("the database has no fleet yet")]
    NoFleet,
    /// The fleet has a format that this version does not support.
    #[error(
        "the fleet's database has format {found}, but this version of runner supports format {known} (`runner fleet init` upgrades an older one)"
    )]
    Format { found: i32, known: i32 },
    /// The database refused the login, or the role lacks a permission.
    #[error("the fleet's database denied access: {0}")]
    Denied(String),
    /// The address is invalid.
    #[error("the address of the fleet's database cannot be used: {0}")]
    Address(String),
    /// The claim is no longer valid.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The host is unknown to the fleet, or has restarted since it joined.
    #[error("the host {0} is not a member of the fleet")]
    NotJoined(String),
    /// A database error, or a row or answer that this version cannot read.
    #[error("the fleet's database: {0}")]
    Database(String),
}

impl FleetError {
    /// Returns whether a later attempt may succeed without human intervention.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

/// A fleet's database. Every operation is one transaction, which uses the database's clock.
///
/// After [`FleetError::Unreachable`], the operation may or may not have completed. It is always
/// safe to repeat an operation.
pub trait FleetStore {
    /// Adds an active host, or activates a known host and updates its worker, tags and version.
    ///
    /// # Errors
    /// Returns a [`FleetError`], as do all operations.
    fn join(&mut self, host: &HostInfo) -> Result<()>;

    /// Sets whether a host accepts work.
    ///
    /// # Errors
    /// Returns [`FleetError::NotJoined`] if the host is unknown to the fleet.
    fn set_host_state(&mut self, host: &str, state: HostState) -> Result<()>;

    /// Adds an occurrence, and returns its id. If the job already has an occurrence with this key,
    /// changes nothing and returns the existing occurrence's id.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    fn offer(&mut self, offer: &Offer) -> Result<String>;

    /// Claims occurrences in the order in which they became claimable, or nothing if the host is
    /// draining or has left. A dead claim is charged in full before its occurrence is claimed
    /// again.
    ///
    /// # Errors
    /// Returns [`FleetError::NotJoined`] unless the host has joined since it last started.
    fn claim(&mut self, request: &ClaimRequest) -> Result<(Vec<Claim>, Vec<Declined>)>;

    /// Renews the lease of a claim.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] if the claim or its lease has ended.
    fn renew(&mut self, occurrence: &str, fence: i64, worker: &str) -> Result<Lease>;

    /// Delivers the result of a claim, and charges the amounts used.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] if there never was such a claim.
    fn deliver(&mut self, delivery: &Delivery) -> Result<Verdict>;

    /// Gives up a claim, and charges the amounts used.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] if the claim has ended.
    fn release(&mut self, release: &Release) -> Result<()>;

    /// Returns the results waiting for this home host, ordered by id.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    fn deliveries(&mut self, home: &str) -> Result<Vec<Deliverable>>;

    /// Starts the publication of a delivered result by its home host.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] unless this result is the one to publish.
    fn begin_publish(&mut self, occurrence: &str, fence: i64, home: &str) -> Result<()>;

    /// Records the outcome of a delivered or published result.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] unless this result is the one to settle, or has already been
    /// settled.
    fn settle(&mut self, occurrence: &str, fence: i64, home: &str, outcome: &Outcome)
    -> Result<()>;

    /// Makes an occurrence claimable again after a publication that began but changed nothing.
    ///
    /// # Errors
    /// Returns [`FleetError::Stale`] unless this publication is in progress.
    fn reopen(&mut self, occurrence: &str, fence: i64, home: &str, why: &str) -> Result<()>;

    /// Cancels an occurrence immediately if it is pending. If it is claimed, asks its worker to
    /// stop. Does nothing if the occurrence has a result or a different home host.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    fn cancel(&mut self, occurrence: &str, home: &str, why: &str) -> Result<()>;

    /// Returns all rows except groups and blobs.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    fn snapshot(&mut self) -> Result<Snapshot>;
}
