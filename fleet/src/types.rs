//! The values that hosts exchange with the fleet's database.

use std::collections::BTreeMap;

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A host that joins the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// The machine's name and the id of its state folder. Neither changes when the machine
    /// restarts.
    pub host: String,
    /// The host and its boot. Only the worker that made a claim may use it, so a host cannot
    /// continue its claims after the machine restarts.
    pub worker: String,
    pub tags: Vec<String>,
    pub version: String,
}

/// An occurrence that a host makes available to the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The id that the occurrence receives if it is new.
    pub id: String,
    pub project: String,
    pub job: String,
    /// The key of the occurrence within its job.
    pub key: String,
    /// The host that publishes the result.
    pub home: String,
    /// The scheduled time in milliseconds since the Unix epoch. It is informational only.
    pub due: i64,
    /// The concurrency group, and the maximum number of claims that it may have at once.
    pub group: Option<(String, u32)>,
    /// The tags that a host needs to claim the occurrence.
    pub tags: Vec<String>,
    /// The occurrence's budget levels and their limits.
    pub levels: BTreeMap<String, Budget>,
    /// The amounts that a claim reserves at each level.
    pub want: Amounts,
    /// The length of a lease in milliseconds.
    pub lease: i64,
    /// Number of lost claims after which the occurrence is considered lost.
    pub most_lost: u32,
    /// How a host obtains the project.
    pub source: Value,
}

/// A request for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    pub host: String,
    pub worker: String,
    pub tags: Vec<String>,
    /// Maximum number of occurrences to claim.
    pub most: u32,
    /// The home host to which the request is limited, or `None` for all home hosts.
    pub home: Option<String>,
}

/// An occurrence that a worker has claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub occurrence: String,
    /// The fencing token, required for every later operation on this claim.
    pub fence: i64,
    pub project: String,
    pub job: String,
    pub key: String,
    pub home: String,
    pub due: i64,
    /// The length of the lease in milliseconds. The worker must measure it from before it sent the
    /// request.
    pub lease: i64,
    pub reserved: Amounts,
    pub source: Value,
}

/// An occurrence that was considered but not claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    pub occurrence: String,
    pub why: String,
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The length of the lease in milliseconds. The worker must measure it from before it sent the
    /// request.
    pub lease: i64,
    /// The reason the run should end. `None` if it may continue.
    pub cancel: Option<String>,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    pub outcome: Outcome,
    pub used: Amounts,
    /// The human-readable report, as JSON.
    pub summary: Value,
    /// The files with their digests, as JSON.
    pub manifest: Value,
}

/// A claim given back by a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    pub used: Amounts,
    /// The number of milliseconds for which this host does not claim the occurrence again.
    pub host_waits: i64,
    pub why: String,
}

/// The effect of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The home host will apply the result.
    Accepted,
    /// The same delivery had already been accepted.
    Repeated,
    /// The claim has ended without this result, or ends now because its lease has ended or its run
    /// was stopped. The result is never applied.
    Late,
}

/// A result waiting for its home host.
#[derive(Clone, Debug, PartialEq)]
pub struct Deliverable {
    pub occurrence: String,
    pub fence: i64,
    pub project: String,
    pub job: String,
    pub key: String,
    pub outcome: Outcome,
    /// The host that did the work. `None` if no host finished it.
    pub host: Option<String>,
    pub summary: Value,
    pub manifest: Value,
    /// Whether the publication of the result has begun.
    pub publishing: bool,
}

/// The error for an operation that the occurrence's state, fence, worker or home host does not
/// allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the claim {held} of occurrence {occurrence} is no longer valid: {why}")]
pub struct Stale {
    pub occurrence: String,
    /// The fence of the rejected operation.
    pub held: i64,
    /// The reason, such as the occurrence's current state and fence.
    pub why: String,
}
