//! Problems of a run that are discovered after its artifacts were published and it was settled.

use rusqlite::params;

use super::columns::{Query as _, free_json};
use super::{Result, RunSummary, Store, StoreError};
use crate::ids::RunId;
use crate::outcome::Outcome;

impl Store {
    /// Marks a run that was settled as succeeded or degraded as degraded, and stores its summary.
    /// The run's artifacts and the jobs that follow it are not affected. A run with any other
    /// outcome is not changed.
    ///
    /// # Errors
    /// Returns an error if no such run exists, or if the database cannot be written.
    pub fn degrade(&mut self, run: &RunId, outcome: &Outcome, summary: &RunSummary) -> Result<()> {
        debug_assert!(matches!(outcome, Outcome::Degraded { .. }));
        if !self.run(run)?.outcome().is_some_and(Outcome::published) {
            return Err(StoreError::NotFound {
                what: "run that achieved something",
                name: run.to_string(),
            });
        }
        self.write(|tx| {
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
