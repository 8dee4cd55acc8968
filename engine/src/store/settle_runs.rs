//! Provides the public functions that settle runs. Each function runs in one transaction and uses
//! the module [`settle`](super::settle).

use jiff::Timestamp;
use rusqlite::params;

use super::columns::{Query as _, free};
use super::settle::{check_fence, close, settle_row};
use super::{Result, RunSummary, Store, rows, runs};
use crate::ids::{Fence, RunId};
use crate::outcome::Outcome;
use crate::process_id::ProcessIdentity;

impl Store {
    /// Settles a run. Also settles its occurrence, unless another attempt follows.
    ///
    /// # Errors
    /// Returns [`StaleFence`](super::StoreError::StaleFence) if `fence` is set and the run has been
    /// taken over or settled. The run must then make no further changes. Returns
    /// [`NotFound`](super::StoreError::NotFound) if `fence` is `None` and the run has already been
    /// settled.
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

    /// Settles a requested run that was not admitted. Returns `false` and changes nothing if the
    /// run is no longer requested.
    pub fn decline(&mut self, run: &RunId, outcome: &Outcome, now: Timestamp) -> Result<bool> {
        self.write(|tx| {
            if runs::requested(tx, run)?.is_none() {
                return Ok(false);
            }
            settle_row(tx, run, outcome, &RunSummary::default(), now)?;
            Ok(true)
        })
    }

    /// Settles a run whose publication cannot be completed. The staged files are kept for the user.
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

    /// Settles a run whose process has died. If `retry` is set, requests another attempt with that
    /// process as its starter and returns the id of the new run.
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

    /// Settles a run whose process has died, and queues another attempt that is ready immediately.
    pub fn requeue_dead(
        &mut self,
        run: &RunId,
        outcome: &Outcome,
        summary: &RunSummary,
        now: Timestamp,
    ) -> Result<()> {
        self.write(|tx| {
            let over = close(tx, run, outcome, summary, now)?;
            rows::queue(tx, &over.occurrence, now, None, now).map(drop)
        })
    }
}
