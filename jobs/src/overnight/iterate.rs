//! Runs the loop, one iteration at a time.
//!
//! ```text
//! plateau, count, time ───> iteration ──> record ───> clear its marker and its copy ──┐
//!      ▲        └── end                                                               │
//!      └────────────────────────── on ────────────────────────────────────────────────┘
//! ```
//!
//! Each iteration is recorded before the next one begins, so a resumed run can rely on the existing
//! records. Two iterations must never run at the same time, and a marker must never be cleared
//! before its iteration is recorded.

use std::time::Duration;

use runner_engine::outcome::Class;
use runner_engine::time::boot_time;
use serde_json::Value;

use super::commit::{self, CommitError};
use super::corpus::close_loop::Promotion;
use super::staging::StageError;
use super::state::{Night, disk, failed};
use super::summary::{Iteration, IterationStatus, length};
use super::warn_budget::WarnBudget;
use crate::JobError;

/// Number of failed measurements, or of refused commits, without a successful iteration in between,
/// after which the loop ends.
const MEASURE_FAILURES: u64 = 3;

#[derive(Debug, Default)]
pub struct LoopResult {
    pub promoted: Vec<Promotion>,
    /// The close-loop report of the last committed iteration, or null if there is none.
    pub close_loop: Value,
}

/// Whether the loop continues after an iteration.
pub(super) enum NextIteration {
    On,
    End,
}

impl Night<'_, '_> {
    /// Runs the loop to completion.
    ///
    /// # Errors
    /// Returns an error if the run is cancelled or out of time, if another process has taken it
    /// over, if a commit could not be finished, or if an iteration could not be recorded or its
    /// leftovers could not be removed.
    pub(super) fn iterate(&mut self) -> Result<LoopResult, JobError> {
        let mut looped = LoopResult::default();
        let mut rescues = WarnBudget::read(self.ctx.files.root());
        let initial = *self.state.rescues.get_or_insert(rescues.remaining);
        self.summary.warn_only_budget_initial = Some(initial);
        let mut failures = 0;
        let mut refused = 0;
        let mut took = Duration::ZERO;
        loop {
            let index = self.summary.iterations.len() as u64 + 1;
            if self.is_over() {
                break;
            }
            if self.spec.max_iterations > 0 && index > self.spec.max_iterations {
                break;
            }
            if self.time_left() <= took {
                self.summary.budget_exhausted = Some(true);
                break;
            }
            self.check_cancelled()?;
            let began = boot_time();
            let mut iteration = Iteration {
                id: format!("{}-iter-{index}", self.summary.run_id),
                index,
                started_at: self.timestamp(),
                ..Iteration::default()
            };
            self.log(&format!("iteration {index} begins"));
            let next = self.one(&mut iteration, began, &mut rescues, &mut looped);
            let next = match next {
                Ok(next) => next,
                Err(IterationFailure::Measure(why)) => {
                    failures += 1;
                    iteration.status = IterationStatus::RolledBackPreCommit;
                    iteration.error = Some(format!("the corpus could not be measured: {why}"));
                    if failures >= MEASURE_FAILURES {
                        self.summary.measure_failure_halt = Some(true);
                        NextIteration::End
                    } else {
                        NextIteration::On
                    }
                }
                Err(IterationFailure::NotCommitted(why)) => {
                    refused += 1;
                    iteration.status = IterationStatus::RolledBackPreCommit;
                    iteration.error = Some(why);
                    if refused >= MEASURE_FAILURES { NextIteration::End } else { NextIteration::On }
                }
                Err(IterationFailure::Stage(why)) => {
                    iteration.status = IterationStatus::Failed;
                    iteration.error = Some(why);
                    NextIteration::End
                }
                Err(IterationFailure::Job(error)) => return Err(error),
            };
            if iteration.error.is_none() {
                (failures, refused) = (0, 0);
            }
            took = boot_time().saturating_sub(began);
            iteration.finished_at = self.timestamp();
            iteration.duration = length(took);
            if let Some(error) = &iteration.error {
                let what = format!("iteration {index}: {error}");
                self.degrade(&what);
            }
            self.note(&iteration)?;
            self.summary.iterations.push(iteration);
            // The iteration is recorded, so its commit marker and its copy are no longer needed.
            commit::clear(self.ctx.files.root()).map_err(failed)?;
            super::staging::discard_all(self.ctx.files.root()).map_err(disk)?;
            if matches!(next, NextIteration::End) {
                break;
            }
        }
        self.summary.warn_only_remaining = Some(rescues.remaining);
        Ok(looped)
    }

    /// Returns whether the recorded iterations already end the loop, as they may in a resumed run.
    fn is_over(&self) -> bool {
        let ended = |iteration: &Iteration| {
            matches!(
                iteration.status,
                IterationStatus::HaltedOnRegressionPreCommit
                    | IterationStatus::Failed
                    | IterationStatus::Degraded
            )
        };
        let halted = self.summary.iterations.last().is_some_and(ended);
        halted || self.summary.plateau_reason.is_some()
    }

    fn note(&self, iteration: &Iteration) -> Result<(), JobError> {
        let name = format!("{}/iterations/iter-{}.json", self.summary.run_id, iteration.index);
        self.out.json(&name, iteration).map_err(disk)
    }
}

/// Why an iteration failed.
pub(super) enum IterationFailure {
    /// The iteration could not be measured.
    Measure(String),
    /// No part of the iteration was committed.
    NotCommitted(String),
    /// The iteration could not be staged.
    Stage(String),
    /// The run cannot continue.
    Job(JobError),
}

pub(super) fn measuring(error: impl std::error::Error) -> IterationFailure {
    IterationFailure::Measure(runner_engine::error_chain::whole(&error))
}

impl From<StageError> for IterationFailure {
    fn from(error: StageError) -> Self {
        Self::Stage(runner_engine::error_chain::whole(&error))
    }
}

impl From<CommitError> for IterationFailure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Before(why) => Self::NotCommitted(why),
            other => Self::Job(failed(other)),
        }
    }
}

impl From<IterationFailure> for JobError {
    fn from(trouble: IterationFailure) -> Self {
        match trouble {
            IterationFailure::Measure(why)
            | IterationFailure::NotCommitted(why)
            | IterationFailure::Stage(why) => Self::failed(Class::Environment, why),
            IterationFailure::Job(error) => error,
        }
    }
}
