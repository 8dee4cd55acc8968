//! Reads the overview of a fleet for each tick, and removes old rows.

use super::connection::LONG;
use super::{Fault, Postgres, Step, json, operations};
use crate::rows::Overview;
use crate::store::{FleetError, Result};

/// An occurrence is old if it was settled before `$1`. An old occurrence is kept if it shares a
/// budget level with one that is not old, so that the sums of that level remain exact. Otherwise,
/// it is removed with its levels and its attempts.
const OCCURRENCES: &str = "WITH gone AS (
       DELETE FROM runner_fleet.occurrences o WHERE o.settled < $1 AND NOT o.levels && ARRAY(
         SELECT DISTINCT unnest(k.levels) FROM runner_fleet.occurrences k
         WHERE k.settled IS NULL OR k.settled >= $1)
       RETURNING o.levels),
     levels AS (
       DELETE FROM runner_fleet.budgets
       WHERE level = ANY(ARRAY(SELECT DISTINCT unnest(levels) FROM gone)))
     SELECT count(*) FROM gone";

/// A blob is referenced by its digest, anywhere in a source or a manifest. Storing a blob again
/// updates its time, so the blobs of a source that is being offered are kept.
const BLOBS: &str = "WITH used AS MATERIALIZED (
       SELECT v #>> '{}' AS digest FROM runner_fleet.occurrences,
         jsonb_path_query(source, 'lax $.**') AS v WHERE jsonb_typeof(v) = 'string'
       UNION SELECT v #>> '{}' FROM runner_fleet.attempts,
         jsonb_path_query(manifest, 'lax $.**') AS v WHERE jsonb_typeof(v) = 'string')
     DELETE FROM runner_fleet.blobs b
     WHERE b.stored < $1 AND NOT EXISTS (SELECT FROM used WHERE used.digest = b.digest)";

/// Time in milliseconds to keep an unreferenced blob. Offering a project or delivering a result
/// takes less time.
const UNREFERENCED: i64 = 24 * 3_600_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Number of settled occurrences that were removed, along with their attempts.
    pub occurrences: u64,
    /// Number of parts of unreferenced blobs that were removed.
    pub blobs: u64,
}

fn overview(step: &mut Step<'_>) -> Result<Overview, Fault> {
    let row = step.first(include_str!("overview.sql"), &[])?;
    let row = row.ok_or(FleetError::NoFleet)?;
    json(row.try_get(0)?)
}

impl Postgres {
    /// Returns the hosts, the open work and the day's budget. The cost of this query does not grow
    /// with the number of settled occurrences.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn overview(&mut self) -> Result<Overview> {
        self.write(overview)
    }

    /// Updates the time when this worker was last seen, and returns the [overview](Self::overview).
    /// For a host that neither claims nor works, nothing else updates this time.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn check_in(&mut self, worker: &str) -> Result<Overview> {
        self.write(|step| {
            operations::seen(step, worker)?;
            overview(step)
        })
    }

    /// Removes the occurrences that were settled more than `age` milliseconds ago, except those
    /// that share a budget level with a newer one, and unreferenced blobs older than a day.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn prune(&mut self, age: i64) -> Result<Pruned> {
        let now = self.now()?;
        let occurrences = self.write_within(LONG, |step| {
            let row = step.first(OCCURRENCES, &[&(now - age)])?;
            let count: i64 = row.ok_or(FleetError::NoFleet)?.try_get(0)?;
            Ok(count.unsigned_abs())
        })?;
        let blobs = self.write_within(LONG, |step| step.change(BLOBS, &[&(now - UNREFERENCED)]))?;
        Ok(Pruned { occurrences, blobs })
    }
}
