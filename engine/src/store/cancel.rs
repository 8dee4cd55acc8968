//! Cancels runs, and requests another attempt after a run has ended.
//!
//! ```text
//! queued, requested ──cancel──> settled (cancelled)
//! running ──cancel──> running, asked ──TERM──> settles itself as cancelled
//!                                    └─ exceeds its shortened deadline: recovery kills it
//! ```

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::params;

use super::columns::Query as _;
use super::{Fault, Result, RunRow, RunState, Store, StoreError, rows, settle};
use crate::ids::RunId;
use crate::outcome::Outcome;
use crate::recover::OVERRUN_GRACE;

/// The time that a cancelled run has to end before recovery kills it.
pub const CANCEL_GRACE: Duration = Duration::from_secs(20);

/// The result of a cancellation.
#[derive(Clone, Debug)]
pub enum Cancelled {
    /// The run had not started and is now settled.
    Settled(RunId),
    /// The run is in progress. The caller must signal the process that executes it.
    Asked(Box<RunRow>),
    /// The run's occurrence had already ended.
    Over(Outcome),
}

impl Store {
    /// Cancels the unsettled run of `run`'s occurrence, which may be a different attempt.
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`] if the run does not exist.
    pub fn cancel(&mut self, run: &RunId, why: &str, now: Timestamp) -> Result<Cancelled> {
        let occurrence = self.run(run)?.occurrence;
        let open = self.write(|tx| {
            let sql = "SELECT id FROM runs WHERE occurrence = ?1 AND state <> 'settled'";
            let open: Option<RunId> = tx.first(sql, [&occurrence], |row| row.get(0))?;
            if let Some(run) = &open {
                settle::ask(tx, run, why, now)?;
            }
            Ok(open)
        })?;
        let Some(open) = open else {
            let outcome = self.occurrence(&occurrence)?.outcome;
            return outcome.map(Cancelled::Over).ok_or_else(|| StoreError::NotFound {
                what: "open run for the occurrence of run",
                name: run.to_string(),
            });
        };
        let row = self.run(&open)?;
        match row.outcome() {
            Some(_) => Ok(Cancelled::Settled(open)),
            None => Ok(Cancelled::Asked(Box::new(row))),
        }
    }

    /// Shortens the deadline of a cancelled run, so that recovery kills the run [`CANCEL_GRACE`]
    /// after `boot`. Does nothing if the run is not running or its deadline is not later.
    pub fn hasten(&mut self, run: &RunRow, boot: Duration) -> Result<()> {
        // Recovery kills a run `OVERRUN_GRACE` after its deadline.
        let by = (boot + CANCEL_GRACE).saturating_sub(OVERRUN_GRACE);
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        match run.state {
            RunState::Running { deadline, .. } if deadline > by => {}
            _ => return Ok(()),
        }
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let sql = "UPDATE runs SET deadline = ?2 WHERE id = ?1 AND state = 'running'";
        self.write(|tx| tx.change(sql, params![run.id, by]).map(drop))
    }

    /// Reopens the settled occurrence of `run` with one more attempt, which may start immediately.
    /// The origin of the occurrence becomes [`Origin::Queue`](super::Origin::Queue).
    ///
    /// # Errors
    /// Returns [`StoreError::NotFound`] if the run does not exist, or if its occurrence is still
    /// open.
    pub fn retry(&mut self, run: &RunId, now: Timestamp) -> Result<RunId> {
        let occurrence = self.run(run)?.occurrence;
        self.write(|tx| {
            let reopened = tx.change(
                "UPDATE occurrences SET outcome = NULL, settled = NULL, origin = 'queue'
                 WHERE id = ?1 AND outcome IS NOT NULL",
                [&occurrence],
            )?;
            if reopened == 0 {
                return Err(Fault::not_found("settled occurrence of run", run));
            }
            rows::queue(tx, &occurrence, now, None, now)
        })
    }
}
