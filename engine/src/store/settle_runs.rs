//! The public functions that settle runs. Each is one transaction around [`settle`](super::settle).

use jiff::Timestamp;
use rusqlite::params;

use super::columns::{Query as _, free};
use super::settle::{check_fence, close, settle_row};
use super::{Result, RunSummary, Store, rows, runs};
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use crate::process_id::ProcessIdentity;

impl Store {
    /// Settles a run and, unless it was deferred, its occurrence.
    ///
    /// # Errors
    /// Returns [`StaleFence`](super::StoreError::StaleFence) if the run has been taken over; the
    /// run must then not change anything any more. Returns
    /// [`NotFound`](super::StoreError::NotFound) if the run has already been settled.
    pub fn settle(
        &mut self,
        run: &RunId,
        fence: Option<Fence>,
        outcome: &Outcome,
        summary: &RunSummary,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            check_fence(tx, run, fence)?;
            settle_row(tx, run, outcome, summary, now)
        })
    }

    /// Settles a run that has not been admitted. Returns false and changes nothing if the run was
    /// admitted or settled meanwhile, because another process then decides its outcome.
    pub fn decline(&mut self, run: &RunId, outcome: &Outcome, now: Timestamp) -> Result<bool> {
        self.write(|tx| {
            if runs::requested(tx, run)?.is_none() {
                return Ok(false);
            }
            settle_row(tx, run, outcome, &RunSummary::default(), now)?;
            Ok(true)
        })
    }

    /// Settles a run whose publication found a target with neither the expected nor the new
    /// content. The staged files are kept for a person and are not swept.
    pub fn settle_conflict(
        &mut self,
        run: &RunId,
        fence: Fence,
        outcome: &Outcome,
        summary: &RunSummary,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            check_fence(tx, run, Some(fence))?;
            let why = outcome.why().unwrap_or_default();
            tx.change(
                "UPDATE publications SET conflict = ?2 WHERE run = ?1",
                params![run, free(why)],
            )?;
            tx.change("UPDATE runs SET staging = NULL WHERE id = ?1", [run])?;
            settle_row(tx, run, outcome, summary, now)
        })
    }

    /// Settles a run whose process is gone, and requests another attempt if `retry` allows it.
    pub fn settle_dead(
        &mut self,
        run: &RunId,
        outcome: &Outcome,
        summary: &RunSummary,
        retry: Option<&ProcessIdentity>,
        now: Timestamp,
    ) -> Result<Option<RunId>> {
        self.write(|tx| {
            let Some(starter) = retry else {
                settle_row(tx, run, outcome, summary, now)?;
                return Ok(None);
            };
            let over = close(tx, run, outcome, summary, now)?;
            rows::request(tx, &over.occurrence, starter, now).map(Some)
        })
    }
}
