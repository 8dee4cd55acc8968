//! Records problems that are discovered after a run has been published and settled.

use rusqlite::params;

use super::columns::{Query as _, free_json};
use super::{Result, RunSummary, Store, StoreError, totals};
use crate::ids::RunId;
use crate::outcome::Outcome;

impl Store {
    /// Replaces the outcome of a succeeded or degraded run with `outcome`, which must be degraded,
    /// and replaces the run's summary. The run's artifacts and the jobs that follow its job are not
    /// affected.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`] if the run is not a succeeded or degraded run, or another
    /// error if the database cannot be written.
    pub fn degrade(&mut self, run: &RunId, outcome: &Outcome, summary: &RunSummary) -> Result<()> {
        debug_assert!(matches!(outcome, Outcome::Degraded { .. }));
        let row = self.run(run)?;
        let before = row.outcome().filter(|outcome| outcome.published());
        let (Some(before), Some(settled)) = (before, row.finished()) else {
            return Err(StoreError::NotFound {
                what: "succeeded or degraded run",
                name: run.to_string(),
            });
        };
        self.write(|tx| {
            totals::replace(tx, row.job, before, outcome, settled)?;
            let (outcome, summary) = (free_json(outcome), free_json(summary));
            tx.change(
                "UPDATE runs SET outcome = ?2, summary = ?3 WHERE id = ?1 AND state = 'settled'",
                params![run, outcome, summary],
            )?;
            tx.change(
                "UPDATE occurrences SET outcome = ?2
                 WHERE id = (SELECT occurrence FROM runs WHERE id = ?1) AND outcome IS NOT NULL",
                params![run, outcome],
            )?;
            Ok(())
        })
    }
}
